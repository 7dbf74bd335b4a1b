"""Steps that fit into the device's memory: what does not fit is cut into smaller micro-batches for the same step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

from myxtts.errors import HardwareError
from myxtts.training.prepared import Prepared
from myxtts.types import Say

_Outcome = TypeVar("_Outcome")


class FittingSteps:
    """Does the work of a learner again, in smaller pieces, whenever memory is exhausted."""

    def __init__(self, prepared: Prepared, say: Say) -> None:
        self._prepared, self._say = prepared, say
        self._device = prepared.plan.model_devices[0]

    def run(self, work: Callable[[], _Outcome]) -> _Outcome:
        """Halves the micro-batches until the device has room for them, and remembers what it had room for."""
        while True:
            try:
                return work()
            except tf.errors.ResourceExhaustedError as error:
                self._refuse_in_cluster(error)
            # Not in the handler: as long as the error is held, so is the memory of the step that failed.
            self._halve()

    def _refuse_in_cluster(self, error: tf.errors.ResourceExhaustedError) -> None:
        if self._prepared.plan.cluster is not None:
            raise HardwareError(
                f"The memory of {self._device} is exhausted, and processes that train together cannot cut batches each "
                "by itself.",
                next_step="Give a smaller data.batch_size or data.frame_budget to all of them.",
            ) from error

    def _halve(self) -> None:
        learner = self._prepared.learner
        smaller = learner.micro_batches.halve(self._device)
        self._say(
            f"The memory of {self._device} is exhausted: each step is made of "
            f"{smaller.accumulation} micro-batches of {smaller.batch_size} {self._prepared.unit} from now on."
        )
        learner.set_micro_batches(smaller)
        self._prepared.memory.remember(self._prepared.situation, smaller)
