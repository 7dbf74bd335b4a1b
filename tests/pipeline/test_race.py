"""The faster way to load is taken, and a small difference changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from myxtts.pipeline.race import RaceResult, race_loaders


def make_reader(seconds: float, seen: list[int]) -> Callable[[Sequence[int]], object]:
    def read(rows: Sequence[int]) -> None:
        seen.extend(rows)
        time.sleep(seconds * len(rows))

    return read


@pytest.mark.parametrize(("native_s", "python_s", "winner"), [(0.0, 0.01, "native"), (0.01, 0.0, "python")])
def test_faster_way_wins(native_s: float, python_s: float, winner: str) -> None:
    result = race_loaders(make_reader(native_s, []), make_reader(python_s, []), np.arange(4), num_threads=2)
    assert result.winner == winner


@pytest.mark.parametrize("num_threads", [1, 3, 40])
def test_both_load_the_same_clips_spread_over_the_corpus(num_threads: int) -> None:
    native: list[int] = []
    python: list[int] = []
    race_loaders(make_reader(0, native), make_reader(0, python), np.arange(100, 900), num_threads)
    assert set(native) == set(python)
    assert {100, 899} <= set(native)
    assert len(set(native)) == 16


def test_small_difference_keeps_native_loading() -> None:
    assert RaceResult(native_s=1.0, python_s=0.95).winner == "native"
    assert "is kept" in RaceResult(native_s=1.0, python_s=0.95).describe()
    assert "auto_tune_performance" in RaceResult(native_s=1.0, python_s=0.5).describe()
