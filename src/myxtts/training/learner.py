"""The model in training: its weights, their average and optimiser as one state, and the step that moves them.

A batch that does not fit into the device's memory is cut into smaller micro-batches, which give the same step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.models.spec import ModelSpec
from myxtts.models.tensor_file import Array
from myxtts.models.xtts import XTTS
from myxtts.pipeline.buckets import Shape
from myxtts.training.average import RunningAverage
from myxtts.training.execution import Execution
from myxtts.training.losses import make_loss
from myxtts.training.micro_batches import MicroBatches
from myxtts.training.parts import Part, distribute_parts, select_tensors, split_rows
from myxtts.training.schedule import LearningRate
from myxtts.training.state import AVERAGE, MODEL, OPTIMIZER, TrainingState, number_variables
from myxtts.training.step import StepResult, TrainStep
from myxtts.types import Batch

BETA_2 = 0.98
_TABLES = ("text_encoder.embeddings.", "text_encoder.languages", "speaker_classifier.", "reference_encoder.queries")
"""Weights of which every row stands for something of its own: shrinking them would make it forget what is rare."""


class Learner:
    """Everything that training changes. The strategy's devices hold it; `state` gives it to the disk and back."""

    def __init__(
        self,
        config: XTTSConfig,
        spec: ModelSpec,
        strategy: Any,
        execution: Execution,
        rate: LearningRate,
        micro_batches: MicroBatches,
    ) -> None:
        self._config, self._strategy, self._execution, self._rate = config, strategy, execution, rate
        # Initial weights are drawn from Keras' generators, whose seeds come from Python's.
        keras.utils.set_random_seed(config.training.seed)
        with strategy.scope(), _compute_under(execution.policy):
            self.model = XTTS(config.model, spec)
        named = self.model.named_weights()
        trainable = {id(variable) for variable in self.model.trainable_variables}
        self._trained = {name: weight for name, weight in named.items() if id(weight) in trainable}
        with strategy.scope():
            self.optimizer = self._make_optimizer()
            self.optimizer.build(self.model.trainable_variables)
        groups: dict[str, Mapping[str, Any]] = {MODEL: named, OPTIMIZER: number_variables(self.optimizer.variables)}
        self._average: RunningAverage | None = None
        if config.training.ema_decay > 0:
            self._average = RunningAverage(self._trained, config.training.ema_decay, strategy)
            groups[AVERAGE] = self._average.variables
        self.state = TrainingState(groups)
        self._loss = make_loss(config.training.seed)
        self.set_micro_batches(micro_batches)

    @property
    def num_parameters(self) -> int:
        return sum(int(weight.shape.num_elements() or 1) for weight in map(_get_value, self._trained.values()))

    @property
    def num_traces(self) -> int:
        return self._step.num_traces

    @property
    def num_batches_per_step(self) -> int:
        return self._config.training.gradient_accumulation_steps

    def set_micro_batches(self, micro_batches: MicroBatches) -> None:
        """Cuts every batch so that a step is `micro_batches.accumulation` of them from now on."""
        num_cuts, rest = divmod(micro_batches.accumulation, self.num_batches_per_step)
        assert rest == 0, f"{micro_batches.accumulation} micro-batches of {self.num_batches_per_step} batches"
        self.micro_batches, self._num_cuts = micro_batches, num_cuts
        self._step = TrainStep(
            self.model,
            self.optimizer,
            self._loss,
            self._strategy,
            accumulation_steps=micro_batches.accumulation,
            clip_norm=self._config.training.clip_norm,
            jit_compile=self._execution.is_compiled,
            graph=self._execution.is_graph,
        )

    def train(self, batches: Sequence[Batch], step: int) -> StepResult:
        """One step from as many batches as make one; `step` counts from 0."""
        return self.train_on([self._select_shares(batch) for batch in batches], step)

    def train_on(self, batches: Sequence[Sequence[Part]], step: int) -> StepResult:
        """One step from batches that are given as a part for each replica of this process."""
        self.optimizer.learning_rate.assign(self._rate.at(step))
        result = self._step(self._cut_batches(batches), step)
        if self._average is not None:
            self._average.update(step)
        return result

    def trace(self, shapes: Sequence[Shape], num_reference_frames: int) -> None:
        """Makes the graph of every shape by a step on empty batches, which changes nothing."""
        is_one = self._strategy.num_replicas_in_sync == 1
        num_local = 1 if is_one else len(self._strategy.extended.worker_devices)
        for shape in shapes:
            part = make_empty_part(shape.share(num_local), self.model.spec.n_mels, num_reference_frames)
            self._step(self._cut_batches([[part] * num_local] * self.num_batches_per_step), 0)

        if self._average is not None:
            self._average.trace()

    def reset_average(self) -> None:
        """Begins the average anew at the present weights, after they were set from elsewhere."""
        if self._average is not None:
            self._average.reset()

    @contextmanager
    def use_average(self) -> Iterator[XTTS]:
        """The model with the weights it shall speak with."""
        if self._average is None:
            yield self.model
            return
        with self._average.swapped_in():
            yield self.model

    def collect(self) -> dict[str, Array]:
        return self.state.collect()

    def _cut_batches(self, batches: Sequence[Sequence[Part]]) -> list[Part]:
        micro_batches: list[Part] = []
        for parts in batches:
            cut = [split_rows(fill_rows(part, self._num_cuts), self._num_cuts) for part in parts]
            micro_batches += [distribute_parts(self._strategy, pieces) for pieces in zip(*cut, strict=True)]
        return micro_batches

    def _select_shares(self, batch: Batch) -> list[Part]:
        return [select_tensors(share) for share in batch.shares or (batch,)]

    def _make_optimizer(self) -> Any:
        training = self._config.training
        optimizer = keras.optimizers.AdamW(
            training.learning_rate, beta_2=BETA_2, weight_decay=training.weight_decay or None
        )
        if training.weight_decay:
            # Norms, biases and tables are left as they are.
            kept = [
                weight for name, weight in self._trained.items() if len(weight.shape) < 2 or name.startswith(_TABLES)
            ]
            optimizer.exclude_from_weight_decay(var_list=kept)
        return optimizer


def fill_rows(part: Part, multiple_of: int) -> Part:
    """The part with as many empty rows behind it as make it a multiple; they count for nothing."""
    num_rows = next(iter(part.values())).shape[0]
    num_missing = -num_rows % multiple_of
    if num_missing == 0:
        return part
    return {name: tf.pad(t, [[0, num_missing], *([[0, 0]] * (len(t.shape) - 1))]) for name, t in part.items()}


def make_empty_part(shape: Shape, n_mels: int, num_reference_frames: int) -> Part:
    """A batch of this shape without a single utterance."""
    num_rows = shape.num_utterances

    def count() -> Any:
        return tf.zeros([num_rows], tf.int32)

    return {
        "tokens": tf.zeros([num_rows, shape.num_tokens], tf.int32),
        "token_lengths": count(),
        "mel": tf.zeros([num_rows, shape.num_frames, n_mels]),
        "mel_lengths": count(),
        "speaker": count(),
        "language": count(),
        "reference": tf.zeros([num_rows, num_reference_frames, n_mels]),
        "reference_lengths": count(),
    }


@contextmanager
def _compute_under(policy: str) -> Iterator[None]:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _get_value(weight: Any) -> Any:
    return weight.value
