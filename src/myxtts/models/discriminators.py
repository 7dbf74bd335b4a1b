"""Critics that learn to tell real sound from a vocoder's: several see its periods, several its spectrograms.

Only training needs them. Their layers are few and narrow; shapes are static. They compute in float32 whatever the
policy says: on CPUs the gradient of a convolution in bfloat16 is now and then not a number.
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
_LOG_FLOOR = 1e-3


class Verdict(NamedTuple):
    """What one critic makes of a batch: scores of any shape [B, ...], high for real, and what its layers saw."""

    scores: Tensor
    features: list[Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticConfig:
    """`channels` are those of the first layer. Each resolution is a transform length; a hop is a quarter of it."""

    channels: int = 16
    max_channels: int = 128
    periods: tuple[int, ...] = (2, 3, 5, 7, 11)
    resolutions: tuple[int, ...] = (512, 1024, 2048)

    @classmethod
    def tiny(cls) -> CriticConfig:
        """Small enough for CPU cores."""
        return cls(channels=8, max_channels=32, periods=(2, 3, 5, 7), resolutions=(512, 1024))


class _Convolution(ModelLayer):
    """Convolution over [B, height, width, C]."""

    def __init__(self, kernel: tuple[int, int], channels: tuple[int, int], strides: tuple[int, int]) -> None:
        super().__init__()
        self._strides = strides
        deviation = math.sqrt(2 / (kernel[0] * kernel[1] * channels[0]))
        self.kernel = self.add_weight((*kernel, *channels), keras.initializers.RandomNormal(stddev=deviation))
        self.bias = self.add_weight((channels[1],), "zeros")

    def call(self, x: Tensor) -> Tensor:
        return tf.nn.conv2d(x, self.kernel.value, self._strides, "SAME") + self.bias.value


class _Critic(ModelLayer):
    """Layers that look at an image of the sound; the last one scores every place of it."""

    def __init__(
        self, kernel: tuple[int, int], strides: tuple[int, int], num_layers: int, config: CriticConfig
    ) -> None:
        super().__init__()
        widths = [1, *(min(config.channels * 2**layer, config.max_channels) for layer in range(num_layers))]
        self.layers = [_Convolution(kernel, channels, strides) for channels in pairwise(widths)]
        self.score = _Convolution((3, 1), (widths[-1], 1), (1, 1))

    def judge(self, image: Tensor) -> Verdict:
        features = []
        for layer in self.layers:
            image = tf.nn.leaky_relu(layer(image), _SLOPE)
            features.append(image)
        return Verdict(self.score(image), features)


class PeriodCritic(_Critic):
    """Folds the samples into rows of one period, and compares each sample with those whole periods away."""

    def __init__(self, period: int, config: CriticConfig) -> None:
        super().__init__((5, 1), (3, 1), 4, config)
        self._period = period

    def call(self, samples_BS: Tensor) -> Verdict:
        num_rows = samples_BS.shape[1] // self._period
        return self.judge(tf.reshape(samples_BS[:, : num_rows * self._period], [-1, num_rows, self._period, 1]))


class ResolutionCritic(_Critic):
    """Looks at the logarithm of a spectrogram."""

    def __init__(self, n_fft: int, config: CriticConfig) -> None:
        super().__init__((3, 7), (1, 3), 4, config)
        self._n_fft = n_fft

    def call(self, samples_BS: Tensor) -> Verdict:
        magnitude_BTF = measure_magnitude(samples_BS, self._n_fft, self._n_fft // 4)
        return self.judge(tf.math.log(magnitude_BTF + _LOG_FLOOR)[..., None])


class VocoderCritics(ModelLayer):
    """All critics together. Call it with samples [B, S]; get one verdict of each."""

    def __init__(self, config: CriticConfig) -> None:
        super().__init__()
        self.periods = [PeriodCritic(period, config) for period in config.periods]
        self.resolutions = [ResolutionCritic(n_fft, config) for n_fft in config.resolutions]

    def call(self, samples_BS: Tensor) -> list[Verdict]:
        samples_BS = tf.cast(samples_BS, tf.float32)
        return [critic(samples_BS) for critic in (*self.periods, *self.resolutions)]
