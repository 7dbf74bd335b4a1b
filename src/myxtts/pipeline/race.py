"""Which of two ways to load recordings is faster on this machine, found by trying both on a few of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ReadRows = Callable[[Sequence[int]], object]

_NUM_CLIPS = 16
_NUM_ROUNDS = 3
_WORTH_A_CHANGE = 0.9


@dataclass(frozen=True, slots=True)
class RaceResult:
    """Seconds per clip of the two ways, all threads together."""

    native_s: float
    python_s: float

    @property
    def winner(self) -> str:
        """The way in the graph, unless the other is faster by more than measurements vary."""
        return "python" if self.python_s < self.native_s * _WORTH_A_CHANGE else "native"

    def describe(self) -> str:
        times = f"{self.python_s * 1e3:.2g} ms per clip through Python, {self.native_s * 1e3:.2g} ms TF-native"
        if self.winner == "native":
            return f"Measured {times}: TF-native loading is kept."
        return (
            f"Measured {times}: Python loads. Set data.auto_tune_performance to false to keep TF-native loading, and "
            "compute features once with myxtts precompute to be far faster than both."
        )


def race_loaders(
    read_native: ReadRows, read_python: ReadRows, rows: NDArray[np.integer], num_threads: int
) -> RaceResult:
    """Loads the same clips in both ways, in turn, with as many threads as the run will have."""
    chosen = rows[np.linspace(0, len(rows) - 1, min(_NUM_CLIPS, len(rows))).astype(int)].tolist()
    shares = [share for share in (chosen[number::num_threads] for number in range(num_threads)) if share]
    ways = {"native": read_native, "python": read_python}
    best = dict.fromkeys(ways, float("inf"))
    with ThreadPoolExecutor(len(shares)) as pool:
        for round_number in range(_NUM_ROUNDS + 1):
            for name, read in ways.items():
                started = time.perf_counter()
                list(pool.map(read, shares))
                # The first round makes the graph and brings the files into memory.
                if round_number:
                    best[name] = min(best[name], (time.perf_counter() - started) / len(chosen))
    return RaceResult(best["native"], best["python"])
