"""What TensorFlow calls a GPU when others are hidden. That it really does so is shown by the tests of the strategy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myxtts.runtime.device_names import translate_devices


@pytest.mark.parametrize(
    ("names", "visible", "expected"),
    [
        (["/GPU:0"], ["/GPU:0"], ["/GPU:0"]),
        (["/GPU:3"], ["/GPU:3"], ["/GPU:0"]),
        (["/GPU:3", "/GPU:1"], ["/GPU:3", "/GPU:1"], ["/GPU:1", "/GPU:0"]),
        (["/GPU:2"], ["/GPU:0", "/GPU:2", "/GPU:5"], ["/GPU:1"]),
        (["/GPU:10"], ["/GPU:9", "/GPU:10"], ["/GPU:1"]),
        (["/CPU:0", "/GPU:1"], ["/CPU:0", "/GPU:1"], ["/CPU:0", "/GPU:0"]),
        (["/CPU:3"], [], ["/CPU:3"]),
        ([], ["/GPU:1"], []),
    ],
)
def test_hidden_gpus_move_the_others_forward(names: list[str], visible: list[str], expected: list[str]) -> None:
    assert translate_devices(names, visible) == tuple(expected)


@given(st.lists(st.integers(0, 31), unique=True, min_size=1))
def test_visible_gpus_are_counted_from_zero_in_their_order(numbers: list[int]) -> None:
    visible = [f"/GPU:{number}" for number in numbers]
    by_number = [f"/GPU:{number}" for number in sorted(numbers)]
    assert translate_devices(by_number, visible) == tuple(f"/GPU:{place}" for place in range(len(numbers)))
    assert sorted(translate_devices(visible, visible)) == sorted(translate_devices(by_number, visible))


def test_a_hidden_gpu_has_no_name() -> None:
    with pytest.raises(ValueError, match="not in list"):
        translate_devices(["/GPU:1"], ["/GPU:0"])
