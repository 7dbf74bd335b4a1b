"""A recording heard once, block by block: is it whole, is there sound in it, is the sound clipped?

Memory is one block whatever the file claims to be.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

import google_crc32c
import numpy as np
import soundfile
from numpy.typing import NDArray

from myxtts.config.schema import DataConfig
from myxtts.corpus.header import AudioHeader, describe, open_sound
from myxtts.corpus.paths import open_plain_file
from myxtts.corpus.rejections import AudioProblem, Reason

_BLOCK_SAMPLES = 1 << 16
_CHECKSUM_BLOCK_BYTES = 1 << 20
_MIN_SOURCE_RATE_HZ = 4000


@dataclass(frozen=True, slots=True)
class AudioLimits:
    """What a usable recording keeps to."""

    min_duration_s: float
    max_duration_s: float
    max_source_rate_hz: int
    max_channels: int
    silence_db: float
    max_clipped_share: float

    @classmethod
    def from_config(cls, data: DataConfig) -> AudioLimits:
        return cls(**{limit.name: getattr(data, limit.name) for limit in fields(cls)})


@dataclass(frozen=True, slots=True)
class AudioFacts:
    """What was found out about a usable recording. `checksum` is 0 where the file was not read to its end."""

    num_samples: int
    sample_rate_hz: int
    num_channels: int
    checksum: int
    num_bytes: int


def inspect_audio(real_path: str, limits: AudioLimits, *, headers_only: bool = False) -> AudioFacts:
    """Checks a recording from its header, then by hearing it; raises AudioProblem with the first thing wrong."""
    with open_recording(real_path) as descriptor, open_sound(descriptor) as (header, sound):
        check_header(header, limits)
        num_bytes = os.fstat(descriptor).st_size
        if headers_only:
            return AudioFacts(header.num_samples or 0, header.sample_rate_hz, header.num_channels, 0, num_bytes)
        num_samples = _hear(sound, header, limits)
        checksum = checksum_file(descriptor)
        return AudioFacts(num_samples, header.sample_rate_hz, header.num_channels, checksum, num_bytes)


@contextmanager
def open_recording(real_path: str) -> Iterator[int]:
    """A descriptor of the file while the block runs; a failing disk or decoder becomes an AudioProblem."""
    try:
        descriptor = open_plain_file(real_path)
    except FileNotFoundError:
        raise AudioProblem(Reason.MISSING_FILE, "there is no such file") from None
    except OSError as error:
        raise AudioProblem(Reason.UNREADABLE, error.strerror or str(error)) from error
    try:
        yield descriptor
    except OSError as error:
        raise AudioProblem(Reason.UNREADABLE, error.strerror or str(error)) from error
    except (soundfile.SoundFileError, RuntimeError) as error:
        raise AudioProblem(Reason.UNREADABLE, f"decoding stopped: {describe(error)}") from error
    finally:
        os.close(descriptor)


def check_header(header: AudioHeader, limits: AudioLimits) -> None:
    """Refuses, before anything is decoded, what no recording of one sentence looks like."""
    rate = header.sample_rate_hz
    if not _MIN_SOURCE_RATE_HZ <= rate <= limits.max_source_rate_hz:
        allowed = f"{_MIN_SOURCE_RATE_HZ} to {limits.max_source_rate_hz} Hz"
        raise AudioProblem(Reason.BAD_RATE, f"{rate} Hz, allowed are {allowed}")
    if header.num_channels > limits.max_channels:
        detail = f"{header.num_channels} channels, allowed are {limits.max_channels}"
        raise AudioProblem(Reason.BAD_CHANNELS, detail)
    if header.num_samples is not None:
        check_duration(header.num_samples, rate, limits)


def checksum_file(descriptor: int) -> int:
    """crc32c of a file's bytes."""
    checksum, position = 0, 0
    while block := os.pread(descriptor, _CHECKSUM_BLOCK_BYTES, position):
        checksum = google_crc32c.extend(checksum, block)
        position += len(block)
    return checksum


def check_duration(num_samples: int, rate: int, limits: AudioLimits) -> None:
    duration_s = num_samples / rate
    if num_samples == 0:
        raise AudioProblem(Reason.EMPTY, "the file holds no samples")
    if duration_s < limits.min_duration_s:
        raise AudioProblem(Reason.TOO_SHORT, f"{duration_s:.2f} s, at least {limits.min_duration_s:g} s are needed")
    if duration_s > limits.max_duration_s:
        raise AudioProblem(Reason.TOO_LONG, f"{duration_s:.1f} s, at most {limits.max_duration_s:g} s are allowed")


def _hear(sound: soundfile.SoundFile, header: AudioHeader, limits: AudioLimits) -> int:
    """Decodes block by block; gives the number of samples per channel that are really there."""
    num_samples, num_values, num_clipped, peak = 0, 0, 0, 0.0
    max_samples = int(limits.max_duration_s * header.sample_rate_hz) + 1
    kind = "int16" if sound.subtype in ("PCM_16", "PCM_S8", "PCM_U8") else "float32"
    while num_samples <= max_samples:
        block: NDArray[np.int16] | NDArray[np.float32] = sound.read(_BLOCK_SAMPLES, dtype=kind)
        if len(block) == 0:
            break
        num_samples += len(block)
        num_values += block.size
        block_peak, block_clipped = _measure(block)
        peak, num_clipped = max(peak, block_peak), num_clipped + block_clipped
    check_completeness(num_samples, header)
    check_duration(num_samples, header.sample_rate_hz, limits)
    _check_level(peak, num_clipped / num_values, limits)
    return num_samples


def check_completeness(num_samples: int, header: AudioHeader) -> None:
    """As many samples must come out of the decoder as the header promises."""
    if header.num_samples is not None and num_samples < header.num_samples:
        detail = f"the header promises {header.num_samples:,} samples, {num_samples:,} could be decoded"
        raise AudioProblem(Reason.TRUNCATED, detail)


def _measure(block: NDArray[np.int16] | NDArray[np.float32]) -> tuple[float, int]:
    """Peak (1.0 is full scale) and the number of samples at full scale."""
    low, high = block.min(), block.max()
    if block.dtype == np.int16:
        peak = max(-int(low), int(high)) / 32767
        return peak, int(np.count_nonzero((block >= 32767) | (block <= -32767))) if peak >= 1.0 else 0
    if not (np.isfinite(low) and np.isfinite(high)):
        raise AudioProblem(Reason.UNREADABLE, "the samples hold NaN or infinity")
    peak = max(-float(low), float(high))
    return peak, int(np.count_nonzero(np.abs(block) >= 0.9999)) if peak >= 0.9999 else 0


def _check_level(peak: float, clipped_share: float, limits: AudioLimits) -> None:
    peak_db = 20 * np.log10(peak) if peak > 0 else -np.inf
    if peak_db < limits.silence_db:
        level = "digital silence" if peak == 0 else f"the peak is {peak_db:.0f} dB"
        raise AudioProblem(Reason.SILENT, f"{level}, at least {limits.silence_db:g} dB are needed")
    if clipped_share > limits.max_clipped_share:
        found, allowed = 100 * clipped_share, 100 * limits.max_clipped_share
        raise AudioProblem(Reason.CLIPPED, f"{found:.1f} % of the samples are at full scale, allowed are {allowed:g} %")
