"""Device placement plan: mode, devices, distribution strategy, buffers and loader threads, with reasons. Pure.

| asked for              | there is                          | plan                                               |
|------------------------|-----------------------------------|----------------------------------------------------|
| data_gpu and model_gpu | both exist and differ             | Multi-GPU mode; several model GPUs are mirrored    |
| data_gpu and model_gpu | the same, and a feature store     | Single-GPU buffered or Mirrored, with a warning    |
| data_gpu and model_gpu | one is missing, or they are equal | Single-GPU buffered, with a warning                |
| only one of the two    | it exists                         | Single-GPU buffered, on the named GPU              |
| any GPU                | no GPU                            | an error; CPU, with a warning, where allow_cpu     |
| neither                | no GPU / one / several            | CPU / Single-GPU / on the best, or all (multi_gpu) |

`choose_plan` depends on its arguments only, so every row can be tested without a GPU. Devices are numbered as CUDA does
before TensorFlow hides any; `translate_devices` maps them to TensorFlow's numbers afterwards.
"""

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

CPU_DEVICE = "/CPU:0"
BFLOAT16_CAPABILITY = (8, 0)
"""CUDA compute capability from which GPUs have bfloat16 units (Ampere)."""
_LOADER_NICENESS = 5
"""Unix niceness of loader threads: enough that a thread which drives a device runs first, still ahead of idle jobs."""

StrategyKind = Literal["default", "one_device", "mirrored"]


class Mode(StrEnum):
    """Where features are made and where the model trains.

    MULTI_GPU: features on one GPU, the model on others. SINGLE_GPU: CPU loads, one GPU trains. MIRRORED: CPU loads,
    several GPUs hold replicas. CPU: everything on the host.
    """

    MULTI_GPU = "multi-gpu"
    SINGLE_GPU = "single-gpu"
    MIRRORED = "mirrored"
    CPU = "cpu"

    @property
    def label(self) -> str:
        """Name shown to users."""
        return _LABELS[self]


_LABELS = {
    Mode.MULTI_GPU: "Multi-GPU mode",
    Mode.SINGLE_GPU: "Single-GPU buffered mode",
    Mode.MIRRORED: "Mirrored mode",
    Mode.CPU: "CPU mode",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run. Devices are named by `Gpu.index`, before TensorFlow hides or renumbers GPUs.

    `prefetch_buffer_size` counts batches held on each of `model_devices`; it is 0 when prefetch is off. Loader threads
    stay off `num_reserved_cpus` processors, those of the threads that drive devices, and run with a lower priority:
    their niceness is `loader_niceness` more than that of the process.
    """

    mode: Mode
    data_device: str
    model_devices: tuple[str, ...]
    strategy: StrategyKind
    buffer_size: int
    prefetch_buffer_size: int
    num_workers: int
    num_reserved_cpus: int
    loader_niceness: int
    model_start_delay_s: float
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    cluster: Cluster | None = None

    @property
    def prefetch_devices(self) -> tuple[str, ...]:
        return self.model_devices if self.prefetch_buffer_size else ()

    @property
    def num_replicas(self) -> int:
        """Number of model replicas over all processes of the cluster."""
        return len(self.model_devices) * (self.cluster.num_workers if self.cluster else 1)

    @property
    def shard(self) -> tuple[int, int]:
        """Shard of every batch that this process trains on: (rank, number of workers)."""
        return (self.cluster.worker, self.cluster.num_workers) if self.cluster else (0, 1)

    def find_model_gpus(self, hardware: Hardware) -> list[Gpu]:
        """The GPUs of this process that train; none in CPU mode."""
        return find_gpus(self.model_devices, hardware)

    def name_model_devices(self, hardware: Hardware) -> str:
        """The devices that train, by number and kind, such as `2 x NVIDIA GeForce RTX 4090` or `8 CPUs`."""
        gpus = self.find_model_gpus(hardware)
        return f"{len(self.model_devices)} x {gpus[0].name}" if gpus else f"{hardware.num_cpus} CPUs"

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


@dataclass(slots=True)
class _Placement:
    """Intermediate result of `choose_plan`: the chosen GPUs, and reasons and warnings collected so far."""

    mode: Mode
    model_gpus: tuple[int, ...]
    data_gpu: int | None = None
    reasons: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def choose_plan(config: XTTSConfig, hardware: Hardware) -> Plan:
    """Chooses mode, devices, threads and buffers of a run; raises HardwareError if a named GPU has no fallback."""
    placement = _place_without_gpus(config, hardware)
    visible: tuple[Gpu, ...] = ()
    if placement is None:
        visible = _select_visible_gpus(config, hardware)
        placement = _place(config, visible, hardware)
    _warn_of_missing_card(config, placement, visible, hardware)
    _warn_of_unequal_gpus(placement, visible)
    prefetch_buffer_size = _choose_prefetch(config, placement)
    num_workers = _choose_num_workers(config, hardware, placement)
    model_start_delay_s = _choose_start_delay(config, placement)
    placement.reasons.append(f"buffer_size is {config.data.buffer_size}.")
    model_gpus = placement.model_gpus
    keeps_apart = config.data.optimize_cpu_gpu_overlap
    return Plan(
        mode=placement.mode,
        data_device=CPU_DEVICE if placement.data_gpu is None else name_gpu(placement.data_gpu),
        model_devices=tuple(map(name_gpu, model_gpus)) or (CPU_DEVICE,),
        strategy="mirrored" if len(model_gpus) > 1 else "one_device" if model_gpus else "default",
        buffer_size=config.data.buffer_size,
        prefetch_buffer_size=prefetch_buffer_size,
        num_workers=num_workers,
        num_reserved_cpus=_count_drivers(placement) if keeps_apart and model_gpus else 0,
        loader_niceness=_LOADER_NICENESS if keeps_apart else 0,
        model_start_delay_s=model_start_delay_s,
        reasons=tuple(placement.reasons),
        warnings=tuple(placement.warnings),
        cluster=hardware.cluster,
    )


def _place_without_gpus(config: XTTSConfig, hardware: Hardware) -> _Placement | None:
    """Refuses named GPUs on a machine that has none, or falls back to the CPU if that is allowed; else None."""
    data, visible_gpus = config.data, config.training.visible_gpus
    named = {"data_gpu": data.data_gpu, "model_gpu": data.model_gpu, "visible_gpus": visible_gpus}
    asked = " and ".join(f"{key} {value}" for key, value in named.items() if value is not None)
    if hardware.gpus or not asked:
        return None
    if not config.training.allow_cpu:
        raise HardwareError(
            f"You asked for {asked}, but this machine has no GPU: {_say_reason(hardware)}.",
            next_step="Run myxtts doctor to find out why, or train on the CPU with --allow-cpu.",
        )
    return _Placement(
        Mode.CPU,
        (),
        reasons=[_say_no_gpu(hardware)],
        warnings=[f"You asked for {asked}, but there is no GPU. Training on the CPU, because allow_cpu is true."],
    )


def _warn_of_missing_card(
    config: XTTSConfig, placement: _Placement, visible: tuple[Gpu, ...], hardware: Hardware
) -> None:
    """Batch, threads and buffer of `gpu_card` are those of that card, whatever the machine has."""
    card = config.gpu_card
    if card is not None and not any(card in gpu.name.lower().replace(" ", "") for gpu in visible):
        placement.warnings.append(
            f"gpu_card is {card}, but there is no such GPU: {_say_existing(visible, hardware)}. "
            "Its batch size, threads and buffer are used nevertheless; leave out --gpu-card for the usual ones."
        )


def _select_visible_gpus(config: XTTSConfig, hardware: Hardware) -> tuple[Gpu, ...]:
    """Returns the GPUs that `visible_gpus` names, in its order; all if it is not set."""
    if config.training.visible_gpus is None:
        return hardware.gpus
    by_index = {gpu.index: gpu for gpu in hardware.gpus}
    numbers = parse_gpu_numbers(config.training.visible_gpus)
    missing = [number for number in numbers if number not in by_index]
    if missing:
        raise HardwareError(
            f"visible_gpus is {config.training.visible_gpus!r}, but {_say_missing(missing)}; "
            f"{_say_existing(hardware.gpus, hardware)}.",
            next_step="Name GPUs that exist, or leave out --visible-gpus.",
        )
    return tuple(by_index[number] for number in numbers)


def _place(config: XTTSConfig, visible: tuple[Gpu, ...], hardware: Hardware) -> _Placement:
    """Dispatches on which of data_gpu and model_gpu are set: the rows of the table above."""
    data_gpu = config.data.data_gpu
    model_gpus = () if config.data.model_gpu is None else parse_gpu_numbers(config.data.model_gpu)
    if data_gpu is not None and model_gpus:
        return _place_both_named(config, data_gpu, model_gpus, visible, hardware)
    if data_gpu is not None:
        return _place_one_named(config, "data_gpu", (data_gpu,), visible, hardware)
    if model_gpus:
        return _place_one_named(config, "model_gpu", model_gpus, visible, hardware)
    return _place_unnamed(config, visible, hardware)


def _place_both_named(
    config: XTTSConfig, data_gpu: int, model_gpus: tuple[int, ...], visible: tuple[Gpu, ...], hardware: Hardware
) -> _Placement:
    """Returns Multi-GPU mode if all named GPUs exist and differ, else falls back to one of them with a warning.

    The fallback prefers a model GPU, then the data GPU, then any visible GPU.
    """
    existing = [gpu.index for gpu in visible]
    asked = f"You asked for data_gpu {data_gpu} and model_gpu {format_gpu_numbers(model_gpus)}"
    missing = [number for number in dict.fromkeys((data_gpu, *model_gpus)) if number not in existing]
    if not missing and data_gpu not in model_gpus:
        if config.data.reads_store:
            return _place_beside_store(asked, data_gpu, model_gpus)
        placement = _Placement(Mode.MULTI_GPU, model_gpus, data_gpu)
        placement.reasons.append(f"{asked}. Both exist, so GPU {data_gpu} computes features for the model.")
        if len(model_gpus) > 1:
            placement.reasons.append(f"GPUs {format_gpu_numbers(model_gpus)} train together (data-parallel).")
        if config.training.multi_gpu:
            placement.warnings.append("multi_gpu has no effect here: model_gpu already names the GPUs that train.")
        return placement
    why = _say_missing(missing) if missing else f"GPU {data_gpu} is named twice"
    listing = _say_existing(visible, hardware)
    usable = [number for number in (*model_gpus, data_gpu) if number in existing] or existing
    placement = _Placement(Mode.SINGLE_GPU, tuple(usable[:1]))
    placement.warnings.append(
        f"{asked}, but {why}; {listing}. Using {placement.mode.label} on GPU {usable[0]} instead."
    )
    placement.reasons.append(f"Multi-GPU mode needs two different GPUs, and {why}.")
    return placement


def _place_beside_store(asked: str, data_gpu: int, model_gpus: tuple[int, ...]) -> _Placement:
    """Returns a plan without the data GPU: stored features only need padding, which the host does while it copies."""
    mode = Mode.MIRRORED if len(model_gpus) > 1 else Mode.SINGLE_GPU
    target = f"GPU{'s' if len(model_gpus) > 1 else ''} {format_gpu_numbers(model_gpus)}"
    why = f"features are read from the feature cache (preprocessing_mode is precompute), so GPU {data_gpu} has no work"
    warning = (
        f"{asked}, but {why}. Using {mode.label} on {target}. To train on all GPUs, use --multi-gpu instead of "
        f"--data-gpu and --model-gpu. To compute features on GPU {data_gpu} in every epoch, add "
        "--preprocessing-mode on_the_fly."
    )
    return _Placement(mode, model_gpus, reasons=[f"{target} trains and the CPU loads: {why}."], warnings=[warning])


def _place_one_named(
    config: XTTSConfig, key: str, named: tuple[int, ...], visible: tuple[Gpu, ...], hardware: Hardware
) -> _Placement:
    """Trains on the named GPU; several need multi_gpu, since no data GPU feeds them."""
    missing = [number for number in named if number not in [gpu.index for gpu in visible]]
    if missing:
        raise HardwareError(
            f"{key} is {format_gpu_numbers(named)}, but {_say_missing(missing)}; {_say_existing(visible, hardware)}.",
            next_step=f"Name a GPU that exists, or leave out --{key.replace('_', '-')}.",
        )
    if len(named) > 1 and config.training.multi_gpu:
        why = f"model_gpu names GPUs {format_gpu_numbers(named)}, and multi_gpu trains on all of them together."
        return _Placement(Mode.MIRRORED, named, reasons=[why])
    why = f"Only {key} was given, so GPU {named[0]} trains and the CPU loads."
    placement = _Placement(Mode.SINGLE_GPU, named[:1], reasons=[why])
    if len(named) > 1:
        placement.warnings.append(
            f"model_gpu names {len(named)} GPUs, but only GPU {named[0]} is used. "
            "Add --multi-gpu to train on all of them."
        )
    elif config.training.multi_gpu:
        placement.warnings.append(f"multi_gpu is true, but {key} names one GPU, so only that one is used.")
    return placement


def _place_unnamed(config: XTTSConfig, visible: tuple[Gpu, ...], hardware: Hardware) -> _Placement:
    """Trains on the best GPU, on the first that visible_gpus names, on all of them with multi_gpu, or on the CPU."""
    is_multi = config.training.multi_gpu
    if not visible:
        warnings = ["multi_gpu is true, but there is no GPU: training on the CPU."] if is_multi else []
        return _Placement(Mode.CPU, (), reasons=[_say_no_gpu(hardware)], warnings=warnings)
    indices = tuple(gpu.index for gpu in visible)
    first = indices[0]
    if len(indices) == 1:
        warnings = ["multi_gpu is true, but only one GPU can be used, so it trains alone."] if is_multi else []
        why = f"GPU {first} is the only one, so it trains and the CPU loads."
        return _Placement(Mode.SINGLE_GPU, indices, reasons=[why], warnings=warnings)
    if is_multi:
        why = f"multi_gpu is true, so GPUs {format_gpu_numbers(indices)} train together (data-parallel)."
        return _Placement(Mode.MIRRORED, indices, reasons=[why])
    chosen = visible[0] if config.training.visible_gpus else max(visible, key=_rate_gpu)
    rank = "first of visible_gpus" if config.training.visible_gpus else f"best of {len(indices)} ({chosen.name})"
    why = f"GPU {chosen.index} is the {rank}, so it trains; multi_gpu: true would use them all."
    return _Placement(Mode.SINGLE_GPU, (chosen.index,), reasons=[why])


def _rate_gpu(gpu: Gpu) -> tuple[bool, int, tuple[int, int], int]:
    """Sort key of GPUs: bfloat16 doubles the speed of a step, then memory, then age; of equal ones the first."""
    has_bfloat16 = gpu.compute_capability >= BFLOAT16_CAPABILITY
    return has_bfloat16, _round_gib(gpu.memory_bytes), gpu.compute_capability, -gpu.index


def _warn_of_unequal_gpus(placement: _Placement, visible: tuple[Gpu, ...]) -> None:
    """Synchronous replicas wait for the slowest, so a mix of cards is worth a warning."""
    mirrored = [gpu for gpu in visible if gpu.index in placement.model_gpus]
    if len({(gpu.name, _round_gib(gpu.memory_bytes)) for gpu in mirrored}) > 1:
        listing = ", ".join(_say_gpu(gpu) for gpu in mirrored)
        placement.warnings.append(
            f"The GPUs that train together differ ({listing}): every step takes as long as the slowest."
        )


def _choose_prefetch(config: XTTSConfig, placement: _Placement) -> int:
    """Returns how many batches wait on each device that trains."""
    if not placement.model_gpus:
        placement.reasons.append("No prefetch to a device: the model runs on the CPU, where the batches are.")
        return 0
    if not config.data.prefetch_to_gpu:
        placement.reasons.append("No prefetch to a device: prefetch_to_gpu is off.")
        return 0
    if not config.data.enhanced_gpu_prefetch:
        placement.reasons.append("One batch is prefetched to the device: enhanced_gpu_prefetch is off.")
        return 1
    num_batches = config.data.prefetch_buffer_size
    placement.reasons.append(f"prefetch_buffer_size is {num_batches}: so many batches wait on the GPU.")
    return num_batches


def _choose_num_workers(config: XTTSConfig, hardware: Hardware, placement: _Placement) -> int:
    """Returns the number of loader threads; optimize_cpu_gpu_overlap leaves a core to each device-driving thread."""
    asked, keeps_apart = config.data.num_workers, config.data.optimize_cpu_gpu_overlap
    most = max(1, hardware.num_cpus - _count_drivers(placement)) if keeps_apart else hardware.num_cpus
    if asked == "auto":
        placement.reasons.append(
            f"num_workers is auto: {_count(most, 'loader thread')} for {_count(hardware.num_cpus, 'CPU')}."
        )
        return most
    if keeps_apart and asked > most:
        placement.warnings.append(
            f"num_workers is {asked}, but this machine has {_count(hardware.num_cpus, 'CPU')}: "
            f"{_count(most, 'loader thread')} will be used. "
            "To use your number, add --set data.optimize_cpu_gpu_overlap=false."
        )
        return most
    placement.reasons.append(f"num_workers is {asked}.")
    return asked


def _count_drivers(placement: _Placement) -> int:
    """Threads that drive devices: one for the model, one more for a data GPU."""
    return 2 if placement.mode is Mode.MULTI_GPU else 1


def _choose_start_delay(config: XTTSConfig, placement: _Placement) -> float:
    """Returns the head start of the data GPU in seconds; only Multi-GPU mode has one."""
    if placement.mode is not Mode.MULTI_GPU:
        placement.reasons.append("model_start_delay is not used: there is no data GPU.")
        return 0.0
    delay_s = config.data.model_start_delay
    placement.reasons.append(f"model_start_delay is {delay_s:g} s: the data GPU starts first.")
    return delay_s


def _say_missing(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"GPU {numbers[0]} does not exist"
    return f"GPUs {', '.join(str(number) for number in numbers)} do not exist"


def _say_no_gpu(hardware: Hardware) -> str:
    return f"There is no GPU: {_say_reason(hardware)}."


def _say_reason(hardware: Hardware) -> str:
    return hardware.no_gpu_reason or "none was found"


def _say_existing(gpus: tuple[Gpu, ...], hardware: Hardware) -> str:
    """Lists the GPUs that could have been named instead, for messages about missing ones."""
    if not hardware.gpus:
        return "this machine has no GPU"
    listing = ", ".join(_say_gpu(gpu) for gpu in gpus)
    hidden = len(hardware.gpus) - len(gpus)
    return f"this machine has {listing}" + (f" (visible_gpus hides {hidden} more)" if hidden else "")


def _say_gpu(gpu: Gpu) -> str:
    return f"GPU {gpu.index} {gpu.name} {_round_gib(gpu.memory_bytes)} GiB"


def _round_gib(num_bytes: int) -> int:
    return round(num_bytes / 2**30)


def _count(number: int, singular: str, plural: str = "") -> str:
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def name_gpu(index: int) -> str:
    """The device of the GPU with this number, as TensorFlow writes it: `/GPU:1`."""
    return f"/GPU:{index}"


def find_gpus(devices: Sequence[str], hardware: Hardware) -> list[Gpu]:
    """The GPUs of the machine that are among `devices`."""
    return [gpu for gpu in hardware.gpus if name_gpu(gpu.index) in devices]


def translate_devices(names: Sequence[str], visible: Sequence[str]) -> tuple[str, ...]:
    """TensorFlow's names of these devices when it sees only the GPUs of `visible`, in whatever order they are given.

    TensorFlow counts the visible GPUs from zero in the order of their numbers. CPUs cannot be hidden.
    """
    numbers = sorted({split_name(name)[1] for name in visible if not is_cpu(name)})
    return tuple(name if is_cpu(name) else name_gpu(numbers.index(split_name(name)[1])) for name in names)


def is_cpu(name: str) -> bool:
    return split_name(name)[0] == "CPU"


def split_name(name: str) -> tuple[str, int]:
    """Type and number of a device."""
    device_type, _, number = name.removeprefix("/").partition(":")
    return device_type, int(number)
