"""Resampling as TensorFlow operations: the sound passes in blocks through a filter and changes its rate as a spectrum.

The filter is a sinc under a Kaiser window, with the pass band and depth of soxr's HQ setting that the host uses. The
spectrum of a block gets another rate by losing or gaining its highest frequencies. Blocks overlap by the length of the
filter, and what the overlap spoils is cut off. The filter's length costs nothing, and any two rates will do.
Shape legend: S samples, Q blocks, N samples of a block, F frequencies.
"""

from __future__ import annotations

from math import ceil, gcd

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.types import Tensor

# As soxr's HQ: flat to 0.913 of the lower Nyquist frequency, 20 bits down from there to the end.
_PASS_BAND_END, _STOP_BAND_START = 0.913, 1.0
_ATTENUATION_DB = 126.0
_MIN_BLOCK_SAMPLES = 4096


class GraphResampler:
    """Turns samples [S] of one rate into those of another, as many as soxr gives."""

    def __init__(self, rate_hz: int, target_rate_hz: int) -> None:
        common = gcd(rate_hz, target_rate_hz)
        self._ratio = rate_hz / target_rate_hz
        num_in, num_out = rate_hz // common, target_rate_hz // common
        half_width, filter_taps = design_filter(rate_hz, target_rate_hz)
        # A block is `num_units` times the shortest stretch that has whole samples at both rates.
        num_overlapping = ceil(half_width / num_in)
        num_units = 1
        while num_units * num_in < _MIN_BLOCK_SAMPLES or num_units < 8 * num_overlapping:
            num_units *= 2
        self._block_in, self._block_out = num_units * num_in, num_units * num_out
        self._overlap_in, self._overlap_out = num_overlapping * num_in, num_overlapping * num_out
        self._step = self._block_in - 2 * self._overlap_in
        self._response_F = tf.constant(self._measure_response(filter_taps))

    def __call__(self, samples_S: Tensor) -> Tensor:
        num_samples = tf.shape(samples_S)[0]
        num_blocks = -(-num_samples // self._step)
        num_missing = num_blocks * self._step - num_samples
        padded = tf.pad(samples_S, [[self._overlap_in, num_missing + self._overlap_in]])
        blocks_QN = tf.signal.frame(padded, self._block_in, self._step)
        spectrum_QF = tf.signal.rfft(blocks_QN)[:, : self._response_F.shape[0]] * self._response_F
        num_added = self._block_out // 2 + 1 - self._response_F.shape[0]
        if num_added:
            spectrum_QF = tf.pad(spectrum_QF, [[0, 0], [0, num_added]])
        resampled_QN = tf.signal.irfft(spectrum_QF, [self._block_out])
        kept = resampled_QN[:, self._overlap_out : self._block_out - self._overlap_out]
        num_resampled = tf.cast(tf.floor(tf.cast(num_samples, tf.float64) / self._ratio + 0.5), tf.int32)
        return tf.reshape(kept, [-1])[:num_resampled]

    def _measure_response(self, filter_taps: NDArray[np.float64]) -> NDArray[np.complex64]:
        """The filter's spectrum [F] over a block, up to the highest frequency that both rates hold."""
        half = len(filter_taps) // 2
        around_zero = np.zeros(self._block_in)
        around_zero[np.arange(-half, half + 1)] = filter_taps
        num_shared = min(self._block_in, self._block_out) // 2 + 1
        # Symmetric around zero, so the spectrum is real.
        response = np.fft.rfft(around_zero).real[:num_shared] * self._block_out / self._block_in
        return response.astype(np.complex64)


def design_filter(rate_hz: int, target_rate_hz: int) -> tuple[float, NDArray[np.float64]]:
    """Half the width in samples, and the taps of the low-pass filter at `rate_hz`, an odd number around the centre."""
    lower_rate_hz = min(rate_hz, target_rate_hz)
    transition = np.pi * (_STOP_BAND_START - _PASS_BAND_END) * lower_rate_hz / rate_hz
    # Kaiser's formulas for the length and the shape of the window.
    half_width = (_ATTENUATION_DB - 8) / (2.285 * transition) / 2
    beta = 0.1102 * (_ATTENUATION_DB - 8.7)
    cutoff = (_PASS_BAND_END + _STOP_BAND_START) / 2 * lower_rate_hz / rate_hz
    place = np.arange(-int(half_width), int(half_width) + 1)
    taps = np.sinc(cutoff * place) * np.i0(beta * np.sqrt(1 - (place / half_width) ** 2))
    return float(half_width), taps / taps.sum()
