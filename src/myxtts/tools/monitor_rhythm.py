"""Whether steps come evenly: how much their times vary, and whether slow ones return after so many steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MIN_STEPS = 32
UNEVEN_VARIATION = 0.2
"""Deviation over mean from which steps count as uneven."""
_MIN_CORRELATION = 0.4
_PAUSE_FACTOR = 3.0


class Rhythm(NamedTuple):
    """`variation` is deviation over mean, None with too few steps; `period_steps` is None where nothing returns."""

    variation: float | None
    period_steps: float | None


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
    return Rhythm(variation, find_period(intervals) if variation > UNEVEN_VARIATION else None)


def find_period(values: NDArray[np.float64]) -> float | None:
    """The shortest distance at which values resemble themselves, from the peaks of their autocorrelation."""
    centred = values - values.mean()
    power = float(centred @ centred)
    num_lags = len(values) // 2
    if power <= 0 or num_lags < 3:
        return None
    correlation = np.correlate(centred, centred, "full")[len(values) - 1 :][: num_lags + 1]
    # Fewer pairs of values lie far apart; without this, long periods would look weak.
    correlation *= len(values) / (len(values) - np.arange(num_lags + 1)) / power
    inner = correlation[1:-1]
    is_peak = (inner >= correlation[:-2]) & (inner > correlation[2:]) & (inner >= _MIN_CORRELATION)
    peaks = np.flatnonzero(is_peak) + 1
    if not len(peaks):
        return None
    # Multiples of a period are peaks too: the shortest one nearly as high as the highest is the period itself.
    return float(peaks[correlation[peaks] >= 0.8 * correlation[peaks].max()][0])
