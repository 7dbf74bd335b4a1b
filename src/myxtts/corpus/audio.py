"""Checks a recording: its header first, then by decoding it in blocks. Truncated, silent, clipped; constant memory.

The header alone decides about duration, sample rate and channels, so that a decompression bomb (an hour of silence in
half a megabyte) is refused before anything is decoded. Decoders skip damaged or missing data silently, so the chunks of
WAV files and the page checksums of Ogg files are checked here.

Order: bytes of the container (`open_sound`), header (`check_header`), samples (`_decode_and_measure`), crc32c. Every
finding is an `AudioProblem` with a `Reason`. Used by `check`, by the feature extraction and for reference recordings.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

import numpy as np
import soundfile
from numpy.typing import NDArray

from myxtts.config.data import DataConfig
from myxtts.corpus.rejections import AudioProblem, Reason
from myxtts.corpus.transcripts import checksum_file, open_plain_file

_CONTAINERS = {"WAV", "WAVEX", "RF64", "W64", "AIFF", "FLAC", "OGG", "MP3", "MPEG"}
"""Accepted formats, as libsndfile names them."""
_FOREIGN_FORMATS = {
    b"\x1a\x45\xdf\xa3": "WebM or Matroska",
    b"#!AMR": "AMR",
    b"\x30\x26\xb2\x75": "WMA",
    b"\xff\xf1": "AAC",
    b"\xff\xf9": "AAC",
}
"""Formats that libsndfile cannot read, by their first bytes; MP4 and M4A have `ftyp` behind a length."""
_MAX_EXTRA_BYTES = 64 << 20
"""Bytes of a file besides its samples: tags and pictures."""
_UNKNOWN_SIZE = 0xFFFFFFFF
"""Size of a WAV stream of unknown length, as ffmpeg writes it to a pipe."""
_UNKNOWN_FRAMES = 1 << 60
"""libsndfile reports more frames than this where it does not know the length."""
_MAX_CHUNKS = 10_000
"""RIFF chunks that are walked to find the samples; bounds the time for a hostile file of empty chunks."""
_MIN_SOURCE_RATE_HZ = 4000
_BLOCK_SAMPLES = 1 << 16
"""Samples per channel decoded at once, which bounds the memory."""
FRAME_S = 0.02
"""Frames of the measurement of levels."""
_LOUD_PERCENTILE, _NOISE_PERCENTILE = 98, 10
_SPEECH_BELOW_PEAK_DB = 25.0
_FLOOR_DB = -96.0
"""Digital silence counts as this level, the smallest step of 16 bits."""
# Page header of Ogg (RFC 3533): fixed part, field of the checksum, flag of a stream's last page.
_OGG_HEADER_BYTES = 27
_OGG_CHECKSUM = slice(22, 26)
_OGG_LAST_PAGE_FLAG = 0x04
_REVERSED_BYTES = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
"""Bit-reversed bytes: the CRC of Ogg has the polynomial of zlib's but the most significant bit first, so zlib can
compute it from reversed bytes."""


@dataclass(frozen=True, slots=True)
class AudioLimits:
    """Limits of a usable recording, the `data` settings of the same names. `silence_db` is relative to full scale."""

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
class Levels:
    """Level of the speech and of the noise of a recording, in dB relative to full scale."""

    level_db: float
    noise_db: float

    @property
    def snr_db(self) -> float:
        return self.level_db - self.noise_db


@dataclass(frozen=True, slots=True)
class AudioFacts:
    """Length, format, crc32c and levels of a usable recording; without decoding, `checksum` is 0 and `levels` None."""

    num_samples: int
    sample_rate_hz: int
    num_channels: int
    checksum: int
    num_bytes: int
    levels: Levels | None = None


@dataclass(frozen=True, slots=True)
class AudioHeader:
    """Format and length of a recording by its header; `num_samples` is per channel, None where it is not stated."""

    sample_rate_hz: int
    num_channels: int
    num_samples: int | None


def inspect_audio(real_path: str, limits: AudioLimits, *, headers_only: bool = False) -> AudioFacts:
    """Checks a recording by its header, then by decoding it; raises AudioProblem with the first finding."""
    with open_recording(real_path) as descriptor, open_sound(descriptor, limits) as (header, sound):
        check_header(header, limits)
        num_bytes = os.fstat(descriptor).st_size
        if headers_only:
            return AudioFacts(header.num_samples or 0, header.sample_rate_hz, header.num_channels, 0, num_bytes)
        num_samples, levels = _decode_and_measure(sound, header, limits)
        checksum = checksum_file(descriptor)
        return AudioFacts(num_samples, header.sample_rate_hz, header.num_channels, checksum, num_bytes, levels)


@contextmanager
def open_recording(real_path: str) -> Iterator[int]:
    """Opens a file for reading and yields its descriptor; errors of disk and decoder become AudioProblem."""
    try:
        descriptor = open_plain_file(real_path)
    except FileNotFoundError:
        raise AudioProblem(Reason.MISSING_FILE, f"there is no such file: {real_path}") from None
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


@contextmanager
def open_sound(descriptor: int, limits: AudioLimits) -> Iterator[tuple[AudioHeader, soundfile.SoundFile]]:
    """Yields the header of an open file and its decoder, at the first sample.

    Raises AudioProblem if the file is empty, not audio, shorter than its header states, or far longer than the longest
    recording can be. Nothing is decoded by this.
    """
    _check_bytes(descriptor, limits)
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        sound = soundfile.SoundFile(descriptor, closefd=False)
    except (soundfile.SoundFileError, TypeError) as error:
        raise AudioProblem(Reason.UNREADABLE, f"not a recording that can be read: {describe(error)}") from error
    with sound:
        yield _read_header(sound), sound


def check_header(header: AudioHeader, limits: AudioLimits) -> None:
    """Checks rate, channels and duration before anything is decoded."""
    rate = header.sample_rate_hz
    if not _MIN_SOURCE_RATE_HZ <= rate <= limits.max_source_rate_hz:
        allowed = f"{_MIN_SOURCE_RATE_HZ} to {limits.max_source_rate_hz} Hz"
        raise AudioProblem(Reason.BAD_RATE, f"{rate} Hz, allowed are {allowed}")
    if header.num_channels > limits.max_channels:
        detail = f"{header.num_channels} channels, allowed are {limits.max_channels}"
        raise AudioProblem(Reason.BAD_CHANNELS, detail)
    if header.num_samples is not None:
        check_duration(header.num_samples, rate, limits)


def check_duration(num_samples: int, rate: int, limits: AudioLimits) -> None:
    """Raises AudioProblem for a recording that is empty, too short or too long."""
    duration_s = num_samples / rate
    if num_samples == 0:
        raise AudioProblem(Reason.EMPTY, "the file holds no samples")
    if duration_s < limits.min_duration_s:
        raise AudioProblem(Reason.TOO_SHORT, f"{duration_s:.2f} s, at least {limits.min_duration_s:g} s are needed")
    if duration_s > limits.max_duration_s:
        raise AudioProblem(Reason.TOO_LONG, f"{duration_s:.1f} s, at most {limits.max_duration_s:g} s are allowed")


def check_completeness(num_samples: int, header: AudioHeader) -> None:
    """Raises AudioProblem where the decoder gave fewer samples than the header states."""
    if header.num_samples is not None and num_samples < header.num_samples:
        detail = f"the header promises {header.num_samples:,} samples, {num_samples:,} could be decoded"
        raise AudioProblem(Reason.TRUNCATED, detail)


def _decode_and_measure(
    sound: soundfile.SoundFile, header: AudioHeader, limits: AudioLimits
) -> tuple[int, Levels | None]:
    """Decodes block by block and checks length and level; returns the decoded samples per channel, and levels.

    PCM of 8 and 16 bits is read as int16, other formats as float32. Decoding stops behind the longest allowed
    duration, since the header may not state the length.
    """
    num_samples, num_values, num_clipped, peak = 0, 0, 0, 0.0
    frame_size, energies = max(1, round(FRAME_S * header.sample_rate_hz)), list[NDArray[np.float32]]()
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
        energies.append(_measure_energy(block, frame_size))
    check_completeness(num_samples, header)
    check_duration(num_samples, header.sample_rate_hz, limits)
    _check_level(peak, num_clipped / num_values, limits)
    measured = np.concatenate(energies)
    return num_samples, measure_levels(measured) if len(measured) else None


def _measure_energy(block: NDArray[np.int16] | NDArray[np.float32], frame_size: int) -> NDArray[np.float32]:
    """Mean square of each whole frame of the first channel, 1 at full scale."""
    channel = block[:, 0] if block.ndim == 2 else block
    whole = channel[: len(channel) // frame_size * frame_size].reshape(-1, frame_size)
    scaled = whole.astype(np.float32) / 32767 if block.dtype == np.int16 else whole
    energy: NDArray[np.float32] = np.einsum("kn,kn->k", scaled, scaled) / frame_size
    return energy


def measure_levels(energies: NDArray[np.floating]) -> Levels:
    """Levels by the energies of frames of 20 ms: speech is what is near the loudest ones, noise the quietest tenth."""
    levels_db = np.maximum(10 * np.log10(energies + 1e-12), _FLOOR_DB)
    loudest_db, noise_db = np.percentile(levels_db, (_LOUD_PERCENTILE, _NOISE_PERCENTILE))
    speech = levels_db[levels_db >= loudest_db - _SPEECH_BELOW_PEAK_DB]
    return Levels(float(10 * np.log10(np.mean(10 ** (speech / 10)))), float(noise_db))


def _measure(block: NDArray[np.int16] | NDArray[np.float32]) -> tuple[float, int]:
    """Returns the peak (1.0 is full scale) and the number of samples at full scale; NaN and infinity are refused."""
    low, high = block.min(), block.max()
    if block.dtype == np.int16:
        peak = max(-int(low), int(high)) / 32767
        return peak, int(np.count_nonzero((block >= 32767) | (block <= -32767))) if peak >= 1.0 else 0
    if not (np.isfinite(low) and np.isfinite(high)):
        raise AudioProblem(Reason.UNREADABLE, "the samples hold NaN or infinity")
    peak = max(-float(low), float(high))
    return peak, int(np.count_nonzero(np.abs(block) >= 0.9999)) if peak >= 0.9999 else 0


def _check_level(peak: float, clipped_share: float, limits: AudioLimits) -> None:
    """Raises AudioProblem for a recording that is silent or clipped."""
    peak_db = 20 * np.log10(peak) if peak > 0 else -np.inf
    if peak_db < limits.silence_db:
        level = "digital silence" if peak == 0 else f"the peak is {peak_db:.0f} dB"
        raise AudioProblem(Reason.SILENT, f"{level}, at least {limits.silence_db:g} dB are needed")
    if clipped_share > limits.max_clipped_share:
        found, allowed = 100 * clipped_share, 100 * limits.max_clipped_share
        raise AudioProblem(Reason.CLIPPED, f"{found:.1f} % of the samples are at full scale, allowed are {allowed:g} %")


def describe(error: Exception) -> str:
    """Returns the decoder's message in one line, without the name of the file object it was given."""
    return str(error).rsplit(": ", 1)[-1].strip().rstrip(".")


def _read_header(sound: soundfile.SoundFile) -> AudioHeader:
    container, num_samples = sound.format, sound.frames
    if container not in _CONTAINERS:
        raise AudioProblem(Reason.FOREIGN_FORMAT, f"the format {container} cannot be read")
    if 0 <= num_samples < _UNKNOWN_FRAMES:
        return AudioHeader(sound.samplerate, sound.channels, num_samples)
    if container == "FLAC":
        # Without the length the end of the file and damage look the same.
        raise AudioProblem(Reason.UNREADABLE, "the FLAC header does not state the length: encode the file again")
    return AudioHeader(sound.samplerate, sound.channels, None)


def _check_bytes(descriptor: int, limits: AudioLimits) -> None:
    """Checks that a WAV, AIFF or Ogg file is complete, which decoders do not, and that its format can be read."""
    size = os.fstat(descriptor).st_size
    if size == 0:
        raise AudioProblem(Reason.EMPTY, "the file has no bytes")
    # A decoder may search all of a file for the next frame, and the checksum is taken over all of it.
    max_samples = limits.max_duration_s * limits.max_source_rate_hz * limits.max_channels
    if size > 8 * max_samples + _MAX_EXTRA_BYTES:
        problem = f"the file has {size:,} bytes, more than {limits.max_duration_s:g} s of sound can have"
        raise AudioProblem(Reason.TOO_LONG, problem)
    start = os.pread(descriptor, 16, 0)
    foreign = next((name for magic, name in _FOREIGN_FORMATS.items() if start.startswith(magic)), "")
    if foreign or start[4:8] == b"ftyp":
        raise AudioProblem(Reason.FOREIGN_FORMAT, f"{foreign or 'MP4 (M4A)'} cannot be read")
    if start[:4] in (b"RIFF", b"RF64", b"BW64") and start[8:12] == b"WAVE":
        _check_chunks(descriptor, size, _WAV_CHUNKS)
    elif start[:4] == b"FORM" and start[8:12] in (b"AIFF", b"AIFC"):
        _check_chunks(descriptor, size, _AIFF_CHUNKS)
    elif start[:4] == b"riff":
        _check_chunks(descriptor, size, _W64_CHUNKS)
    elif start[:4] == b"OggS":
        _check_ogg_pages(descriptor, size)


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Layout of a container of chunks: each is a name, its length and its content, padded to a multiple of `align`.

    `first` is the position of the first chunk, `own` what the length counts besides the content.
    """

    kind: str
    samples: bytes
    header: struct.Struct
    first: int = 12
    own: int = 0
    align: int = 2


_WAV_CHUNKS = _Chunks("WAV", b"data", struct.Struct("<4sI"))
_AIFF_CHUNKS = _Chunks("AIFF", b"SSND", struct.Struct(">4sI"))
_W64_CHUNKS = _Chunks("W64", b"data", struct.Struct("<4s12xQ"), first=40, own=24, align=8)


def _check_chunks(descriptor: int, size: int, chunks: _Chunks) -> None:
    """Walks the chunks of a file to its samples; raises AudioProblem where some are missing.

    RF64 files state lengths beyond 32 bits in a chunk ds64, whose second field is that of the samples.
    """
    big_data_size: int | None = None
    position, num_bytes = chunks.first, chunks.header.size
    for _ in range(_MAX_CHUNKS):
        chunk = os.pread(descriptor, num_bytes, position)
        if len(chunk) < num_bytes:
            break
        name, length = chunks.header.unpack(chunk)
        length = max(0, length - chunks.own)
        if name == b"ds64":
            sizes = os.pread(descriptor, 16, position + 8)
            big_data_size = struct.unpack("<QQ", sizes)[1] if len(sizes) == 16 else None
        if name == chunks.samples:
            declared = big_data_size if length == _UNKNOWN_SIZE and big_data_size is not None else length
            _compare_data_size(declared, size - position - num_bytes)
            return
        position += num_bytes + length + -length % chunks.align
    raise AudioProblem(Reason.TRUNCATED, f"the {chunks.kind} file ends before its samples begin")


def _compare_data_size(declared: int, present: int) -> None:
    """Raises AudioProblem where the data chunk states more bytes than are there, or none; a stream has no size."""
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


def _check_ogg_pages(descriptor: int, size: int) -> None:
    """Verifies the checksum of each page of an Ogg file; raises AudioProblem at the first damaged or missing one."""
    position, number, is_last = 0, 0, False
    while position < size:
        header = os.pread(descriptor, _OGG_HEADER_BYTES + 255, position)
        if len(header) < _OGG_HEADER_BYTES or header[:4] != b"OggS":
            raise AudioProblem(Reason.UNREADABLE, f"page {number + 1} does not begin where it should")
        num_segments = header[26]
        header_bytes = _OGG_HEADER_BYTES + num_segments
        page_bytes = header_bytes + sum(header[_OGG_HEADER_BYTES:header_bytes])
        page = bytearray(os.pread(descriptor, page_bytes, position))
        if len(page) < page_bytes:
            raise AudioProblem(Reason.TRUNCATED, f"page {number + 1} is cut off")
        stored = struct.unpack("<I", page[_OGG_CHECKSUM])[0]
        page[_OGG_CHECKSUM] = bytes(4)
        if _sum_page(page) != stored:
            raise AudioProblem(Reason.UNREADABLE, f"page {number + 1} does not match its checksum")
        is_last = bool(header[5] & _OGG_LAST_PAGE_FLAG)
        position, number = position + page_bytes, number + 1
    if not is_last:
        raise AudioProblem(Reason.TRUNCATED, "the last page is missing")


def _sum_page(page: bytearray) -> int:
    """Returns the Ogg CRC of a page whose checksum field is zero: initial value 0, no final inversion."""
    reversed_crc = zlib.crc32(page.translate(_REVERSED_BYTES), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{reversed_crc:032b}"[::-1], 2)
