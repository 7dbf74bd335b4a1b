"""When the text side of a voice shall rest: once what it still learns holds for the texts it has seen, and no others.

Text encoder and prosody see few different texts in a small corpus, and see them again and again; the decoder sees other
noise and another crop each time, and goes on learning from the same recordings for much longer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from myxtts.training.evaluation import EarlyStopping
from myxtts.training.losses import DURATION_WEIGHT, PITCH_WEIGHT, PRIOR_WEIGHT

_WEIGHTS = {"prior": PRIOR_WEIGHT, "duration": DURATION_WEIGHT, "pitch": PITCH_WEIGHT}


class TextPatience:
    """Follows the part of the loss that is of the text side, as measured on utterances that are held out."""

    def __init__(self, num_steps: int) -> None:
        """Patience lasts `num_steps` without improvement; with 0 it never ends."""
        self._num_steps = num_steps
        self._best = EarlyStopping(patience=None)

    @property
    def best_step(self) -> int | None:
        return self._best.best_step

    def note(self, step: int, numbers: Mapping[str, float | None]) -> bool:
        """Takes the numbers of a validation; whether patience is at its end. It is not before one of them was good."""
        self._best.note(step, _weigh(numbers))
        return self.best_step is not None and 0 < self._num_steps <= step - self.best_step


def _weigh(numbers: Mapping[str, float | None]) -> float:
    """Not a number where a term was none when it was written down."""
    terms = ((weight, numbers.get(name)) for name, weight in _WEIGHTS.items())
    return sum(weight * (math.nan if value is None else value) for weight, value in terms)
