"""When the text side of a voice shall rest: once what it still learns holds for the texts it has seen, and no others.

Text encoder and prosody see few different texts in a small corpus, and see them again and again; the decoder sees other
noise and another crop each time, and goes on learning from the same recordings for much longer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from myxtts.training.losses import DURATION_WEIGHT, PITCH_WEIGHT, PRIOR_WEIGHT

_WEIGHTS = {"prior": PRIOR_WEIGHT, "duration": DURATION_WEIGHT, "pitch": PITCH_WEIGHT}


class TextPatience:
    """Follows the part of the loss that is of the text side, as measured on utterances that are held out."""

    def __init__(self, num_steps: int) -> None:
        """Patience lasts `num_steps` without improvement; with 0 it never ends."""
        self._num_steps = num_steps
        self.best_step = 0
        self._best_loss = math.inf

    def note(self, step: int, numbers: Mapping[str, float | None]) -> bool:
        """Takes the numbers of a validation; whether patience is at its end."""
        loss = _weigh(numbers)
        if loss < self._best_loss:
            self.best_step, self._best_loss = step, loss
        return 0 < self._num_steps <= step - self.best_step


def _weigh(numbers: Mapping[str, float | None]) -> float:
    """Infinite where a number is missing, or was not finite when it was written down."""
    values = {name: numbers.get(name) for name in _WEIGHTS}
    total = sum(math.inf if value is None else _WEIGHTS[name] * value for name, value in values.items())
    return total if math.isfinite(total) else math.inf
