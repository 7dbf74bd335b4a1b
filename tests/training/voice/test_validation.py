"""Validation, early stopping, text freezing, samples and TensorBoard, beside a training that is only played."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.config.schema import XTTSConfig
from myxtts.errors import DataError
from myxtts.storage.json_file import JsonLines
from myxtts.training.run.state import RunState
from myxtts.training.sample_files import Sample
from myxtts.training.voice import validation as module
from myxtts.training.voice.validation import ValidationCallback
from myxtts.training.voice.validation_set import FixedUtterance

UTTERANCE = FixedUtterance("u", np.zeros(3, np.int32), np.zeros((9, 5), np.float32), 0, 0, np.zeros((4, 5), np.float32))


class PlayedRun:
    def __init__(self, path: Path) -> None:
        self.path, self.samples_path = path, path / "samples"
        self.metrics = JsonLines(path / "metrics.jsonl")


class PlayedTraining:
    """A view of a training in which nothing is trained."""

    total_steps = 10
    model: Any = None
    plan: Any = None
    is_stopping = False

    def __init__(self, path: Path, state: RunState | None = None) -> None:
        self.config, self.run = XTTSConfig(), PlayedRun(path)
        self.state = state if state is not None else RunState(step=0, feed_position=0)
        self.said: list[str] = []
        self.scores: list[tuple[int, float]] = []
        self.stops: list[str] = []
        self.freezes: list[tuple[int, str]] = []
        self.is_average = False

    @property
    def step(self) -> int:
        return self.state.step

    def say(self, line: str) -> None:
        self.said.append(line)

    @contextmanager
    def use_average(self) -> Iterator[None]:
        self.is_average = True
        yield
        self.is_average = False

    def note_score(self, score: float) -> None:
        self.scores.append((self.step, score))

    def request_stop(self, reason: str) -> None:
        self.stops.append(reason)

    def freeze_text(self, reason: str) -> None:
        self.freezes.append((self.step, reason))


class Stage:
    """Plays evaluator and sample writer, and checks that both see the averaged weights."""

    def __init__(self) -> None:
        self.scores: list[float] = []
        self.priors: list[float] = []
        self.view: PlayedTraining | None = None
        self.num_spoken = 0
        self.has_room = True

    def make(self, *_: Any, **__: Any) -> Stage:
        return self

    def evaluate(self) -> dict[str, float]:
        assert self.view is not None
        assert self.view.is_average
        if not self.has_room:
            raise tf.errors.ResourceExhaustedError(None, None, "no room")
        numbers = {"score": self.scores.pop(0), "mel_distance": 0.5, "token_duration_error": 0.2}
        return numbers | {"prior": self.priors.pop(0) if self.priors else 0.3, "duration": 0.4, "pitch": 0.5}

    def write(self, step: int) -> list[Sample]:
        assert self.view is not None
        assert self.view.is_average
        self.num_spoken += 1
        return []


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    played = Stage()
    monkeypatch.setattr(module, "Evaluator", played.make)
    monkeypatch.setattr(module, "VoiceSamples", played.make)
    monkeypatch.setattr(module, "load_fixed_utterances", lambda *_: [UTTERANCE])
    return played


def hum(mel_TM: NDArray[Any]) -> NDArray[np.float32]:
    return np.zeros(len(mel_TM), np.float32)


def play(callback: ValidationCallback, view: PlayedTraining, stage: Stage, num_checkpoints: int) -> None:
    """Two steps from one checkpoint to the next."""
    stage.view = view
    for _ in range(num_checkpoints):
        for _ in range(2):
            view.state.step += 1
            callback.on_step(view, {"step": view.step, "loss": 1.0, "what": "text"})  # type: ignore[arg-type]
        callback.on_checkpoint(view)  # type: ignore[arg-type]


def test_every_checkpoint_is_validated_and_spoken(stage: Stage, tmp_path: Path) -> None:
    view, stage.scores = PlayedTraining(tmp_path), [2.0, 1.0]
    callback = ValidationCallback(hum)
    play(callback, view, stage, 2)
    assert view.scores == [(2, 2.0), (4, 1.0)]
    assert stage.num_spoken == 2
    lines = [line for line in view.run.metrics.read() if "validation" in line]
    assert [(line["step"], line["validation"]["score"]) for line in lines] == [(2, 2.0), (4, 1.0)]
    assert "best so far" in view.said[-1]
    assert view.stops == []
    assert list((tmp_path / "tensorboard").iterdir())


def test_nothing_is_spoken_when_a_signal_came_during_validation(stage: Stage, tmp_path: Path) -> None:
    view, stage.scores = PlayedTraining(tmp_path), [2.0]
    view.is_stopping = True
    play(ValidationCallback(hum), view, stage, 1)
    assert view.scores == [(2, 2.0)]
    assert stage.num_spoken == 0


def test_samples_come_every_so_many_steps_and_once_a_step(stage: Stage, tmp_path: Path) -> None:
    view, stage.scores = PlayedTraining(tmp_path), [1.0, 1.0]
    play(ValidationCallback(hum, sample_steps=1), view, stage, 2)
    assert stage.num_spoken == 4


def resume(view: PlayedTraining, *, is_old: bool) -> PlayedTraining:
    """The training goes on in another process; an old checkpoint knows nothing of patience."""
    saved = json.loads(json.dumps(view.state.to_json()))
    if is_old:
        saved["early_stopping"] = saved["text_patience"] = None
    else:
        (view.run.path / "metrics.jsonl").unlink()
    resumed = PlayedTraining(view.run.path, RunState.from_json(saved))
    resumed.config = view.config
    return resumed


@pytest.mark.parametrize("is_old", [False, True])
def test_training_is_asked_to_stop_also_after_a_resume(stage: Stage, tmp_path: Path, is_old: bool) -> None:
    view, stage.scores = PlayedTraining(tmp_path), [1.0, 1.5]
    play(ValidationCallback(hum, patience=2), view, stage, 2)
    assert view.stops == []
    resumed, stage.scores = resume(view, is_old=is_old), [1.2]
    play(ValidationCallback(hum, patience=2), resumed, stage, 1)
    assert len(resumed.stops) == 1
    assert "since step 2" in resumed.stops[0]


@pytest.mark.parametrize("is_old", [False, True])
def test_the_text_side_is_frozen_when_it_does_not_improve_also_after_a_resume(
    stage: Stage, tmp_path: Path, is_old: bool
) -> None:
    view, stage.scores, stage.priors = PlayedTraining(tmp_path), [3.0, 2.0], [0.2, 0.1]
    view.config = XTTSConfig(text_freeze_patience_steps=4)
    play(ValidationCallback(hum), view, stage, 2)
    resumed, stage.scores, stage.priors = resume(view, is_old=is_old), [1.0, 0.5], [0.11, 0.12]
    play(ValidationCallback(hum), resumed, stage, 2)
    assert not view.freezes
    ((step, reason),) = resumed.freezes
    assert step == 8
    assert "since step 4" in reason


def test_a_score_that_is_not_finite_is_not_noted(stage: Stage, tmp_path: Path) -> None:
    view, stage.scores = PlayedTraining(tmp_path), [float("nan")]
    play(ValidationCallback(hum), view, stage, 1)
    assert view.scores == []


def test_a_training_without_room_for_validation_goes_on(stage: Stage, tmp_path: Path) -> None:
    view, stage.has_room = PlayedTraining(tmp_path), False
    play(ValidationCallback(hum), view, stage, 3)
    assert [line for line in view.said if "does not fit" in line] == view.said
    assert len(view.said) == 1
    assert stage.num_spoken == 3


def test_without_a_validation_split_samples_speak_training_sentences(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(config: XTTSConfig, num_utterances: int, split: str = "val") -> list[FixedUtterance]:
        if split == "val":
            raise DataError("The split has no utterances.", next_step="Add some.")
        return [UTTERANCE]

    monkeypatch.setattr(module, "load_fixed_utterances", load)
    view = PlayedTraining(tmp_path)
    play(ValidationCallback(hum), view, stage, 1)
    assert view.scores == []
    assert stage.num_spoken == 1
    assert "There is no validation" in view.said[0]
