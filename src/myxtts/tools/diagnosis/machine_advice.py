"""Settings for the user's GPU and memory, and whether a data GPU pays: from what is there and what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from myxtts.config.presets import read_preset
from myxtts.config.schema import XTTSConfig
from myxtts.pipeline.buckets import Shape
from myxtts.pipeline.budget import measure_ram_budget
from myxtts.pipeline.split_advice import MeasuredTimes, SplitAdvice, compare_split, estimate_exchange_s
from myxtts.runtime.hardware import Hardware
from myxtts.runtime.plan import choose_plan
from myxtts.tools.diagnosis.evidence import Evidence
from myxtts.training.batch_size import estimate_model_bytes, estimate_row_bytes, list_candidates

_CARDS = {"4090": "rtx4090", "3090": "rtx3090", "3060": "rtx3060"}
_TYPICAL_GRADIENT_BYTES = 80_000_000
_LARGEST_BUFFER, _SMALLEST_BUFFER = 50, 4
_SHARE_OF_VRAM, _LARGEST_BATCH = 0.7, 256


@dataclass(frozen=True, slots=True)
class MachineSetting:
    """A setting that suits the machine; `reason` names a sentence, `facts` are its numbers."""

    setting: str
    value: Any
    reason: str
    facts: dict[str, float | str]


def advise_machine(
    config: XTTSConfig, hardware: Hardware, batch_bytes: int, longest: Shape | None = None
) -> tuple[MachineSetting, ...]:
    """Batch, workers and buffer for what is there; the card's preset where the card is known."""
    card = find_card(hardware)
    if card is not None:
        values = read_preset("gpu_card", card)
        name = hardware.gpus[0].name
        return tuple(MachineSetting(key, value, "for_card", {"card": name}) for key, value in values.items())
    workers = choose_plan(config.model_copy(update={"data.num_workers": "auto"}), hardware).num_workers
    budget_bytes = measure_ram_budget(hardware.available_ram_bytes, config.data.ram_budget_gb)
    buffer_size = max(_SMALLEST_BUFFER, min(_LARGEST_BUFFER, budget_bytes // max(1, batch_bytes)))
    settings = [
        MachineSetting("data.num_workers", workers, "for_cores", {"cores": float(hardware.num_cpus)}),
        MachineSetting("data.buffer_size", int(buffer_size), "for_memory", {"gb": budget_bytes / 2**30}),
    ]
    if hardware.gpus and longest is not None:
        free_bytes = min(gpu.free_memory_bytes for gpu in hardware.gpus)
        facts: dict[str, float | str] = {"card": hardware.gpus[0].name, "gb": free_bytes / 2**30}
        settings.insert(
            0, MachineSetting("data.batch_size", _fit_batch(config, free_bytes, longest), "for_vram", facts)
        )
    return tuple(settings)


def _fit_batch(config: XTTSConfig, free_bytes: int, longest: Shape) -> int:
    """As `batch_size: auto` finds it: the largest batch of the longest utterances that leaves some room."""
    row_bytes = estimate_row_bytes(config, longest)
    num_rows = int(_SHARE_OF_VRAM * free_bytes - estimate_model_bytes(config.model)) // row_bytes
    return list_candidates(max(1, min(_LARGEST_BATCH, num_rows)))[-1]


def find_card(hardware: Hardware) -> str | None:
    """The preset of the first GPU, where there is one for it."""
    name = hardware.gpus[0].name if hardware.gpus else ""
    return next((preset for part, preset in _CARDS.items() if part in name), None)


def compare_two_ways(evidence: Evidence, num_gpus: int, gradient_bytes: int = 0) -> SplitAdvice | None:
    """Data GPU and model GPUs against data-parallel training on the same cards; None where nothing was measured."""
    features = evidence.find_stage("features")
    if evidence.step_s <= 0:
        return None
    num_model_gpus = max(1, num_gpus - 1)
    size = gradient_bytes or _TYPICAL_GRADIENT_BYTES
    before = [stage.seconds for stage in evidence.stages if stage.name in ("read", "decode", "batch")]
    times = MeasuredTimes(evidence.step_s, features.seconds if features else 0.0, max(before, default=0.0))
    return compare_split(
        times,
        num_model_gpus,
        estimate_exchange_s(size, num_model_gpus + 1),
        estimate_exchange_s(size, num_model_gpus) if num_model_gpus > 1 else 0.0,
    )
