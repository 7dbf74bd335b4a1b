"""The vocoder in training, and the critics it learns from: one state, and the step that moves both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.features.definition import MelDefinition
from myxtts.files import pass_fault_point
from myxtts.models.blocks import iterate_weights
from myxtts.models.vocoder import Vocoder, VocoderConfig
from myxtts.models.vocoder_critics import CriticConfig, VocoderCritics
from myxtts.training.base_learner import BaseLearner, compute_under
from myxtts.training.execution import Execution
from myxtts.training.micro_batches import MicroBatches
from myxtts.training.parts import Part, split_rows
from myxtts.training.schedule import LearningRate
from myxtts.training.state import TrainingState, number_variables
from myxtts.training.step import GRADIENTS_POINT, StepResult
from myxtts.training.vocoder_data import SegmentBatch
from myxtts.training.vocoder_step import CRITIC_RATE_SHARE, VocoderPlan, VocoderStep, make_vocoder_optimizer

CRITICS, CRITIC_OPTIMIZER = "critics", "critic_optimizer"


class VocoderLearner(BaseLearner):
    """Trains a Vocoder."""

    def __init__(
        self,
        config: XTTSConfig,
        shape: VocoderConfig,
        critics: CriticConfig,
        definition: MelDefinition,
        strategy: Any,
        execution: Execution,
        rate: LearningRate,
        plan: VocoderPlan,
        micro_batches: MicroBatches,
        *,
        jit_compile_critics: bool,
    ) -> None:
        self._execution, self.rate, self._plan, self._definition = execution, rate, plan, definition
        self._jit_compile_critics = jit_compile_critics
        # Initial weights are drawn from Keras' generators, whose seeds come from Python's.
        keras.utils.set_random_seed(config.training.seed)
        with strategy.scope(), compute_under(execution.policy):
            vocoder = Vocoder(shape)
            self._critics = VocoderCritics(critics)
        decay = config.training.weight_decay
        with strategy.scope():
            optimizer = make_vocoder_optimizer(rate.highest, decay, vocoder)
            self._critic_optimizer = make_vocoder_optimizer(rate.highest, decay, self._critics)
            self._critic_optimizer.build(self._critics.trainable_variables)
        super().__init__(config, strategy, vocoder, dict(iterate_weights(vocoder)), optimizer)
        self._groups[CRITICS] = dict(iterate_weights(self._critics))
        self._groups[CRITIC_OPTIMIZER] = number_variables(self._critic_optimizer.variables)
        self.state = TrainingState(self._groups)
        self.set_micro_batches(micro_batches)

    @property
    def num_traces(self) -> int:
        return self._step.num_traces

    def train(self, batches: Sequence[SegmentBatch], step: int) -> StepResult:
        """One step from as many batches as make one; `step` counts from 0."""
        return self.train_on([self._share_out(batch.part) for batch in batches], step)

    def train_on(self, batches: Sequence[Sequence[Part]], step: int) -> StepResult:
        """One step from batches that are given as a part for each replica of this process."""
        rate = self.rate.at(step)
        self.optimizer.learning_rate.assign(rate)
        self._critic_optimizer.learning_rate.assign(CRITIC_RATE_SHARE * rate)
        result = self._step(self._cut_batches(batches), step, is_spoiled=pass_fault_point(GRADIENTS_POINT))
        if self._average is not None:
            self._average.update(step)
        return result

    def trace(self, num_segments: int, num_frames: int, steps: Sequence[int]) -> None:
        """Makes the graphs of these steps by training on empty segments, which changes nothing."""
        shape = self.model.config
        empty = {
            "mel": tf.zeros([num_segments, num_frames, shape.n_mels]),
            "samples": tf.zeros([num_segments, num_frames * shape.hop_length]),
            "lengths": tf.zeros([num_segments], tf.int32),
        }
        for step in steps:
            self._step(self._cut_batches([self._share_out(empty)] * self.num_batches_per_step), step)
        if self._average is not None:
            self._average.trace()

    def _share_out(self, part: Part) -> list[Part]:
        tensors = {name: tf.convert_to_tensor(value) for name, value in part.items()}
        return split_rows(tensors, self._num_local_replicas)

    def _make_step(self, accumulation: int) -> None:
        self._step = VocoderStep(
            self.model,
            self._critics,
            (self.optimizer, self._critic_optimizer),
            self._definition,
            self._plan,
            self._strategy,
            accumulation_steps=accumulation,
            jit_compile=self._execution.is_compiled,
            jit_compile_critics=self._jit_compile_critics,
            graph=self._execution.is_graph,
        )
