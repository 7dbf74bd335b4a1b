"""`open_batches`: the feed that training uses, for tools, notebooks and one's own models as well.

with open_batches(config, split="train", epochs=1) as batches:
    for batch in batches:
        ...
    batches.stats()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from myxtts.config.schema import XTTSConfig
from myxtts.features.definition import MelDefinition
from myxtts.pipeline.batch import measure_buffer_bytes
from myxtts.pipeline.choose_loader import BatchRange, LoaderSetup, choose_side, choose_stretch, open_utterances
from myxtts.pipeline.device import hand_over_arrays, make_device_transfer
from myxtts.pipeline.feed import Feed, WarmUp
from myxtts.pipeline.split_advice import MeasuredTimes, compare_split, estimate_exchange_s
from myxtts.pipeline.splits import count_reference_frames
from myxtts.pipeline.stages import Stage
from myxtts.pipeline.telemetry import FeedStats, Telemetry
from myxtts.pipeline.tune import (
    BufferSizes,
    FeedSettings,
    Limits,
    Tuner,
    fit_buffers,
    fit_on_device,
    measure_ram_budget,
)
from myxtts.pipeline.workers import ThreadPriority
from myxtts.runtime.hardware import Hardware, detect_hardware
from myxtts.runtime.plan import Mode, Plan, choose_plan
from myxtts.store.provide import Report, ensure_features
from myxtts.types import Say, Split

_MEASURED_STEPS = 50
_NUM_READY_ON_HOST = 4
"""Handing over within the host costs next to nothing. It is done well ahead, so that nobody waits for its thread."""
_TYPICAL_GRADIENT_BYTES = 80_000_000
"""Of a model of the size `small`, where the caller does not say how large its own is."""


def open_batches(
    config: XTTSConfig,
    *,
    split: Split = "train",
    epochs: int | None = None,
    steps: int | None = None,
    start: int = 0,
    framework: Literal["tensorflow", "numpy"] = "tensorflow",
    hardware: Hardware | None = None,
    plan: Plan | None = None,
    gradient_bytes: int = _TYPICAL_GRADIENT_BYTES,
    loader_name: str = "",
    telemetry_file: Path | None = None,
    say: Say = lambda _line: None,
) -> Feed:
    """Batches of a split, from the feature store or made on the fly, on the device that the plan names.

    Where the store is missing its features are made first.

    It ends after `epochs` or `steps`, whichever comes first; without either it goes on for ever. `start` is the
    position to begin at: the number of batches that were seen before. The plan is chosen here unless it is given.
    `gradient_bytes` is the size of the model's gradients, which decides whether a data GPU pays. `loader_name` is that
    of the feed before (`Feed.loader_name`) when a run goes on: it then loads in the same way, to the bit. What
    `telemetry_file` says of batches from `start` on is dropped, for they are loaded again.
    """
    config = ensure_features(config, Report(say))
    machine = hardware or detect_hardware()
    plan = plan or choose_plan(config, machine)
    ram_bytes = measure_ram_budget(machine.available_ram_bytes, config.data.ram_budget_gb)
    utterances = open_utterances(config, split)
    stretch = choose_stretch(utterances, split, config, plan, start=start, epochs=epochs, steps=steps)
    # Only training can do without a search; what is validated is judged by the model's own alignment.
    has_durations = split == "train" and config.training.durations == "stored"
    side = choose_side(utterances, stretch, config, plan, ram_bytes, loader_name, say, has_durations=has_durations)
    sizes = fit_buffers(
        plan.buffer_size,
        plan.prefetch_buffer_size,
        side.room.num_bytes,
        machine.available_ram_bytes,
        config.data.ram_budget_gb,
        _find_free_vram(plan.model_devices, machine),
    )
    for line in (*plan.describe(), *plan.warnings, *side.messages, *sizes.messages):
        say(line)
    stages = _make_stages(config, plan, sizes, stretch, side, framework, _find_free_vram((plan.data_device,), machine))
    is_split = plan.mode is Mode.MULTI_GPU
    # With a data device finished batches wait behind it, and the host only has to keep it busy.
    buffer_size = min(sizes.in_memory, 2 * plan.num_workers + 2) if is_split else sizes.in_memory
    return Feed(
        stretch.plan_of,
        side.loader,
        stages,
        side.room,
        start=stretch.start,
        stop=stretch.stop,
        num_workers=plan.num_workers,
        buffer_size=buffer_size,
        telemetry=Telemetry(telemetry_file, say=say, start=stretch.start),
        warm_up=WarmUp(max(1, stages[0].num_ready // 2), plan.model_start_delay_s) if is_split else None,
        tuner=_make_tuner(config, plan, buffer_size, machine),
        manners=ThreadPriority(plan.loader_niceness, plan.num_reserved_cpus),
        say=say,
        advice=_plan_advice(plan, gradient_bytes),
    )


def _make_stages(
    config: XTTSConfig,
    plan: Plan,
    sizes: BufferSizes,
    stretch: BatchRange,
    side: LoaderSetup,
    framework: str,
    free_data_bytes: int | None,
) -> tuple[Stage, ...]:
    """What happens to a loaded batch: it is handed on as arrays, or goes to the devices that train."""
    if framework == "numpy" and plan.mode is not Mode.MULTI_GPU:
        return (Stage("transfer", hand_over_arrays, _NUM_READY_ON_HOST),)
    from myxtts.runtime.strategy import translate_plan

    plan = translate_plan(plan)
    if plan.mode is Mode.MULTI_GPU:
        return _make_data_device_stages(config, plan, sizes, stretch, side, free_data_bytes)
    num_ready = _NUM_READY_ON_HOST if plan.mode is Mode.CPU else sizes.on_device
    return (Stage("transfer", make_device_transfer(plan.model_devices), num_ready),)


def _make_data_device_stages(
    config: XTTSConfig,
    plan: Plan,
    sizes: BufferSizes,
    stretch: BatchRange,
    side: LoaderSetup,
    free_data_bytes: int | None,
) -> tuple[Stage, ...]:
    """Features on the data device in a thread of their own, then the copy to the model's devices in another."""
    from myxtts.pipeline.data_device import DataDeviceFeatures, cross_to

    data = config.data
    features = DataDeviceFeatures(
        plan.data_device, MelDefinition.from_config(data), data.mel_dtype, count_reference_frames(data)
    )
    features.warm([shape.share(stretch.shard[1]) for shape in stretch.order.shapes], side.room)
    batch_bytes = measure_buffer_bytes(stretch.order.shapes, data.n_mels, count_reference_frames(data))
    return (
        Stage("features", features, fit_on_device(sizes.in_memory, batch_bytes, free_data_bytes)),
        Stage("transfer", cross_to(plan.model_devices), sizes.on_device),
    )


def _plan_advice(plan: Plan, gradient_bytes: int) -> tuple[int, Callable[[FeedStats], str]] | None:
    """What is said after the first measured steps: whether the data GPU pays."""
    if plan.mode is not Mode.MULTI_GPU:
        return None
    return _MEASURED_STEPS, partial(_compare_with_data_parallel, plan, gradient_bytes)


def _compare_with_data_parallel(plan: Plan, gradient_bytes: int, stats: FeedStats) -> str:
    num_gpus = len(plan.model_devices)
    times = MeasuredTimes(
        stats.mean_step_s, stats.mean_stage_s.get("features", 0.0), stats.mean_load_s / max(1, plan.num_workers)
    )
    exchange_s = estimate_exchange_s(gradient_bytes, num_gpus + 1)
    return " ".join(compare_split(times, num_gpus, exchange_s, estimate_exchange_s(gradient_bytes, num_gpus)).sentences)


def _make_tuner(config: XTTSConfig, plan: Plan, buffer_size: int, machine: Hardware) -> Tuner | None:
    if not config.data.auto_tune_performance:
        return None
    # Never deeper than asked for: fresh buffers cost more page faults than the bursts of a start that they absorb.
    limits = Limits(max(plan.num_workers, machine.num_cpus), buffer_size)
    return Tuner(FeedSettings(plan.num_workers, buffer_size), limits)


def _find_free_vram(devices: Sequence[str], machine: Hardware) -> int | None:
    used = [gpu for gpu in machine.gpus if f"/GPU:{gpu.index}" in devices]
    return min((gpu.free_memory_bytes for gpu in used), default=None)
