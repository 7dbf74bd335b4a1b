"""Decides once, purely, how a run uses the machine: mode, devices, strategy, buffers, and the reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from myxtts.config.schema import XTTSConfig
from myxtts.runtime.cluster import Cluster
from myxtts.runtime.hardware import Hardware
from myxtts.runtime.placement import Mode, Placement, place_run

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
