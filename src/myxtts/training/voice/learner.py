"""Learner of the voice model: builds an XTTS with its optimizer and trains it on the batches of the feed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.models.spec import ModelSpec
from myxtts.models.xtts import XTTS
from myxtts.pipeline.buckets import Shape
from myxtts.runtime.plan import Plan
from myxtts.training.execution import Execution, MicroBatches
from myxtts.training.learner import BaseLearner, select_trained, use_dtype_policy
from myxtts.training.optimizer import make_optimizer
from myxtts.training.schedule import LearningRate
from myxtts.training.step import MicroBatch, TrainStep, select_tensors
from myxtts.training.voice.data import TrainingData
from myxtts.training.voice.losses import make_loss
from myxtts.types import Batch

BETAS = (0.9, 0.98)
"""Of AdamW: squared gradients are averaged over about 50 steps, as is usual for transformers (Vaswani et al., 2017)."""
_TABLES = ("text_encoder.embeddings.", "text_encoder.languages", "speaker_classifier.", "reference_encoder.queries")
"""Weights whose rows stand for one symbol, language or speaker each: decay would make the model forget rare ones."""


def build_learner(
    config: XTTSConfig,
    plan: Plan,
    spec: ModelSpec,
    data: TrainingData,
    execution: Execution,
    strategy: Any,
    *,
    total_steps: int | None = None,
    micro_batches: MicroBatches | None = None,
) -> Learner:
    """A learner for this data on the devices of the strategy. Without `micro_batches` batches are not cut."""
    training = config.training
    rate = LearningRate(training.learning_rate, training.warmup_steps, total_steps)
    return Learner(config, spec, strategy, execution, rate, micro_batches or ask_micro_batches(config, plan, data))


def ask_micro_batches(config: XTTSConfig, plan: Plan, data: TrainingData) -> MicroBatches:
    """Whole batches: as many rows as the largest of them gives to one device."""
    most = max(shape.num_utterances for shape in data.shapes)
    return MicroBatches(max(1, most // len(plan.model_devices)), config.training.gradient_accumulation_steps)


class Learner(BaseLearner):
    """Trains an XTTS. Use `build_learner`, which chooses rate and micro-batches."""

    def __init__(
        self,
        config: XTTSConfig,
        spec: ModelSpec,
        strategy: Any,
        execution: Execution,
        rate: LearningRate,
        micro_batches: MicroBatches,
    ) -> None:
        training = config.training
        # Initial weights are drawn from Keras' generators, whose seeds come from Python's.
        keras.utils.set_random_seed(training.seed)
        with strategy.scope(), use_dtype_policy(execution.policy):
            model = XTTS(config.model, spec)
        weights = model.named_weights()
        with strategy.scope():
            optimizer = make_optimizer(
                select_trained(model, weights),
                training.learning_rate,
                training.weight_decay,
                betas=BETAS,
                undecayed=_TABLES,
            )
        super().__init__(config, strategy, execution, rate, model, weights, optimizer)
        self._loss = make_loss(
            training.seed,
            crop_frames=training.crop_frames,
            use_stored_durations=training.durations == "stored",
            voice_stretch=training.voice_stretch,
        )
        self.set_micro_batches(micro_batches)

    @property
    def train_step(self) -> TrainStep:
        step: TrainStep = self._step
        return step

    def trace(self, shapes: Sequence[Shape], num_reference_frames: int) -> None:
        """Makes the graph of every shape by a step on empty batches, which changes nothing."""
        num_local = self._num_local_replicas
        empty = [self._make_empty(shape.share(num_local), num_reference_frames) for shape in shapes]
        self._trace([[part] * num_local for part in empty], step=0)

    def _make_step(self, accumulation: int) -> None:
        self._step = TrainStep(
            self.model,
            self.optimizer,
            self._loss,
            self.strategy,
            accumulation_steps=accumulation,
            clip_norm=self._config.training.clip_norm,
            jit_compile=self._execution.is_compiled,
            graph=self._execution.is_graph,
            num_lanes=self._execution.num_lanes,
        )

    def _split_by_replica(self, batch: Batch) -> list[MicroBatch]:
        return [select_tensors(share) for share in batch.shares or (batch,)]

    def _make_empty(self, shape: Shape, num_reference_frames: int) -> MicroBatch:
        """A batch of this shape without a single utterance."""
        num_rows, n_mels = shape.num_utterances, self.model.spec.n_mels
        part = {
            "tokens": tf.zeros([num_rows, shape.num_tokens], tf.int32),
            "mel": tf.zeros([num_rows, shape.num_frames, n_mels]),
            "reference": tf.zeros([num_rows, num_reference_frames, n_mels]),
        }
        counts = ("token_lengths", "mel_lengths", "reference_lengths", "speaker", "language")
        part |= {name: tf.zeros([num_rows], tf.int32) for name in counts}
        if self._config.training.durations == "stored":
            part["durations"] = tf.zeros_like(part["tokens"])
        return part
