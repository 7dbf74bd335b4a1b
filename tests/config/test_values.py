"""Values of settings: GPU numbers in every way people write them, and scalars as YAML reads and writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myxtts.config.values import (
    Scalar,
    format_gpu_numbers,
    format_scalar,
    parse_gpu_numbers,
    resolve_scalar,
    show_value,
)
from myxtts.config.yaml import parse_yaml


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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("48", 48),
        ("-3", -3),
        ("+7", 7),
        ("012", 12),
        ("0x1F", 31),
        ("0o17", 15),
        ("1_000", "1_000"),
        ("1e-5", 1e-5),
        ("1E5", 1e5),
        (".5", 0.5),
        ("2.", 2.0),
        ("-1.5e+3", -1500.0),
        (".inf", float("inf")),
        ("2001-12-14", "2001-12-14"),
        ("12:30:45", "12:30:45"),
        ("0,1", "0,1"),
        ("9" * 5000, "9" * 5000),
        (".", "."),
        ("e5", "e5"),
    ],
)
def test_plain_scalars_follow_yaml_1_2(text: str, value: Scalar) -> None:
    resolved = resolve_scalar(text)
    assert resolved == value
    assert type(resolved) is type(value)


@given(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**18), 10**18),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(exclude_categories=["Cs"])),
        st.sampled_from(
            ["null", "true", "1e5", "0x1", "-", "---", "...", ".inf", "a: b", "#", "'", '"', "\\", " x ", "۱۲"]
        ),
    )
)
def test_what_is_written_is_read_back(value: Scalar) -> None:
    data, _ = parse_yaml(f"key: {format_scalar(value)}\n", "text")
    assert data == {"key": value}
    assert type(data["key"]) is type(value)


def test_values_are_shown_on_one_short_line() -> None:
    assert show_value("a\nb\x00\u2028") == '"a\\nb\\u0000?"'
    assert show_value(None) == "null"
    assert show_value(True) == "true"
    assert len(show_value("x" * 1000)) == 60
    assert show_value(10**5000) == "a number of 16610 bits"
