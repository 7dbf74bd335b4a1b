"""Decides once, purely, how a run uses the machine: mode, devices, strategy, buffers, and the reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from myxtts.config.schema import XTTSConfig
from myxtts.config.values import format_gpu_numbers, parse_gpu_numbers
from myxtts.errors import HardwareError
from myxtts.runtime.cluster import Cluster
from myxtts.runtime.hardware import Gpu, Hardware

# Decides which devices carry the data and the model, from what was asked for and what there is.
#
# | asked for              | there is                          | placement                                          |
# |------------------------|-----------------------------------|----------------------------------------------------|
# | data_gpu and model_gpu | both exist and differ             | Multi-GPU mode; several model GPUs are mirrored    |
# | data_gpu and model_gpu | one is missing, or they are equal | Single-GPU buffered, with a warning                |
# | only one of the two    | it exists                         | Single-GPU buffered, on the named GPU              |
# | neither                | no GPU / one / several            | CPU / Single-GPU / the same, mirrored by multi_gpu |


class Mode(StrEnum):
    """How data reaches the model."""

    MULTI_GPU = "multi-gpu"
    SINGLE_GPU = "single-gpu"
    MIRRORED = "mirrored"
    CPU = "cpu"

    @property
    def label(self) -> str:
        return _LABELS[self]


_LABELS = {
    Mode.MULTI_GPU: "Multi-GPU mode",
    Mode.SINGLE_GPU: "Single-GPU buffered mode",
    Mode.MIRRORED: "Mirrored mode",
    Mode.CPU: "CPU mode",
}


@dataclass(slots=True)
class Placement:
    """Where data and model go, while the decision is being made."""

    mode: Mode
    model_gpus: tuple[int, ...]
    data_gpu: int | None = None
    reasons: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def place_run(config: XTTSConfig, hardware: Hardware) -> Placement:
    """The placement for this configuration on this machine; HardwareError when a GPU asked for cannot be had."""
    visible = _select_visible_gpus(config, hardware)
    placement = _place(config, visible, hardware)
    _warn_of_unequal_gpus(placement, visible)
    return placement


def _select_visible_gpus(config: XTTSConfig, hardware: Hardware) -> tuple[Gpu, ...]:
    if config.training.visible_gpus is None:
        return hardware.gpus
    by_index = {gpu.index: gpu for gpu in hardware.gpus}
    numbers = parse_gpu_numbers(config.training.visible_gpus)
    missing = [number for number in numbers if number not in by_index]
    if missing:
        raise HardwareError(
            f"visible_gpus is {config.training.visible_gpus!r}, but {_say_missing(missing)}: "
            f"{_say_existing(hardware.gpus, hardware)}.",
            next_step="Name GPUs that exist, or leave training.visible_gpus out.",
        )
    return tuple(by_index[number] for number in numbers)


def _place(config: XTTSConfig, visible: tuple[Gpu, ...], hardware: Hardware) -> Placement:
    data_gpu = config.data.data_gpu
    model_gpus = () if config.data.model_gpu is None else parse_gpu_numbers(config.data.model_gpu)
    if data_gpu is not None and model_gpus:
        return _place_both_named(config, data_gpu, model_gpus, visible, hardware)
    if data_gpu is not None or model_gpus:
        key = "data_gpu" if data_gpu is not None else "model_gpu"
        return _place_one_named(config, key, model_gpus if data_gpu is None else (data_gpu,), visible, hardware)
    return _place_unnamed(config, visible, hardware)


def _place_both_named(
    config: XTTSConfig, data_gpu: int, model_gpus: tuple[int, ...], visible: tuple[Gpu, ...], hardware: Hardware
) -> Placement:
    existing = [gpu.index for gpu in visible]
    asked = f"data_gpu {data_gpu} and model_gpu {format_gpu_numbers(model_gpus)} were asked for"
    missing = [number for number in dict.fromkeys((data_gpu, *model_gpus)) if number not in existing]
    if not missing and data_gpu not in model_gpus:
        placement = Placement(Mode.MULTI_GPU, model_gpus, data_gpu)
        placement.reasons.append(f"{asked}; all exist and differ, so GPU {data_gpu} makes features for the model.")
        if len(model_gpus) > 1:
            placement.reasons.append(f"The model is mirrored over GPUs {format_gpu_numbers(model_gpus)}.")
        if config.training.multi_gpu:
            placement.warnings.append("multi_gpu changes nothing here: model_gpu says where the model goes.")
        return placement
    why = _say_missing(missing) if missing else f"GPU {data_gpu} cannot be both"
    listing = _say_existing(visible, hardware)
    usable = [number for number in (*model_gpus, data_gpu) if number in existing] or existing
    placement = Placement(Mode.SINGLE_GPU, tuple(usable[:1])) if usable else Placement(Mode.CPU, ())
    target = f"GPU {usable[0]}" if usable else "the CPU"
    placement.warnings.append(f"{asked}, but {why}: {listing}. Falling back to {placement.mode.label} on {target}.")
    placement.reasons.append(f"Multi-GPU mode needs two different GPUs that exist, and {why}.")
    if not usable:
        placement.reasons.append(_say_no_gpu(hardware))
    return placement


def _place_one_named(
    config: XTTSConfig, key: str, named: tuple[int, ...], visible: tuple[Gpu, ...], hardware: Hardware
) -> Placement:
    missing = [number for number in named if number not in [gpu.index for gpu in visible]]
    if missing:
        raise HardwareError(
            f"{key} is {format_gpu_numbers(named)}, but {_say_missing(missing)}: {_say_existing(visible, hardware)}.",
            next_step=f"Set data.{key} to a GPU that exists, or leave it out.",
        )
    if len(named) > 1 and config.training.multi_gpu:
        placement = Placement(Mode.MIRRORED, named)
        placement.reasons.append(
            f"model_gpu names GPUs {format_gpu_numbers(named)} and multi_gpu mirrors the model over them."
        )
        return placement
    placement = Placement(Mode.SINGLE_GPU, named[:1])
    placement.reasons.append(f"Only {key} was given, so GPU {named[0]} trains and the CPU loads.")
    if len(named) > 1:
        placement.warnings.append(
            f"model_gpu names {len(named)} GPUs, but only GPU {named[0]} is used: "
            "set data.data_gpu to feed them, or training.multi_gpu to true to mirror over them."
        )
    elif config.training.multi_gpu:
        placement.warnings.append(f"multi_gpu is true, but {key} names one GPU, so only that one is used.")
    return placement


def _place_unnamed(config: XTTSConfig, visible: tuple[Gpu, ...], hardware: Hardware) -> Placement:
    if not visible:
        placement = Placement(Mode.CPU, ())
        placement.reasons.append(_say_no_gpu(hardware))
        if config.training.multi_gpu:
            placement.warnings.append("multi_gpu is true, but there is no GPU: training on the CPU.")
        return placement
    indices = tuple(gpu.index for gpu in visible)
    if config.training.multi_gpu and len(visible) > 1:
        placement = Placement(Mode.MIRRORED, indices)
        placement.reasons.append(
            f"multi_gpu is true, so the model is mirrored over GPUs {format_gpu_numbers(indices)}."
        )
        return placement
    placement = Placement(Mode.SINGLE_GPU, indices[:1])
    if len(visible) == 1:
        placement.reasons.append(f"GPU {indices[0]} is the only one, so it trains and the CPU loads.")
    else:
        placement.reasons.append(
            f"GPU {indices[0]} is the first of {len(indices)}, so it trains; multi_gpu: true would use them all."
        )
    if config.training.multi_gpu:
        placement.warnings.append(f"multi_gpu is true, but GPU {indices[0]} is the only one: nothing to mirror over.")
    return placement


def _warn_of_unequal_gpus(placement: Placement, visible: tuple[Gpu, ...]) -> None:
    mirrored = [gpu for gpu in visible if gpu.index in placement.model_gpus]
    if len({(gpu.name, _round_gib(gpu.memory_bytes)) for gpu in mirrored}) > 1:
        listing = ", ".join(_say_gpu(gpu) for gpu in mirrored)
        placement.warnings.append(f"The mirrored GPUs differ ({listing}): the slower one sets the pace of all.")


def _say_missing(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"GPU {numbers[0]} is not there"
    return f"GPUs {', '.join(str(number) for number in numbers)} are not there"


def _say_no_gpu(hardware: Hardware) -> str:
    return f"There is no GPU: {hardware.no_gpu_reason or 'none was found'}."


def _say_existing(gpus: tuple[Gpu, ...], hardware: Hardware) -> str:
    if not hardware.gpus:
        return f"there is no GPU ({hardware.no_gpu_reason or 'none was found'})"
    listing = ", ".join(_say_gpu(gpu) for gpu in gpus)
    hidden = len(hardware.gpus) - len(gpus)
    return f"there is {listing}" + (f" (visible_gpus leaves out {hidden} more)" if hidden else "")


def _say_gpu(gpu: Gpu) -> str:
    return f"GPU {gpu.index} {gpu.name} {_round_gib(gpu.memory_bytes)} GiB"


def _round_gib(num_bytes: int) -> int:
    return round(num_bytes / 2**30)


__all__ = ["Mode", "Plan", "StrategyKind", "choose_plan"]

CPU_DEVICE = "/CPU:0"
_LOADER_NICENESS = 5


StrategyKind = Literal["default", "one_device", "mirrored"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will do. Devices are named by `Gpu.index`, before any framework hides or renumbers GPUs.

    `prefetch_buffer_size` counts batches held on each of `prefetch_devices`; both are empty when prefetch is off.
    Loader threads stay off `num_reserved_cpus` processors, those of the threads that drive devices, and give way to
    others by `loader_niceness`.
    """

    mode: Mode
    data_device: str
    model_devices: tuple[str, ...]
    strategy: StrategyKind
    buffer_size: int
    prefetch_buffer_size: int
    prefetch_devices: tuple[str, ...]
    num_workers: int
    num_reserved_cpus: int
    loader_niceness: int
    model_start_delay_s: float
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    cluster: Cluster | None = None

    @property
    def num_replicas(self) -> int:
        """Devices that train, those of all processes of the cluster together."""
        return len(self.model_devices) * (self.cluster.num_workers if self.cluster else 1)

    def select_model_gpus(self, hardware: Hardware) -> list[Gpu]:
        """The GPUs that train; none where CPUs do."""
        return [gpu for gpu in hardware.gpus if _name_device(gpu.index) in self.model_devices]

    @property
    def shard(self) -> tuple[int, int]:
        """The slice of every batch that this process trains on: its number, and of how many."""
        return (self.cluster.worker, self.cluster.num_workers) if self.cluster else (0, 1)

    @property
    def prefetch_to_device(self) -> str | None:
        """The device that batches are copied to ahead of time: the first one when the model is mirrored."""
        return self.prefetch_devices[0] if self.prefetch_devices else None

    def describe(self) -> list[str]:
        """The lines printed at the start of a run."""
        prefetch = f"{_count(self.prefetch_buffer_size, 'batch', 'batches')} to {', '.join(self.prefetch_devices)}"
        delay = f", at the earliest after {self.model_start_delay_s:g} s" if self.model_start_delay_s else ", no delay"
        cluster = self.cluster
        return [
            f"Mode: {self.mode.label}",
            *([f"Cluster: worker {cluster.worker} of {cluster.num_workers} ({cluster.source})"] if cluster else []),
            f"Data device: {self.data_device}, {_count(self.num_workers, 'loader thread')}",
            f"Model device{'s' if len(self.model_devices) > 1 else ''}: {', '.join(self.model_devices)}",
            f"Buffer: {_count(self.buffer_size, 'batch', 'batches')} in memory",
            f"Prefetch: {prefetch if self.prefetch_devices else 'off'}",
            f"Model start: when the buffer is ready{delay}",
        ]


def choose_plan(config: XTTSConfig, hardware: Hardware) -> Plan:
    """The plan for this configuration on this machine; HardwareError when a GPU asked for cannot be had."""
    placement = place_run(config, hardware)
    model_devices = tuple(_name_device(index) for index in placement.model_gpus) or (CPU_DEVICE,)
    prefetch_devices, prefetch_buffer_size = _choose_prefetch(config, placement)
    num_workers = _choose_num_workers(config, hardware, placement)
    keeps_apart = config.data.optimize_cpu_gpu_overlap and bool(placement.model_gpus)
    model_start_delay_s = _choose_start_delay(config, placement)
    placement.reasons.append(f"buffer_size is {config.data.buffer_size}.")
    return Plan(
        mode=placement.mode,
        data_device=CPU_DEVICE if placement.data_gpu is None else _name_device(placement.data_gpu),
        model_devices=model_devices,
        strategy=_choose_strategy(placement),
        buffer_size=config.data.buffer_size,
        prefetch_buffer_size=prefetch_buffer_size,
        prefetch_devices=prefetch_devices,
        num_workers=num_workers,
        num_reserved_cpus=_count_drivers(placement) if keeps_apart else 0,
        loader_niceness=_LOADER_NICENESS if config.data.optimize_cpu_gpu_overlap else 0,
        model_start_delay_s=model_start_delay_s,
        reasons=tuple(placement.reasons),
        warnings=tuple(placement.warnings),
        cluster=hardware.cluster,
    )


def _choose_strategy(placement: Placement) -> StrategyKind:
    if not placement.model_gpus:
        return "default"
    return "one_device" if len(placement.model_gpus) == 1 else "mirrored"


def _choose_prefetch(config: XTTSConfig, placement: Placement) -> tuple[tuple[str, ...], int]:
    if not placement.model_gpus:
        placement.reasons.append("Nothing is prefetched to a device: the model runs where the data is.")
        return (), 0
    if not config.data.prefetch_to_gpu:
        placement.reasons.append("Nothing is prefetched to a device: prefetch_to_gpu is off.")
        return (), 0
    devices = tuple(_name_device(index) for index in placement.model_gpus)
    if not config.data.enhanced_gpu_prefetch:
        placement.reasons.append("One batch is prefetched to the device: enhanced_gpu_prefetch is off.")
        return devices, 1
    num_batches = config.data.prefetch_buffer_size
    placement.reasons.append(f"prefetch_buffer_size is {num_batches}, so as many batches wait on the device.")
    return devices, num_batches


def _choose_num_workers(config: XTTSConfig, hardware: Hardware, placement: Placement) -> int:
    """Loader threads. With optimize_cpu_gpu_overlap each thread that drives devices keeps a core to itself."""
    asked = config.data.num_workers
    most = (
        max(1, hardware.num_cpus - _count_drivers(placement))
        if config.data.optimize_cpu_gpu_overlap
        else hardware.num_cpus
    )
    if asked == "auto":
        placement.reasons.append(
            f"{_count(hardware.num_cpus, 'CPU')} may be used, which makes {_count(most, 'loader thread')}."
        )
        return most
    if config.data.optimize_cpu_gpu_overlap and asked > most:
        placement.warnings.append(
            f"num_workers is {asked}, but {_count(hardware.num_cpus, 'CPU')} may be used: {most} will load. "
            "Set data.optimize_cpu_gpu_overlap to false to keep your number."
        )
        return most
    placement.reasons.append(f"num_workers is {asked}.")
    return asked


def _count_drivers(placement: Placement) -> int:
    """Threads that drive devices: one for the model, one more for a data GPU."""
    return 2 if placement.mode is Mode.MULTI_GPU else 1


def _choose_start_delay(config: XTTSConfig, placement: Placement) -> float:
    if placement.mode is not Mode.MULTI_GPU:
        placement.reasons.append("The model does not wait for model_start_delay: no data GPU has to get ahead of it.")
        return 0.0
    delay_s = config.data.model_start_delay
    placement.reasons.append(f"model_start_delay is {delay_s:g} s, so that the data GPU gets ahead of the model.")
    return delay_s


def _name_device(index: int) -> str:
    return f"/GPU:{index}"


def _count(number: int, singular: str, plural: str = "") -> str:
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


# Names of devices such as `/GPU:1`, and what TensorFlow calls them when GPUs are hidden from it. No TensorFlow.


def translate_devices(names: Sequence[str], visible: Sequence[str]) -> tuple[str, ...]:
    """TensorFlow's names of these devices when it sees only the GPUs of `visible`, in whatever order they are given.

    TensorFlow counts the visible GPUs from zero in the order of their numbers. CPUs cannot be hidden.
    """
    numbers = sorted({split_name(name)[1] for name in visible if not is_cpu(name)})
    return tuple(name if is_cpu(name) else f"/GPU:{numbers.index(split_name(name)[1])}" for name in names)


def is_cpu(name: str) -> bool:
    return split_name(name)[0] == "CPU"


def split_name(name: str) -> tuple[str, int]:
    """Type and number of a device."""
    device_type, _, number = name.removeprefix("/").partition(":")
    return device_type, int(number)
