"""The vocoder in training, and the critics it learns from: one state, and the step that moves both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.features.definition import MelDefinition
from myxtts.models.discriminators import CriticConfig, VocoderCritics
from myxtts.models.layers import iterate_weights
from myxtts.models.vocoder import Vocoder, VocoderConfig
from myxtts.storage.atomic import pass_fault_point
from myxtts.training.execution import Execution, MicroBatches
from myxtts.training.learner import BaseLearner, compute_under
from myxtts.training.run.state import TrainingState, number_variables
from myxtts.training.schedule import LearningRate
from myxtts.training.step import GRADIENTS_POINT, MicroBatch, StepResult, TrainStep, split_rows
from myxtts.training.vocoder.losses import ReconstructionLoss, sum_adversarial_loss, sum_critic_loss, sum_feature_loss
from myxtts.training.vocoder.task import SegmentBatch
from myxtts.types import Tensor

# One step of training a vocoder: the vocoder alone while it is warming up, then critics and vocoder in turn.
#
# Both are trained by `TrainStep`, and so alike on one device, mirrored ones, and micro-batches. Nothing here is
# random.

CRITIC_RATE_SHARE = 0.5
"""Critics learn faster than vocoders: at half the rate neither runs away from the other."""
_BETA_1, _BETA_2 = 0.8, 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class VocoderPlan:
    """How a vocoder is trained. Without critics for `num_warm_steps`, so that they meet something worth judging."""

    num_warm_steps: int = 10_000
    clip_norm: float = 10.0
    mel_weight: float = 15.0
    stft_weight: float = 5.0
    adversarial_weight: float = 1.0
    feature_weight: float = 2.0


def make_vocoder_optimizer(learning_rate: float, weight_decay: float, model: Any) -> Any:
    """AdamW for a vocoder or its critics; biases and norms are left out of the decay."""
    optimizer = keras.optimizers.AdamW(learning_rate, beta_1=_BETA_1, beta_2=_BETA_2, weight_decay=weight_decay or None)
    if weight_decay:
        optimizer.exclude_from_weight_decay(var_list=[w for w in model.trainable_variables if len(w.shape) < 2])
    return optimizer


class VocoderStep:
    """Trains a vocoder by one step per call. Models and optimizers must have been made in the scope of `strategy`."""

    def __init__(
        self,
        vocoder: Vocoder,
        critics: VocoderCritics,
        optimizers: tuple[Any, Any],
        definition: MelDefinition,
        plan: VocoderPlan,
        strategy: Any,
        *,
        accumulation_steps: int = 1,
        jit_compile: bool = False,
        jit_compile_critics: bool | None = None,
        graph: bool = True,
    ) -> None:
        """`optimizers` are those of the vocoder and of the critics.

        `jit_compile_critics`, by default the same as `jit_compile`, is for the steps with critics: on CPUs compiling
        doubles the speed of the warm phase, and halves that of the critics' convolutions.
        """
        self._vocoder, self._critics, self._plan = vocoder, critics, plan
        self._reconstruct = ReconstructionLoss(definition)

        def make_step(model: Any, optimizer: Any, compute_loss: Callable[..., Any], jit_compile: bool) -> TrainStep:
            return TrainStep(
                model,
                optimizer,
                compute_loss,
                strategy,
                accumulation_steps=accumulation_steps,
                clip_norm=plan.clip_norm,
                jit_compile=jit_compile,
                graph=graph,
                count_real=count_real_segments,
            )

        jit_later = jit_compile if jit_compile_critics is None else jit_compile_critics
        self._train_warm = make_step(vocoder, optimizers[0], self._compute_warm_loss, jit_compile)
        self._train_vocoder = make_step(vocoder, optimizers[0], self._compute_vocoder_loss, jit_later)
        self._train_critics = make_step(critics, optimizers[1], self._compute_critic_loss, jit_later)

    def __call__(self, micro_batches: Sequence[MicroBatch], step: int, is_spoiled: bool = False) -> StepResult:
        """One update from micro-batches of `mel` [B, T, M], `samples` [B, S] and `lengths` [B].

        With critics, loss and norm are the vocoder's; what the critics did is among the metrics.
        """
        if step < self._plan.num_warm_steps:
            return self._train_warm(micro_batches, step, is_spoiled)
        judged = self._train_critics(micro_batches, step)
        result = self._train_vocoder(micro_batches, step, is_spoiled)
        of_critics = {"critic_loss": judged.loss, "critic_gradient_norm": judged.gradient_norm}
        return result._replace(metrics={**result.metrics, **of_critics}, is_finite=result.is_finite & judged.is_finite)

    @property
    def num_traces(self) -> int:
        """Graphs made so far."""
        return sum(step.num_traces for step in (self._train_warm, self._train_vocoder, self._train_critics))

    @property
    def num_skipped(self) -> int:
        """Updates left out because loss or gradient was not finite."""
        return sum(step.num_skipped for step in (self._train_warm, self._train_vocoder, self._train_critics))

    def _compute_warm_loss(
        self, vocoder: Vocoder, part: MicroBatch, training: bool, step: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        parts = self._reconstruct(part["samples"], vocoder(part["mel"]), find_real_segments(part))
        return self._plan.mel_weight * parts["mel"] + self._plan.stft_weight * parts["stft"], parts

    def _compute_vocoder_loss(
        self, vocoder: Vocoder, part: MicroBatch, training: bool, step: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        made_BS, is_real_B = vocoder(part["mel"]), find_real_segments(part)
        parts = self._reconstruct(part["samples"], made_BS, is_real_B)
        of_real, of_made = self._critics(part["samples"]), self._critics(made_BS)
        parts["adversarial"] = sum_adversarial_loss(of_made, is_real_B)
        parts["features"] = sum_feature_loss(of_real, of_made, is_real_B)
        plan = self._plan
        loss = plan.mel_weight * parts["mel"] + plan.stft_weight * parts["stft"]
        loss += plan.adversarial_weight * parts["adversarial"] + plan.feature_weight * parts["features"]
        return loss, parts

    def _compute_critic_loss(
        self, critics: VocoderCritics, part: MicroBatch, training: bool, step: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        made_BS = tf.stop_gradient(self._vocoder(part["mel"]))
        return sum_critic_loss(critics(part["samples"]), critics(made_BS), find_real_segments(part)), {}


def find_real_segments(part: MicroBatch) -> Tensor:
    """1.0 for each segment with sound, 0.0 for those that only fill the shape [B]."""
    return tf.cast(part["lengths"] > 0, tf.float32)


def count_real_segments(part: MicroBatch) -> Tensor:
    return tf.reduce_sum(find_real_segments(part))


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

    def train_on(self, batches: Sequence[Sequence[MicroBatch]], step: int) -> StepResult:
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

    def _share_out(self, part: MicroBatch) -> list[MicroBatch]:
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
