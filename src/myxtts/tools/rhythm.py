"""What steps and batches are judged by: how long loading may take, how much times may vary, and whether they swing."""

from __future__ import annotations

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
