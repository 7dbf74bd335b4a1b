"""Audio preprocessing of a recording: decode, mix to mono, resample, trim silence, normalise the level.

Nothing is decoded before its header has been checked.
Shape legend: S samples, C channels.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

import google_crc32c
import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from myxtts.corpus.audio import (
    AudioHeader,
    AudioLimits,
    check_completeness,
    check_duration,
    check_header,
    open_recording,
    open_sound,
)
from myxtts.corpus.rejections import AudioProblem, Reason
from myxtts.corpus.transcripts import checksum_file
from myxtts.features.definition import AudioDefinition
from myxtts.types import Waveform

TRIM_BLOCK_S = 0.01
TRIM_MARGIN_S = 0.05
"""Kept around the speech: plosives and breath begin below the threshold."""
MAX_PEAK = 0.99
# Below half a step of 24 bits a signal is silence, and the gain would overflow.
MIN_PEAK = 2.0**-24
# RIFF, size, kind, form, channels, rate, bytes a second, bytes of all channels, bits, data, bytes of samples.
_PLAIN_HEADER = struct.Struct("<4sI12sHHIIHH4sI")


@dataclass(frozen=True, slots=True)
class Recording:
    """Samples ready for features, and the crc32c of the file they came from."""

    wave: Waveform
    checksum: int


def load_recording(real_path: str, definition: AudioDefinition, limits: AudioLimits) -> Recording:
    """Reads and processes a recording; raises AudioProblem where it cannot be used."""
    with open_recording(real_path) as descriptor:
        decoded = _read_plain_wav(descriptor, limits) or _decode(descriptor, limits)
    return Recording(process_samples(decoded.samples, decoded.rate, definition), decoded.checksum)


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
    block = max(1, int(TRIM_BLOCK_S * rate))
    num_blocks = len(samples) // block
    if num_blocks < 2:
        return samples
    blocks = samples[: num_blocks * block].reshape(num_blocks, block)
    energy = np.einsum("ij,ij->i", blocks, blocks)
    loud = np.flatnonzero(energy > energy.max() * 10 ** (-trim_db / 10))
    if len(loud) == 0:
        return samples
    margin = int(TRIM_MARGIN_S * rate)
    start = max(0, int(loud[0]) * block - margin)
    stop = min(len(samples), (int(loud[-1]) + 1) * block + margin)
    return samples[start:stop]


def level_samples(samples: NDArray[np.float32], definition: AudioDefinition) -> NDArray[np.float32]:
    """Brings the level to the target; a peak that would clip limits the gain."""
    if definition.loudness == "none" or len(samples) == 0:
        return np.ascontiguousarray(samples, np.float32)
    peak = float(max(samples.max(), -samples.min()))
    if peak < MIN_PEAK:
        return np.ascontiguousarray(samples, np.float32)
    level = peak if definition.loudness == "peak" else float(np.sqrt(np.dot(samples, samples) / len(samples)))
    gain = min(definition.loudness_target / level, MAX_PEAK / peak)
    return np.multiply(samples, np.float32(gain), dtype=np.float32)


@dataclass(frozen=True, slots=True)
class _Decoded:
    """Samples [S] or [S, C] as they are in the file."""

    samples: NDArray[np.float32]
    rate: int
    checksum: int


def _decode(descriptor: int, limits: AudioLimits) -> _Decoded:
    """Decodes a recording with libsndfile, at most one sample more than the longest duration."""
    with open_sound(descriptor, limits) as (header, sound):
        check_header(header, limits)
        samples = _read_samples(sound, int(limits.max_duration_s * header.sample_rate_hz) + 1)
    check_completeness(len(samples), header)
    check_duration(len(samples), header.sample_rate_hz, limits)
    return _Decoded(samples, header.sample_rate_hz, checksum_file(descriptor))


def _read_samples(sound: soundfile.SoundFile, max_samples: int) -> NDArray[np.float32]:
    """Float32 samples in -1..1."""
    if sound.subtype == "PCM_16":
        # The decoder scales 16-bit samples one by one; numpy does the same several at a time.
        return _scale(sound.read(max_samples, dtype="int16"))
    samples: NDArray[np.float32] = sound.read(max_samples, dtype="float32")
    if not np.isfinite(samples.sum()):
        raise AudioProblem(Reason.UNREADABLE, "the samples hold NaN or infinity")
    return samples


def _read_plain_wav(descriptor: int, limits: AudioLimits) -> _Decoded | None:
    """Reads a file that is 44 bytes of the usual header and 16-bit samples; None if it is anything else.

    Most corpora consist of such files. Reading them in one piece takes half the time of libsndfile and the GIL less
    often. Unusual or damaged files are left to libsndfile, which reports what is wrong.
    """
    size = os.fstat(descriptor).st_size
    start = os.pread(descriptor, _PLAIN_HEADER.size, 0)
    if len(start) < _PLAIN_HEADER.size or size == _PLAIN_HEADER.size:
        return None
    riff, _, kind, form, num_channels, rate, _, block, bits, data, num_bytes = _PLAIN_HEADER.unpack(start)
    is_plain = (riff, kind, form, bits, data) == (b"RIFF", b"WAVEfmt \x10\0\0\0", 1, 16, b"data")
    if not is_plain or block != 2 * num_channels or num_bytes != size - len(start) or block == 0 or num_bytes % block:
        return None
    check_header(AudioHeader(rate, num_channels, num_bytes // block), limits)
    content = os.pread(descriptor, size, 0)
    if len(content) != size:
        return None
    pcm = np.frombuffer(content, "<i2", offset=len(start))
    samples = _scale(pcm if num_channels == 1 else pcm.reshape(-1, num_channels))
    return _Decoded(samples, rate, google_crc32c.value(content))


def _scale(pcm: NDArray[np.int16]) -> NDArray[np.float32]:
    samples = pcm.astype(np.float32)
    return np.multiply(samples, np.float32(1 / 32768), out=samples)
