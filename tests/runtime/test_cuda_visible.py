"""CUDA_VISIBLE_DEVICES is read as CUDA reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myxtts.runtime.cuda_visible import select_visible

UUIDS = ["GPU-aaaa1111", "GPU-aaaa2222", "GPU-bbbb3333", "GPU-cccc4444"]


@pytest.mark.parametrize(
    ("value", "positions"),
    [
        (None, (0, 1, 2, 3)),
        ("0", (0,)),
        ("2,0", (2, 0)),
        (" 1 , 3 ", (1, 3)),
        ("GPU-bbbb3333", (2,)),
        ("GPU-c", (3,)),
        ("GPU-b,GPU-aaaa1", (2, 0)),
        ("1,GPU-c", (1, 3)),
        ("1x", (1,)),
    ],
)
def test_named_gpus_are_shown_in_the_order_given(value: str | None, positions: tuple[int, ...]) -> None:
    assert select_visible(value, UUIDS) == (positions, "")


@pytest.mark.parametrize(
    ("value", "positions", "note"),
    [
        ("", (), "hides all"),
        ("-1", (), "hides all"),
        ("0,-1,1", (0,), "'-1' names no GPU"),
        ("1,9,0", (1,), "'9' names no GPU"),
        ("3,none", (3,), "'none' names no GPU"),
        ("GPU-zzzz", (), "'GPU-zzzz' names no GPU"),
        ("0,GPU-aaaa", (0,), "'GPU-aaaa' names no GPU"),  # two GPUs begin like that
        ("0,0", (), "names a GPU twice"),
        ("0,GPU-aaaa1111", (), "names a GPU twice"),
        ("MIG-1234", (), "MIG slice"),
        ("0,", (0,), "'' names no GPU"),
        ("no", (), "'no' names no GPU"),
    ],
)
def test_the_list_ends_at_the_first_wrong_entry_and_says_so(value: str, positions: tuple[int, ...], note: str) -> None:
    visible = select_visible(value, UUIDS)
    assert visible.positions == positions
    assert note in visible.note


@given(st.text(st.sampled_from("0123,-GPUaMI "), max_size=20), st.integers(0, 4))
def test_only_gpus_that_exist_are_ever_shown(value: str, count: int) -> None:
    visible = select_visible(value, UUIDS[:count])
    assert set(visible.positions) <= set(range(count))
    assert len(set(visible.positions)) == len(visible.positions)
