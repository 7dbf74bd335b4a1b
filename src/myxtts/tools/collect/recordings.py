"""Long recordings as streams of mono blocks: what libsndfile reads, and with the extra `media` also M4A, MP4 and WebM.

A recording is always decoded from its first sample, never from a position inside: seeking in MP3 and AAC gives other
samples than decoding up to there, and the same command must give the same clips. Memory is that of one block.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import soundfile
import soxr

from myxtts.corpus.audio import AudioLimits, check_header, open_recording, open_sound
from myxtts.corpus.formats.folders import find_recordings
from myxtts.corpus.rejections import AudioProblem, Reason
from myxtts.corpus.transcripts import AUDIO_SUFFIXES, FOREIGN_SUFFIXES
from myxtts.errors import DataError, UsageError
from myxtts.types import Floats

if TYPE_CHECKING:
    from av import AudioFrame

_LIMITS = AudioLimits(
    min_duration_s=0.0,
    max_duration_s=48 * 3600.0,
    max_source_rate_hz=192_000,
    max_channels=8,
    silence_db=-200.0,
    max_clipped_share=1.0,
)
_BLOCK_SAMPLES = 1 << 16
_MAX_NAME_LENGTH = 80
_NO_MEDIA = "Install the extra that reads it: pip install 'myxtts[media]'; or convert it: ffmpeg -i FILE FILE.wav."


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording to cut. `name` is unique among its neighbours and becomes the opening of the names of its clips.

    `speaker` is the folder that it lies in, '' for a recording in the outermost one.
    """

    path: Path
    name: str
    speaker: str
    num_bytes: int
    changed_ns: int

    @property
    def identity(self) -> dict[str, int | str]:
        """By which a later start knows that it is the same recording."""
        return {"file": self.path.name, "num_bytes": self.num_bytes, "changed_ns": self.changed_ns}


@dataclass(frozen=True, slots=True)
class Blocks:
    """An open recording: sample rate, samples per channel (None where the file does not say), and its mono blocks."""

    rate: int
    num_samples: int | None
    samples: Iterator[Floats]


def list_recordings(path: Path, out: Path) -> list[Recording]:
    """Returns the recording at `path`, or all below the folder but those below `out`; raises DataError without any."""
    if path.is_file():
        if path.suffix.lower() not in (*AUDIO_SUFFIXES, *FOREIGN_SUFFIXES):
            known = " ".join((*AUDIO_SUFFIXES, *FOREIGN_SUFFIXES))
            raise UsageError(f"{path} is no recording.", next_step=f"Name a folder, or a file that ends in {known}.")
        files, folder = [path], path.parent
    elif path.is_dir():
        own = out.resolve()
        files, folder = [file for file in find_recordings(path) if own not in file.resolve().parents], path
    else:
        raise DataError(f"There is nothing at {path}.", next_step="Name a recording, or the folder of your recordings.")
    if not files:
        raise DataError(f"There are no recordings in {path}.", next_step="Name the folder of your recordings.")
    recordings: list[Recording] = []
    taken: set[str] = set()
    for file in files:
        status = file.stat()
        relative = file.relative_to(folder)
        speaker = relative.parts[0] if len(relative.parts) > 1 else ""
        name = _make_name(relative, taken)
        recordings.append(Recording(file, name, speaker, status.st_size, status.st_mtime_ns))
    return recordings


def _make_name(relative: Path, taken: set[str]) -> str:
    """Returns a name of letters, figures and hyphens that no other recording has, even where case is ignored."""
    plain = re.sub(r"[^\w\u200c]+", "-", str(relative.with_suffix(""))).strip("-_")[:_MAX_NAME_LENGTH] or "recording"
    name, number = plain, 1
    while name.lower() in taken:
        number += 1
        name = f"{plain}-{number}"
    taken.add(name.lower())
    return name


@contextmanager
def open_blocks(path: Path) -> Iterator[Blocks]:
    """Opens a recording for decoding; raises AudioProblem where it cannot be read, also while blocks are consumed."""
    real_path = os.path.realpath(path)
    if path.suffix.lower() in FOREIGN_SUFFIXES:
        with _open_foreign(real_path) as blocks:
            yield blocks
        return
    with open_recording(real_path) as descriptor, open_sound(descriptor, _LIMITS) as (header, sound):
        check_header(header, _LIMITS)
        yield Blocks(header.sample_rate_hz, header.num_samples, _read_blocks(sound))


def _read_blocks(sound: soundfile.SoundFile) -> Iterator[Floats]:
    while len(block := sound.read(_BLOCK_SAMPLES, dtype="float32", always_2d=True)):
        yield _mix(block.T)


def _mix(samples_CS: Floats) -> Floats:
    """Mixes [C, S] to mono; NaN and infinity, which float files can hold, become silence."""
    mono = samples_CS[0] if len(samples_CS) == 1 else samples_CS.mean(axis=0, dtype=np.float32)
    return np.nan_to_num(np.ascontiguousarray(mono, np.float32), nan=0.0, posinf=0.0, neginf=0.0)


def is_media_available() -> bool:
    """Whether the extra `media` is installed; nothing is loaded."""
    return find_spec("av") is not None


@contextmanager
def _open_foreign(real_path: str) -> Iterator[Blocks]:
    """Opens the first sound of a container that libsndfile does not know, with FFmpeg's libraries (PyAV)."""
    if not is_media_available():
        raise AudioProblem(Reason.FOREIGN_FORMAT, f"{Path(real_path).suffix} needs FFmpeg's libraries. {_NO_MEDIA}")
    import av

    try:
        with av.open(real_path) as container:
            if not container.streams.audio:
                raise AudioProblem(Reason.UNREADABLE, "the file holds no sound")
            stream = container.streams.audio[0]
            rate = stream.codec_context.sample_rate
            num_samples = int(stream.duration * (stream.time_base or 0) * rate) if stream.duration else None
            yield Blocks(rate, num_samples, _convert_frames(container.decode(stream)))
    except av.FFmpegError as error:
        raise AudioProblem(Reason.UNREADABLE, f"decoding stopped: {error.strerror or error}") from error


def _convert_frames(frames: Iterator[AudioFrame]) -> Iterator[Floats]:
    """Yields decoded frames as mono float samples, joined to blocks of the usual size."""
    import av

    converter = av.AudioResampler(format="fltp")
    held: list[Floats] = []
    num_held = 0
    for frame in frames:
        for converted in converter.resample(frame):
            held.append(_mix(np.asarray(converted.to_ndarray(), np.float32)))
            num_held += len(held[-1])
        if num_held >= _BLOCK_SAMPLES:
            yield np.concatenate(held)
            held, num_held = [], 0
    if held:
        yield np.concatenate(held)


def measure_length(path: Path) -> float | None:
    """Returns the seconds that a recording has by its header, None where it does not say."""
    with open_blocks(path) as blocks:
        return blocks.num_samples / blocks.rate if blocks.num_samples else None


def resample_blocks(blocks: Blocks, rate: int) -> Iterator[Floats]:
    """Yields the blocks at another sample rate, as one continuous signal."""
    if blocks.rate == rate:
        yield from blocks.samples
        return
    resampler = soxr.ResampleStream(blocks.rate, rate, 1, dtype="float32", quality="HQ")
    for block in blocks.samples:
        yield resampler.resample_chunk(block)
    yield resampler.resample_chunk(np.zeros(0, np.float32), last=True)
