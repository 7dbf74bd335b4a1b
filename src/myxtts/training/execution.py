"""Chooses how a training step runs: eager, graph or XLA; float32 or bfloat16; and micro-batches that fit the memory.

Pure functions of settings and device, with reasons for the user. What fitted into a device's memory is kept in a file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from myxtts.config.model import ModelConfig
from myxtts.config.schema import TrainingConfig
from myxtts.errors import HardwareError, StorageError
from myxtts.runtime.hardware import Hardware
from myxtts.runtime.plan import Plan
from myxtts.storage.atomic import write_atomically
from myxtts.storage.json_file import JsonRefusedError, is_whole_number, parse_json_object
from myxtts.types import Say

STEPS_PER_COMPILED_SHAPE = 75
"""On two CPU cores a compiled step of `tiny` saves 0.3 to 0.5 s, and a shape takes 15 s longer to compile than to trace
on a quiet machine, much longer on a busy one: so many steps pay for a shape in any case."""
BFLOAT16_CAPABILITY = (8, 0)
"""The CUDA compute capability from which on GPUs compute in bfloat16."""
LANES_ON_CPU = 2
"""XLA leaves much of a step to one core, so two halves of a batch side by side are faster than the whole. Not as many
as there are cores: the numbers a run is made of must not depend on the machine that it is resumed on."""
_ORDINARY, _MIXED = "float32", "mixed_bfloat16"


@dataclass(frozen=True)
class Device:
    """What of a device matters here. `capability` is that of CUDA, None for a CPU or an unknown GPU."""

    kind: str
    capability: tuple[int, int] | None = None

    @property
    def is_cpu(self) -> bool:
        return self.kind == "CPU"

    @property
    def has_bfloat16(self) -> bool:
        return self.kind == "TPU" or (self.capability is not None and self.capability >= BFLOAT16_CAPABILITY)


@dataclass(frozen=True)
class Execution:
    """`policy` is the Keras dtype policy the model is made under."""

    is_graph: bool
    is_compiled: bool
    policy: str
    reasons: tuple[str, ...]
    num_lanes: int = 1
    """Pieces of a batch that are computed at the same time."""


def choose_execution(
    training: TrainingConfig, device: Device, *, total_steps: int | None, num_shapes: int
) -> Execution:
    """The same for every session of a run: the number of all steps counts, not of those that are left."""
    is_graph = training.enable_graph_mode and not training.enable_eager_debug
    is_compiled, why = _choose_compiling(training, device, total_steps, num_shapes, is_graph)
    policy, in_numbers = _choose_policy(training, device)
    num_lanes = LANES_ON_CPU if is_compiled and device.is_cpu else 1
    return Execution(is_graph, is_compiled, policy, (why, in_numbers), num_lanes)


def _choose_compiling(
    training: TrainingConfig, device: Device, total_steps: int | None, num_shapes: int, is_graph: bool
) -> tuple[bool, str]:
    if not is_graph:
        key = "enable_eager_debug is true" if training.enable_eager_debug else "enable_graph_mode is false"
        return False, f"Step: eager, operation by operation, because {key}. This is slow."
    asked = training.enable_xla_compilation
    if asked != "auto":
        return asked, f"Step: {'compiled with XLA' if asked else 'graph mode without XLA'}, as asked."
    if not device.is_cpu:
        return True, "Step: compiled with XLA, which pays on GPUs (enable_xla_compilation is auto)."
    least = STEPS_PER_COMPILED_SHAPE * num_shapes
    pays = total_steps is None or total_steps >= least
    verdict = "pays for compiling" if pays else f"does not pay for compiling, one of {least:,} steps would"
    length = _describe_length(training, total_steps)
    return pays, (
        f"Step: {'compiled with XLA' if pays else 'graph mode without XLA'}. {length} on a CPU with {num_shapes} batch "
        f"{'shape' if num_shapes == 1 else 'shapes'} {verdict} (enable_xla_compilation is auto)."
    )


def _describe_length(training: TrainingConfig, total_steps: int | None) -> str:
    if training.minutes is not None and training.steps is None and training.epochs is None:
        return f"A run of {training.minutes:g} minutes"
    return "A run without an end" if total_steps is None else f"A run of {total_steps:,} steps"


def _choose_policy(training: TrainingConfig, device: Device) -> tuple[str, str]:
    if training.mixed_precision == "auto":
        if device.has_bfloat16:
            return _MIXED, "Numbers: bfloat16 where precision allows, which this device has (mixed_precision is auto)."
        reason = "a CPU gains nothing from 16 bits" if device.is_cpu else "this GPU has no bfloat16"
        return _ORDINARY, f"Numbers: float32, because {reason} (mixed_precision is auto)."
    if training.mixed_precision:
        slow = "" if device.has_bfloat16 else " This device has no bfloat16, so it will be slow."
        return _MIXED, f"Numbers: bfloat16 where precision allows, as asked.{slow}"
    return _ORDINARY, "Numbers: float32, as asked."


_MAX_FILE_BYTES = 1_000_000


@dataclass(frozen=True)
class MicroBatches:
    """How the rows of one optimiser step are cut: `accumulation` micro-batches of `batch_size` rows each."""

    batch_size: int
    accumulation: int

    def __post_init__(self) -> None:
        assert self.batch_size >= 1, f"a micro-batch of {self.batch_size} rows"
        assert self.accumulation >= 1, f"{self.accumulation} micro-batches"

    @property
    def num_rows(self) -> int:
        """Rows that a batch must be filled up to; a fill counts for nothing in the step."""
        return self.batch_size * self.accumulation

    def halve(self, device: str = "the device") -> MicroBatches:
        """Half the rows, twice the micro-batches: the same step with less memory. HardwareError when one row is left.

        Where the rows are odd the halves are rounded up.
        """
        if self.batch_size == 1:
            raise HardwareError(
                f"The memory of {device} does not suffice for a micro-batch of a single utterance.",
                next_step="Choose a smaller model (--model-size), set data.max_mel_frames lower, or free the device.",
            )
        return MicroBatches(-(-self.batch_size // 2), self.accumulation * 2)


def name_situation(device: str, model: str, asked: MicroBatches) -> str:
    """The key under which is remembered what fits: another device, model or wish must be tried anew."""
    return f"{device} | {model} | {asked.batch_size} x {asked.accumulation}"


def name_device(plan: Plan, hardware: Hardware) -> str:
    """Number and name of the GPUs that train, or the number of CPUs."""
    names = [gpu.name for gpu in plan.select_model_gpus(hardware)]
    return f"{len(plan.model_devices)} x {names[0]}" if names else f"{hardware.num_cpus} CPUs"


def name_model(model: ModelConfig) -> str:
    return " ".join(f"{name}={value}" for name, value in model.model_dump().items())


class MicroBatchMemory:
    """A small JSON file of what was found to fit. A damaged one is as good as none."""

    def __init__(self, path: Path, say: Say) -> None:
        self._path, self._say = path, say

    def recall(self, situation: str) -> MicroBatches | None:
        entry = self._read().get(situation)
        if not isinstance(entry, dict) or set(entry) != {"batch_size", "accumulation"}:
            return None
        batch_size, accumulation = entry["batch_size"], entry["accumulation"]
        if not (is_whole_number(batch_size) and is_whole_number(accumulation) and batch_size and accumulation):
            return None
        return MicroBatches(batch_size, accumulation)

    def choose(self, situation: str, asked: MicroBatches) -> MicroBatches:
        """What was found to fit in this situation before, else what is asked for."""
        found = self.recall(situation)
        if found is None or found == asked or found.accumulation % asked.accumulation:
            return asked
        self._say(f"Each step is made of {found.accumulation} micro-batches, as was found to fit before.")
        return found

    def remember(self, situation: str, found: MicroBatches) -> None:
        """Notes what fits; a disk that refuses becomes a warning."""
        content = self._read() | {situation: asdict(found)}
        try:
            with write_atomically(self._path) as file:
                file.write(json.dumps(content, indent=1).encode())
        except StorageError as error:
            self._say(f"{error} The micro-batch of {found.batch_size} will have to be found again next time.")

    def _read(self) -> dict[str, Any]:
        try:
            return parse_json_object(self._path.read_bytes()[:_MAX_FILE_BYTES])
        except (OSError, JsonRefusedError):
            return {}
