"""Trainings for processes that have TensorFlow loaded already and fork for each of them, so that many are cheap."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tensorflow as tf
from tests.training.trainer_programs import train

from myxtts.config.schema import XTTSConfig
from myxtts.models import xtts
from myxtts.store.reader import FeatureStore
from myxtts.training import schedule as time_budget
from myxtts.training.loop import TrainingLoop
from myxtts.training.step import StepNumbers, StepResult
from myxtts.training.trainer import Trainer
from myxtts.training.voice import align as voice_align
from myxtts.training.voice.align import StoreAligner, align_store, load_model, plan_alignment
from myxtts.training.voice.learner import Learner
from myxtts.training.voice.metrics import Evaluator
from myxtts.types import Batch

__all__ = [
    "TrainingLoop",
    "align",
    "say",
    "search_durations",
    "train_as_documented",
    "train_on_slow_device",
    "train_watched",
]
_PATIENCE_S = 60.0
"""Waited for only by a test that fails."""


def train_watched(
    config_file: str,
    settings: dict[str, Any],
    ids_file: str = "",
    exhaust: Sequence[int] = (),
    signal_at: int | None = None,
    signal_number: int = signal.SIGTERM,
    is_search_forbidden: bool = False,
    clock_step_s: float = 0.0,
    **options: Any,
) -> dict[str, Any]:
    """Trains, noting which utterances each call of the step saw.

    Calls of the step (counted from 1) `exhaust` the memory, or bring a signal. With `clock_step_s` the clock that
    minutes are measured by moves with the steps alone.
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
        return plain(learner, batches, step)

    if clock_step_s:
        clock = SimpleNamespace(monotonic=lambda: clock_step_s * num_calls)
        setattr(time_budget, "time", clock)  # noqa: B010 - the module does not export it
    Learner.train = train_noted  # type: ignore[method-assign, assignment]
    if is_search_forbidden:
        setattr(xtts, "search_alignment", refuse_to_search)  # noqa: B010 - the module does not export it
    return train(config_file, settings, **options)


def train_on_slow_device(config_file: str, settings: dict[str, Any], num_ahead: int) -> dict[str, Any]:
    """Trains on a device that gives the result of a step only when the host has started `num_ahead` later ones.

    Returns for each result whether it came, and the most steps that were started without a result.
    """
    plain, num_steps = Learner.train, settings["steps"]
    started = [threading.Event() for _ in range(num_steps)]
    is_ahead: list[bool] = []
    num_unread: list[int] = []

    def train_noted(learner: Learner, batches: Sequence[Batch], step: int) -> Any:
        started[step].set()
        num_unread.append(step + 1 - len(is_ahead))
        result = plain(learner, batches, step)
        return SimpleNamespace(read=lambda: read_late(step, result))

    def read_late(step: int, result: StepResult) -> StepNumbers:
        later = min(step + num_ahead, num_steps - 1)
        is_ahead.append(started[later].wait(_PATIENCE_S))
        return result.read()

    Learner.train = train_noted  # type: ignore[method-assign, assignment]
    train(config_file, settings)
    return {"is_ahead": is_ahead, "most_unread": max(num_unread)}


def train_as_documented(config_file: str, settings: dict[str, Any]) -> dict[str, Any]:
    """`Trainer(config).fit()` and nothing else, on a model that is never better than at its first validation."""
    evaluate = Evaluator.evaluate
    Evaluator.evaluate = lambda evaluator: {  # type: ignore[method-assign, assignment]
        **evaluate(evaluator),
        **dict.fromkeys(("score", "prior", "duration", "pitch"), 1.0),
    }
    result = Trainer(XTTSConfig.load(config_file, **settings)).fit()
    return {"step": result.step, "best_step": result.best_step, "reason": result.reason}


def refuse_to_search(*_: Any, **__: Any) -> None:
    raise AssertionError("an alignment was searched for")


def align(run: str, chunk_utterances: int | None = None) -> dict[str, Any]:
    """Aligns the store that a run was trained on with its model, written every `chunk_utterances`."""
    if chunk_utterances is not None:
        setattr(voice_align, "CHUNK_UTTERANCES", chunk_utterances)  # noqa: B010 - the module does not export it
    return asdict(align_store(plan_alignment(XTTSConfig(), Path(run))))


def search_durations(run: str, num_utterances: int) -> dict[str, list[int]]:
    """What the model of a run finds for some, one utterance at a time and without any padding, by id."""
    plan = plan_alignment(XTTSConfig(), Path(run))
    aligner = StoreAligner(FeatureStore.open(plan.folder), load_model(plan), plan.config)
    found: dict[str, list[int]] = {}
    for position in range(aligner.order.num_batches_per_epoch):
        batch_plan = aligner.order.batch(position)
        arrays = aligner._loader.fill(batch_plan, aligner._layout.view(batch_plan.shape))
        for row, id in enumerate(filter(None, aligner._loader.name_utterances(batch_plan))):
            if len(found) == num_utterances:
                return found
            part = {name: tf.constant(values[row : row + 1]) for name, values in arrays.items()}
            part["tokens"] = part["tokens"][:, : arrays["token_lengths"][row]]
            part["mel"] = part["mel"][:, : arrays["mel_lengths"][row]]
            found[id] = aligner._model.align(part).token_durations_BN[0].numpy().tolist()
    return found


def say(model: str, voices: Sequence[str | None]) -> list[float]:
    """How loud the same words are in each voice."""
    from myxtts.synthesis.synthesizer import Synthesizer

    speaker = Synthesizer.load(model)
    return [float(abs(speaker.say("Words of a clip.", voice=voice).samples).mean()) for voice in voices]
