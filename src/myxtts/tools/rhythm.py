"""Statistics of step times: coefficient of variation, period by autocorrelation, and the rating of loading times.

One definition for `myxtts monitor`, `diagnose` and `profile`, so that they agree on what counts as stable.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
Rating = Literal["good", "moderate", "slow"]

STABLE_VARIATION = 0.20
"""Standard deviation over mean below which step times count as stable."""
_SPARE_LOADING = 0.8
"""Loading time over step time up to which loading has something in reserve."""
_FEWEST_RECENT_STEPS = 32
"""A live view shows no variation before it has this many steps."""
_FEWEST_STEPS = 12
"""The least for a period of 2 to 4 steps, seen three times."""
_FEWEST_PERIODS = 3
"""A period must fit so often into the measured steps: the largest lag is a third of them."""
_LEAST_CORRELATION = 0.3
"""Autocorrelation from which a lag counts as a period, however many steps there are."""
_MOST_MEDIANS = 20
"""Longer steps are clipped to this multiple of the median before the autocorrelation."""
_PAUSE_FACTOR = 3.0
"""Compute times are clipped to this multiple of the median; longer steps also validate or save."""


class Period(NamedTuple):
    """A lag in steps, and the autocorrelation of the times at that lag (1 is a perfect repetition)."""

    num_steps: int
    correlation: float


@dataclass(frozen=True, slots=True)
class Oscillation:
    """`variation` is standard deviation over mean of the step times; the period is None where they do not repeat."""

    variation: float
    period_steps: int | None
    period_s: float | None
    correlation: float

    @property
    def is_stable(self) -> bool:
        return self.variation < STABLE_VARIATION


def find_oscillation(intervals_s: Times) -> Oscillation:
    """Measures variation and period of step times. Below 5 % of variation no period is searched: it would be noise."""
    mean_s = float(intervals_s.mean()) if len(intervals_s) else 0.0
    variation = float(intervals_s.std() / mean_s) if mean_s > 0 else 0.0
    period = find_period(intervals_s) if variation > STABLE_VARIATION / 4 else None
    if period is None:
        return Oscillation(variation, None, None, 0.0)
    return Oscillation(variation, period.num_steps, period.num_steps * mean_s, period.correlation)


def find_recent_oscillation(steps: Iterable[tuple[float, float, int]]) -> Oscillation | None:
    """Measures (data wait, compute time, padded frames) step by step, in seconds; None with too few steps.

    A step that computes several times as long as others validates or saves, which says nothing about the data pipeline:
    its compute time is clipped to three medians. A long wait counts in full.
    """
    rows = list(steps)
    if len(rows) < _FEWEST_RECENT_STEPS:
        return None
    wait_s, step_s, num_frames = np.array(rows, np.float64).T
    step_s = even_out_shapes(step_s, num_frames)
    return find_oscillation(wait_s + np.minimum(step_s, _PAUSE_FACTOR * np.median(step_s)))


def even_out_shapes(step_s: Times, shape: NDArray[Any]) -> Times:
    """Scales compute times so that every batch shape has the same median; arrays [steps].

    A larger batch takes longer by itself: with two shapes, the steps of a healthy run alternate between two times.
    `shape` is any number that tells shapes apart, such as their padded frames.
    """
    if not len(step_s):
        return step_s
    _, numbers = np.unique(shape, return_inverse=True)
    medians_s = np.array([np.median(step_s[numbers == number]) for number in range(numbers.max() + 1)])
    scale = np.divide(np.median(step_s), medians_s, out=np.ones_like(medians_s), where=medians_s > 0)
    return np.asarray(step_s * scale[numbers])


def find_period(times_s: Times) -> Period | None:
    """Finds the period: the shortest lag of at least 2 steps at a peak of the autocorrelation; None without a peak.

    A peak counts from 80 % of the highest one, so that a multiple of the period is not taken for it.
    """
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


def rate_loading(seconds: float, step_s: float) -> Rating:
    """Rates the time between two loaded batches by the step that consumes them.

    `good` with at least a fifth in reserve, `moderate` if it is just as fast, `slow` if the step has to wait.
    """
    if seconds <= _SPARE_LOADING * step_s:
        return "good"
    return "moderate" if seconds <= step_s else "slow"
