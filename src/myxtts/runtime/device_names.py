"""Names of devices such as `/GPU:1`, and what TensorFlow calls them when GPUs are hidden from it. No TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence


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
