"""Watches the numbers of every step: what was not finite is counted and recorded, and too much of it is acted upon.

Pure logic: a guard never touches the model. The trainer asks it after each step and does what it says.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from myxtts.errors import MyXTTSError

Record = Callable[[Mapping[str, Any]], object]
"""Takes what is to be remembered about a bad step; `JsonLines.append` is one."""

MAX_BAD_STEPS = 5
"""Steps in a row that may be skipped before the weights themselves are suspected."""
MAX_ROLLBACKS = 3
"""Times a training may be rolled back without good steps in between."""
_FORGIVEN_AFTER_STEPS = 1000
_WINDOW_STEPS = 200
_LEAST_STEPS = 20
_SPIKE_DEVIATIONS = 10.0
_SPIKE_SHARE = 0.5
_DEVIATION_OF_NORMAL = 1.4826
_MAX_IDS_IN_MESSAGE = 4


class Action(Enum):
    GO_ON = "go on"
    SKIPPED = "skipped"
    SPIKE = "spike"
    ROLL_BACK = "roll back"


@dataclass(frozen=True)
class Verdict:
    """What to do after a step, and what to tell the user; the message is empty when all is well."""

    action: Action
    message: str = ""


_ALL_IS_WELL = Verdict(Action.GO_ON)


class Guard:
    """Judges the steps of a training in order. `record` is called for every bad step with the ids of its batch.

    After ROLL_BACK the trainer loads the newest checkpoint, calls `note_rollback`, and goes on with the *next* batch of
    the feed: the same batches with the same weights would fail in the same way.
    """

    def __init__(
        self, record: Record, *, max_bad_steps: int = MAX_BAD_STEPS, max_rollbacks: int = MAX_ROLLBACKS
    ) -> None:
        self._record = record
        self._max_bad_steps, self._max_rollbacks = max_bad_steps, max_rollbacks
        self._losses: deque[float] = deque(maxlen=_WINDOW_STEPS)
        self._num_bad_in_row = 0
        self._num_good_in_row = 0
        self._num_recent_rollbacks = 0
        self._is_in_spike = False
        self.num_skipped, self.num_spikes, self.num_rollbacks = 0, 0, 0

    def judge(self, step: int, loss: float, gradient_norm: float, is_finite: bool, ids: Sequence[str]) -> Verdict:
        """Looks at a step that was done. Raises MyXTTSError when rolling back has not helped."""
        if not (is_finite and math.isfinite(loss) and math.isfinite(gradient_norm)):
            return self._judge_bad_step(step, loss, gradient_norm, ids)
        self._num_bad_in_row = 0
        self._num_good_in_row += 1
        if self._num_good_in_row >= _FORGIVEN_AFTER_STEPS:
            self._num_recent_rollbacks = 0
        return self._judge_loss(step, loss, gradient_norm, ids)

    def note_rollback(self, step: int) -> None:
        """The trainer went back to the weights of `step`."""
        self.num_rollbacks += 1
        self._num_recent_rollbacks += 1
        self._num_bad_in_row = self._num_good_in_row = 0
        self._is_in_spike = False
        self._record({"step": step, "kind": "rolled back", "num_rollbacks": self.num_rollbacks})

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint keeps of the guard, so that a resumed training judges as one that was not interrupted."""
        return {
            "losses": list(self._losses),
            "num_good_in_row": self._num_good_in_row,
            "num_recent_rollbacks": self._num_recent_rollbacks,
            "is_in_spike": self._is_in_spike,
            "num_skipped": self.num_skipped,
            "num_spikes": self.num_spikes,
            "num_rollbacks": self.num_rollbacks,
        }

    def restore(self, fields: Mapping[str, Any]) -> None:
        """Takes up what `to_json` gave; an empty mapping stands for a fresh start."""
        self._losses = deque(map(float, fields.get("losses", ())), maxlen=_WINDOW_STEPS)
        self._num_bad_in_row = 0
        self._num_good_in_row = int(fields.get("num_good_in_row", 0))
        self._num_recent_rollbacks = int(fields.get("num_recent_rollbacks", 0))
        self._is_in_spike = bool(fields.get("is_in_spike", False))
        self.num_skipped = int(fields.get("num_skipped", 0))
        self.num_spikes = int(fields.get("num_spikes", 0))
        self.num_rollbacks = int(fields.get("num_rollbacks", 0))

    def _judge_bad_step(self, step: int, loss: float, gradient_norm: float, ids: Sequence[str]) -> Verdict:
        self.num_skipped += 1
        self._num_bad_in_row += 1
        self._num_good_in_row = 0
        fields = {"loss": str(loss), "gradient_norm": str(gradient_norm), "ids": list(filter(None, ids))}
        self._record({"step": step, "kind": "skipped", **fields})
        if self._num_bad_in_row < self._max_bad_steps:
            message = (
                f"Step {step} was skipped: loss {loss:g}, gradient norm {gradient_norm:g} (batch of {_name_ids(ids)})."
            )
            return Verdict(Action.SKIPPED, message)
        if self._num_recent_rollbacks >= self._max_rollbacks:
            raise MyXTTSError(
                f"Training does not recover: at step {step} loss or gradient were not finite {self._num_bad_in_row} "
                f"times in a row, after going back to a checkpoint {self._num_recent_rollbacks} times "
                f"(last batch of {_name_ids(ids)}).",
                next_step="Lower training.learning_rate or training.clip_norm, turn off training.mixed_precision, and "
                "look at the utterances in skipped.jsonl; then go on with --resume.",
            )
        message = f"{self._num_bad_in_row} steps in a row were not finite, the last of them {step}: going back."
        return Verdict(Action.ROLL_BACK, message)

    def _judge_loss(self, step: int, loss: float, gradient_norm: float, ids: Sequence[str]) -> Verdict:
        limit = self._find_spike_limit()
        self._losses.append(loss)
        was_in_spike, self._is_in_spike = self._is_in_spike, loss > limit
        # A loss that stays high is said once; the median follows it in time.
        if not self._is_in_spike or was_in_spike:
            return _ALL_IS_WELL
        self.num_spikes += 1
        fields = {"loss": loss, "limit": limit, "gradient_norm": gradient_norm, "ids": list(filter(None, ids))}
        self._record({"step": step, "kind": "spike", **fields})
        message = f"The loss of step {step} is {loss:.4g}, far above the usual {statistics.median(self._losses):.4g}"
        return Verdict(Action.SPIKE, f"{message} (gradient norm {gradient_norm:.3g}, batch of {_name_ids(ids)}).")

    def _find_spike_limit(self) -> float:
        """Far above the median, in terms of the usual deviation from it, which a few outliers do not change."""
        if len(self._losses) < _LEAST_STEPS:
            return math.inf
        median = statistics.median(self._losses)
        deviation = _DEVIATION_OF_NORMAL * statistics.median(abs(loss - median) for loss in self._losses)
        return median + max(_SPIKE_DEVIATIONS * deviation, _SPIKE_SHARE * abs(median))


def _name_ids(ids: Sequence[str]) -> str:
    real = [name for name in ids if name]
    more = f" and {len(real) - _MAX_IDS_IN_MESSAGE} more" if len(real) > _MAX_IDS_IN_MESSAGE else ""
    return ", ".join(real[:_MAX_IDS_IN_MESSAGE]) + more if real else "nothing"
