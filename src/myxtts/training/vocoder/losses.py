"""Losses of the GAN vocoder: multi-resolution mel and STFT distances, hinge adversarial loss, feature matching.

Weights are in `training.terms`. Each function gives the sum over the real segments of a micro-batch; the step divides
once by their number.
Shape legend: B segments, S samples, T frames, F frequencies, M mel bands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.features.definition import MelDefinition
from myxtts.models.fourier import measure_magnitude
from myxtts.training.vocoder.discriminators import Judgement
from myxtts.types import Tensor

_RESOLUTIONS = (0.25, 0.5, 1.0, 2.0)
"""FFT lengths, as multiples of that of the mel definition. The shortest shows the bursts of stops, the longest the
harmonics of low voices."""
_EMPTY_SHARE = 1e-5
"""Share of the power above the mel bands below which a segment counts as band-limited: recordings that were once at a
lower rate have 1e-8 there, full ones 1e-3 to 1e-2. Such a segment is not compared above `EDGE_SHARE` of the bands, so
that the vocoder does not learn from it that speech ends there."""
EDGE_SHARE = 0.95
_LOG_FLOOR = 1e-3
"""Added to magnitudes before the logarithm."""
_MIN_SQUARES = 1e-9
"""Keeps the gradient of the norm finite where spectra are equal."""
_NORM_OF_SILENCE = 0.1
"""Added to the norm of a real segment, so that the spectral convergence of a silent one does not outweigh all
others."""


class ReconstructionLoss:
    """Distances between magnitude spectrograms at several resolutions (Yamamoto et al., 2020).

    A wrong waveform can match one resolution, but hardly several.
    """

    def __init__(self, definition: MelDefinition) -> None:
        self._log_floor, self._fmax = definition.log_floor, definition.fmax
        self._scales = [_scale_definition(definition, factor) for factor in _RESOLUTIONS]

    def __call__(self, real_BS: Tensor, made_BS: Tensor, is_real_B: Tensor) -> dict[str, Tensor]:
        """`mel`: L1 of log-mels. `stft`: L1 of log magnitudes plus spectral convergence."""
        mel_B = stft_B = tf.zeros_like(is_real_B)
        full = self._scales[_RESOLUTIONS.index(1.0)]
        is_full_B11 = find_full_band(measure_magnitude(real_BS, full.n_fft, full.hop_length), full, self._fmax)
        for scale in self._scales:
            real_BTF, made_BTF = (
                measure_magnitude(sound, scale.n_fft, scale.hop_length) for sound in (real_BS, made_BS)
            )
            mel_B += _average(
                tf.abs(self._take_mel(real_BTF, scale) - self._take_mel(made_BTF, scale))
                * self._weigh(scale.band_hz, is_full_B11)
            )
            stft_B += _compare_magnitudes(real_BTF, made_BTF, self._weigh(list_frequencies(scale), is_full_B11))
        totals = {"mel": mel_B, "stft": stft_B}
        return {name: tf.reduce_sum(loss_B * is_real_B) / len(self._scales) for name, loss_B in totals.items()}

    def _weigh(self, hz: NDArray[np.floating], is_full_B11: Tensor) -> Tensor:
        """Weight of each frequency or band: 0.0 for those above the mel bands in band-limited segments, else 1.0."""
        return tf.where(tf.constant(hz <= EDGE_SHARE * self._fmax), 1.0, is_full_B11)

    def _take_mel(self, magnitude_BTF: Tensor, scale: MelDefinition) -> Tensor:
        bands_FM = scale.filterbank
        mel_BTM = tf.tensordot(magnitude_BTF[:, :, : len(bands_FM)], tf.constant(bands_FM), 1)
        return tf.math.log(tf.maximum(mel_BTM, self._log_floor))


def discriminator_loss(real: Sequence[Judgement], made: Sequence[Judgement], is_real_B: Tensor) -> Tensor:
    """Hinge loss of the discriminators: real speech should score above 1, the vocoder's below -1."""
    losses_B = [
        _average(tf.nn.relu(1 - truth.scores)) + _average(tf.nn.relu(1 + guess.scores))
        for truth, guess in zip(real, made, strict=True)
    ]
    return _sum_mean(losses_B, is_real_B)


def adversarial_loss(made: Sequence[Judgement], is_real_B: Tensor) -> Tensor:
    """Hinge loss of the vocoder: its speech should score like real speech."""
    return _sum_mean([_average(tf.nn.relu(1 - guess.scores)) for guess in made], is_real_B)


def feature_matching_loss(real: Sequence[Judgement], made: Sequence[Judgement], is_real_B: Tensor) -> Tensor:
    """L1 distance of the discriminators' feature maps (HiFi-GAN); real ones are constants."""
    losses_B = [
        _average(tf.abs(tf.stop_gradient(seen_real) - seen_made))
        for truth, guess in zip(real, made, strict=True)
        for seen_real, seen_made in zip(truth.features, guess.features, strict=True)
    ]
    return _sum_mean(losses_B, is_real_B)


def _scale_definition(definition: MelDefinition, factor: float) -> MelDefinition:
    """Mel definition of another FFT length, with bands up to half the sample rate.

    The vocoder so also learns the frequencies above the mel bands that it is given.
    """
    n_fft = int(definition.n_fft * factor) // 4 * 4
    return replace(
        definition,
        n_fft=n_fft,
        win_length=n_fft,
        hop_length=n_fft // 4,
        n_mels=max(1, int(definition.n_mels * factor)),
        fmin=0.0,
        fmax=definition.sample_rate / 2,
    )


def find_full_band(real_BTF: Tensor, definition: MelDefinition, fmax: float) -> Tensor:
    """1.0 for each segment with sound above `fmax`, 0.0 for band-limited ones, as [B, 1, 1]."""
    power_BF = tf.reduce_sum(tf.square(real_BTF), axis=1)
    above_B = tf.reduce_sum(power_BF * (list_frequencies(definition) > fmax), axis=1)
    is_full_B = tf.cast(above_B > _EMPTY_SHARE * tf.reduce_sum(power_BF, axis=1), tf.float32)
    return is_full_B[:, None, None]


def list_frequencies(scale: MelDefinition) -> NDArray[np.float64]:
    """Frequencies [F] of its STFT in Hz."""
    return np.asarray(np.arange(scale.n_fft // 2 + 1) * (scale.sample_rate / scale.n_fft), np.float64)


def _compare_magnitudes(real_BTF: Tensor, made_BTF: Tensor, weight: Tensor) -> Tensor:
    """L1 of log magnitudes plus spectral convergence ||real - made|| / ||real||, by segment."""
    distance_BTF = tf.abs(tf.math.log(real_BTF + _LOG_FLOOR) - tf.math.log(made_BTF + _LOG_FLOOR))
    convergence_B = _measure_norm((real_BTF - made_BTF) * weight) / (_measure_norm(real_BTF) + _NORM_OF_SILENCE)
    return _average(distance_BTF * weight) + convergence_B


def _measure_norm(values_BTF: Tensor) -> Tensor:
    return tf.sqrt(tf.reduce_sum(tf.square(values_BTF), axis=[1, 2]) + _MIN_SQUARES)


def _average(values: Tensor) -> Tensor:
    """The mean [B] over all axes but the first."""
    return tf.reduce_mean(values, axis=list(range(1, len(values.shape))))


def _sum_mean(losses_B: Sequence[Tensor], is_real_B: Tensor) -> Tensor:
    """Mean over the losses of each segment, summed over the real segments."""
    return tf.reduce_sum(tf.add_n(list(losses_B)) * is_real_B) / len(losses_B)
