"""F0 from the log-mel spectrogram itself: correlates the low bands, envelope removed, with a cosine comb per candidate.

The low bands resolve the harmonics, a row of peaks whose distance is F0. One matrix product in the graph; coarser than
an F0 tracker on the waveform, but it needs no waveform, and the decoder cannot draw F0 any finer. Where there is a
waveform, as in the training of a vocoder, `refine_f0` takes F0 from its autocorrelation.
`pitch_combs` has the combs, and the same tracker without TensorFlow.
Shape legend: B utterances, T frames, S states or samples, M mel bands, L low bands, C candidates, N frame length,
G lags.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from myxtts.models.fourier import cut_frames
from myxtts.models.layers import count_steps
from myxtts.models.pitch_combs import (
    CANDIDATES_HZ,
    DRIFT_PENALTY,
    LOWEST_HZ,
    MIDDLE_HZ,
    OCTAVE,
    SMOOTHING,
    STRENGTH_MIDDLE,
    STRENGTH_SLOPE,
    count_low_bands,
    make_combs,
)
from myxtts.types import Tensor

_SILENT_LOG = -9.0
"""Frames whose loudest band is below it (log-mel) have no F0: the padding of a synthesised spectrogram, above all."""
_FRAME_S = 0.046
"""Frames of the autocorrelation: three periods of the lowest F0, and as long as a usual analysis window."""
_REFINED_SHARE = 0.08
"""How far, as a share of F0, the autocorrelation may move it: the error of the mel tracker is below 2 % in 9 of 10
frames, and an octave error must not be introduced."""
_LEAST_POWER = 1e-7
"""Keeps the normalisation of silence finite."""
_MIN_CORRELATION = 0.4
"""A lower peak of the normalised autocorrelation is not periodic enough to be trusted."""


class Pitch(NamedTuple):
    """F0 in thirds of an octave relative to 180 Hz, and voicing from 0 to 1; by frame [B, T] or state [B, S]."""

    f0: Tensor
    voicing: Tensor

    def to_inputs(self) -> Tensor:
        """Two channels for the decoder: F0 weighted by voicing, and voicing."""
        return tf.stack([self.f0 * self.voicing, self.voicing], axis=-1)


class PitchTracker:
    """F0 tracker for log-mels (natural logarithm) with bands centred at `band_hz`. It has no weights."""

    def __init__(self, band_hz: Sequence[float]) -> None:
        self._num_bands = count_low_bands(band_hz)
        self.is_able = self._num_bands > 0
        """Whether the bands are fine enough to resolve harmonics."""
        if self.is_able:
            self._combs_LC = make_combs(band_hz)

    def measure(self, mel_BTM: Tensor, mel_lengths_B: Tensor) -> Pitch:
        """F0 and voicing of each frame [B, T]; unvoiced everywhere if the bands are too coarse."""
        is_real_BT = tf.sequence_mask(mel_lengths_B, mel_BTM.shape[1], tf.float32)
        if not self.is_able:
            return Pitch(tf.zeros_like(is_real_BT), tf.zeros_like(is_real_BT))
        clarity_BTC, octaves_C, voicing_BT = self._correlate(mel_BTM, is_real_BT)
        octave_BT = tf.gather(octaves_C, tf.argmax(clarity_BTC, axis=-1))
        return Pitch(OCTAVE * octave_BT * is_real_BT, voicing_BT)

    def track_hz(self, mel_BTM: Tensor) -> tuple[Tensor, Tensor]:
        """F0 in Hz and voicing of each frame [B, T], for the excitation of a vocoder.

        A parabola through the best candidate and its neighbours gives F0 between candidates; half of the voiced frames
        are then within 0.5 % of what the waveform says. Frames without voice have some F0 too.
        """
        if not self.is_able:
            return MIDDLE_HZ * tf.ones_like(mel_BTM[..., 0]), tf.zeros_like(mel_BTM[..., 0])
        is_loud_BT = tf.cast(tf.reduce_max(mel_BTM, axis=-1) > _SILENT_LOG, tf.float32)
        clarity_BTC, octaves_C, voicing_BT = self._correlate(mel_BTM, is_loud_BT)
        best_BT = tf.clip_by_value(tf.argmax(clarity_BTC, axis=-1, output_type=tf.int32), 1, len(CANDIDATES_HZ) - 2)
        octave_BT = tf.gather(octaves_C, best_BT) + _find_peak(clarity_BTC, best_BT) * (octaves_C[1] - octaves_C[0])
        return MIDDLE_HZ * tf.pow(2.0, octave_BT), voicing_BT

    def _correlate(self, mel_BTM: Tensor, is_real_BT: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Correlation with the comb of every candidate [B, T, C], the candidates' octaves [C], and voicing [B, T].

        Two passes: the best candidate of each frame gives the mean F0 of the utterance, and candidates far from it are
        penalised in the second pass.
        """
        low_BTL = tf.where(is_real_BT[..., None] > 0, tf.stop_gradient(mel_BTM)[..., : self._num_bands], 0.0)
        clarity_BTC = tf.einsum("btl,lc->btc", low_BTL, tf.constant(self._combs_LC))
        clarity_BTC = _smooth_over_time(clarity_BTC)
        octaves_C = tf.constant(np.log2(CANDIDATES_HZ / MIDDLE_HZ), tf.float32)
        strength_BT = tf.reduce_max(clarity_BTC, axis=-1)
        voicing_BT = tf.sigmoid((strength_BT - STRENGTH_MIDDLE) / STRENGTH_SLOPE) * is_real_BT
        first_BT = tf.gather(octaves_C, tf.argmax(clarity_BTC, axis=-1))
        middle_B1 = _average(first_BT, voicing_BT)
        drift_BC = DRIFT_PENALTY * tf.square(octaves_C - middle_B1)
        return clarity_BTC - drift_BC[:, None], octaves_C, voicing_BT


def refine_f0(hz_BT: Tensor, samples_BS: Tensor, rate_hz: int) -> Tensor:
    """Moves F0 [B, T] to the nearest peak of the autocorrelation of the waveform, T * hop_length samples."""
    hop_length = samples_BS.shape[1] // hz_BT.shape[1]
    size = -(-int(_FRAME_S * rate_hz) // hop_length) * hop_length
    longest = min(size - 1, int(rate_hz / LOWEST_HZ * (1 + _REFINED_SHARE)) + 2)
    window_N = np.hanning(size).astype(np.float32)
    correlation_BTG = _autocorrelate(cut_frames(samples_BS, size, hop_length) * window_N)[..., :longest]
    # A window makes long lags look weaker; the autocorrelation of the window itself undoes that.
    of_window_G = _autocorrelate(tf.constant(window_N))[:longest]
    correlation_BTG /= tf.maximum(correlation_BTG[..., :1], _LEAST_POWER) * of_window_G / of_window_G[0]
    lags_G, wanted_BT1 = tf.range(longest, dtype=tf.float32), rate_hz / hz_BT[..., None]
    is_near_BTG = tf.abs(lags_G - wanted_BT1) <= _REFINED_SHARE * wanted_BT1
    best_BT = tf.argmax(tf.where(is_near_BTG, correlation_BTG, -1.0), axis=-1, output_type=tf.int32)
    best_BT = tf.clip_by_value(best_BT, 1, longest - 2)
    lag_BT = tf.cast(best_BT, tf.float32) + _find_peak(correlation_BTG, best_BT)
    is_trusted_BT = _take(correlation_BTG, best_BT) > _MIN_CORRELATION
    return tf.stop_gradient(tf.where(is_trusted_BT, rate_hz / lag_BT, hz_BT))


def _autocorrelate(frames: Tensor) -> Tensor:
    """Autocorrelation over the last axis [..., N], by the FFT of twice its length."""
    size = frames.shape[-1]
    spectrum = tf.signal.rfft(frames, [2 * size])
    power = tf.square(tf.math.real(spectrum)) + tf.square(tf.math.imag(spectrum))
    return tf.signal.irfft(tf.complex(power, tf.zeros_like(power)), [2 * size])[..., :size]


def _find_peak(values_BTC: Tensor, best_BT: Tensor) -> Tensor:
    """Distance [B, T], -0.5 to 0.5, from the best place to the top of the parabola through it and its neighbours."""
    before, at, behind = (_take(values_BTC, best_BT + shift) for shift in (-1, 0, 1))
    bend = tf.minimum(before - 2 * at + behind, -1e-6)
    return tf.clip_by_value(0.5 * (before - behind) / bend, -0.5, 0.5)


def _take(values_BTC: Tensor, places_BT: Tensor) -> Tensor:
    """The value of each frame at its place [B, T], by a product: exported graphs have no batched gather."""
    return tf.reduce_sum(values_BTC * tf.one_hot(places_BT, values_BTC.shape[-1]), axis=-1)


def average_by_state(pitch: Pitch, state_BT: Tensor, num_states: int, mel_lengths_B: Tensor) -> Pitch:
    """F0 of each state [B, S] as the mean over its frames, weighted by voicing; and its mean voicing."""
    is_real_BT = tf.sequence_mask(mel_lengths_B, state_BT.shape[1], tf.float32)
    is_taken_BTS = tf.one_hot(state_BT, num_states) * is_real_BT[..., None]
    values_BT3 = tf.stack([pitch.f0 * pitch.voicing, pitch.voicing, is_real_BT], axis=-1)
    sums_BS3 = tf.matmul(is_taken_BTS, values_BT3, transpose_a=True)
    f0_BS, voicing_BS, num_frames_BS = tf.unstack(sums_BS3, axis=-1)
    return Pitch(f0_BS / tf.maximum(voicing_BS, 1e-3), voicing_BS / tf.maximum(num_frames_BS, 1.0))


def _smooth_over_time(values_BTC: Tensor) -> Tensor:
    """Triangular filter over time; zeros beyond the ends."""
    reach, num_frames = len(SMOOTHING) // 2, count_steps(values_BTC)
    padded = tf.pad(values_BTC, [[0, 0], [reach, reach], [0, 0]])
    parts = [weight * padded[:, shift : shift + num_frames] for shift, weight in enumerate(SMOOTHING)]
    return tf.add_n(parts) / sum(SMOOTHING)


def _average(values_BT: Tensor, weights_BT: Tensor) -> Tensor:
    """Weighted mean over time [B, 1]; 0 without weights."""
    total_B1 = tf.maximum(tf.reduce_sum(weights_BT, axis=1, keepdims=True), 1e-3)
    return tf.reduce_sum(values_BT * weights_BT, axis=1, keepdims=True) / total_B1
