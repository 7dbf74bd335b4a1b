"""Vocoder without training: fast Griffin-Lim (Perraudin et al., 2013) that is constrained by mel bands.

A mel band gives the energy of a range of frequencies, not its distribution. The first iterations, which find the
phases, use a smooth estimate of the magnitudes; the later ones take the magnitudes of the current signal and scale them
so that each band has its given energy. That halves the distance to the given spectrogram at the same cost.
Shape legend: T frames, M mel bands, F frequencies up to the highest band, N transform length, K frames of a block.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from myxtts.features.definition import MelDefinition
from myxtts.features.mel import irfft, rfft
from myxtts.types import Floats

Spectrum = NDArray[np.complex64]

NUM_ITERATIONS = 48
# Iterations with the smooth guess: fewer leave harmonics less clear, more leave less time to meet the bands.
NUM_FIXED_ITERATIONS = 8
MOMENTUM = 0.99
NUM_MAGNITUDE_UPDATES = 10
_BLOCK_FRAMES = 64
"""A block and its spectrum stay in the processor's cache."""
_MAX_PRODUCT = 200_000
"""Multiplications that BLAS does in one thread; more it spreads over several, which on a busy machine cost ten times
what they save, waiting for each other."""
TINY = np.float32(1e-10)
MIN_WINDOW_SHARE = 1e-3


class GriffinLim:
    """Vocoder for spectrograms of one definition. Call it with mel [T, M]; get float32 samples [T * hop_length].

    Frame t is centred on sample t * hop_length, as when it was made. The same seed gives the same samples. One object
    serves any number of threads.
    """

    def __init__(self, definition: MelDefinition, *, num_iterations: int = NUM_ITERATIONS) -> None:
        assert num_iterations > 0, num_iterations
        self.definition = definition
        self._num_iterations = num_iterations
        self.bands_FM = definition.filterbank
        self.band_areas_M = np.maximum(self.bands_FM.sum(axis=0), TINY)
        shares_FM = self.bands_FM / np.maximum(self.bands_FM.sum(axis=1, keepdims=True), TINY)
        self.spread_MF = np.ascontiguousarray(shares_FM.T)
        self.bands_MF = np.ascontiguousarray(self.bands_FM.T)

    def __call__(self, mel_TM: NDArray[np.floating], seed: int = 0) -> Floats:
        assert mel_TM.ndim == 2, mel_TM.shape
        assert mel_TM.shape[1] == self.definition.n_mels, mel_TM.shape
        if len(mel_TM) == 0:
            return np.zeros(0, np.float32)
        target_TM = np.exp(self.definition.bound(mel_TM), dtype=np.float32)
        magnitude_TF = self._fit_magnitude(target_TM)
        spectrum_TF = magnitude_TF * _draw_phases(magnitude_TF.shape, seed)
        sound = _Sound(self.definition, len(target_TM))
        self._find_phases(sound, spectrum_TF, magnitude_TF, target_TM)
        return fade_ends(sound.crop(), self.definition.hop_length // 4)

    def _fit_magnitude(self, target_TM: Floats) -> Floats:
        """Least squares by multiplicative updates from a smooth start: they cannot leave what is positive."""
        magnitude_TF = _multiply(np.divide(target_TM, self.band_areas_M, dtype=np.float32), self.spread_MF)
        wanted_TF = _multiply(target_TM, self.bands_MF)
        for _ in range(NUM_MAGNITUDE_UPDATES):
            reached_TF = _multiply(_multiply(magnitude_TF, self.bands_FM), self.bands_MF)
            magnitude_TF *= wanted_TF / np.maximum(reached_TF, TINY)
        return magnitude_TF

    def _find_phases(self, sound: _Sound, spectrum_TF: Spectrum, magnitude_TF: Floats, target_TM: Floats) -> None:
        """Leaves in `sound` what the last spectrum sounds like. Spectrum and magnitude are overwritten."""
        last_TF = np.zeros_like(spectrum_TF)
        weight = np.float32(0)
        for iteration in range(self._num_iterations):
            sound.synthesize(spectrum_TF)
            for rows in sound.blocks:
                found_KF = sound.analyze(rows)
                if iteration >= NUM_FIXED_ITERATIONS:
                    magnitude_TF[rows] = self._scale_to_bands(np.abs(found_KF), target_TM[rows])
                moved_KF = found_KF - weight * last_TF[rows]
                last_TF[rows] = found_KF
                length_KF = np.abs(moved_KF)
                np.divide(magnitude_TF[rows], np.maximum(length_KF, TINY, out=length_KF), out=length_KF)
                np.multiply(moved_KF, length_KF, out=spectrum_TF[rows])
            # Extrapolation c + a (c - last) divided by 1 + a, since a factor does not change phases.
            weight = np.float32(MOMENTUM / (1 + MOMENTUM))
        sound.synthesize(spectrum_TF)

    def _scale_to_bands(self, magnitude_KF: Floats, target_KM: Floats) -> Floats:
        reached_KM = np.maximum(_multiply(magnitude_KF, self.bands_FM), TINY)
        ratio_KM = np.divide(target_KM, reached_KM, dtype=np.float32)
        magnitude_KF *= _multiply(ratio_KM, self.spread_MF)
        return magnitude_KF


class _Sound:
    """Samples of T frames with a margin at both ends, and the way between them and a spectrum."""

    def __init__(self, definition: MelDefinition, num_frames: int) -> None:
        self._definition = definition
        self._num_frames = num_frames
        hop = definition.hop_length
        self._num_pieces = -(-definition.n_fft // hop)
        self._pieces = np.zeros((num_frames + self._num_pieces - 1, hop), np.float32)
        stride = self._pieces.itemsize
        shape = (num_frames, definition.n_fft)
        self._frames_TN = as_strided(self._pieces, shape, (hop * stride, stride), writeable=False)
        self._windowed_KN = np.empty((_BLOCK_FRAMES, definition.n_fft), np.float32)
        self._gain = self._measure_gain()
        self.blocks = [slice(start, start + _BLOCK_FRAMES) for start in range(0, num_frames, _BLOCK_FRAMES)]

    def synthesize(self, spectrum_TF: Spectrum) -> None:
        """Adds up the windowed frames of a spectrum; the samples are the closest to it that there are."""
        self._pieces[:] = 0
        for rows in self.blocks:
            frames_KN = irfft(spectrum_TF[rows], n=self._definition.n_fft, axis=1)
            frames_KN *= self._definition.window
            self._add_frames(self._pieces[rows.start :], frames_KN)
        self._pieces *= self._gain

    def analyze(self, rows: slice) -> Spectrum:
        """The spectrum [K, F] of some frames."""
        frames_KN = self._frames_TN[rows]
        windowed_KN = np.multiply(frames_KN, self._definition.window, out=self._windowed_KN[: len(frames_KN)])
        spectrum_KF: Spectrum = rfft(windowed_KN, axis=1)[:, : len(self._definition.filterbank)]
        return spectrum_KF

    def crop(self) -> Floats:
        """The samples [T * hop_length] without the margins."""
        start = self._definition.margin
        num_samples = self._num_frames * self._definition.hop_length
        samples = self._pieces.reshape(-1)[start : start + num_samples]
        return np.pad(samples, (0, num_samples - len(samples)))

    def _add_frames(self, pieces: Floats, frames_KN: Floats) -> None:
        hop, num_frames = self._definition.hop_length, len(frames_KN)
        for number in range(self._num_pieces):
            part = frames_KN[:, number * hop : (number + 1) * hop]
            pieces[number : number + num_frames, : part.shape[1]] += part

    def _measure_gain(self) -> Floats:
        """What makes up for windows that overlap: one over the sum of their squares at each sample."""
        squares = np.zeros_like(self._pieces)
        window_TN = np.broadcast_to(self._definition.window**2, self._frames_TN.shape)
        self._add_frames(squares, window_TN)
        gain: Floats = 1 / np.maximum(squares, squares.max() * MIN_WINDOW_SHARE)
        return gain


def _multiply(rows_TA: Floats, matrix_AB: Floats) -> Floats:
    """The product [T, B] as a stack of small ones."""
    num_rows, num_inputs = rows_TA.shape
    num_stacked = max(1, _MAX_PRODUCT // matrix_AB.size)
    end = num_rows // num_stacked * num_stacked
    product_TB = np.empty((num_rows, matrix_AB.shape[1]), np.float32)
    stack = rows_TA[:end].reshape(-1, num_stacked, num_inputs)
    np.matmul(stack, matrix_AB, out=product_TB[:end].reshape(-1, num_stacked, matrix_AB.shape[1]))
    np.matmul(rows_TA[end:], matrix_AB, out=product_TB[end:])
    return product_TB


def _draw_phases(shape: tuple[int, ...], seed: int) -> Spectrum:
    turns = np.random.default_rng(seed).random(shape, np.float32) * np.float32(2 * np.pi)
    phases: Spectrum = np.cos(turns) + np.complex64(1j) * np.sin(turns)
    return phases


def fade_ends(samples: Floats, num_samples: int) -> Floats:
    """A copy that is faded in and out (sine squared), because an abrupt start or end clicks."""
    num_samples = min(num_samples, len(samples) // 2)
    rise = np.sin(np.linspace(0, np.pi / 2, num_samples, dtype=np.float32)) ** 2
    faded = np.array(samples, np.float32)
    faded[:num_samples] *= rise
    faded[len(faded) - num_samples :] *= rise[::-1]
    return faded
