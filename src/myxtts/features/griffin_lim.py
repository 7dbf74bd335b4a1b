"""Vocoder without training: fast Griffin-Lim (Perraudin et al., 2013) that is constrained by mel bands.

A mel band gives the energy of a range of frequencies, not its distribution. The first iterations, which find the
phases, use a smooth estimate of the magnitudes; the later ones take the magnitudes of the current signal and scale them
so that each band has its given energy. That halves the distance to the given spectrogram at the same cost.

Several threads share the frames of a long spectrogram. Each has a range of neighbouring frames, and in every iteration
gives the others the samples in which its range overlaps theirs. The number of threads does not change the sound.
Shape legend: T frames, M mel bands, F frequencies up to the highest band, N transform length, K frames of a block, P
hops ("pieces") of the samples, H samples of a hop.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from myxtts.features.definition import MelDefinition
from myxtts.features.mel import BandedProduct, load_fft
from myxtts.types import Floats

Spectrum = NDArray[np.complex64]

NUM_ITERATIONS = 48
# Iterations with the smooth guess: fewer leave harmonics less clear, more leave less time to meet the bands.
NUM_FIXED_ITERATIONS = 8
MOMENTUM = 0.99
NUM_MAGNITUDE_UPDATES = 10
_BLOCK_FRAMES = 64
"""A block and its spectrum stay in the processor's cache."""
TINY = np.float32(1e-10)
MIN_WINDOW_SHARE = 1e-3


class GriffinLim:
    """Vocoder for spectrograms of one definition. Call it with mel [T, M]; get float32 samples [T * hop_length].

    Frame t is centred on sample t * hop_length, as when it was made. The same seed gives the same samples. One object
    serves any number of threads.
    """

    def __init__(
        self, definition: MelDefinition, *, num_iterations: int = NUM_ITERATIONS, num_threads: int = 1
    ) -> None:
        assert num_iterations > 0, num_iterations
        self.definition, self._num_more = definition, count_pieces(definition) - 1
        self._num_iterations, self._num_threads = num_iterations, num_threads
        self.bands_FM = definition.filterbank
        self.band_areas_M = np.maximum(self.bands_FM.sum(axis=0), TINY)
        shares_FM = self.bands_FM / np.maximum(self.bands_FM.sum(axis=1, keepdims=True), TINY)
        self.spread_MF = np.ascontiguousarray(shares_FM.T)
        self.bands_MF = np.ascontiguousarray(self.bands_FM.T)
        self._sum_bands, self._spread = BandedProduct(self.bands_FM), BandedProduct(self.spread_MF)
        self._sum_frequencies = BandedProduct(self.bands_MF)

    def __call__(self, mel_TM: NDArray[np.floating], seed: int = 0) -> Floats:
        assert mel_TM.ndim == 2, mel_TM.shape
        assert mel_TM.shape[1] == self.definition.n_mels, mel_TM.shape
        if len(mel_TM) == 0:
            return np.zeros(0, np.float32)
        target_TM = np.exp(self.definition.bound(mel_TM), dtype=np.float32)
        phases_TF = _draw_phases((len(target_TM), len(self.bands_FM)), seed)
        gain_PH = _measure_gain(self.definition, len(target_TM))
        ranges = self._split(len(target_TM))
        borders = _Borders(len(ranges))

        def find(place: int) -> Floats:
            rows = ranges[place]
            num_pieces = rows.stop - rows.start + self._num_more
            sound = _Sound(self.definition, gain_PH[rows.start :][:num_pieces], borders, place)
            with ExitStack() as on_error:
                on_error.callback(borders.abort)
                self._find_phases(sound, phases_TF[rows], target_TM[rows])
                on_error.pop_all()
            return sound.pieces_PH if place == len(ranges) - 1 else sound.pieces_PH[: rows.stop - rows.start]

        with ThreadPoolExecutor(max(1, len(ranges) - 1)) as threads:
            others = [threads.submit(find, place) for place in range(1, len(ranges))]
            parts = [find(0), *(other.result() for other in others)]
        return fade_ends(self._crop(np.concatenate(parts)), self.definition.hop_length // 4)

    def _split(self, num_frames: int) -> list[slice]:
        """Frames of each thread: whole blocks, longer than a transform, so that only neighbours overlap."""
        num_blocks = -(-num_frames // _BLOCK_FRAMES)
        overlaps_neighbours = self.definition.n_fft <= _BLOCK_FRAMES * self.definition.hop_length
        num_ranges = min(self._num_threads, num_blocks) if overlaps_neighbours else 1
        ends = [min(num_frames, place * num_blocks // num_ranges * _BLOCK_FRAMES) for place in range(num_ranges + 1)]
        return [slice(start, end) for start, end in pairwise(ends)]

    def _crop(self, pieces_PH: Floats) -> Floats:
        """The samples [T * hop_length] without the margins."""
        start, hop = self.definition.margin, self.definition.hop_length
        num_samples = (len(pieces_PH) - self._num_more) * hop
        samples = pieces_PH.reshape(-1)[start : start + num_samples]
        return np.pad(samples, (0, num_samples - len(samples)))

    def _fit_magnitude(self, target_KM: Floats) -> Floats:
        """Least squares by multiplicative updates from a smooth start: they cannot leave what is positive."""
        magnitude_KF = self._spread(np.divide(target_KM, self.band_areas_M, dtype=np.float32))
        wanted_KF = self._sum_frequencies(target_KM)
        for _ in range(NUM_MAGNITUDE_UPDATES):
            reached_KF = self._sum_frequencies(self._sum_bands(magnitude_KF))
            magnitude_KF *= wanted_KF / np.maximum(reached_KF, TINY)
        return magnitude_KF

    def _find_phases(self, sound: _Sound, spectrum_TF: Spectrum, target_TM: Floats) -> None:
        """Leaves in `sound` what the last spectrum sounds like. `spectrum_TF` are phases, and is overwritten."""
        magnitude_TF = np.empty(spectrum_TF.shape, np.float32)
        for rows in sound.blocks:
            magnitude_TF[rows] = self._fit_magnitude(target_TM[rows])
        spectrum_TF *= magnitude_TF
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
        reached_KM = self._sum_bands(magnitude_KF)
        ratio_KM = np.divide(target_KM, np.maximum(reached_KM, TINY, out=reached_KM), out=reached_KM)
        magnitude_KF *= self._spread(ratio_KM)
        return magnitude_KF


class _Borders:
    """Exchanges the samples in which the ranges of threads overlap: the first and the last of each."""

    def __init__(self, num_ranges: int) -> None:
        nothing: tuple[Floats | None, Floats | None] = (None, None)
        # A thread may be one exchange ahead of another, so that the numbers of two are kept.
        self._given = [[nothing] * (num_ranges + 2) for _ in range(2)]
        self._barrier, self._num_ranges = threading.Barrier(num_ranges), num_ranges
        self._turns = [0] * num_ranges

    def abort(self) -> None:
        """Ends the waiting of the other threads, with an error."""
        self._barrier.abort()

    def exchange(self, place: int, first: Floats, last: Floats) -> tuple[Floats | None, Floats | None]:
        """Returns the last samples of the range before and the first of the range behind; None at both ends."""
        if self._num_ranges == 1:
            return None, None
        given = self._given[self._turns[place] % 2]
        self._turns[place] += 1
        given[place] = (first.copy(), last.copy())
        self._barrier.wait()
        return given[place - 1][1], given[place + 1][0]


class _Sound:
    """Samples of a range of frames with a margin at both ends, and the way between them and a spectrum."""

    def __init__(self, definition: MelDefinition, gain_PH: Floats, borders: _Borders, place: int) -> None:
        self._definition, self._borders, self._place = definition, borders, place
        hop = definition.hop_length
        self._num_more = count_pieces(definition) - 1
        num_frames = len(gain_PH) - self._num_more
        self.pieces_PH, self._gain_PH = np.empty_like(gain_PH), gain_PH
        stride = self.pieces_PH.itemsize
        shape = (num_frames, definition.n_fft)
        self._frames_TN = as_strided(self.pieces_PH, shape, (hop * stride, stride), writeable=False)
        self._windowed_KN = np.empty((_BLOCK_FRAMES, definition.n_fft), np.float32)
        self._added_PH = np.empty((_BLOCK_FRAMES + self._num_more, hop), np.float32)
        self.blocks = [slice(start, start + _BLOCK_FRAMES) for start in range(0, num_frames, _BLOCK_FRAMES)]

    def synthesize(self, spectrum_TF: Spectrum) -> None:
        """Adds up the windowed frames of a spectrum; the samples are the closest to it that there are."""
        for rows in self.blocks:
            frames_KN = load_fft().irfft(spectrum_TF[rows], n=self._definition.n_fft, axis=1)
            frames_KN *= self._definition.window
            self._add_frames(rows.start, frames_KN)
        self._add_neighbours()
        self.pieces_PH *= self._gain_PH

    def analyze(self, rows: slice) -> Spectrum:
        """The spectrum [K, F] of some frames."""
        frames_KN = self._frames_TN[rows]
        windowed_KN = np.multiply(frames_KN, self._definition.window, out=self._windowed_KN[: len(frames_KN)])
        spectrum_KF: Spectrum = load_fft().rfft(windowed_KN, axis=1)[:, : len(self._definition.filterbank)]
        return spectrum_KF

    def _add_frames(self, start: int, frames_KN: Floats) -> None:
        """Adds up a block of frames alone, then adds it to the block before: so ranges may end behind any block."""
        hop, num_frames, num_more = self._definition.hop_length, len(frames_KN), self._num_more
        added_PH = self._added_PH[: num_frames + num_more]
        added_PH[:num_frames] = frames_KN[:, :hop]
        added_PH[num_frames:] = 0
        for number in range(1, num_more + 1):
            part = frames_KN[:, number * hop : (number + 1) * hop]
            added_PH[number : number + num_frames, : part.shape[1]] += part
        overlap = num_more if start else 0
        self.pieces_PH[start : start + overlap] += added_PH[:overlap]
        self.pieces_PH[start + overlap : start + len(added_PH)] = added_PH[overlap:]

    def _add_neighbours(self) -> None:
        num_more = self._num_more
        before, behind = self._borders.exchange(self._place, self.pieces_PH[:num_more], self.pieces_PH[-num_more:])
        if before is not None:
            self.pieces_PH[:num_more] += before
        if behind is not None:
            self.pieces_PH[-num_more:] += behind


def _measure_gain(definition: MelDefinition, num_frames: int) -> Floats:
    """What makes up for windows that overlap: one over the sum of their squares at each sample [P, H]."""
    num_pieces, hop = count_pieces(definition), definition.hop_length
    squares_PH = np.zeros((num_frames + num_pieces - 1, hop), np.float32)
    for number in range(num_pieces):
        part = definition.window[number * hop : (number + 1) * hop] ** 2
        squares_PH[number : number + num_frames, : len(part)] += part
    gain_PH: Floats = 1 / np.maximum(squares_PH, squares_PH.max() * MIN_WINDOW_SHARE)
    return gain_PH


def count_pieces(definition: MelDefinition) -> int:
    """Hops that a frame extends over."""
    return -(-definition.n_fft // definition.hop_length)


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
