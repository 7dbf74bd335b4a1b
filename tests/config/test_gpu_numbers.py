"""GPU numbers are accepted in every way people write them, and nothing else is."""

from __future__ import annotations

import pytest

from myxtts.config.gpu_numbers import format_gpu_numbers, parse_gpu_numbers


@pytest.mark.parametrize(
    ("value", "numbers"),
    [("0", (0,)), (0, (0,)), ("0,1", (0, 1)), (" 2 , 0 ", (2, 0)), ([1, 0], (1, 0)), ((3,), (3,)), ("07", (7,))],
)
def test_numbers_keep_their_order(value: object, numbers: tuple[int, ...]) -> None:
    assert parse_gpu_numbers(value) == numbers
    assert parse_gpu_numbers(format_gpu_numbers(numbers)) == numbers


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (-1, "-1 is negative"),
        ("0,-1", "-1 is negative"),
        ([0, -2], "-2 is negative"),
        ("1,1", "1 is named twice"),
        ([2, 2], "2 is named twice"),
        ("", "names no GPU"),
        ("0,", "names no GPU"),
        ("all", "names no GPU"),
        ("0;1", "names no GPU"),
        ([], "names no GPU"),
        (["0"], "names no GPU"),
        ([True], "names no GPU"),
        (True, "names no GPU"),
        (1.0, "names no GPU"),
        ({}, "names no GPU"),
    ],
)
def test_anything_else_is_refused_with_its_reason(value: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_gpu_numbers(value)
