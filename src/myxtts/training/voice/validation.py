"""Watches a training of the voice model: validation, early stopping, samples and TensorBoard, as one observer.

Lines that it adds to metrics.jsonl hold `step` and either `validation` (numbers by name) or `samples` (how many), with
the `watch_seconds` that training waited.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, Protocol, Self

import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.errors import DataError
from myxtts.features.definition import MelDefinition
from myxtts.features.griffin_lim import GriffinLim
from myxtts.training.callbacks import Record, TrainingView, TrainResult
from myxtts.training.sample_files import Sample
from myxtts.training.tensorboard import TensorBoardWriter
from myxtts.training.voice.losses import DURATION_WEIGHT, PITCH_WEIGHT, PRIOR_WEIGHT
from myxtts.training.voice.metrics import SCORE, EarlyStopping, Evaluator
from myxtts.training.voice.samples import MakeSound, SampleWriter
from myxtts.training.voice.validation_set import (
    NUM_UTTERANCES,
    FixedUtterance,
    choose_sentences,
    find_texts,
    load_fixed_utterances,
)
from myxtts.types import Split

# When the text side of a voice shall rest: once what it still learns holds for the texts it has seen, and no others.
#
# Text encoder and prosody see few different texts in a small corpus, and see them again and again; the decoder sees
# other
# noise and another crop each time, and goes on learning from the same recordings for much longer.

_WEIGHTS = {"prior": PRIOR_WEIGHT, "duration": DURATION_WEIGHT, "pitch": PITCH_WEIGHT}


class TextFreeze:
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


TENSORBOARD_FOLDER_NAME = "tensorboard"
NUM_SENTENCES = 4


class AnyEvaluator(Protocol):
    """Gives numbers by name, one of them the score."""

    def evaluate(self) -> dict[str, float]: ...


class AnySampleWriter(Protocol):
    """Makes the present weights heard."""

    def write(self, step: int) -> list[Sample]: ...


class ValidationCallback:
    """Give it to a training. Validation comes with every checkpoint, which is then kept if it is the best so far.

    `make_sound` turns spectrograms into samples, 0 `sample_steps` speak only with checkpoints, and without a `patience`
    (evaluations without improvement) training never stops early.
    """

    def __init__(
        self,
        make_sound: MakeSound,
        *,
        sample_steps: int = 0,
        patience: int | None = None,
        min_delta: float = 0.0,
        num_utterances: int = NUM_UTTERANCES,
        num_sentences: int = NUM_SENTENCES,
    ) -> None:
        self._make_sound, self._sample_steps = make_sound, sample_steps
        self._num_utterances, self._num_sentences = num_utterances, num_sentences
        self._stopping = EarlyStopping(patience, min_delta)
        self._text_patience: TextFreeze | None = None
        self._evaluator: AnyEvaluator | None = None
        self._samples: AnySampleWriter | None = None
        self._board: TensorBoardWriter | None = None
        self._is_open = False
        self._spoken_step = -1

    @classmethod
    def from_config(cls, config: XTTSConfig) -> Self:
        """Samples are made audible by Griffin-Lim, which needs no training."""
        make_sound = GriffinLim(MelDefinition.from_config(config.data))
        training = config.training
        return cls(make_sound, sample_steps=training.sample_steps, patience=training.early_stopping or None)

    def on_step(self, view: TrainingView, record: Record | None) -> None:
        self._open(view)
        if record is not None and self._board is not None:
            self._board.write_scalars(view.step, _select_numbers(record))
        if self._sample_steps and view.step % self._sample_steps == 0:
            self._speak(view)

    def on_checkpoint(self, view: TrainingView) -> None:
        self._open(view)
        self._validate(view)
        if not view.is_stopping:
            self._speak(view)

    def on_end(self, view: TrainingView, result: TrainResult) -> None:
        if self._board is not None:
            self._board.close()

    def _open(self, view: TrainingView) -> None:
        """With the first step: only then there is a model."""
        if self._is_open:
            return
        self._is_open = True
        rate_hz = view.config.data.sample_rate
        self._board = TensorBoardWriter(view.run.path / TENSORBOARD_FOLDER_NAME, rate_hz, view.say)
        self._equip(view)
        if self._evaluator is not None:
            self._take_up(view)

    def _equip(self, view: TrainingView) -> None:
        """Makes what validates and what speaks."""
        utterances, split = self._load_utterances(view)
        if split == "val":
            self._evaluator = Evaluator(view.model, utterances, seed=view.config.training.seed)
            self._text_patience = TextFreeze(view.config.training.text_patience_steps)
        sentences = choose_sentences(utterances, self._num_sentences)
        self._samples = SampleWriter(
            view.model,
            sentences,
            view.run.samples_path,
            self._make_sound,
            view.config.data.sample_rate,
            texts=find_texts(view.config, sentences, split),
            warn=view.say,
        )

    def _load_utterances(self, view: TrainingView) -> tuple[list[FixedUtterance], Split]:
        try:
            return load_fixed_utterances(view.config, self._num_utterances), "val"
        except DataError as error:
            view.say(f"There is no validation, and samples speak sentences of the training split: {error.problem}")
        return load_fixed_utterances(view.config, self._num_sentences, "train"), "train"

    def _take_up(self, view: TrainingView) -> None:
        """A resumed training stops, and rests, when one that was never interrupted would have."""
        for line in view.run.metrics.read():
            numbers = line.get("validation")
            if isinstance(numbers, dict) and isinstance(line.get("step"), int):
                score = numbers.get(SCORE)
                self._stopping.note(line["step"], math.inf if score is None else float(score))
                if self._text_patience is not None:
                    self._text_patience.note(line["step"], numbers)

    def _validate(self, view: TrainingView) -> None:
        if self._evaluator is None:
            return
        started = time.perf_counter()
        try:
            with view.use_average():
                numbers = self._evaluator.evaluate()
        except tf.errors.ResourceExhaustedError:
            self._evaluator = None
            view.say("Validation does not fit into the device's memory beside the training, which goes on without it.")
            return
        seconds = time.perf_counter() - started
        view.run.metrics.append({"step": view.step, "validation": numbers, "watch_seconds": round(seconds, 3)})
        if self._board is not None:
            self._board.write_scalars(view.step, numbers, "validation")
        score = numbers[SCORE]
        is_best = self._stopping.note(view.step, score)
        if math.isfinite(score):
            view.note_score(score)
        view.say(
            f"Validation at step {view.step}: score {score:.4f}{' (best so far)' if is_best else ''}, "
            f"{self._describe(numbers)}."
        )
        if self._text_patience is not None and self._text_patience.note(view.step, numbers):
            view.rest_text(
                f"On held-out utterances the text side has not improved since step {self._text_patience.best_step}."
            )
        if self._stopping.should_stop:
            view.request_stop(
                f"The validation score has not improved since step {self._stopping.best_step}, for "
                f"{self._stopping.num_without_improvement} evaluations."
            )

    def _describe(self, numbers: Mapping[str, float]) -> str:
        return (
            f"mel distance {numbers['mel_distance']:.4f}, duration error {numbers['token_duration_error']:.1%}, "
            f"prior {numbers['prior']:.4f}"
        )

    def _speak(self, view: TrainingView) -> None:
        if self._samples is None or self._spoken_step == view.step:
            return
        self._spoken_step = view.step
        started = time.perf_counter()
        with view.use_average():
            samples = self._samples.write(view.step)
        seconds = time.perf_counter() - started
        view.run.metrics.append({"step": view.step, "samples": len(samples), "watch_seconds": round(seconds, 3)})
        if self._board is not None:
            self._board.write_samples(view.step, samples)
            self._board.flush()


def _select_numbers(record: Record) -> dict[str, float]:
    """The numbers of a record that are one number each."""
    return {name: float(value) for name, value in record.items() if name != "step" and _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
