"""Cosine combs of F0 candidates, and the mean and spread of F0 in log-mels, in NumPy: `pitch` has the rest.

Shape legend: T frames, M mel bands, L low bands, C candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from myxtts.types import Floats

LOWEST_HZ, _HIGHEST_HZ, _NUM_CANDIDATES = 70.0, 400.0, 96
CANDIDATES_HZ = np.geomspace(LOWEST_HZ, _HIGHEST_HZ, _NUM_CANDIDATES)
"""Geometrically spaced over 2.5 octaves, about a third of a semitone apart."""
_HIGHEST_BAND_HZ = 1600.0
"""Above it bands are wider than the distance of most voices' harmonics."""
_FEWEST_BANDS = 12
"""With fewer bands below 1600 Hz no harmonics are resolved, and everything counts as unvoiced."""
_LOBE_HZ = 40.0
"""Width of the analysis window's main lobe, which adds to that of a band."""
_ENVELOPE = np.hanning(13)[1:-1]
"""Weights of the neighbouring bands whose average is the spectral envelope."""
SMOOTHING = (1, 2, 3, 2, 1)
"""Weights of the triangular filter over time, in frames."""
DRIFT_PENALTY = 2.0
"""Per squared octave from the utterance's mean F0: suppresses octave errors."""
STRENGTH_MIDDLE, STRENGTH_SLOPE = 1.6, 0.4
"""Centre and slope of the sigmoid from comb correlation to voicing: voiced frames reach 3 to 5, others less than 1."""
MIDDLE_HZ, OCTAVE = 180.0, 3.0
"""Reference F0, and units per octave: F0 is expressed in thirds of an octave from 180 Hz."""
_FEWEST_VOICED_FRAMES = 20.0
"""About a quarter of a second: less says little about how high a voice is."""


@dataclass(frozen=True, slots=True)
class F0Range:
    """Mean and standard deviation of F0 over the voiced frames, in thirds of an octave relative to 180 Hz."""

    mean: float
    deviation: float


def count_low_bands(band_hz: Sequence[float]) -> int:
    """How many bands, from the lowest, F0 is read from; 0 where they are too coarse to resolve harmonics."""
    number = int(np.count_nonzero(np.asarray(band_hz) < _HIGHEST_BAND_HZ))
    return number if number >= _FEWEST_BANDS else 0


def measure_f0_range(mels: Sequence[Floats], band_hz: Sequence[float]) -> F0Range | None:
    """The range of F0 in log-mels [T, M] of one voice; None where too little of them is voiced."""
    num_bands = count_low_bands(band_hz)
    if not num_bands:
        return None
    combs_LC = make_combs(band_hz)
    tracked = [_track(mel_TM[:, :num_bands] @ combs_LC) for mel_TM in mels]
    f0, voicing = (np.concatenate(parts) for parts in zip(*tracked, strict=True))
    if voicing.sum() < _FEWEST_VOICED_FRAMES:
        return None
    mean = float(np.average(f0, weights=voicing))
    return F0Range(mean, float(np.sqrt(np.average(np.square(f0 - mean), weights=voicing))))


def _track(clarity_TC: Floats) -> tuple[Floats, Floats]:
    """F0 and voicing of each frame: the same as `PitchTracker.measure`, which needs TensorFlow."""
    weights = np.asarray(SMOOTHING) / sum(SMOOTHING)
    reach, num_frames = len(SMOOTHING) // 2, len(clarity_TC)
    padded = np.pad(clarity_TC, ((reach, reach), (0, 0)))
    smooth_TC = sum(weight * padded[shift : shift + num_frames] for shift, weight in enumerate(weights))
    octaves_C = np.log2(CANDIDATES_HZ / MIDDLE_HZ)
    voicing_T = 1 / (1 + np.exp((STRENGTH_MIDDLE - smooth_TC.max(axis=1)) / STRENGTH_SLOPE))
    middle = float((octaves_C[smooth_TC.argmax(axis=1)] * voicing_T).sum() / max(voicing_T.sum(), 1e-3))
    best_T = (smooth_TC - DRIFT_PENALTY * np.square(octaves_C - middle)).argmax(axis=1)
    return OCTAVE * octaves_C[best_T], voicing_T


def make_combs(band_hz: Sequence[float]) -> Floats:
    """Unit-norm cosine comb [L, C] of every candidate, with the removal of the envelope folded into it."""
    bands_hz = np.asarray(band_hz, np.float64)[: count_low_bands(band_hz)]
    widths_hz = 2 * np.gradient(bands_hz) + _LOBE_HZ
    periods = bands_hz[:, None] / CANDIDATES_HZ
    # A band as wide as F0 averages over peaks and valleys; below the first harmonic there are no peaks.
    weights_LC = np.exp(-0.72 * (widths_hz[:, None] / CANDIDATES_HZ) ** 2) * (periods > 0.6)
    combs_LC = np.cos(2 * np.pi * periods) * weights_LC
    combs_LC -= weights_LC * (combs_LC.sum(axis=0) / np.maximum(weights_LC.sum(axis=0), 1e-6))
    combs_LC /= np.maximum(np.linalg.norm(combs_LC, axis=0), 1e-6)
    return np.asarray(_make_envelope_remover(len(bands_hz)).T @ combs_LC, np.float32)


def _make_envelope_remover(num_bands: int) -> NDArray[np.float64]:
    """Matrix that subtracts from every band the average of its neighbours, edge bands repeated."""
    reach, weights = len(_ENVELOPE) // 2, _ENVELOPE / _ENVELOPE.sum()
    remover = np.eye(num_bands)
    for band in range(num_bands):
        for offset, weight in zip(range(-reach, reach + 1), weights, strict=True):
            remover[band, min(max(band + offset, 0), num_bands - 1)] -= weight
    return remover
