"""`open_batches`: opens the feed that training uses, for tools, notebooks and other models as well.

with open_batches(config, split="train", epochs=1) as batches:
    for batch in batches:
        ...
    batches.stats()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from myxtts.config.schema import XTTSConfig
from myxtts.config.section import find_nearest
from myxtts.errors import UsageError
from myxtts.features.definition import MelDefinition
from myxtts.pipeline.batch import BatchLayout, hand_over_arrays, make_device_transfer
from myxtts.pipeline.choose_loader import LoaderSetup, choose_loader
from myxtts.pipeline.feed import Feed, WarmUp
from myxtts.pipeline.load_ahead import ThreadPriority
from myxtts.pipeline.split_advice import TYPICAL_GRADIENT_BYTES, advise_on_split
from myxtts.pipeline.splits import BatchRange, OpenSplit, choose_range, count_reference_frames, open_split
from myxtts.pipeline.stages import Stage
from myxtts.pipeline.telemetry import FeedStats, Telemetry
from myxtts.pipeline.tune import BufferSizes, FeedSettings, Tuner, fit_buffers, fit_on_device, measure_ram_budget
from myxtts.runtime.hardware import Hardware, detect_hardware
from myxtts.runtime.plan import Mode, Plan, choose_plan, find_gpus
from myxtts.store.provide import Report, ensure_features
from myxtts.types import Say, Split

_MEASURED_STEPS = 50
"""Steps after which the data GPU is compared with data-parallel training."""
_NUM_READY_ON_HOST = 4
"""Handing over within the host costs next to nothing; several ahead, so that the consumer never waits for it."""
_STEPS_PER_COPY = 2
"""A copy to a GPU waits for all that the GPU was given before it: while training runs ahead, up to so many steps."""
_SPLITS: dict[str, Split] = {"train": "train", "val": "val", "test": "test"}
_OTHER_NAMES: dict[str, Split] = {"training": "train", "valid": "val", "validation": "val", "dev": "val"}
"""What other libraries call the splits."""
_FRAMEWORKS = ("tensorflow", "numpy")


def open_batches(
    config: XTTSConfig,
    *,
    split: Split | str = "train",
    epochs: int | None = None,
    steps: int | None = None,
    start: int = 0,
    framework: Literal["tensorflow", "numpy"] = "tensorflow",
    hardware: Hardware | None = None,
    plan: Plan | None = None,
    opened: OpenSplit | None = None,
    gradient_bytes: int = TYPICAL_GRADIENT_BYTES,
    loader_name: str = "",
    telemetry_file: Path | None = None,
    say: Say = lambda _line: None,
) -> Feed:
    """Opens the batches of a split, from the feature cache or computed on the fly, on the device of the plan.

    `split` is train, val or test. If there is no feature cache, it is made first.

    It ends after `epochs` or `steps`, whichever comes first; without either it does not end. `start` is the position
    to begin at: the number of batches that were seen before. Plan and split are chosen and opened here unless they are
    given; `opened` must come from `open_split` with the same configuration and plan. `gradient_bytes` is the size of
    the model's gradients, which decides whether a data GPU pays. `loader_name` is that of the feed before
    (`Feed.loader_name`) when a run is resumed: it then loads in the same way, to the bit. Lines of `telemetry_file`
    about batches from `start` on are dropped, for they are loaded again.
    """
    split = _check_split(split)
    if framework not in _FRAMEWORKS:
        raise UsageError(
            f"framework is {framework!r}, but batches come as tensorflow tensors or as numpy arrays.",
            next_step='Use framework="numpy" for other frameworks, e.g. torch.from_numpy(batch.mel).',
        )
    config = ensure_features(config, Report(say))
    machine = hardware or detect_hardware()
    plan = plan or choose_plan(config, machine)
    ram_bytes = measure_ram_budget(machine.available_ram_bytes, config.data.ram_budget_gb)
    opened = opened or open_split(config, split, plan)
    batches = choose_range(opened.order, plan, start=start, epochs=epochs, steps=steps)
    # Only training can do without alignment; validation scores the model's own.
    has_durations = split == "train" and config.training.durations == "stored"
    setup = choose_loader(
        opened.utterances, batches, config, plan, ram_bytes, loader_name, say, has_durations=has_durations
    )
    return make_feed(
        config,
        plan,
        machine,
        batches,
        setup,
        framework=framework,
        gradient_bytes=gradient_bytes,
        telemetry_file=telemetry_file,
        say=say,
    )


def make_feed(
    config: XTTSConfig,
    plan: Plan,
    machine: Hardware,
    batches: BatchRange,
    setup: LoaderSetup,
    *,
    framework: str = "tensorflow",
    gradient_bytes: int = TYPICAL_GRADIENT_BYTES,
    telemetry_file: Path | None = None,
    say: Say,
) -> Feed:
    """The feed of a loader: buffers that fit into memory, stages to the devices of the plan, tuning and telemetry."""
    ram_bytes = measure_ram_budget(machine.available_ram_bytes, config.data.ram_budget_gb)
    free_vram_bytes = _find_free_vram(plan.model_devices, machine)
    # As many batches are under way as the steps take that a copy waits for, and one more.
    num_copies = 1 if plan.mode is Mode.CPU else _STEPS_PER_COPY * config.training.gradient_accumulation_steps + 1
    sizes = fit_buffers(
        plan.buffer_size, plan.prefetch_buffer_size, setup.layout.num_bytes, ram_bytes, free_vram_bytes, num_copies
    )
    warnings = (f"Warning: {warning}" for warning in plan.warnings)
    for line in (*plan.describe(), *warnings, *setup.messages, *sizes.messages):
        say(line)
    is_multi_gpu = plan.mode is Mode.MULTI_GPU
    if is_multi_gpu:
        stages = _make_data_device_stages(config, plan, machine, sizes, batches, setup)
    else:
        stages = (_make_transfer_stage(plan, sizes, framework, setup.layout.num_bytes),)
    # With a data device finished batches wait behind it, and the host only has to keep it busy.
    buffer_size = min(sizes.in_memory, 2 * plan.num_workers + 2) if is_multi_gpu else sizes.in_memory
    return Feed(
        batches,
        setup.loader,
        setup.layout,
        stages,
        num_workers=plan.num_workers,
        buffer_size=buffer_size,
        telemetry=Telemetry(telemetry_file, say=say, start=batches.start, is_copied=plan.mode is not Mode.CPU),
        warm_up=WarmUp(max(1, stages[0].num_ready // 2), plan.model_start_delay_s) if is_multi_gpu else None,
        tuner=_make_tuner(config, plan, buffer_size, machine),
        priority=ThreadPriority(plan.loader_niceness, plan.num_reserved_cpus),
        say=say,
        advice=_make_advice(plan, gradient_bytes) if is_multi_gpu else None,
    )


def _check_split(name: str) -> Split:
    """The split of this name, or of one that other libraries use; UsageError with the nearest for any other."""
    known = {**_SPLITS, **_OTHER_NAMES}
    if name in known:
        return known[name]
    nearest = find_nearest(str(name), known)
    raise UsageError(
        f"There is no split {name!r}.{f' Did you mean {known[nearest]!r}?' if nearest else ''}",
        next_step=f"Give one of {', '.join(map(repr, _SPLITS))}.",
    )


def _make_transfer_stage(plan: Plan, sizes: BufferSizes, framework: str, batch_bytes: int) -> Stage:
    """Hands loaded batches on as arrays, or copies them to the devices that train, several at a time."""
    if framework == "numpy":
        return Stage("transfer", hand_over_arrays, _NUM_READY_ON_HOST)
    if plan.mode is Mode.CPU:
        return Stage("transfer", make_device_transfer(plan.model_devices, batch_bytes), _NUM_READY_ON_HOST)
    from myxtts.runtime.strategy import translate_plan

    copy = make_device_transfer(translate_plan(plan).model_devices, batch_bytes, sizes.num_copies)
    return Stage("transfer", copy, sizes.on_device, sizes.num_copies)


def _make_data_device_stages(
    config: XTTSConfig, plan: Plan, machine: Hardware, sizes: BufferSizes, batches: BatchRange, setup: LoaderSetup
) -> tuple[Stage, ...]:
    """Features on the data device in a thread of their own, then copies to the model's devices in others."""
    from myxtts.pipeline.data_device import DataDeviceFeatures, cross_to
    from myxtts.runtime.strategy import translate_plan

    data, num_reference_frames = config.data, count_reference_frames(config.data)
    free_bytes = _find_free_vram((plan.data_device,), machine)
    plan = translate_plan(plan)
    definition = MelDefinition.from_config(data)
    num_shares = len(plan.model_devices)
    features = DataDeviceFeatures(plan.data_device, definition, data.mel_dtype, num_reference_frames, num_shares)
    features.warm(batches.shapes, setup.layout)
    batch_bytes = BatchLayout.of_features(batches.shapes, data.n_mels, num_reference_frames).num_bytes
    # Batches that are being copied have their memory here too, and where several devices share one, until all let go.
    num_crossing = sizes.num_copies + (sizes.on_device if num_shares > 1 else 0)
    return (
        Stage("features", features, fit_on_device(sizes.in_memory, batch_bytes, free_bytes, num_crossing)),
        Stage("transfer", cross_to(plan.model_devices), sizes.on_device, sizes.num_copies),
    )


def _make_advice(plan: Plan, gradient_bytes: int) -> tuple[int, Callable[[FeedStats], str]]:
    """After how many steps to compare with data-parallel training, and how."""
    num_gpus, num_workers = len(plan.model_devices), plan.num_workers
    return _MEASURED_STEPS, lambda stats: advise_on_split(stats, num_gpus, num_workers, gradient_bytes)


def _make_tuner(config: XTTSConfig, plan: Plan, buffer_size: int, machine: Hardware) -> Tuner | None:
    if not config.data.auto_tune_performance:
        return None
    # Never deeper than asked for: page faults of fresh buffers cost more than the bursts of a start that they absorb.
    most = FeedSettings(max(plan.num_workers, machine.num_cpus), buffer_size)
    return Tuner(FeedSettings(plan.num_workers, buffer_size), most)


def _find_free_vram(devices: Sequence[str], machine: Hardware) -> int | None:
    return min((gpu.free_memory_bytes for gpu in find_gpus(devices, machine)), default=None)
