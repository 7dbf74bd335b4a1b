"""How fast the model learns at which step: a rise, then a cosine down to the last step."""

from __future__ import annotations

import math
from dataclasses import dataclass

LEAST_SHARE = 0.01
"""Of the highest rate: what is left at the last step."""
MAX_RISING_SHARE = 0.2
"""Of a short run: more would be spent on warming up than on learning."""


@dataclass(frozen=True)
class LearningRate:
    """A pure function of the step, so that a resumed run goes on at the rate it would have had.

    Without `num_steps` the end is not known, and the rate stays at its highest.
    """

    highest: float
    num_rising_steps: int
    num_steps: int | None = None

    @property
    def num_rising(self) -> int:
        """Steps of the rise, as many as asked for unless the run is too short."""
        if self.num_steps is None:
            return self.num_rising_steps
        return min(self.num_rising_steps, math.ceil(MAX_RISING_SHARE * self.num_steps))

    def at(self, step: int) -> float:
        """The rate of a step, counted from 0."""
        if step < self.num_rising:
            return self.highest * (step + 1) / self.num_rising
        if self.num_steps is None:
            return self.highest
        share = (step - self.num_rising) / max(1, self.num_steps - self.num_rising)
        fall = 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
        return self.highest * (LEAST_SHARE + (1 - LEAST_SHARE) * fall)


def count_total_steps(
    steps: int | None, epochs: int | None, num_batches_per_epoch: int, batches_per_step: int
) -> int | None:
    """The step at which a run ends: the earlier of `steps` and `epochs`, None where neither is given."""
    ends = [] if steps is None else [steps]
    if epochs is not None:
        ends.append(epochs * num_batches_per_epoch // batches_per_step)
    return min(ends, default=None)
