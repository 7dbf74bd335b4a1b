"""Writes mono sound: WAV files of 16 bits, headers of WAV streams of unknown length, other formats of libsndfile."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
import soxr

from myxtts.features.extract import quantize_samples
from myxtts.storage.atomic import write_file
from myxtts.types import Waveform

_HEADER = struct.Struct("<4sI4s4sIHHIIHH")
_UNKNOWN_SIZE = 0xFFFFFFFF
"""Read by players and decoders as "until the stream ends"."""
_FORMATS: Mapping[str, tuple[str, str]] = {
    ".wav": ("WAV", "PCM_16"),
    ".flac": ("FLAC", "PCM_16"),
    ".ogg": ("OGG", "VORBIS"),
    ".opus": ("OGG", "OPUS"),
    ".mp3": ("MP3", "MPEG_LAYER_III"),
}
"""Container and coding of each ending, as libsndfile names them."""
_RATES_HZ = {
    "OPUS": (8000, 12_000, 16_000, 24_000, 48_000),
    "MPEG_LAYER_III": (8000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000),
}
"""Sample rates that a coding has; sound of another rate is resampled to the next higher one."""


def list_endings() -> list[str]:
    """Returns the endings of files that `write_sound` can write: an old libsndfile has no MP3."""
    return [ending for ending, coding in _FORMATS.items() if soundfile.check_format(*coding)]


class Coding(NamedTuple):
    """Container and coding as libsndfile names them, and the sample rate at which sound is written."""

    container: str
    name: str
    rate: int


def choose_coding(ending: str, rate: int) -> Coding:
    """Returns how sound of this rate is written to a file of this ending: at its rate, or the next higher one."""
    container, name = _FORMATS[ending]
    rates = _RATES_HZ.get(name, (rate,))
    return Coding(container, name, next((possible for possible in rates if possible >= rate), rates[-1]))


def write_sound(path: Path, wave: Waveform, mark: str = "") -> None:
    """Writes a whole file, or none, in the format of its ending, which must be one of `list_endings`, or "" for WAV.

    `mark` is written as a comment into it, as its format has them: WAV INFO, ID3 or a Vorbis comment.
    """
    write_file(path, encode_sound(wave, path.suffix.lower() or ".wav", mark))


def encode_sound(wave: Waveform, ending: str, mark: str = "") -> bytes:
    """Returns the content of a file of this ending."""
    if ending == ".wav":
        return make_wav_header(wave.rate, len(wave.samples), mark) + encode_samples(wave)
    container, coding, rate = choose_coding(ending, wave.rate)
    samples = wave.samples if rate == wave.rate else soxr.resample(wave.samples, wave.rate, rate, quality="HQ")
    pcm = quantize_samples(samples)
    content = io.BytesIO()
    with soundfile.SoundFile(content, "w", rate, 1, coding, format=container) as file:
        if mark:
            file.comment = mark
        # The Vorbis encoder of libsndfile overflows its stack where it gets a minute at once.
        for start in range(0, len(pcm), rate):
            file.write(np.ascontiguousarray(pcm[start : start + rate]))
    return content.getvalue()


def make_wav_header(rate: int, num_samples: int | None = None, mark: str = "") -> bytes:
    """The header of mono 16-bit sound with a comment; without a number of samples, that of a stream."""
    num_bytes = _UNKNOWN_SIZE if num_samples is None else 2 * num_samples
    info = _make_info(mark) if mark else b""
    data = b"data" + struct.pack("<I", num_bytes)
    riff_bytes = _UNKNOWN_SIZE if num_samples is None else num_bytes + _HEADER.size - 8 + len(info) + len(data)
    return _HEADER.pack(b"RIFF", riff_bytes, b"WAVE", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16) + info + data


def _make_info(comment: str) -> bytes:
    """A LIST chunk of RIFF with a comment, whose length is even."""
    text = comment.encode() + b"\0"
    text += b"\0" * (len(text) % 2)
    chunk = b"INFO" + b"ICMT" + struct.pack("<I", len(text)) + text
    return b"LIST" + struct.pack("<I", len(chunk)) + chunk


def encode_samples(wave: Waveform) -> bytes:
    return quantize_samples(wave.samples).astype("<i2").tobytes()
