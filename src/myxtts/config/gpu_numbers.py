"""Lists of GPU numbers as people write them ("0,1", "0, 1", [0, 1], 0) and their one canonical form."""

from __future__ import annotations

import re

from myxtts.config.scalars import show_value

_SEVERAL = re.compile(r"\s*-?[0-9]{1,4}\s*(?:,\s*-?[0-9]{1,4}\s*)*")


def parse_gpu_numbers(value: object) -> tuple[int, ...]:
    """The GPU numbers in `value`, in the order given; ValueError in plain words if it is anything else."""
    numbers: tuple[int, ...]
    if isinstance(value, str) and _SEVERAL.fullmatch(value):
        numbers = tuple(int(part) for part in value.split(","))
    elif isinstance(value, int) and not isinstance(value, bool):
        numbers = (value,)
    elif isinstance(value, list | tuple) and value and all(type(item) is int for item in value):
        numbers = tuple(value)
    else:
        raise ValueError(f"{show_value(value)} names no GPU")
    for number in numbers:
        if number < 0:
            raise ValueError(f"{number} is negative")
        if numbers.count(number) > 1:
            raise ValueError(f"{number} is named twice")
    return numbers


def format_gpu_numbers(numbers: tuple[int, ...]) -> str:
    return ",".join(str(number) for number in numbers)
