"""Guards a training against divergence: counts steps that are not finite, finds loss spikes, asks for a rollback.

Pure logic: a guard never touches the model. The training loop asks it after each step and does what it says.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from myxtts.errors import MyXTTSError
from myxtts.training.run.state import GuardState

Record = Callable[[Mapping[str, Any]], object]
"""Called with the record of a bad step; `JsonLines.append` of skipped.jsonl in training."""

MAX_BAD_STEPS = 5
"""Skipped steps in a row after which the weights themselves are suspected, and rolled back."""
MAX_ROLLBACKS = 3
"""Times a training may be rolled back without good steps in between."""
_FORGIVEN_AFTER_STEPS = 1000
"""Good steps in a row after which earlier rollbacks no longer count."""
_WINDOW_STEPS, _LEAST_STEPS = 200, 20
"""Steps whose losses give the median, and the fewest before a spike can be found."""
_SPIKE_DEVIATIONS, _SPIKE_SHARE = 10.0, 0.5
"""A spike lies above the median of the window by so many deviations, and by this share of the median."""
_DEVIATION_OF_NORMAL = 1.4826
"""Median absolute deviation times this is the standard deviation, where losses are normally distributed."""
_MAX_IDS_IN_MESSAGE = 4


class Action(Enum):
    """Decision of the guard about a step; after ROLL_BACK the loop restores a checkpoint."""

    GO_ON = "go on"
    SKIPPED = "skipped"
    SPIKE = "spike"
    ROLL_BACK = "roll back"


@dataclass(frozen=True)
class Finding:
    """Action after a step, and a message for the user, empty when all is well."""

    action: Action
    message: str = ""


_NOTHING_FOUND = Finding(Action.GO_ON)


class Guard:
    """Judges the steps of a training in order, and keeps `state` up to date.

    `record` is called for every bad step with the ids of its batch.

    After ROLL_BACK the loop restores the newest checkpoint, calls `note_rollback`, and goes on with the *next* batch of
    the feed: the same batches with the same weights would fail in the same way.
    """

    def __init__(self, state: GuardState, record: Record) -> None:
        self.state, self._record = state, record
        # Not in the state: a resumed training starts counting at zero.
        self._num_bad_in_row = 0

    def judge(self, step: int, loss: float, gradient_norm: float, is_finite: bool, ids: Sequence[str]) -> Finding:
        """Judges a finished step. Raises MyXTTSError when rolling back has not helped."""
        if not (is_finite and math.isfinite(loss) and math.isfinite(gradient_norm)):
            return self._judge_bad_step(step, loss, gradient_norm, ids)
        self._num_bad_in_row = 0
        self.state.num_good_in_row += 1
        if self.state.num_good_in_row >= _FORGIVEN_AFTER_STEPS:
            self.state.num_recent_rollbacks = 0
        return self._judge_loss(step, loss, gradient_norm, ids)

    def note_rollback(self, step: int) -> None:
        """Called when the weights of `step` have been restored."""
        self.state.num_rollbacks += 1
        self.state.num_recent_rollbacks += 1
        self._num_bad_in_row = self.state.num_good_in_row = 0
        self.state.is_in_spike = False
        self._record({"step": step, "kind": "rolled back", "num_rollbacks": self.state.num_rollbacks})

    def _judge_bad_step(self, step: int, loss: float, gradient_norm: float, ids: Sequence[str]) -> Finding:
        """Counts a step that was not finite: skipped, then a rollback, then an error."""
        self.state.num_skipped += 1
        self._num_bad_in_row += 1
        self.state.num_good_in_row = 0
        fields = {"loss": str(loss), "gradient_norm": str(gradient_norm), "ids": list(filter(None, ids))}
        self._record({"step": step, "kind": "skipped", **fields})
        if self._num_bad_in_row < MAX_BAD_STEPS:
            message = (
                f"Step {step} was skipped: loss {loss:g}, gradient norm {gradient_norm:g} (batch of {_name_ids(ids)})."
            )
            return Finding(Action.SKIPPED, message)
        if self.state.num_recent_rollbacks >= MAX_ROLLBACKS:
            raise MyXTTSError(
                f"Training does not recover: at step {step} loss or gradient were NaN or infinite "
                f"{self._num_bad_in_row} "
                f"times in a row, after going back to a checkpoint {self.state.num_recent_rollbacks} times "
                f"(last batch of {_name_ids(ids)}).",
                next_step="Lower training.learning_rate or training.clip_norm, turn off training.mixed_precision, and "
                "look at the utterances in skipped.jsonl; then continue with --resume.",
            )
        message = f"{self._num_bad_in_row} steps in a row were NaN or infinite, the last was {step}: going back."
        return Finding(Action.ROLL_BACK, message)

    def _judge_loss(self, step: int, loss: float, gradient_norm: float, ids: Sequence[str]) -> Finding:
        """Reports a loss spike, once for each spike; the update was made all the same."""
        limit = self._find_spike_limit()
        self.state.losses = [*self.state.losses[1 - _WINDOW_STEPS :], loss]
        was_in_spike, self.state.is_in_spike = self.state.is_in_spike, loss > limit
        # A loss that stays high is reported once; the median of the window follows it.
        if not self.state.is_in_spike or was_in_spike:
            return _NOTHING_FOUND
        fields = {"loss": loss, "limit": limit, "gradient_norm": gradient_norm, "ids": list(filter(None, ids))}
        self._record({"step": step, "kind": "spike", **fields})
        message = (
            f"The loss of step {step} is {loss:.4g}, far above the usual {statistics.median(self.state.losses):.4g}"
        )
        return Finding(Action.SPIKE, f"{message} (gradient norm {gradient_norm:.3g}, batch of {_name_ids(ids)}).")

    def _find_spike_limit(self) -> float:
        """Median + max(10 robust standard deviations, half the median), over the last losses.

        The deviation comes from the median absolute deviation (MAD), which a few outliers do not change.
        """
        if len(self.state.losses) < _LEAST_STEPS:
            return math.inf
        median = statistics.median(self.state.losses)
        deviation = _DEVIATION_OF_NORMAL * statistics.median(abs(loss - median) for loss in self.state.losses)
        return median + max(_SPIKE_DEVIATIONS * deviation, _SPIKE_SHARE * abs(median))


def _name_ids(ids: Sequence[str]) -> str:
    real = [name for name in ids if name]
    more = f" and {len(real) - _MAX_IDS_IN_MESSAGE} more" if len(real) > _MAX_IDS_IN_MESSAGE else ""
    return ", ".join(real[:_MAX_IDS_IN_MESSAGE]) + more if real else "nothing"
