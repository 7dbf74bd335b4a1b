"""Validation of the voice model with every checkpoint: scores, early stopping, text freezing, samples, TensorBoard.

Lines that it adds to metrics.jsonl hold `step` and either `validation` (numbers by name) or `samples` (how many), with
the `watch_seconds` that training waited.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self

import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.errors import DataError
from myxtts.features.definition import MelDefinition
from myxtts.features.griffin_lim import GriffinLim
from myxtts.storage.json_file import is_number
from myxtts.training.callbacks import Record, TrainResult
from myxtts.training.run.state import Patience
from myxtts.training.sample_files import Sample
from myxtts.training.step import is_out_of_memory
from myxtts.training.tensorboard import TensorBoardWriter
from myxtts.training.terms import VOICE, add_weighted
from myxtts.training.voice.metrics import SCORE, Evaluator
from myxtts.training.voice.samples import MakeSound, VoiceSamples
from myxtts.training.voice.validation_set import (
    NUM_UTTERANCES,
    FixedUtterance,
    choose_sentences,
    find_in_corpus,
    load_fixed_utterances,
    load_recorded,
)
from myxtts.types import Split

if TYPE_CHECKING:
    from myxtts.training.loop import TrainingLoop

TENSORBOARD_FOLDER_NAME = "tensorboard"
NUM_SENTENCES = 4
"""Samples of a step: enough for two languages with two speakers each."""

_TEXT_TERMS = tuple(term for term in VOICE.trained_terms if term.side == "text")
"""Loss terms of the text side: prior, duration and pitch."""


class TextFreeze:
    """Decides when to freeze the text encoder and the prosody predictor.

    That is once their held-out loss (prior + duration + pitch, weighted as in training) has not improved for
    `num_steps`. On small corpora they overfit long before the decoder, which sees new noise and a new crop every time.
    """

    def __init__(self, num_steps: int, patience: Patience) -> None:
        """`num_steps` of 0 never freezes; `patience` is part of the run state."""
        self._num_steps, self._patience = num_steps, patience

    @property
    def best_step(self) -> int | None:
        return self._patience.best_step

    def note(self, step: int, numbers: Mapping[str, float | None]) -> bool:
        """Takes the metrics of a validation; returns whether to freeze. Never before one of them was finite."""
        self._patience.note(step, _weigh(numbers))
        return self.best_step is not None and 0 < self._num_steps <= step - self.best_step


def _weigh(numbers: Mapping[str, float | None]) -> float:
    """Weighted text loss; NaN where a term is missing, or was not finite and so was recorded as null."""
    values = {term.name: numbers.get(term.name) for term in _TEXT_TERMS}
    return float(add_weighted(_TEXT_TERMS, {name: math.nan if v is None else v for name, v in values.items()}))


class ValidationCallback:
    """Validates with every checkpoint, which is kept if it is the best so far, and then writes samples.

    With `sample_steps` samples also come every so many steps. `patience` is the number of validations in a row without
    improvement that end training; None never does. Its counters are in the state of the run, so a resumed training
    stops, and freezes, when one that was never interrupted would have.
    """

    def __init__(self, make_sound: MakeSound, *, sample_steps: int = 0, patience: int | None = None) -> None:
        self._make_sound, self._sample_steps, self._patience = make_sound, sample_steps, patience
        self._text_freeze: TextFreeze | None = None
        self._evaluate: Callable[[], dict[str, float]] | None = None
        self._write_samples: Callable[[int], list[Sample]] | None = None
        self._board: TensorBoardWriter | None = None
        self._sampled_step = -1

    @classmethod
    def from_config(cls, config: XTTSConfig) -> Self:
        """Makes the callback with Griffin-Lim as the vocoder of samples, which needs no training."""
        make_sound = GriffinLim(MelDefinition.from_config(config.data))
        training = config.training
        return cls(make_sound, sample_steps=training.sample_steps, patience=training.early_stopping or None)

    def on_step(self, loop: TrainingLoop, record: Record | None) -> None:
        board = self._open(loop)
        if record is not None:
            board.write_scalars(loop.step, _select_numbers(record))
        if self._sample_steps and loop.step % self._sample_steps == 0:
            self._sample(loop, board)

    def on_checkpoint(self, loop: TrainingLoop) -> None:
        board = self._open(loop)
        if self._evaluate is not None:
            self._validate(loop, board, self._evaluate)
        if not loop.is_stopping:
            self._sample(loop, board)

    def on_end(self, loop: TrainingLoop, result: TrainResult) -> None:
        if self._board is not None:
            self._board.close()

    def _open(self, loop: TrainingLoop) -> TensorBoardWriter:
        """Opens TensorBoard and the validation set at the first call, after the first step, so as not to delay it."""
        if self._board is None:
            folder, rate_hz = loop.run.path / TENSORBOARD_FOLDER_NAME, loop.config.data.sample_rate
            self._board = TensorBoardWriter(folder, rate_hz, loop.say)
            self._load(loop)
            if self._evaluate is not None:
                self._restore_patience(loop)
        return self._board

    def _load(self, loop: TrainingLoop) -> None:
        """Sets up evaluation, which needs a validation split, and samples, which can do without."""
        config = loop.config
        utterances, split = self._load_utterances(loop)
        if split == "val":
            self._evaluate = Evaluator(loop.model, utterances, seed=config.training.seed).evaluate
            loop.state.text_patience = loop.state.text_patience or Patience()
            self._text_freeze = TextFreeze(config.training.text_freeze_patience_steps, loop.state.text_patience)
        sentences = choose_sentences(utterances, NUM_SENTENCES)
        in_corpus = find_in_corpus(config, sentences, split)
        self._write_samples = VoiceSamples(
            loop.model,
            sentences,
            loop.run.samples_path,
            self._make_sound,
            config.data.sample_rate,
            texts={id: one.text for id, one in in_corpus.items()},
            recorded=load_recorded(config, in_corpus.values()),
            warn=loop.say,
        ).write

    def _load_utterances(self, loop: TrainingLoop) -> tuple[list[FixedUtterance], Split]:
        """Validation utterances, or a few of the training split for samples alone."""
        try:
            return load_fixed_utterances(loop.config, NUM_UTTERANCES), "val"
        except DataError as error:
            loop.say(f"There is no validation, and samples are sentences of the training split: {error.problem}")
        return load_fixed_utterances(loop.config, NUM_SENTENCES, "train"), "train"

    def _restore_patience(self, loop: TrainingLoop) -> None:
        """Restores the counters of early stopping, which checkpoints of version 0.1 do not hold, from the metrics."""
        if loop.state.early_stopping is not None:
            return
        loop.state.early_stopping = Patience()
        for line in loop.run.metrics.read():
            numbers = line.get("validation")
            if isinstance(numbers, dict) and isinstance(line.get("step"), int):
                score = numbers.get(SCORE)
                loop.state.early_stopping.note(line["step"], math.inf if score is None else float(score))
                if self._text_freeze is not None:
                    self._text_freeze.note(line["step"], numbers)

    def _validate(self, loop: TrainingLoop, board: TensorBoardWriter, evaluate: Callable[[], dict[str, float]]) -> None:
        """Measures the EMA weights; then decides on best checkpoint, freezing and early stopping."""
        started = time.perf_counter()
        try:
            with loop.use_average():
                numbers = evaluate()
        except tf.errors.OpError as error:
            if not is_out_of_memory(error):
                raise
            self._evaluate = None
            loop.say(
                "Validation does not fit into the device's memory beside the training. Training continues without "
                "validation."
            )
            return
        seconds = time.perf_counter() - started
        loop.run.metrics.append({"step": loop.step, "validation": numbers, "watch_seconds": round(seconds, 3)})
        board.write_scalars(loop.step, numbers, "validation")
        stopping, score = loop.state.early_stopping, numbers[SCORE]
        assert stopping is not None, "the counters were not restored"
        is_best = stopping.note(loop.step, score)
        if math.isfinite(score):
            loop.note_score(score)
        loop.say(
            f"Validation at step {loop.step}: score {score:.4f}{' (best so far)' if is_best else ''}, "
            f"{self._describe(numbers)}."
        )
        if self._text_freeze is not None and self._text_freeze.note(loop.step, numbers):
            loop.freeze_text(
                f"The text encoder has not improved on held-out utterances since step {self._text_freeze.best_step}."
            )
        if self._patience is not None and stopping.num_without_improvement >= self._patience:
            loop.request_stop(
                f"The validation score has not improved since step {stopping.best_step}, for "
                f"{stopping.num_without_improvement} evaluations."
            )

    def _describe(self, numbers: Mapping[str, float]) -> str:
        return (
            f"mel distance {numbers['mel_distance']:.4f}, token duration error "
            f"{numbers['token_duration_error']:.1%}, "
            f"prior {numbers['prior']:.4f}"
        )

    def _sample(self, loop: TrainingLoop, board: TensorBoardWriter) -> None:
        """Writes samples with the EMA weights, at most once per step."""
        if self._write_samples is None or self._sampled_step == loop.step:
            return
        self._sampled_step = loop.step
        started = time.perf_counter()
        with loop.use_average():
            samples = self._write_samples(loop.step)
        seconds = time.perf_counter() - started
        loop.run.metrics.append({"step": loop.step, "samples": len(samples), "watch_seconds": round(seconds, 3)})
        board.write_samples(loop.step, samples)
        board.flush()


def _select_numbers(record: Record) -> dict[str, float]:
    """Scalars of a record, without its step."""
    return {name: float(value) for name, value in record.items() if name != "step" and is_number(value)}
