"""Encodes speech while it is made: the bytes of one file, in parts that can be sent as soon as they exist."""

from __future__ import annotations

import io

import numpy as np
import soundfile
import soxr

from myxtts.features.extract import quantize_samples
from myxtts.features.wave_file import choose_coding, encode_samples, list_endings, make_wav_header
from myxtts.types import Floats, Waveform

CONTENT_TYPES: dict[str, str] = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg; codecs=opus",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
PCM_RATE_HZ = 24_000
"""Of `pcm`, samples without a header, whose rate clients of OpenAI's interface take for granted."""
_MP3_COMPRESSION = 0.5
"""Of 0 to 1: about 80 kbit/s, all the time, so that decoders know the length without a table in the header."""
_SENT_WHOLE = "flac"
"""Its header has the number of samples, and decoders fail where that is missing: so it is sent when all is known."""


def list_formats() -> list[str]:
    """Returns the formats that can be sent: an old libsndfile has no MP3."""
    return [name for name in CONTENT_TYPES if name == "pcm" or f".{name}" in list_endings()]


class SoundStream:
    """The content of one file: `add` returns the bytes that a part of the sound adds, `finish` the last ones."""

    def __init__(self, kind: str, rate: int, mark: str) -> None:
        self._kind, self._rate, self._mark = kind, rate, mark
        self._coding = None if kind in ("wav", "pcm") else choose_coding(f".{kind}", rate)
        target = PCM_RATE_HZ if kind == "pcm" else self._coding.rate if self._coding else rate
        self._resampler = None if target == rate else soxr.ResampleStream(rate, target, 1, "float32")
        self._target_rate = target
        self._content = _Tail()
        self._file: soundfile.SoundFile | None = None
        self._has_begun = False

    def add(self, wave: Waveform) -> bytes:
        return self._encode(wave.samples, is_last=False)

    def finish(self) -> bytes:
        last = self._encode(np.zeros(0, np.float32), is_last=True)
        if self._file is not None:
            self._file.close()
        return last + self._content.take()

    def _encode(self, samples: Floats, *, is_last: bool) -> bytes:
        if self._resampler is not None:
            samples = self._resampler.resample_chunk(samples, last=is_last)
        if self._coding is None:
            header = b"" if self._has_begun or self._kind == "pcm" else make_wav_header(self._rate, mark=self._mark)
            self._has_begun = True
            return header + encode_samples(Waveform(samples, self._target_rate))
        if self._file is None:
            container, coding = self._coding.container, self._coding.name
            options = {"bitrate_mode": "CONSTANT", "compression_level": _MP3_COMPRESSION} if self._kind == "mp3" else {}
            self._file = soundfile.SoundFile(
                self._content, "w", self._target_rate, 1, coding, format=container, **options
            )
            if self._mark:
                self._file.comment = self._mark
        pcm = quantize_samples(samples)
        # The Vorbis encoder of libsndfile overflows its stack where it gets a minute at once.
        for start in range(0, len(pcm), self._target_rate):
            self._file.write(np.ascontiguousarray(pcm[start : start + self._target_rate]))
        self._file.flush()
        return b"" if self._kind == _SENT_WHOLE else self._content.take()


class _Tail(io.RawIOBase):
    """A file in memory that forgets what was taken from it.

    libsndfile goes back to the header when it closes a file, to correct lengths; such bytes were sent already, so they
    are dropped: the header then says that the length is not known, as in any stream.
    """

    def __init__(self) -> None:
        super().__init__()
        self._bytes = bytearray()
        self._start = self._position = 0

    def write(self, content: object) -> int:
        data = bytes(content)  # type: ignore[call-overload]
        first, num_written = self._position - self._start, len(data)
        self._position += num_written
        if first < 0:
            data, first = data[-first:], 0
        if first > len(self._bytes):
            self._bytes += b"\0" * (first - len(self._bytes))
        self._bytes[first : first + len(data)] = data
        return num_written

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._start + len(self._bytes)}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        return 0

    def take(self) -> bytes:
        """Returns what was written since the last call."""
        taken, self._start = bytes(self._bytes), self._start + len(self._bytes)
        self._bytes.clear()
        return taken
