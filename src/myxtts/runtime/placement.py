"""Decides which devices carry the data and the model, from what was asked for and what there is.

| asked for              | there is                          | placement                                          |
|------------------------|-----------------------------------|----------------------------------------------------|
| data_gpu and model_gpu | both exist and differ             | Multi-GPU mode; several model GPUs are mirrored    |
| data_gpu and model_gpu | one is missing, or they are equal | Single-GPU buffered, with a warning                |
| only one of the two    | it exists                         | Single-GPU buffered, on the named GPU              |
| neither                | no GPU / one / several            | CPU / Single-GPU / the same, mirrored by multi_gpu |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from myxtts.config.gpu_numbers import format_gpu_numbers, parse_gpu_numbers
from myxtts.config.schema import XTTSConfig
from myxtts.errors import HardwareError
from myxtts.runtime.hardware import Gpu, Hardware


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
