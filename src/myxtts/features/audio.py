"""A recording, from its file to the samples that features are made of: decode, mix, resample, trim, level.

Nothing is decoded before its header has been found acceptable.
Shape legend: S samples, C channels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from myxtts.corpus.header import open_sound
from myxtts.corpus.listen import (
    AudioLimits,
    check_completeness,
    check_duration,
    check_header,
    checksum_file,
    open_recording,
)
from myxtts.corpus.rejections import AudioProblem, Reason
from myxtts.features.definition import AudioDefinition
from myxtts.types import Waveform

_TRIM_BLOCK_S = 0.01
_TRIM_MARGIN_S = 0.05
_MAX_PEAK = 0.99
# Below half a step of 24 bits there is nothing to bring to a level, and a gain would not be a number.
_MIN_PEAK = 2.0**-24


@dataclass(frozen=True, slots=True)
class Recording:
    """Samples ready for features, and the crc32c of the file they came from."""

    wave: Waveform
    checksum: int


def load_recording(real_path: str, definition: AudioDefinition, limits: AudioLimits) -> Recording:
    """Reads and processes a recording; raises AudioProblem where it cannot be used."""
    with open_recording(real_path) as descriptor:
        with open_sound(descriptor) as (header, sound):
            check_header(header, limits)
            samples = _read_samples(sound, int(limits.max_duration_s * header.sample_rate_hz) + 1)
        check_completeness(len(samples), header)
        check_duration(len(samples), header.sample_rate_hz, limits)
        checksum = checksum_file(descriptor)
    return Recording(process_samples(samples, header.sample_rate_hz, definition), checksum)


def process_samples(samples: NDArray[np.float32], rate: int, definition: AudioDefinition) -> Waveform:
    """Mixes [S] or [S, C] to mono, resamples, trims and levels it, as the definition says."""
    mono = samples if samples.ndim == 1 else samples.mean(axis=1, dtype=np.float32)
    if rate != definition.sample_rate:
        mono = soxr.resample(mono, rate, definition.sample_rate, quality="HQ")
    if definition.trim_silence:
        mono = trim_silence(mono, definition.sample_rate, definition.trim_db)
    return Waveform(level_samples(mono, definition), definition.sample_rate)


def trim_silence(samples: NDArray[np.float32], rate: int, trim_db: float) -> NDArray[np.float32]:
    """Cuts both ends up to where the sound comes within `trim_db` of its loudest block; a small margin stays."""
    block = max(1, int(_TRIM_BLOCK_S * rate))
    num_blocks = len(samples) // block
    if num_blocks < 2:
        return samples
    blocks = samples[: num_blocks * block].reshape(num_blocks, block)
    energy = np.einsum("ij,ij->i", blocks, blocks)
    loud = np.flatnonzero(energy > energy.max() * 10 ** (-trim_db / 10))
    if len(loud) == 0:
        return samples
    margin = int(_TRIM_MARGIN_S * rate)
    start = max(0, int(loud[0]) * block - margin)
    stop = min(len(samples), (int(loud[-1]) + 1) * block + margin)
    return samples[start:stop]


def level_samples(samples: NDArray[np.float32], definition: AudioDefinition) -> NDArray[np.float32]:
    """Brings the level to the target; a peak that would clip limits the gain."""
    if definition.loudness == "none" or len(samples) == 0:
        return np.ascontiguousarray(samples, np.float32)
    peak = float(max(samples.max(), -samples.min()))
    if peak < _MIN_PEAK:
        return np.ascontiguousarray(samples, np.float32)
    level = peak if definition.loudness == "peak" else float(np.sqrt(np.dot(samples, samples) / len(samples)))
    gain = min(definition.loudness_target / level, _MAX_PEAK / peak)
    return np.multiply(samples, np.float32(gain), dtype=np.float32)


def _read_samples(sound: soundfile.SoundFile, max_samples: int) -> NDArray[np.float32]:
    samples: NDArray[np.float32]
    if sound.subtype == "PCM_16":
        # The decoder scales 16-bit samples one by one; numpy does the same several at a time.
        samples = sound.read(max_samples, dtype="int16").astype(np.float32)
        return np.multiply(samples, np.float32(1 / 32768), out=samples)
    samples = sound.read(max_samples, dtype="float32")
    if not np.isfinite(samples.sum()):
        raise AudioProblem(Reason.UNREADABLE, "the samples hold NaN or infinity")
    return samples
