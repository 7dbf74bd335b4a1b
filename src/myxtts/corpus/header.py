"""What a recording's header says, read without decoding: length, rate and channels, and whether the file is all there.

A header is small, so this is where a bomb is refused: an hour of silence in half a megabyte never gets decoded.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import soundfile

from myxtts.corpus.ogg import check_ogg_pages
from myxtts.corpus.rejections import AudioProblem, Reason

_CONTAINERS = {"WAV", "WAVEX", "RF64", "W64", "FLAC", "OGG", "MP3", "MPEG"}
# Streams of unknown length: ffmpeg writing to a pipe leaves all ones, libsndfile reports the largest count.
_UNKNOWN_SIZE = 0xFFFFFFFF
_UNKNOWN_FRAMES = 1 << 60
_MAX_CHUNKS = 10_000


@dataclass(frozen=True, slots=True)
class AudioHeader:
    """`num_samples` is per channel, or None where the container does not say."""

    container: str
    sample_rate_hz: int
    num_channels: int
    num_samples: int | None

    @property
    def duration_s(self) -> float | None:
        return None if self.num_samples is None else self.num_samples / self.sample_rate_hz


@contextmanager
def open_sound(descriptor: int) -> Iterator[tuple[AudioHeader, soundfile.SoundFile]]:
    """The header of an open file and its decoder, at the first sample.

    Raises AudioProblem if the file is empty, not audio, or shorter than it says. Nothing is decoded by this.
    """
    _check_bytes(descriptor)
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        sound = soundfile.SoundFile(descriptor, closefd=False)
    except (soundfile.SoundFileError, TypeError) as error:
        raise AudioProblem(Reason.UNREADABLE, f"not a recording that can be read: {describe(error)}") from error
    with sound:
        yield _read_header(sound), sound


def _check_bytes(descriptor: int) -> None:
    """What the decoder itself does not check: that a WAV or Ogg file is all there."""
    size = os.fstat(descriptor).st_size
    if size == 0:
        raise AudioProblem(Reason.EMPTY, "the file has no bytes")
    start = os.pread(descriptor, 12, 0)
    if start[:4] in (b"RIFF", b"RF64", b"BW64") and start[8:12] == b"WAVE":
        _check_wav_length(descriptor, size)
    elif start[:4] == b"OggS":
        check_ogg_pages(descriptor, size)


def _read_header(sound: soundfile.SoundFile) -> AudioHeader:
    container, num_samples = sound.format, sound.frames
    if container not in _CONTAINERS:
        raise AudioProblem(Reason.UNREADABLE, f"the format {container} is not supported: use WAV, FLAC, OGG or MP3")
    if 0 <= num_samples < _UNKNOWN_FRAMES:
        return AudioHeader(container, sound.samplerate, sound.channels, num_samples)
    if container == "FLAC":
        # Without the length the decoder cannot tell the end from damage.
        raise AudioProblem(Reason.UNREADABLE, "the FLAC header does not state the length: encode the file again")
    return AudioHeader(container, sound.samplerate, sound.channels, None)


def _check_wav_length(descriptor: int, size: int) -> None:
    """Walks the chunks of a WAV file: its samples must all be there."""
    big_data_size: int | None = None
    position = 12
    for _ in range(_MAX_CHUNKS):
        chunk = os.pread(descriptor, 8, position)
        if len(chunk) < 8:
            break
        name, length = chunk[:4], struct.unpack("<I", chunk[4:])[0]
        if name == b"ds64":
            big_data_size = _read_ds64(descriptor, position)
        if name == b"data":
            declared = big_data_size if length == _UNKNOWN_SIZE and big_data_size is not None else length
            _compare_data_size(declared, size - position - 8)
            return
        position += 8 + length + (length & 1)
    raise AudioProblem(Reason.TRUNCATED, "the WAV file ends before its samples begin")


def _read_ds64(descriptor: int, position: int) -> int | None:
    sizes = os.pread(descriptor, 16, position + 8)
    return int(struct.unpack("<QQ", sizes)[1]) if len(sizes) == 16 else None


def _compare_data_size(declared: int, present: int) -> None:
    if declared == _UNKNOWN_SIZE:
        return
    if declared > present:
        share = 100 * present / declared
        raise AudioProblem(
            Reason.TRUNCATED, f"the header promises {declared:,} bytes of sound, {present:,} are there ({share:.0f} %)"
        )
    if declared == 0:
        if present > 1:
            raise AudioProblem(Reason.TRUNCATED, f"the header was never completed: 0 bytes of sound, {present:,} there")
        raise AudioProblem(Reason.EMPTY, "the file holds no samples")


def describe(error: Exception) -> str:
    """The decoder's words in one line, without the name of the file object it was given."""
    return str(error).rsplit(": ", 1)[-1].strip().rstrip(".")
