"""Learner of the GAN vocoder: reconstruction losses alone while warming up, then discriminators and vocoder in turn.

Three `TrainStep`s share the weights: warm-up, vocoder and discriminators, each with the reduction and accumulation that
the voice model has. Nothing here is random, except the initial weights
and a noise that follows from the number of the step.

Shape legend: B segments, T frames, M mel bands, S samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from pydantic import AliasChoices, ConfigDict, Field, NonNegativeInt

from myxtts.config.schema import XTTSConfig
from myxtts.features.definition import MelDefinition
from myxtts.models.layers import iterate_weights, use_dtype_policy
from myxtts.models.pitch import refine_f0
from myxtts.models.vocoder import NOISE_SAMPLES, Vocoder, VocoderConfig
from myxtts.pipeline.order import Shape
from myxtts.pipeline.packed import pack_views
from myxtts.storage.json_file import FileModel
from myxtts.training.execution import Execution, MicroBatches
from myxtts.training.learner import BaseLearner, select_trained
from myxtts.training.micro_batches import MicroBatch, StepInput, list_replica_devices
from myxtts.training.optimizer import AdamW, WeightEma
from myxtts.training.step import StepNumbers, StepResult, TrainStep
from myxtts.training.terms import VOCODER, add_weighted
from myxtts.training.vocoder.audio import make_segment_layout
from myxtts.training.vocoder.discriminators import DiscriminatorConfig, Discriminators
from myxtts.training.vocoder.losses import (
    ReconstructionLoss,
    adversarial_loss,
    discriminator_loss,
    feature_matching_loss,
)
from myxtts.types import Tensor

BETAS = (0.8, 0.99)
"""AdamW betas, as in HiFi-GAN."""
DISCRIMINATOR_RATE_SHARE = 0.5
"""Learning rate of the discriminators, as a share of that of the vocoder, because they learn faster."""
_NOISE_SHIFTS = (7919, 4099)
"""Samples between the noise of one step and the next, and of two segments; primes, so that none is met again soon."""
_DISCRIMINATORS, _DISCRIMINATOR_OPTIMIZER = "critics", "critic_optimizer"
"""Groups of variables in checkpoints; the names are part of the file format."""


class VocoderSpec(FileModel):
    """Architecture and warm-up of a run, fixed when it is begun, whatever later settings say."""

    model_config = ConfigDict(strict=False)

    shape: VocoderConfig
    discriminators: DiscriminatorConfig = Field(
        validation_alias=AliasChoices("discriminators", "critics"), serialization_alias="critics"
    )
    num_warm_steps: NonNegativeInt


class VocoderLearner(BaseLearner):
    """Trains a Vocoder and its discriminators. `jit_compile_gan` compiles the steps that have discriminators."""

    def __init__(
        self,
        config: XTTSConfig,
        spec: VocoderSpec,
        definition: MelDefinition,
        strategy: Any,
        execution: Execution,
        total_steps: int | None,
        micro_batches: MicroBatches,
        *,
        jit_compile_gan: bool,
    ) -> None:
        self._num_warm_steps, self._definition, self._jit_compile_gan = spec.num_warm_steps, definition, jit_compile_gan
        # Initial weights are drawn from Keras' generators, whose seeds come from Python's.
        keras.utils.set_random_seed(config.training.seed)
        with strategy.scope(), use_dtype_policy(execution.policy):
            vocoder = Vocoder(spec.shape, definition.filterbank)
            self._discriminators = Discriminators(spec.discriminators)
        weights, of_discriminators = dict(iterate_weights(vocoder)), dict(iterate_weights(self._discriminators))
        decay = config.training.weight_decay
        with strategy.scope():
            optimizer = AdamW(select_trained(vocoder, weights), decay, betas=BETAS)
            self._discriminator_optimizer = AdamW(
                select_trained(self._discriminators, of_discriminators), decay, betas=BETAS
            )
        more_state = {
            _DISCRIMINATORS: of_discriminators,
            _DISCRIMINATOR_OPTIMIZER: self._discriminator_optimizer.named_variables,
        }
        super().__init__(config, strategy, execution, total_steps, vocoder, weights, optimizer, more_state)
        self.set_micro_batches(micro_batches)

    def trace(self, num_segments: int, num_frames: int, steps: Iterable[int]) -> None:
        """Traces the graphs of these steps by training on empty segments, which updates nothing."""
        for step in steps:
            self._trace([self._make_empty(num_segments, num_frames)], step)

    def make_graphs(self, num_segments: int, num_frames: int, step: int) -> None:
        """Traces the graphs of this step without running it. Another thread may train meanwhile."""
        parts = self._cut_parts([self._make_empty(num_segments, num_frames)] * self.num_batches_per_step)
        self.train_step.make_graphs(parts, step)

    def _make_empty(self, num_segments: int, num_frames: int) -> list[StepInput]:
        """For each replica segments without sound."""
        devices, config = list_replica_devices(self.strategy), self.model.config
        shape = Shape(num_segments, num_frames, 0).share(len(devices))
        empty = pack_views(make_segment_layout([shape], config.n_mels, config.hop_length).view(shape))
        return [empty.to_device(device) for device in devices]

    def _make_step(self, accumulation: int) -> None:
        self.train_step = VocoderStep(
            self.model,
            self._discriminators,
            (self.optimizer, self._discriminator_optimizer),
            self._definition,
            self.strategy,
            ema=self.ema,
            num_warm_steps=self._num_warm_steps,
            jit_compile_gan=self._jit_compile_gan,
            **self._choose_options(accumulation),
        )


class VocoderResult(NamedTuple):
    """Results of vocoder and discriminators in one step; loss and norm are the vocoder's."""

    vocoder: StepResult
    discriminators: StepResult

    def read(self) -> StepNumbers:
        """Copies the numbers to the host, which blocks until the device has done the step."""
        ours, theirs = self.vocoder.read(), self.discriminators.read()
        metrics = {"discriminator_loss": theirs.loss, "discriminator_gradient_norm": theirs.gradient_norm}
        return ours._replace(metrics=ours.metrics | metrics, is_finite=ours.is_finite and theirs.is_finite)


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
        rate: Callable[[Tensor], Tensor],
        ema: WeightEma | None = None,
        jit_compile: bool = False,
        jit_compile_gan: bool = False,
        **options: Any,
    ) -> None:
        """`optimizers` are those of the vocoder and of the discriminators; `options` are those of `TrainStep`."""
        self._vocoder, self._discriminators, self._num_warm_steps = vocoder, discriminators, num_warm_steps
        self._reconstruct = ReconstructionLoss(definition)

        options |= {"count_real": lambda part: tf.reduce_sum(_find_real(part))}
        ours = options | {"rate": rate, "ema": ema}
        theirs = options | {"rate": lambda step: DISCRIMINATOR_RATE_SHARE * rate(step)}
        self._train_warm = TrainStep(
            vocoder, optimizers[0], self._compute_warm_loss, strategy, jit_compile=jit_compile, **ours
        )
        self._train_vocoder = TrainStep(
            vocoder, optimizers[0], self._compute_vocoder_loss, strategy, jit_compile=jit_compile_gan, **ours
        )
        self._train_discriminators = TrainStep(
            discriminators,
            optimizers[1],
            self._compute_discriminator_loss,
            strategy,
            jit_compile=jit_compile_gan,
            **theirs,
        )

    def __call__(
        self, micro_batches: Sequence[StepInput], step: int, is_spoiled: bool = False
    ) -> StepResult | VocoderResult:
        """One update from micro-batches of `mel` [B, T, M], `samples` [B, S] and `mel_lengths` [B].

        With discriminators, loss and norm are the vocoder's; theirs are among the metrics.
        """
        if step < self._num_warm_steps:
            return self._train_warm(micro_batches, step, is_spoiled)
        judged = self._train_discriminators(micro_batches, step)
        result = self._train_vocoder(micro_batches, step, is_spoiled)
        return VocoderResult(result, judged)

    def trace(self, micro_batches: Sequence[StepInput], step: int) -> None:
        """Traces the graphs of this step; segments have one shape."""
        self(micro_batches, step)

    def make_graphs(self, micro_batches: Sequence[StepInput], step: int) -> None:
        """Traces the graphs of this step without running it."""
        is_warm = step < self._num_warm_steps
        for train in (self._train_warm,) if is_warm else (self._train_discriminators, self._train_vocoder):
            train.make_graphs(micro_batches)

    @property
    def num_traces(self) -> int:
        """Graphs made so far."""
        return sum(step.num_traces for step in (self._train_warm, self._train_vocoder, self._train_discriminators))

    def _compute_warm_loss(
        self, vocoder: Vocoder, part: MicroBatch, training: bool, step: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Reconstruction losses alone (warm-up)."""
        sums = self._reconstruct(part["samples"], _vocode(vocoder, part, step), _find_real(part))
        return add_weighted(VOCODER.terms, sums), sums

    def _compute_vocoder_loss(
        self, vocoder: Vocoder, part: MicroBatch, training: bool, step: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Reconstruction, adversarial and feature matching losses of the vocoder."""
        made_BS, is_real_B = _vocode(vocoder, part, step), _find_real(part)
        sums = self._reconstruct(part["samples"], made_BS, is_real_B)
        of_real, of_made = self._discriminators(part["samples"]), self._discriminators(made_BS)
        sums["adversarial"] = adversarial_loss(of_made, is_real_B)
        sums["features"] = feature_matching_loss(of_real, of_made, is_real_B)
        return add_weighted(VOCODER.terms, sums), sums

    def _compute_discriminator_loss(
        self, discriminators: Discriminators, part: MicroBatch, training: bool, step: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Hinge loss of the discriminators; the vocoder is behind a stop-gradient."""
        made_BS = tf.stop_gradient(_vocode(self._vocoder, part, step))
        return discriminator_loss(discriminators(part["samples"]), discriminators(made_BS), _find_real(part)), {}


def _vocode(vocoder: Vocoder, part: MicroBatch, step: Tensor) -> Tensor:
    """Samples [B, S] made from the mels of a micro-batch, with the F0 of the real samples and noise of this step.

    With the coarser F0 of the mels, high harmonics would lie beside the real ones, and the filters would learn to
    suppress them.
    """
    if not vocoder.config.has_source:
        return vocoder.filter_source(part["mel"])
    source = vocoder.track(part["mel"])
    hz_BT = refine_f0(source.hz, part["samples"], vocoder.config.sample_rate)
    rows_B = tf.range(part["mel"].shape[0])
    starts_B = tf.math.floormod(tf.cast(step, tf.int32) * _NOISE_SHIFTS[0] + rows_B * _NOISE_SHIFTS[1], NOISE_SAMPLES)
    return vocoder.filter_source(part["mel"], source._replace(hz=hz_BT, noise_start=starts_B))


def _find_real(part: MicroBatch) -> Tensor:
    """1.0 for each segment with sound, 0.0 for padding rows [B]."""
    return tf.cast(part["mel_lengths"] > 0, tf.float32)
