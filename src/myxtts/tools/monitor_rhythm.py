"""Whether steps come evenly: how much their times vary, and whether slow ones return after so many steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from myxtts.tools.rhythm import STABLE_VARIATION, find_period

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
