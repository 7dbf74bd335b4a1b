"""Writes 16-bit mono WAV: whole files, and headers of streams of unknown length."""

from __future__ import annotations

import struct
from pathlib import Path

from myxtts.features.extract import quantize_samples
from myxtts.storage.atomic import write_atomically
from myxtts.types import Waveform

_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")
_UNKNOWN_SIZE = 0xFFFFFFFF
"""Read by players and decoders as "until the stream ends"."""


def make_wav_header(rate: int, num_samples: int | None = None) -> bytes:
    """The header of mono 16-bit sound; without a number of samples, that of a stream."""
    num_bytes = _UNKNOWN_SIZE if num_samples is None else 2 * num_samples
    riff_bytes = _UNKNOWN_SIZE if num_samples is None else num_bytes + _HEADER.size - 8
    sizes = (b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    return _HEADER.pack(b"RIFF", riff_bytes, b"WAVE", *sizes, b"data", num_bytes)


def encode_samples(wave: Waveform) -> bytes:
    return quantize_samples(wave.samples).astype("<i2").tobytes()


def write_wav(path: Path, wave: Waveform) -> None:
    """Writes a whole file, or none."""
    with write_atomically(path) as file:
        file.write(make_wav_header(wave.rate, len(wave.samples)) + encode_samples(wave))
