"""The rhythm of steps: how much they vary, whether they swing with a period, and a timeline in text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from myxtts.tools.diagnosis.evidence import Times

STABLE_VARIATION = 0.20
GOOD_LOADING_S, SLOW_LOADING_S = 0.100, 0.500
_FEWEST_STEPS = 12
_FEWEST_PERIODS = 3
_LEAST_CORRELATION = 0.3
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
    lag, correlation = _find_period(intervals_s) if variation > STABLE_VARIATION / 4 else (None, 0.0)
    return Oscillation(variation, lag, None if lag is None else lag * mean_s, correlation)


def correlate_with_itself(values: Times, max_lag: int) -> Times:
    """The autocorrelation at lags 0 to `max_lag`, each over the pairs there are."""
    centred = values - values.mean()
    power = float(np.dot(centred, centred)) / len(values)
    if power <= 0:
        return np.zeros(max_lag + 1)
    return np.array(
        [
            float(np.dot(centred[: len(values) - lag], centred[lag:])) / (len(values) - lag) / power
            for lag in range(max_lag + 1)
        ]
    )


def _find_period(intervals_s: Times) -> tuple[int | None, float]:
    if len(intervals_s) < _FEWEST_STEPS:
        return None, 0.0
    # One extreme step would be all that the correlation sees.
    values = np.minimum(intervals_s, np.median(intervals_s) * 20)
    scores = correlate_with_itself(values, len(values) // _FEWEST_PERIODS)
    least = max(_LEAST_CORRELATION, 2 / np.sqrt(len(values)))
    peaks = [
        lag
        for lag in range(2, len(scores))
        if scores[lag] >= least
        and scores[lag] > scores[lag - 1]
        and (lag + 1 == len(scores) or scores[lag] >= scores[lag + 1])
    ]
    if not peaks:
        return None, 0.0
    best = max(scores[lag] for lag in peaks)
    # Multiples of a period correlate as well as the period itself.
    first = next(lag for lag in peaks if scores[lag] >= 0.8 * best)
    return first, min(1.0, float(scores[first]))


def draw_timeline(intervals_s: Times, width: int = 60) -> str:
    """Steps as a line of blocks, one for each step or for the slowest of a few; the highest is the slowest."""
    if not len(intervals_s):
        return ""
    pieces = np.array_split(intervals_s, min(width, len(intervals_s)))
    heights = np.array([piece.max() for piece in pieces])
    top = max(float(heights.max()), 2 * float(np.median(intervals_s)))
    places = np.minimum((heights / top * len(_LEVELS)).astype(int), len(_LEVELS) - 1)
    return "".join(_LEVELS[place] for place in places)


def rate_loading(seconds: float) -> str:
    """In the words that users know: good below 100 ms, moderate up to 500 ms, slow above."""
    return "good" if seconds < GOOD_LOADING_S else "moderate" if seconds <= SLOW_LOADING_S else "slow"
