"""The voice model in training: the step that moves its weights, from the batches of the feed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.models.spec import ModelSpec
from myxtts.models.xtts import XTTS
from myxtts.pipeline.batch import BatchLayout
from myxtts.pipeline.order import Shape
from myxtts.storage.atomic import pass_fault_point
from myxtts.training.execution import Execution, MicroBatches
from myxtts.training.learner import BaseLearner, compute_under, select_trained
from myxtts.training.schedule import LearningRate
from myxtts.training.step import GRADIENTS_POINT, LossFunction, MicroBatch, StepResult, TrainStep, select_tensors
from myxtts.training.voice.losses import make_loss
from myxtts.types import Batch

BETA_2 = 0.98
_TABLES = ("text_encoder.embeddings.", "text_encoder.languages", "speaker_classifier.", "reference_encoder.queries")
"""Weights of which every row stands for something of its own: shrinking them would make it forget what is rare."""


class Learner(BaseLearner):
    """Trains an XTTS."""

    def __init__(
        self,
        config: XTTSConfig,
        spec: ModelSpec,
        strategy: Any,
        execution: Execution,
        rate: LearningRate,
        micro_batches: MicroBatches,
    ) -> None:
        self._execution, self.rate = execution, rate
        # Initial weights are drawn from Keras' generators, whose seeds come from Python's.
        keras.utils.set_random_seed(config.training.seed)
        with strategy.scope(), compute_under(execution.policy):
            model = XTTS(config.model, spec)
        with strategy.scope():
            optimizer = _make_optimizer(config, model)
        super().__init__(config, strategy, model, model.named_weights(), optimizer)
        self._has_durations = config.training.durations == "stored"
        self._loss = make_loss(
            config.training.seed,
            crop_frames=config.training.crop_frames,
            use_stored_durations=self._has_durations,
            voice_stretch=config.training.voice_stretch,
        )
        self.set_micro_batches(micro_batches)

    @property
    def num_traces(self) -> int:
        return self._step.num_traces

    @property
    def loss(self) -> LossFunction:
        return self._loss

    def cut(self, batches: Sequence[Batch]) -> list[MicroBatch]:
        """The micro-batches of one step."""
        return self._cut_batches([self._select_shares(batch) for batch in batches])

    def train(self, batches: Sequence[Batch], step: int) -> StepResult:
        """One step from as many batches as make one; `step` counts from 0."""
        return self.train_on([self._select_shares(batch) for batch in batches], step)

    def train_on(self, batches: Sequence[Sequence[MicroBatch]], step: int) -> StepResult:
        """One step from batches that are given as a part for each replica of this process."""
        self.optimizer.learning_rate.assign(self.rate.at(step))
        result = self._step(self._cut_batches(batches), step, is_spoiled=pass_fault_point(GRADIENTS_POINT))
        if self._average is not None:
            self._average.update(step)
        return result

    def trace(self, shapes: Sequence[Shape], num_reference_frames: int) -> None:
        """Makes the graph of every shape by a step on empty batches, which changes nothing."""
        num_local = self._num_local_replicas
        for shape in shapes:
            share = shape.share(num_local)
            layout = BatchLayout.of_features(
                [share], self.model.spec.n_mels, num_reference_frames, has_durations=self._has_durations
            )
            part = {name: tf.constant(zeros) for name, zeros in layout.view(share).items()}
            self._step(self._cut_batches([[part] * num_local] * self.num_batches_per_step), 0)
        if self._average is not None:
            self._average.trace()

    def _make_step(self, accumulation: int) -> None:
        self._step = TrainStep(
            self.model,
            self.optimizer,
            self._loss,
            self._strategy,
            accumulation_steps=accumulation,
            clip_norm=self._config.training.clip_norm,
            jit_compile=self._execution.is_compiled,
            graph=self._execution.is_graph,
            num_lanes=self._execution.num_lanes,
        )

    def _select_shares(self, batch: Batch) -> list[MicroBatch]:
        return [select_tensors(share) for share in batch.shares or (batch,)]


def _make_optimizer(config: XTTSConfig, model: XTTS) -> Any:
    training = config.training
    optimizer = keras.optimizers.AdamW(
        training.learning_rate, beta_2=BETA_2, weight_decay=training.weight_decay or None
    )
    if training.weight_decay:
        # Norms, biases and tables are left as they are.
        trained = select_trained(model, model.named_weights())
        kept = [weight for name, weight in trained.items() if len(weight.shape) < 2 or name.startswith(_TABLES)]
        optimizer.exclude_from_weight_decay(var_list=kept)
    return optimizer
