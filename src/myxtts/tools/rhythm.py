"""What steps and batches are judged by: how long loading may take, how much times may vary, and whether they swing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

STABLE_VARIATION = 0.20
"""Deviation over mean below which steps count as even."""
GOOD_LOADING_S, SLOW_LOADING_S = 0.100, 0.500
_FEWEST_STEPS = 12
_FEWEST_PERIODS = 3
_LEAST_CORRELATION = 0.3
_MOST_MEDIANS = 20
Times = NDArray[np.float64]


class Period(NamedTuple):
    """After so many steps the times resemble themselves, by so much (1 is equal)."""

    num_steps: int
    correlation: float


def find_period(times_s: Times) -> Period | None:
    """The first lag at which times resemble themselves most, seen at least three times; None where nothing returns."""
    if len(times_s) < _FEWEST_STEPS:
        return None
    # One extreme step would be all that the correlation sees.
    values = np.minimum(times_s, np.median(times_s) * _MOST_MEDIANS)
    scores = correlate_with_itself(values, len(values) // _FEWEST_PERIODS)
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


def correlate_with_itself(values: Times, max_lag: int) -> Times:
    """The autocorrelation at lags 0 to `max_lag`, each over the pairs there are."""
    centred = values - values.mean()
    power = float(np.dot(centred, centred)) / len(values)
    if power <= 0:
        return np.zeros(max_lag + 1)
    correlation: Times = np.correlate(centred, centred, "full")[len(values) - 1 :][: max_lag + 1]
    # Fewer pairs of values lie far apart; without this, long periods would look weak.
    return correlation / (len(values) - np.arange(max_lag + 1)) / power


def rate_loading(seconds: float) -> str:
    """In the words that users know: good below 100 ms, moderate up to 500 ms, slow above."""
    return "good" if seconds < GOOD_LOADING_S else "moderate" if seconds <= SLOW_LOADING_S else "slow"


# Whether steps come evenly: how much their times vary, and whether slow ones return after so many steps.

MIN_STEPS = 32
_PAUSE_FACTOR = 3.0


class Rhythm(NamedTuple):
    """`variation` is deviation over mean, None with too few steps; `period_steps` is None where nothing returns."""

    variation: float | None
    period_steps: int | None


def measure_rhythm(steps: Iterable[tuple[float, float]]) -> Rhythm:
    """From the seconds that steps waited for data and computed.

    A step that computes for several times as long as others validates or saves: that says nothing of the feed, so it
    counts as long as three usual ones. A long wait counts in full.
    """
    seconds = np.array(list(steps), np.float64).reshape(-1, 2)
    if len(seconds) < MIN_STEPS:
        return Rhythm(None, None)
    wait_s, step_s = seconds.T
    intervals = wait_s + np.minimum(step_s, _PAUSE_FACTOR * np.median(step_s))
    mean = float(intervals.mean())
    variation = float(intervals.std()) / mean if mean > 0 else 0.0
    period = find_period(intervals) if variation > STABLE_VARIATION else None
    return Rhythm(variation, period.num_steps if period is not None else None)


# The rhythm of steps: how much they vary, whether they swing with a period, and a timeline in text.

_LEVELS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Oscillation:
    """`variation` is deviation by mean. `period_steps` is None where the steps do not swing."""

    variation: float
    period_steps: int | None
    period_s: float | None
    correlation: float

    @property
    def is_stable(self) -> bool:
        return self.variation < STABLE_VARIATION


def find_oscillation(intervals_s: Times) -> Oscillation:
    """The period is the first lag at which the steps resemble themselves most, over at least three periods."""
    mean_s = float(intervals_s.mean()) if len(intervals_s) else 0.0
    variation = float(intervals_s.std() / mean_s) if mean_s > 0 else 0.0
    period = find_period(intervals_s) if variation > STABLE_VARIATION / 4 else None
    if period is None:
        return Oscillation(variation, None, None, 0.0)
    return Oscillation(variation, period.num_steps, period.num_steps * mean_s, period.correlation)


def draw_timeline(intervals_s: Times, width: int = 60) -> str:
    """Steps as a line of blocks, one for each step or for the slowest of a few; the highest is the slowest."""
    if not len(intervals_s):
        return ""
    pieces = np.array_split(intervals_s, min(width, len(intervals_s)))
    heights = np.array([piece.max() for piece in pieces])
    top = max(float(heights.max()), 2 * float(np.median(intervals_s)))
    places = np.minimum((heights / top * len(_LEVELS)).astype(int), len(_LEVELS) - 1)
    return "".join(_LEVELS[place] for place in places)
