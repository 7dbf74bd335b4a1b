"""Trainings for processes that have TensorFlow loaded already and fork for each of them, so that many are cheap."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from tests.training.trainer_programs import train

from myxtts.training.learner import Learner
from myxtts.training.session import Session
from myxtts.training.step import StepResult
from myxtts.types import Batch

__all__ = ["Session", "train_watched"]


def train_watched(
    config_file: str,
    settings: dict[str, Any],
    ids_file: str = "",
    poison: Sequence[int] = (),
    exhaust: Sequence[int] = (),
    signal_at: int | None = None,
    signal_number: int = signal.SIGTERM,
    **options: Any,
) -> dict[str, Any]:
    """Trains, noting which utterances each call of the step saw.

    Calls of the step (counted from 1) are `poison`ed with NaN, or `exhaust` the memory.
    """
    plain = Learner.train
    num_calls = 0

    def train_noted(learner: Learner, batches: Sequence[Batch], step: int) -> StepResult:
        nonlocal num_calls
        num_calls += 1
        if num_calls in exhaust:
            raise tf.errors.ResourceExhaustedError(None, None, "no memory left, says the test")
        if ids_file:
            with Path(ids_file).open("a", encoding="utf-8") as file:
                file.write(json.dumps([step, [id for batch in batches for id in batch.ids]]) + "\n")
        if num_calls == signal_at:
            os.kill(os.getpid(), signal_number)
        if num_calls not in poison:
            return plain(learner, batches, step)
        parts = [learner._select_shares(batch) for batch in batches]
        return learner.train_on([[{**part, "mel": part["mel"] * float("nan")} for part in ps] for ps in parts], step)

    Learner.train = train_noted  # type: ignore[method-assign, assignment]
    return train(config_file, settings, **options)
