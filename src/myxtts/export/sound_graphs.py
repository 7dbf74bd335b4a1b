"""Vocoders as TensorFlow functions that ONNX can express: Fourier transforms are matrix products, lengths are free.

ONNX has a DFT operator, but onnxruntime computes it without vector instructions and other runtimes lack it; a product
with the DFT matrix is fast everywhere.
Shape legend: T frames, M mel bands, F frequencies, N transform length, S samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from myxtts.features.definition import MelDefinition
from myxtts.features.griffin_lim import (
    MIN_WINDOW_SHARE,
    MOMENTUM,
    NUM_FIXED_ITERATIONS,
    NUM_ITERATIONS,
    NUM_MAGNITUDE_UPDATES,
    TINY,
    GriffinLim,
)
from myxtts.models.vocoder import NUM_CORRECTIONS, Vocoder
from myxtts.types import Floats, Tensor


class FourierProducts:
    """STFT and inverse STFT with the window of a definition, over the first `num_frequencies` frequencies.

    Spectra are [T, 2 F]: real parts, then imaginary parts. Frame t is centred on sample t * hop_length.
    """

    def __init__(self, definition: MelDefinition, num_frequencies: int) -> None:
        self._definition = definition
        self._num_pieces = -(-definition.n_fft // definition.hop_length)
        analysis_NG, synthesis_GN = _make_matrices(definition.n_fft, num_frequencies)
        self._analysis_NG = np.asarray(definition.window[:, None] * analysis_NG, np.float32)
        self._synthesis_GN = np.asarray(synthesis_GN * definition.window, np.float32)

    def measure_gain(self, num_frames: Tensor) -> Tensor:
        """One over the sum of the squared windows at each sample, as pieces [P, hop]."""
        squares_PH = self._add_frames(tf.ones([num_frames, 1]) * self._definition.window**2)
        return 1 / tf.maximum(squares_PH, tf.reduce_max(squares_PH) * MIN_WINDOW_SHARE)

    def synthesize(self, spectrum_TG: Tensor, gain_PH: Tensor) -> Tensor:
        """Samples as pieces [P, hop] with a margin of half a frame at both ends (overlap-add)."""
        return self._add_frames(tf.matmul(spectrum_TG, self._synthesis_GN)) * gain_PH

    def analyze(self, pieces_PH: Tensor) -> Tensor:
        """Spectra [T, 2 F] of the frames in samples with margins."""
        num_frames = tf.shape(pieces_PH)[0] - self._num_pieces + 1
        parts = [pieces_PH[place : place + num_frames] for place in range(self._num_pieces)]
        frames_TN = tf.concat(parts, axis=1)[:, : self._definition.n_fft]
        return tf.matmul(frames_TN, self._analysis_NG)

    def add_margins(self, samples_S: Tensor) -> Tensor:
        """Samples as pieces [P, hop], with silence where `crop` cuts off."""
        hop, count = self._definition.hop_length, self._num_pieces
        padded_S = tf.pad(samples_S, [[self._definition.margin, count * hop]])
        return tf.reshape(padded_S[: tf.shape(samples_S)[0] + (count - 1) * hop], [-1, hop])

    def crop(self, pieces_PH: Tensor) -> Tensor:
        """Samples [S] without the margins, `hop_length` for each frame."""
        start, hop = self._definition.margin, self._definition.hop_length
        num_samples = (tf.shape(pieces_PH)[0] - self._num_pieces + 1) * hop
        padded = tf.pad(tf.reshape(pieces_PH, [-1]), [[0, hop]])
        return padded[start : start + num_samples]

    def _add_frames(self, frames_TN: Tensor) -> Tensor:
        """Sums overlapping frames as pieces of a hop [T + frames per FFT - 1, hop]."""
        count, hop = self._num_pieces, self._definition.hop_length
        frames_TN = tf.pad(frames_TN, [[0, 0], [0, count * hop - self._definition.n_fft]])
        shifted = [
            tf.pad(frames_TN[:, place * hop : (place + 1) * hop], [[place, count - 1 - place], [0, 0]])
            for place in range(count)
        ]
        return tf.add_n(shifted)


class GriffinLimGraph:
    """The arithmetic of `features.griffin_lim.GriffinLim` as three functions: `start`, `iterate`, `finish`.

    Initial phases are an input instead of a seed.
    """

    num_iterations = NUM_ITERATIONS

    def __init__(self, definition: MelDefinition) -> None:
        self._definition = definition
        self._host = GriffinLim(definition)
        self._products = FourierProducts(definition, self.num_frequencies)

    @property
    def num_frequencies(self) -> int:
        """F, up to the highest mel band."""
        return len(self._definition.filterbank)

    def start(self, mel_BTM: Tensor, turns_TF: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Spectrum, that of the iteration before, magnitude, target and gain; phases are in turns, from 0 to 1."""
        target_TM = tf.exp(bound_mel(mel_BTM[0], self._definition))
        magnitude_TF = self._fit_magnitude(target_TM)
        angles_TF = turns_TF * (2 * np.pi)
        spectrum_TG = tf.concat([tf.cos(angles_TF) * magnitude_TF, tf.sin(angles_TF) * magnitude_TF], axis=1)
        gain_PH = self._products.measure_gain(tf.shape(mel_BTM)[1])
        return spectrum_TG, tf.zeros_like(spectrum_TG), magnitude_TF, target_TM, gain_PH

    def iterate(
        self,
        spectrum_TG: Tensor,
        last_TG: Tensor,
        magnitude_TF: Tensor,
        target_TM: Tensor,
        gain_PH: Tensor,
        step: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The next spectrum, the one that was found, and the magnitude."""
        found_TG = self._products.analyze(self._products.synthesize(spectrum_TG, gain_PH))
        found_TF = _measure_length(found_TG)
        reached_TM = tf.maximum(tf.matmul(found_TF, self._host.bands_FM), TINY)
        scaled_TF = found_TF * tf.matmul(target_TM / reached_TM, self._host.spread_MF)
        magnitude_TF = tf.where(step >= NUM_FIXED_ITERATIONS, scaled_TF, magnitude_TF)
        # Zeros before the first iteration, so its weight does not matter.
        moved_TG = found_TG - last_TG * (MOMENTUM / (1 + MOMENTUM))
        factor_TF = magnitude_TF / tf.maximum(_measure_length(moved_TG), TINY)
        return moved_TG * tf.concat([factor_TF, factor_TF], axis=1), found_TG, magnitude_TF

    def finish(self, spectrum_TG: Tensor, gain_PH: Tensor) -> tuple[Tensor]:
        """Samples [S]."""
        samples_S = self._products.crop(self._products.synthesize(spectrum_TG, gain_PH))
        return (fade_ends(samples_S, self._definition.hop_length // 4),)

    def _fit_magnitude(self, target_TM: Tensor) -> Tensor:
        host = self._host
        magnitude_TF = tf.matmul(target_TM / host.band_areas_M, host.spread_MF)
        wanted_TF = tf.matmul(target_TM, host.bands_MF)
        for _ in range(NUM_MAGNITUDE_UPDATES):
            reached_TF = tf.matmul(tf.matmul(magnitude_TF, host.bands_FM), host.bands_MF)
            magnitude_TF *= wanted_TF / tf.maximum(reached_TF, TINY)
        return magnitude_TF


def make_vocoder_function(vocoder: Vocoder, definition: MelDefinition) -> Any:
    """The neural vocoder as a function of a log-mel [1, T, M] that returns samples [S]."""
    products = FourierProducts(definition, definition.n_fft // 2 + 1)

    def transform(samples_BS: Tensor) -> tuple[Tensor, Tensor]:
        return split(products.analyze(products.add_margins(samples_BS[0])))

    def split(spectrum_TG: Tensor) -> tuple[Tensor, Tensor]:
        real_TF, imaginary_TF = tf.split(spectrum_TG, 2, axis=1)
        return real_TF[None], imaginary_TF[None]

    def vocode(mel_BTM: Tensor) -> tuple[Tensor]:
        mel_BTM = bound_mel(mel_BTM, definition)
        gain_PH = products.measure_gain(tf.shape(mel_BTM)[1])
        spectrum = vocoder.predict_spectrum(mel_BTM, transform)
        pieces_PH = products.synthesize(tf.concat(spectrum, axis=-1)[0], gain_PH)
        for _ in range(NUM_CORRECTIONS if vocoder.config.has_source else 0):
            spectrum = vocoder.correct_spectrum(mel_BTM, *transform(products.crop(pieces_PH)[None]))
            pieces_PH = products.synthesize(tf.concat(spectrum, axis=-1)[0], gain_PH)
        return (products.crop(pieces_PH),)

    return vocode


def bound_mel(mel: Tensor, definition: MelDefinition) -> Tensor:
    """Clips a spectrogram to possible values, as `MelDefinition.bound`."""
    lowest, highest = definition.log_limits
    return tf.clip_by_value(mel, lowest, highest)


def fade_ends(samples_S: Tensor, num_samples: int) -> Tensor:
    """Fades a sound in and out, as `features.griffin_lim.fade_ends`."""
    size = tf.shape(samples_S)[0]
    last = tf.cast(tf.minimum(num_samples, size // 2) - 1, tf.float32)
    place_S = tf.cast(tf.minimum(tf.range(size), size - 1 - tf.range(size)), tf.float32)
    rise_S = tf.square(tf.sin(place_S / tf.maximum(last, 1.0) * (np.pi / 2)))
    return tf.where(place_S <= last, samples_S * rise_S, samples_S)


def _measure_length(spectrum_TG: Tensor) -> Tensor:
    real_TF, imaginary_TF = tf.split(spectrum_TG, 2, axis=1)
    return tf.sqrt(tf.square(real_TF) + tf.square(imaginary_TF))


def _make_matrices(n_fft: int, num_frequencies: int) -> tuple[Floats, Floats]:
    """DFT of real frames as a matrix [N, 2 F], and its inverse [2 F, N] for spectra that are zero above F."""
    angles_NF = 2 * np.pi / n_fft * (np.outer(np.arange(n_fft), np.arange(num_frequencies)) % n_fft)
    analysis_NG = np.concatenate([np.cos(angles_NF), -np.sin(angles_NF)], axis=1)
    # All frequencies but the first, and the last of an even length, stand for a conjugate pair.
    weights_F = np.full(num_frequencies, 2.0)
    weights_F[0] = 1.0
    if n_fft % 2 == 0 and num_frequencies == n_fft // 2 + 1:
        weights_F[-1] = 1.0
    synthesis_GN = np.tile(weights_F, 2)[:, None] * analysis_NG.T / n_fft
    return analysis_NG, synthesis_GN
