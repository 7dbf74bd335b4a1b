"""The rhythm of steps: how much they vary, whether they swing with a period, and a timeline in text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from myxtts.tools.rhythm import STABLE_VARIATION, Times, find_period

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
