"""Learner of the GAN vocoder: reconstruction losses alone while warming up, then discriminators and vocoder in turn.

Three `TrainStep`s share the weights: warm-up, vocoder and discriminators, each with the reduction and accumulation that
the voice model has. Nothing here is random, except the initial weights.

Shape legend: B segments, T frames, M mel bands, S samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import keras
import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.features.definition import MelDefinition
from myxtts.models.discriminators import DiscriminatorConfig, Discriminators
from myxtts.models.layers import iterate_weights
from myxtts.models.vocoder import Vocoder, VocoderConfig
from myxtts.runtime.plan import Plan
from myxtts.storage.json_file import JsonRefusedError
from myxtts.training.execution import Execution, MicroBatches
from myxtts.training.learner import BaseLearner, detect_device, use_dtype_policy
from myxtts.training.optimizer import make_optimizer
from myxtts.training.run.state import number_variables
from myxtts.training.schedule import LearningRate
from myxtts.training.step import LossFunction, MicroBatch, StepResult, TrainStep, split_rows
from myxtts.training.terms import VOCODER, add_weighted
from myxtts.training.vocoder.losses import (
    ReconstructionLoss,
    adversarial_loss,
    discriminator_loss,
    feature_matching_loss,
)
from myxtts.training.vocoder.task import SegmentBatch, VocoderData
from myxtts.types import Tensor

BETAS = (0.8, 0.99)
"""AdamW betas, as in HiFi-GAN."""
DISCRIMINATOR_RATE_SHARE = 0.5
"""Learning rate of the discriminators, as a share of that of the vocoder, because they learn faster."""
_DISCRIMINATORS, _DISCRIMINATOR_OPTIMIZER = "critics", "critic_optimizer"
"""Groups of variables in checkpoints; the names are part of the file format."""


@dataclass(frozen=True)
class VocoderSpec:
    """Architecture and warm-up of a run, fixed when it is begun, whatever later settings say."""

    shape: VocoderConfig
    critics: DiscriminatorConfig
    num_warm_steps: int

    def to_json(self) -> dict[str, Any]:
        return {
            "shape": self.shape.to_json(),
            "critics": asdict(self.critics),
            "num_warm_steps": self.num_warm_steps,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> VocoderSpec:
        """Reads what `to_json` gave; raises JsonRefusedError for anything else."""
        try:
            critics: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in data["critics"].items()
            }
            return cls(
                VocoderConfig.from_json(data["shape"]), DiscriminatorConfig(**critics), int(data["num_warm_steps"])
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise JsonRefusedError(f"it does not describe a vocoder ({error})") from error


def build_learner(
    config: XTTSConfig,
    plan: Plan,
    spec: VocoderSpec,
    data: VocoderData,
    execution: Execution,
    strategy: Any,
    *,
    total_steps: int | None = None,
    micro_batches: MicroBatches | None = None,
) -> VocoderLearner:
    """Builds a learner on the devices of the strategy. Without `micro_batches` batches are not cut."""
    training = config.training
    rate = LearningRate(training.learning_rate, training.warmup_steps, total_steps)
    # On CPUs XLA doubles the speed of the warm-up, but halves that of the discriminators' convolutions.
    compiles_both = not detect_device(plan).is_cpu or training.enable_xla_compilation is True
    return VocoderLearner(
        config,
        spec,
        data.mel,
        strategy,
        execution,
        rate,
        micro_batches or ask_micro_batches(config, plan, data),
        jit_compile_gan=execution.is_compiled and compiles_both,
    )


def ask_micro_batches(config: XTTSConfig, plan: Plan, data: VocoderData) -> MicroBatches:
    """Micro-batches that are whole batches: the segments that one batch gives to a device."""
    return MicroBatches(max(1, data.num_segments // plan.num_replicas), config.training.gradient_accumulation_steps)


class VocoderLearner(BaseLearner):
    """Trains a Vocoder. Use `build_learner`, which chooses rate and micro-batches."""

    def __init__(
        self,
        config: XTTSConfig,
        spec: VocoderSpec,
        definition: MelDefinition,
        strategy: Any,
        execution: Execution,
        rate: LearningRate,
        micro_batches: MicroBatches,
        *,
        jit_compile_gan: bool,
    ) -> None:
        self._num_warm_steps, self._definition, self._jit_compile_gan = spec.num_warm_steps, definition, jit_compile_gan
        # Initial weights are drawn from Keras' generators, whose seeds come from Python's.
        keras.utils.set_random_seed(config.training.seed)
        with strategy.scope(), use_dtype_policy(execution.policy):
            vocoder = Vocoder(spec.shape)
            self._discriminators = Discriminators(spec.critics)
        weights, of_discriminators = dict(iterate_weights(vocoder)), dict(iterate_weights(self._discriminators))
        decay = config.training.weight_decay
        with strategy.scope():
            optimizer = make_optimizer(weights, rate.highest, decay, betas=BETAS)
            self._discriminator_optimizer = make_optimizer(of_discriminators, rate.highest, decay, betas=BETAS)
            self._discriminator_optimizer.build(self._discriminators.trainable_variables)
        more_state = {
            _DISCRIMINATORS: of_discriminators,
            _DISCRIMINATOR_OPTIMIZER: number_variables(self._discriminator_optimizer.variables),
        }
        super().__init__(config, strategy, execution, rate, vocoder, weights, optimizer, more_state)
        self._rate_shares.append((self._discriminator_optimizer, DISCRIMINATOR_RATE_SHARE))
        self.set_micro_batches(micro_batches)

    def trace(self, num_segments: int, num_frames: int, steps: Sequence[int]) -> None:
        """Traces the graphs of these steps by training on empty segments, which updates nothing."""
        shape = self.model.config
        empty = {
            "mel": tf.zeros([num_segments, num_frames, shape.n_mels]),
            "samples": tf.zeros([num_segments, num_frames * shape.hop_length]),
            "lengths": tf.zeros([num_segments], tf.int32),
        }
        for step in steps:
            self._trace([split_rows(empty, self._num_local_replicas)], step)

    def _split_by_replica(self, batch: SegmentBatch) -> list[MicroBatch]:
        tensors = {name: tf.convert_to_tensor(value) for name, value in batch.part.items()}
        return split_rows(tensors, self._num_local_replicas)

    def _make_step(self, accumulation: int) -> None:
        self.train_step = VocoderStep(
            self.model,
            self._discriminators,
            (self.optimizer, self._discriminator_optimizer),
            self._definition,
            self.strategy,
            num_warm_steps=self._num_warm_steps,
            jit_compile_gan=self._jit_compile_gan,
            **self._choose_options(accumulation),
        )


class VocoderStep:
    """One step of the GAN per call: discriminators first, then the vocoder against the updated ones.

    Models and optimizers must have been made in the scope of `strategy`. Discriminators join after `num_warm_steps`;
    `jit_compile_gan` is for the steps with them.
    """

    def __init__(
        self,
        vocoder: Vocoder,
        discriminators: Discriminators,
        optimizers: tuple[Any, Any],
        definition: MelDefinition,
        strategy: Any,
        *,
        num_warm_steps: int,
        jit_compile: bool = False,
        jit_compile_gan: bool = False,
        **options: Any,
    ) -> None:
        """`optimizers` are those of the vocoder and of the discriminators; `options` are those of `TrainStep`."""
        self._vocoder, self._discriminators, self._num_warm_steps = vocoder, discriminators, num_warm_steps
        self._reconstruct = ReconstructionLoss(definition)

        def make_step(model: Any, optimizer: Any, compute_loss: LossFunction, jit_compile: bool) -> TrainStep:
            return TrainStep(
                model,
                optimizer,
                compute_loss,
                strategy,
                jit_compile=jit_compile,
                count_real=lambda part: tf.reduce_sum(_find_real(part)),
                **options,
            )

        self._train_warm = make_step(vocoder, optimizers[0], self._compute_warm_loss, jit_compile)
        self._train_vocoder = make_step(vocoder, optimizers[0], self._compute_vocoder_loss, jit_compile_gan)
        self._train_discriminators = make_step(
            discriminators, optimizers[1], self._compute_discriminator_loss, jit_compile_gan
        )

    def __call__(self, micro_batches: Sequence[MicroBatch], step: int, is_spoiled: bool = False) -> StepResult:
        """One update from micro-batches of `mel` [B, T, M], `samples` [B, S] and `lengths` [B].

        With discriminators, loss and norm are the vocoder's; theirs are among the metrics.
        """
        if step < self._num_warm_steps:
            return self._train_warm(micro_batches, step, is_spoiled)
        judged = self._train_discriminators(micro_batches, step)
        result = self._train_vocoder(micro_batches, step, is_spoiled)
        theirs = {"critic_loss": judged.loss, "critic_gradient_norm": judged.gradient_norm}
        return result._replace(metrics={**result.metrics, **theirs}, is_finite=result.is_finite & judged.is_finite)

    @property
    def num_traces(self) -> int:
        """Graphs made so far."""
        return sum(step.num_traces for step in (self._train_warm, self._train_vocoder, self._train_discriminators))

    def _compute_warm_loss(
        self, vocoder: Vocoder, part: MicroBatch, training: bool, step: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Reconstruction losses alone (warm-up)."""
        sums = self._reconstruct(part["samples"], vocoder(part["mel"]), _find_real(part))
        return add_weighted(VOCODER.terms, sums), sums

    def _compute_vocoder_loss(
        self, vocoder: Vocoder, part: MicroBatch, training: bool, step: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Reconstruction, adversarial and feature matching losses of the vocoder."""
        made_BS, is_real_B = vocoder(part["mel"]), _find_real(part)
        sums = self._reconstruct(part["samples"], made_BS, is_real_B)
        of_real, of_made = self._discriminators(part["samples"]), self._discriminators(made_BS)
        sums["adversarial"] = adversarial_loss(of_made, is_real_B)
        sums["features"] = feature_matching_loss(of_real, of_made, is_real_B)
        return add_weighted(VOCODER.terms, sums), sums

    def _compute_discriminator_loss(
        self, discriminators: Discriminators, part: MicroBatch, training: bool, step: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Hinge loss of the discriminators; the vocoder is behind a stop-gradient."""
        made_BS = tf.stop_gradient(self._vocoder(part["mel"]))
        return discriminator_loss(discriminators(part["samples"]), discriminators(made_BS), _find_real(part)), {}


def _find_real(part: MicroBatch) -> Tensor:
    """1.0 for each segment with sound, 0.0 for padding rows [B]."""
    return tf.cast(part["lengths"] > 0, tf.float32)
