"""STFT magnitudes and inverse STFT inside a graph, with static shapes and in float32.

Both use the FFT of TensorFlow: a product with the DFT matrix took two to four times as long, in plain and in compiled
graphs.
Shape legend: B batch, S samples, T frames, N FFT length, F = N // 2 + 1 frequencies.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.types import Tensor

_MIN_WINDOW_SHARE = 1e-3
"""Floor of the summed squared windows: at the ends of a sound few frames overlap."""
_MIN_POWER = 1e-9
"""Keeps the gradient of a magnitude finite where there is silence."""


def make_hann_window(win_length: int, n_fft: int) -> NDArray[np.float32]:
    """Periodic Hann window [N], centred where it is shorter than the FFT."""
    start = (n_fft - win_length) // 2
    window_N = np.zeros(n_fft, np.float32)
    window_N[start : start + win_length] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(win_length) / win_length)
    return window_N


def measure_magnitude(samples_BS: Tensor, n_fft: int, hop_length: int) -> Tensor:
    """Magnitudes [B, T, F] of the frames that lie wholly inside the samples; hops must divide frames evenly."""
    assert n_fft % hop_length == 0, (n_fft, hop_length)
    num_pieces, pieces_per_frame = samples_BS.shape[1] // hop_length, n_fft // hop_length
    assert num_pieces >= pieces_per_frame, f"{samples_BS.shape[1]} samples are fewer than a frame of {n_fft}"
    pieces = tf.reshape(samples_BS[:, : num_pieces * hop_length], [-1, num_pieces, hop_length])
    num_frames = num_pieces - pieces_per_frame + 1
    frames_BTN = tf.concat([pieces[:, place : place + num_frames] for place in range(pieces_per_frame)], axis=-1)
    spectrum_BTF = tf.signal.rfft(frames_BTN * make_hann_window(n_fft, n_fft))
    power_BTF = tf.square(tf.math.real(spectrum_BTF)) + tf.square(tf.math.imag(spectrum_BTF))
    return tf.sqrt(power_BTF + _MIN_POWER)


def cut_frames(samples_BS: Tensor, size: int, hop_length: int) -> Tensor:
    """Frames [B, T, size] of samples [B, T * hop_length], centred on every hop, with silence beyond the ends."""
    num_frames, num_pieces, margin = samples_BS.shape[1] // hop_length, -(-size // hop_length), size // 2
    padded_BS = tf.pad(samples_BS, [[0, 0], [margin, num_pieces * hop_length - margin]])
    pieces = tf.reshape(padded_BS, [-1, num_frames + num_pieces, hop_length])
    return tf.concat([pieces[:, place : place + num_frames] for place in range(num_pieces)], axis=-1)[..., :size]


class ForwardTransform:
    """STFT of samples [B, T * hop_length] as real and imaginary parts [B, T, F]; the inverse of `InverseTransform`.

    Frame t is centred on sample t * hop_length; beyond the ends is silence.
    """

    def __init__(self, n_fft: int, hop_length: int, win_length: int) -> None:
        self._n_fft, self._hop_length = n_fft, hop_length
        self._window_N = make_hann_window(win_length, n_fft)

    def __call__(self, samples_BS: Tensor) -> tuple[Tensor, Tensor]:
        frames_BTN = cut_frames(samples_BS, self._n_fft, self._hop_length)
        spectrum_BTF = tf.signal.rfft(frames_BTN * self._window_N)
        return tf.math.real(spectrum_BTF), tf.math.imag(spectrum_BTF)


class InverseTransform:
    """Inverse STFT of spectra [B, T, F] to samples [B, T * hop_length]; frame t is centred on sample t * hop_length.

    Overlap-add with the sum of squared windows as norm, so that the STFT of a signal is inverted up to rounding.
    """

    def __init__(self, n_fft: int, hop_length: int, win_length: int) -> None:
        self._n_fft, self._hop_length = n_fft, hop_length
        self._num_pieces = -(-n_fft // hop_length)
        self._window_N = make_hann_window(win_length, n_fft)

    def __call__(self, real_BTF: Tensor, imaginary_BTF: Tensor) -> Tensor:
        spectrum_BTF = tf.complex(tf.cast(real_BTF, tf.float32), tf.cast(imaginary_BTF, tf.float32))
        frames_BTN = tf.signal.irfft(spectrum_BTF, [self._n_fft]) * self._window_N
        num_frames = real_BTF.shape[1]
        return self._crop(self._add_frames(frames_BTN), num_frames) * self._measure_gain(num_frames)

    def _add_frames(self, frames_BTN: Tensor) -> Tensor:
        """Sums [B, S] of overlapping frames, margins included."""
        num_pieces, hop, num_frames = self._num_pieces, self._hop_length, frames_BTN.shape[1]
        spare = num_pieces * hop - self._n_fft
        pieces = tf.reshape(tf.pad(frames_BTN, [[0, 0], [0, 0], [0, spare]]), [-1, num_frames, num_pieces, hop])
        shifted = [
            tf.pad(pieces[:, :, place], [[0, 0], [place, num_pieces - 1 - place], [0, 0]])
            for place in range(num_pieces)
        ]
        return tf.reshape(tf.add_n(shifted), [-1, (num_frames + num_pieces - 1) * hop])

    def _crop(self, samples_BS: Tensor, num_frames: int) -> Tensor:
        """Cuts off the margins of half an FFT length, so that frame 0 is centred on sample 0."""
        start, num_samples = self._n_fft // 2, num_frames * self._hop_length
        # With hops longer than half a frame the last one reaches past the last frame.
        missing = max(0, start + num_samples - samples_BS.shape[1])
        return tf.pad(samples_BS, [[0, 0], [0, missing]])[:, start : start + num_samples]

    def _measure_gain(self, num_frames: int) -> NDArray[np.float32]:
        """One over the sum of the squared windows at each sample [S]."""
        num_samples = num_frames * self._hop_length
        squares = np.zeros(self._n_fft + num_samples, np.float32)
        for frame in range(num_frames):
            start = frame * self._hop_length
            squares[start : start + self._n_fft] += self._window_N**2
        inside = squares[self._n_fft // 2 :][:num_samples]
        gain_S: NDArray[np.float32] = 1 / np.maximum(inside, squares.max() * np.float32(_MIN_WINDOW_SHARE))
        return gain_S
