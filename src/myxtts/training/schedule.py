"""Learning rate and length of a run: linear warm-up, then cosine decay to `LEAST_SHARE` of the peak at the last step.

The rate is constant where the number of steps is unknown. `TimeBudget` estimates it for runs that last some minutes.
"""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from myxtts.training.run.state import Clock
from myxtts.types import Tensor

if TYPE_CHECKING:
    from myxtts.training.run.cluster_sync import ClusterSync

LEAST_SHARE = 0.01
"""Learning rate at the last step, as a share of the peak rate."""
MAX_RISING_SHARE = 0.2
"""Longest warm-up, as a share of a run: a longer one would leave too few steps at a useful rate."""


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

    def at_tensor(self, step: Tensor, num_steps: Tensor) -> Tensor:
        """The rate of a step in the graph, float32; `num_steps` is -1 where the end is not known.

        In float64, so that it is the number that `at` gives.
        """
        import tensorflow as tf

        step, total = tf.cast(step, tf.float64), tf.cast(num_steps, tf.float64)
        is_known, asked = total >= 0, tf.constant(self.num_rising_steps, tf.float64)
        num_rising = tf.where(is_known, tf.minimum(asked, tf.math.ceil(MAX_RISING_SHARE * total)), asked)
        share = tf.where(
            is_known, (step - num_rising) / tf.maximum(tf.constant(1.0, tf.float64), total - num_rising), 0
        )
        fall = 0.5 * (1 + tf.cos(math.pi * tf.minimum(tf.constant(1.0, tf.float64), share)))
        factor = tf.where(step < num_rising, (step + 1) / num_rising, LEAST_SHARE + (1 - LEAST_SHARE) * fall)
        return tf.cast(self.highest * factor, tf.float32)

    def describe(self, minutes: float | None) -> list[str]:
        """Sentences for the user; `minutes` is the time limit of the run, where it has one."""
        is_endless = self.num_steps is None and minutes is None
        end = "then stays there: give --steps or --minutes to let it decay" if is_endless else "then decays to the end"
        is_shortened = self.num_rising < self.num_rising_steps
        why = f" (warm-up shortened from {self.num_rising_steps:,} to {self.num_rising:,})" if is_shortened else ""
        return [f"Learning rate: rises to {self.highest:g} over {self.num_rising:,} steps{why}, {end}."]


FIRST_STEPS = 2
"""Steps of each session that are not timed, because the first ones are slower than the others."""
PLANNING_STEPS = 64
"""Steps between two estimates of the last step; the first estimates follow after 4, 8, 16 and 32 steps."""
GUESSED_STEP_S = 1.0
"""Seconds of a step before any was timed; only the choice whether XLA pays depends on it."""


class TimeBudget:
    """Turns `training.minutes` into a number of steps, measured while the run goes on and kept with it.

    The learning rate decays towards the last step, so that must be known long before it comes. It follows from the
    clock: two runs of the same minutes are not the same run, as two of the same steps are. Every process of a cluster
    asks at the same steps and gets the same answer.
    """

    def __init__(self, minutes: float | None, clock: Clock | None, sync: ClusterSync) -> None:
        """`clock` is what `read_clock` gave in the session before."""
        known = clock or Clock()
        self._budget_s = None if minutes is None else 60 * minutes
        self._spent_before_s, self._sync = known.spent_s, sync
        self._started_s = time.monotonic()
        self._num_steps = 0
        self._marks: deque[tuple[int, float]] = deque()  # steps measured, and when
        self.total_steps: int | None = None if minutes is None else known.total_steps
        """The step at which the minutes will be over, as far as is known."""

    @property
    def spent_s(self) -> float:
        """Seconds of this session and of all sessions before it."""
        return self._spent_before_s + time.monotonic() - self._started_s

    def note_step(self, step: int) -> bool:
        """Called after every step with its number; returns whether the estimate of the last step has changed."""
        self._num_steps += 1
        if self._budget_s is None:
            return False
        num_measured = self._num_steps - FIRST_STEPS
        if num_measured == 0:
            self._marks.append((0, time.monotonic()))
        if not _is_estimate_due(num_measured):
            return False
        left = max(0, int((self._budget_s - self.spent_s) / max(self._measure_step_s(num_measured), 1e-9)))
        before, self.total_steps = self.total_steps, self._sync.share({"total_steps": step + left})["total_steps"]
        return self.total_steps != before

    def read_clock(self) -> Clock | None:
        """Clock for the checkpoint, from which the next session continues; None without `training.minutes`."""
        if self._budget_s is None:
            return None
        return Clock(spent_s=round(self.spent_s, 3), total_steps=self.total_steps)

    def _measure_step_s(self, num_measured: int) -> float:
        """Mean over the newer half of the session, so that one slow step is soon forgotten.

        The time of validation and saving is in it, so that the end comes when it was promised.
        """
        now_s = time.monotonic()
        self._marks.append((num_measured, now_s))
        while self._marks[1][0] <= num_measured // 2:
            self._marks.popleft()
        first, then_s = self._marks[0]
        return (now_s - then_s) / (num_measured - first)


def _is_estimate_due(num_measured: int) -> bool:
    """After 4, 8, 16, 32 timed steps, then every PLANNING_STEPS."""
    if num_measured >= PLANNING_STEPS:
        return num_measured % PLANNING_STEPS == 0
    return num_measured >= 4 and num_measured.bit_count() == 1


def guess_total_steps(total_steps: int | None, minutes: float | None) -> int | None:
    """About how many steps a run will have, before the first of them."""
    if minutes is None:
        return total_steps
    guessed = max(1, int(60 * minutes / GUESSED_STEP_S))
    return guessed if total_steps is None else min(total_steps, guessed)
