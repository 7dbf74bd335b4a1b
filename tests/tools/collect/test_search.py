"""Monotonic alignment search against an exhaustive one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from myxtts.tools.collect import search
from myxtts.tools.collect.search import Skips, search_path

JUMPS = np.array([0.3, 0.0, 0.4, 1.0], np.float32)


def search_matrix(costs: NDArray[np.float32], window: int = 1000) -> NDArray[np.int64]:
    num_frames, num_states = costs.shape
    jump_costs = np.repeat(JUMPS[:, None], num_states, axis=1)
    block = lambda start, stop, first, last: costs[start:stop, first:last]  # noqa: E731
    return search_path(num_frames, num_states, block, jump_costs, window=window)


def sum_costs(costs: NDArray[np.float32], path: NDArray[np.int64]) -> float:
    return float(costs[np.arange(len(path)), path].sum() + JUMPS[np.diff(path)].sum())


def find_least(costs: NDArray[np.float32]) -> float:
    """The cost of the best path by the plain recursion, with the whole matrix in memory."""
    total = np.full(costs.shape, np.inf)
    total[0, : len(JUMPS) - 1] = costs[0, : len(JUMPS) - 1] + np.array([0.0, 0.4, 1.0])
    for frame in range(1, len(costs)):
        for state in range(costs.shape[1]):
            for jump, price in enumerate(JUMPS[: state + 1]):
                total[frame, state] = min(
                    total[frame, state], total[frame - 1, state - jump] + price + costs[frame, state]
                )
    return float(total[-1, -1])


@pytest.mark.parametrize("seed", range(6))
def test_the_path_is_the_cheapest(seed: int) -> None:
    draw = np.random.default_rng(seed)
    num_frames = int(draw.integers(20, 60))
    costs = draw.random((num_frames, int(draw.integers(10, 2 * num_frames)))).astype(np.float32)
    path = search_matrix(costs)
    assert path[-1] == costs.shape[1] - 1
    assert set(np.diff(path)) <= {0, 1, 2, 3}
    opening = {0: 0.0, 1: 0.4, 2: 1.0}[int(path[0])]
    assert sum_costs(costs, path) + opening == pytest.approx(find_least(costs), abs=1e-3)


def test_a_window_and_settling_follow_a_long_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """The true path is found although only a small part of the matrix is looked at."""
    monkeypatch.setattr(search, "_SETTLED_FRAMES", 128)
    draw = np.random.default_rng(1)
    steps = draw.choice([0, 1, 2], 3000, p=[0.25, 0.5, 0.25])
    truth = np.concatenate([[0], np.cumsum(steps)])
    costs = np.ones((len(truth), truth[-1] + 1), np.float32)
    costs[np.arange(len(truth)), truth] = 0.0
    assert np.abs(search_matrix(costs, window=150) - truth).max() <= 3


def test_states_that_fit_nowhere_are_skipped_at_a_price() -> None:
    """States 20 to 59 are in no frame; the way from 19 to 60 is taken if it is cheaper than to go through them."""
    truth = np.array([*range(20), *range(60, 80)])
    costs = np.ones((len(truth), 80), np.float32)
    costs[np.arange(len(truth)), truth] = 0.0
    origins = np.full(80, -1)
    origins[60] = 19
    jump_costs = np.repeat(JUMPS[:, None], 80, axis=1)
    block = lambda start, stop, first, last: costs[start:stop, first:last]  # noqa: E731
    cheap, dear = (
        search_path(len(truth), 80, block, jump_costs, window=1000, skips=Skips(origins, price)) for price in (2.0, 1e3)
    )
    assert cheap.tolist() == truth.tolist()
    assert np.diff(dear).max() <= 3
