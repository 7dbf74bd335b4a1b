"""Finds pieces of other speakers than the main one, by the reference encoder of a trained model and by mean spectra.

A speaker embedding changes with noise and with what is said, too. How much is learned from the pieces themselves: the
two halves of a piece are of the same voice, and so is a half with the noise of other pieces added. In the directions in
which pieces differ most, compared with that, the main voice is the densest group of pieces, and those far from that
group are foreign. TensorFlow is loaded by this module's functions only.

Shape legend: N pieces, H halves of a piece (two as recorded, two with noise), M mel bands, F features, Q directions.
"""

# ruff: noqa: N815 - fields carry the shape of their arrays

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct
from scipy.linalg import eigh

from myxtts.features.audio import process_samples
from myxtts.features.mel import HostMel
from myxtts.runtime.load_tensorflow import load_tensorflow
from myxtts.types import Floats, Waveform

if TYPE_CHECKING:
    from myxtts.synthesis.loaded_bundle import LoadedBundle

Doubles = NDArray[np.float64]
_NOISE_PERCENTILE, _LOUD_PERCENTILE = 10, 90
_SPEECH_RANGE = 25 / (20 / np.log(10))
"""Frames at most 25 dB below the loud ones count as speech; log-mels are natural logarithms of magnitudes."""
_NUM_CEPSTRA, _NUM_DEVIATIONS = 24, 12
"""Coefficients of the mean spectrum of speech, without its level, and of its deviation over time."""
_NUM_DIRECTIONS = 8
_SHRINKAGE = 0.1
_KEPT_SHARE = 0.6
"""Of the pieces, nearest to the main voice: more than half must be of it."""
_NUM_ROUNDS, _NUM_REFINED = 10, 4
_MIN_PIECES = 20
"""Fewer have no main voice."""
_NUM_COMPARED = 1000
"""Pieces among which the densest group is looked for, which bounds the time."""
_DEVIATIONS = 3.5
"""Beyond which a voice is another one."""
_MIN_SPREAD = 0.05
"""Of distances, as a share of the usual one: the same voice differs that much from piece to piece at least."""


@dataclass(frozen=True, slots=True)
class Voices:
    """Features of whole pieces [N, F] and of their halves [N, H, F]."""

    whole_NF: Doubles
    halves_NHF: Doubles


def measure_voices(
    model: Path, read: Callable[[], Iterator[Waveform]], progress: Callable[[int], None] = lambda _: None
) -> Voices:
    """Measures the voices of pieces by the model of a run or bundle. `read` yields them, and is called twice."""
    from myxtts.synthesis.loaded_bundle import load_bundle

    loaded = load_bundle(model)
    load_tensorflow()
    from myxtts.synthesis.engine import SpeechEngine

    engine = SpeechEngine(loaded, vocoder="griffin_lim")

    def describe(mel_TM: Floats) -> Doubles:
        vector = engine.encode_mel(mel_TM).vector
        return np.concatenate([_describe_spectrum(mel_TM), vector / max(float(np.linalg.norm(vector)), 1e-6)])

    noises_NM = [_measure_noise(mel_TM) for mel_TM in _make_mels(loaded, read())]
    usual_M = np.percentile(noises_NM, _LOUD_PERCENTILE, axis=0) if noises_NM else np.zeros(0)
    whole, halves = [], []
    for number, mel_TM in enumerate(_make_mels(loaded, read())):
        added_M = np.maximum(usual_M - noises_NM[number], 0.0)
        noisy_TM = (0.5 * np.log(np.exp(2.0 * mel_TM) + added_M)).astype(np.float32)
        whole.append(describe(mel_TM))
        halves.append([describe(half) for kind in (mel_TM, noisy_TM) for half in np.array_split(kind, 2)])
        progress(number + 1)
    return Voices(np.array(whole), np.array(halves))


def _make_mels(loaded: LoadedBundle, waves: Iterator[Waveform]) -> Iterator[Floats]:
    """Yields the log-mels of pieces, long enough to be halved."""
    mel, fewest = HostMel(loaded.mel), 2 * loaded.mel.min_samples
    for wave in waves:
        samples = process_samples(wave.samples, wave.rate, loaded.audio).samples
        yield mel(np.pad(samples, (0, max(0, fewest - len(samples)))))


def _measure_noise(mel_TM: Floats) -> Doubles:
    """Mean power spectrum [M] of the quietest frames."""
    power_TM = np.exp(2.0 * mel_TM.astype(np.float64))
    level_T = power_TM.mean(axis=1)
    quiet: Doubles = power_TM[level_T <= np.percentile(level_T, _NOISE_PERCENTILE)].mean(axis=0)
    return quiet


def _describe_spectrum(mel_TM: Floats) -> Doubles:
    """Cepstra of the mean spectrum of speech and of its deviation: what voice and microphone have in common."""
    level_T = mel_TM.mean(axis=1)
    speech_TM = mel_TM[level_T >= np.percentile(level_T, _LOUD_PERCENTILE) - _SPEECH_RANGE].astype(np.float64)
    mean = dct(speech_TM.mean(axis=0), norm="ortho")[1 : 1 + _NUM_CEPSTRA]
    return np.concatenate([mean, dct(speech_TM.std(axis=0), norm="ortho")[:_NUM_DEVIATIONS]])


def measure_strangeness(voices: Voices) -> Doubles:
    """Returns how far each piece [N] is from the main voice, 1 being as far as is usual; all 0 with few pieces."""
    num_pieces = len(voices.whole_NF)
    if num_pieces < _MIN_PIECES:
        return np.zeros(num_pieces)
    placed_NQ = voices.whole_NF @ _find_directions(voices)
    own = _find_densest(placed_NQ)
    strangeness_N = _compare(np.linalg.norm(placed_NQ - placed_NQ[own].mean(axis=0), axis=1), own)
    for _ in range(_NUM_REFINED):
        own = np.flatnonzero(strangeness_N <= 1)
        strangeness_N = _compare(_measure_distances(placed_NQ, own), own)
    return strangeness_N


def _find_directions(voices: Voices) -> Doubles:
    """Linear discriminant analysis: the directions [F, Q] in which pieces differ most, by what differs within them."""
    rest_NHF = voices.halves_NHF - voices.halves_NHF.mean(axis=1, keepdims=True)
    num_free = rest_NHF.shape[0] * (rest_NHF.shape[1] - 1)
    within_FF = np.einsum("nhf,nhg->fg", rest_NHF, rest_NHF) / num_free
    within_FF += np.diag(_SHRINKAGE * np.diag(within_FF) + 1e-9)
    _, vectors_FF = eigh(np.cov(voices.whole_NF.T), within_FF)
    directions: Doubles = vectors_FF[:, ::-1][:, :_NUM_DIRECTIONS]
    return directions


def _find_densest(placed_NQ: Doubles) -> NDArray[np.int64]:
    """Returns the pieces of the most frequent voice, as a rule: those around the piece whose neighbours are nearest."""
    num_pieces = len(placed_NQ)
    sample = placed_NQ[:: max(1, num_pieces // _NUM_COMPARED)]
    between = np.linalg.norm(sample[:, None] - sample[None], axis=2)
    num_near = max(2, len(sample) // 3)
    start = int(np.argmin(np.sort(between, axis=1)[:, :num_near].mean(axis=1)))
    centre_Q = sample[np.argsort(between[start], kind="stable")[:num_near]].mean(axis=0)
    own = np.arange(0)
    for _ in range(_NUM_ROUNDS):
        distance_N = np.linalg.norm(placed_NQ - centre_Q, axis=1)
        own = np.argsort(distance_N, kind="stable")[: max(2, int(_KEPT_SHARE * num_pieces))]
        centre_Q = placed_NQ[own].mean(axis=0)
    return own


def _measure_distances(placed_NQ: Doubles, own: NDArray[np.int64]) -> Doubles:
    """Mahalanobis distances [N] from the pieces `own`; with few of them directions count as independent."""
    rest_NQ = placed_NQ - placed_NQ[own].mean(axis=0)
    covariance = np.cov(placed_NQ[own].T)
    weight = placed_NQ.shape[1] / (placed_NQ.shape[1] + len(own))
    covariance = (1 - weight) * covariance + weight * np.diag(np.diag(covariance))
    distances: Doubles = np.sqrt(np.einsum("nq,qr,nr->n", rest_NQ, np.linalg.inv(covariance), rest_NQ))
    return distances


def _compare(distance_N: Doubles, own: NDArray[np.int64]) -> Doubles:
    """Returns distances as shares of the farthest that is usual for the pieces `own`."""
    usual = float(np.median(distance_N[own]))
    # 1.4826 turns a median absolute deviation into the standard deviation of a normal distribution.
    spread = 1.4826 * float(np.median(np.abs(distance_N[own] - usual)))
    shares: Doubles = distance_N / (usual + _DEVIATIONS * max(spread, _MIN_SPREAD * usual, 1e-6))
    return shares
