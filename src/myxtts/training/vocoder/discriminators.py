"""Discriminators of the GAN vocoder: multi-period (HiFi-GAN) and multi-resolution (UnivNet), as in Vocos.

Used in training only, and narrower than in the papers. Always float32, because bfloat16 convolution gradients are
sometimes NaN on CPUs.
Shape legend: B batch, S samples, T steps in time, F frequencies, P period, C channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import keras
import tensorflow as tf

from myxtts.models.fourier import measure_magnitude
from myxtts.models.layers import ModelLayer
from myxtts.types import Tensor

_SLOPE = 0.1
"""Slope of leaky ReLU, as in HiFi-GAN."""
_LOG_FLOOR = 1e-3
"""Added to magnitudes before the logarithm."""


class Judgement(NamedTuple):
    """Output of one discriminator: scores [B, ...], high for real speech, and the feature map of each layer."""

    scores: Tensor
    features: list[Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscriminatorConfig:
    """Channels double by layer up to `max_channels`. Resolutions are FFT lengths, with hops of a quarter."""

    channels: int = 16
    max_channels: int = 128
    periods: tuple[int, ...] = (2, 3, 5, 7, 11)
    resolutions: tuple[int, ...] = (512, 1024, 2048)

    @classmethod
    def tiny(cls) -> DiscriminatorConfig:
        """Small enough for CPU cores."""
        return cls(channels=8, max_channels=32, periods=(2, 3, 5, 7), resolutions=(512, 1024))


class _Convolution(ModelLayer):
    """2-D convolution over [B, height, width, C], with He initialisation."""

    def __init__(self, kernel: tuple[int, int], channels: tuple[int, int], strides: tuple[int, int]) -> None:
        super().__init__()
        self._strides = strides
        deviation = math.sqrt(2 / (kernel[0] * kernel[1] * channels[0]))
        self.kernel = self.add_weight((*kernel, *channels), keras.initializers.RandomNormal(stddev=deviation))
        self.bias = self.add_weight((channels[1],), "zeros")

    def call(self, x: Tensor) -> Tensor:
        return tf.nn.conv2d(x, self.kernel.value, self._strides, "SAME") + self.bias.value


class _Discriminator(ModelLayer):
    """Strided convolutions over a 2-D view of the waveform; the last one scores every position."""

    def __init__(
        self, kernel: tuple[int, int], strides: tuple[int, int], num_layers: int, config: DiscriminatorConfig
    ) -> None:
        super().__init__()
        widths = [1, *(min(config.channels * 2**layer, config.max_channels) for layer in range(num_layers))]
        self.layers = [_Convolution(kernel, channels, strides) for channels in pairwise(widths)]
        self.score = _Convolution((3, 1), (widths[-1], 1), (1, 1))

    def judge(self, image: Tensor) -> Judgement:
        """Applies the layers; keeps the feature map of each for feature matching."""
        features = []
        for layer in self.layers:
            image = tf.nn.leaky_relu(layer(image), _SLOPE)
            features.append(image)
        return Judgement(self.score(image), features)


class PeriodDiscriminator(_Discriminator):
    """Folds the samples into [B, S / P, P, 1]: kernels of width 1 see samples that are whole periods apart."""

    def __init__(self, period: int, config: DiscriminatorConfig) -> None:
        super().__init__((5, 1), (3, 1), 4, config)
        self._period = period

    def call(self, samples_BS: Tensor) -> Judgement:
        num_rows = samples_BS.shape[1] // self._period
        return self.judge(tf.reshape(samples_BS[:, : num_rows * self._period], [-1, num_rows, self._period, 1]))


class ResolutionDiscriminator(_Discriminator):
    """Sees the log-magnitude spectrogram [B, T, F, 1]."""

    def __init__(self, n_fft: int, config: DiscriminatorConfig) -> None:
        super().__init__((3, 7), (1, 3), 4, config)
        self._n_fft = n_fft

    def call(self, samples_BS: Tensor) -> Judgement:
        magnitude_BTF = measure_magnitude(samples_BS, self._n_fft, self._n_fft // 4)
        return self.judge(tf.math.log(magnitude_BTF + _LOG_FLOOR)[..., None])


class Discriminators(ModelLayer):
    """All discriminators; called with samples [B, S], returns one judgement of each."""

    def __init__(self, config: DiscriminatorConfig) -> None:
        super().__init__()
        self.periods = [PeriodDiscriminator(period, config) for period in config.periods]
        self.resolutions = [ResolutionDiscriminator(n_fft, config) for n_fft in config.resolutions]

    def call(self, samples_BS: Tensor) -> list[Judgement]:
        samples_BS = tf.cast(samples_BS, tf.float32)
        return [discriminator(samples_BS) for discriminator in (*self.periods, *self.resolutions)]
