"""Out of memory: half the rows, twice as often, remembered for the same device and model."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myxtts.errors import HardwareError
from myxtts.training.micro_batches import MicroBatches, MicroBatchMemory, name_situation

ASKED = MicroBatches(32, 1)


def test_halving_keeps_the_rows_of_a_step() -> None:
    sizes = [ASKED]
    while sizes[-1].batch_size > 1:
        sizes.append(sizes[-1].halve())
    assert [(each.batch_size, each.accumulation) for each in sizes] == [
        (32, 1),
        (16, 2),
        (8, 4),
        (4, 8),
        (2, 16),
        (1, 32),
    ]
    assert {each.num_rows for each in sizes} == {32}


def test_a_single_row_that_does_not_fit_is_a_clear_error() -> None:
    with pytest.raises(HardwareError, match=r"GPU 0 .* single utterance") as caught:
        MicroBatches(1, 8).halve("GPU 0")
    assert "--model-size" in caught.value.next_step


@given(st.integers(2, 5000), st.integers(1, 64))
def test_halving_never_loses_a_row_and_ends(batch_size: int, accumulation: int) -> None:
    sizes = MicroBatches(batch_size, accumulation)
    for _ in range(14):
        if sizes.batch_size == 1:
            break
        smaller = sizes.halve()
        assert smaller.batch_size < sizes.batch_size
        assert smaller.accumulation == 2 * sizes.accumulation
        assert sizes.num_rows <= smaller.num_rows <= sizes.num_rows + sizes.accumulation
        sizes = smaller
    assert sizes.batch_size == 1


def refuse_warnings(message: str) -> None:
    raise AssertionError(message)


def test_what_fits_is_remembered_for_the_same_device_model_and_wish(tmp_path: Path) -> None:
    memory = MicroBatchMemory(tmp_path / "micro_batches.json", refuse_warnings)
    here = name_situation("GPU 0", "abc", ASKED)
    assert memory.recall(here) is None
    memory.remember(here, ASKED.halve())
    memory.remember(name_situation("GPU 1", "abc", ASKED), ASKED.halve().halve())
    again = MicroBatchMemory(tmp_path / "micro_batches.json", refuse_warnings)
    assert again.recall(here) == MicroBatches(16, 2)
    assert again.recall(name_situation("GPU 1", "abc", ASKED)) == MicroBatches(8, 4)
    assert again.recall(name_situation("GPU 0", "xyz", ASKED)) is None
    assert again.recall(name_situation("GPU 0", "abc", MicroBatches(64, 1))) is None


@pytest.mark.parametrize(
    "content",
    ["", "[", "[]", '{"here": 1}', '{"here": {"batch_size": 0, "accumulation": 1}}', '{"here": {"batch_size": "8"}}'],
)
def test_a_damaged_memory_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "micro_batches.json"
    path.write_text(content, encoding="utf-8")
    memory = MicroBatchMemory(path, refuse_warnings)
    assert memory.recall("here") is None
    memory.remember("here", ASKED)
    assert memory.recall("here") == ASKED


def test_a_disk_that_refuses_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    warnings: list[str] = []
    MicroBatchMemory(tmp_path / "file" / "memory.json", warnings.append).remember("here", ASKED)
    assert "found again" in warnings[0]
