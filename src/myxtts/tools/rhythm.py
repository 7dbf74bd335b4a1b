"""Statistics of step times: coefficient of variation, period by autocorrelation, and the rating of loading times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]

STABLE_VARIATION = 0.20
"""Standard deviation over mean below which step times count as stable."""
GOOD_LOADING_S, SLOW_LOADING_S = 0.100, 0.500
_FEWEST_RECENT_STEPS = 32
_FEWEST_STEPS = 12
_FEWEST_PERIODS = 3
_LEAST_CORRELATION = 0.3
_MOST_MEDIANS = 20
_PAUSE_FACTOR = 3.0


class Period(NamedTuple):
    """A lag in steps, and the autocorrelation of the times at that lag (1 is a perfect repetition)."""

    num_steps: int
    correlation: float


@dataclass(frozen=True, slots=True)
class Oscillation:
    """`variation` is standard deviation over mean; the period is None where the step times do not repeat."""

    variation: float
    period_steps: int | None
    period_s: float | None
    correlation: float

    @property
    def is_stable(self) -> bool:
        return self.variation < STABLE_VARIATION


def find_oscillation(intervals_s: Times) -> Oscillation:
    """How much step times vary and whether they repeat; times that hardly vary are not searched for a period."""
    mean_s = float(intervals_s.mean()) if len(intervals_s) else 0.0
    variation = float(intervals_s.std() / mean_s) if mean_s > 0 else 0.0
    period = find_period(intervals_s) if variation > STABLE_VARIATION / 4 else None
    if period is None:
        return Oscillation(variation, None, None, 0.0)
    return Oscillation(variation, period.num_steps, period.num_steps * mean_s, period.correlation)


def find_recent_oscillation(steps: Iterable[tuple[float, float]]) -> Oscillation | None:
    """From seconds of waiting for data and of computing, step by step; None with too few steps.

    A step that computes several times as long as others validates or saves, which says nothing about the data pipeline:
    it counts as three usual ones. A long wait counts in full.
    """
    seconds = np.array(list(steps), np.float64).reshape(-1, 2)
    if len(seconds) < _FEWEST_RECENT_STEPS:
        return None
    wait_s, step_s = seconds.T
    return find_oscillation(wait_s + np.minimum(step_s, _PAUSE_FACTOR * np.median(step_s)))


def find_period(times_s: Times) -> Period | None:
    """The shortest lag with a high autocorrelation, seen at least three times; None where nothing repeats."""
    if len(times_s) < _FEWEST_STEPS:
        return None
    # A single extreme step would dominate the correlation.
    values = np.minimum(times_s, np.median(times_s) * _MOST_MEDIANS)
    scores = _autocorrelate(values, len(values) // _FEWEST_PERIODS)
    # 2 / sqrt(n) is the 95 % bound of the autocorrelation of white noise.
    least = max(_LEAST_CORRELATION, 2 / np.sqrt(len(values)))
    after = np.append(scores[1:], -np.inf)
    is_peak = (scores[1:] > scores[:-1]) & (scores[1:] >= after[1:]) & (scores[1:] >= least)
    lags = np.flatnonzero(is_peak) + 1
    lags = lags[lags >= 2]
    if not len(lags):
        return None
    # Multiples of a period correlate as well as the period itself.
    first = int(lags[scores[lags] >= 0.8 * scores[lags].max()][0])
    return Period(first, min(1.0, float(scores[first])))


def _autocorrelate(values: Times, max_lag: int) -> Times:
    """The autocorrelation at lags 0 to `max_lag`, unbiased: divided by the number of pairs at each lag."""
    centred = values - values.mean()
    power = float(np.dot(centred, centred)) / len(values)
    if power <= 0:
        return np.zeros(max_lag + 1)
    correlation: Times = np.correlate(centred, centred, "full")[len(values) - 1 :][: max_lag + 1]
    return correlation / (len(values) - np.arange(max_lag + 1)) / power


def rate_loading(seconds: float) -> str:
    """Good below 100 ms, moderate up to 500 ms, slow above."""
    return "good" if seconds < GOOD_LOADING_S else "moderate" if seconds <= SLOW_LOADING_S else "slow"
