"""Sound of single clips: decoded to mono, measured, searched for pauses, cut, joined and written.

Recordings of the user are only read. New clips are 16-bit mono WAV files at the sample rate of their source, written
atomically.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray

from myxtts.config.schema import DataConfig
from myxtts.corpus.audio import AudioLimits
from myxtts.corpus.rejections import AudioProblem
from myxtts.errors import DataError, UsageError
from myxtts.features.wave_file import make_wav_header
from myxtts.storage.atomic import write_file
from myxtts.tools.collect.activity import LEVEL_S
from myxtts.tools.collect.clips import Measured, measure_clip
from myxtts.tools.collect.cuts import Pause, find_quietest
from myxtts.tools.collect.recordings import open_blocks
from myxtts.types import Floats, Waveform

LIMITS = AudioLimits.from_config(DataConfig())
"""What `prepare` accepts by default."""
MAX_SHOWN_S = 600.0
"""A longer recording is not shown: `myxtts collect` cuts it."""
MIN_PAUSE_S = 0.1
_PAUSE_SHARE, _MIN_PAUSE_DROP_DB = 0.35, 6.0
"""A pause lies below the noise plus this share of its distance to the speech, and at least so many decibels above."""
_FLOOR_DB = -100.0
_MAX_NAME_BYTES = 150
_EDGE_S = 0.05
"""Of a clip, in which nothing is cut."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A clip as the page shows it: its sound, level and noise, and its pauses."""

    wave: Waveform
    measured: Measured
    pauses: tuple[Pause, ...]


def read_sound(path: str) -> Waveform:
    """Decodes a recording to mono at its own rate; raises DataError where it cannot be read or is far too long."""
    blocks_read: list[Floats] = []
    try:
        with open_blocks(Path(path)) as blocks:
            max_samples = int(MAX_SHOWN_S * blocks.rate)
            num_samples = 0
            for block in blocks.samples:
                blocks_read.append(block)
                num_samples += len(block)
                if num_samples > max_samples:
                    raise DataError(
                        f"{Path(path).name} is longer than {MAX_SHOWN_S / 60:.0f} minutes.",
                        next_step="Cut it first: myxtts collect RECORDINGS --out CORPUS.",
                    )
            rate = blocks.rate
    except AudioProblem as problem:
        raise DataError(f"{Path(path).name} cannot be played: {problem.detail}.") from problem
    if not num_samples:
        raise DataError(f"{Path(path).name} holds no sound.")
    return Waveform(np.concatenate(blocks_read), rate)


def examine(id: str, wave: Waveform) -> Examined:
    measured = measure_clip(id, to_pcm(wave), wave.rate)
    return Examined(wave, measured, tuple(find_pauses(wave, measured)))


def find_pauses(wave: Waveform, measured: Measured) -> list[Pause]:
    """Returns the quiet places inside a clip, by its level alone; the silence at both ends is left out."""
    size = max(1, round(LEVEL_S * wave.rate))
    num_levels = len(wave.samples) // size
    frames = wave.samples[: num_levels * size].reshape(num_levels, size)
    level_db = 10 * np.log10(np.square(frames).mean(axis=1) + 1e-10, dtype=np.float32)
    # Two frames on both sides: a glottal pulse must not end a voiced sound.
    smooth = np.convolve(np.pad(level_db, 2, mode="edge"), np.full(5, 0.2, np.float32), "valid")
    drop_db = max(_MIN_PAUSE_DROP_DB, _PAUSE_SHARE * measured.snr_db)
    is_quiet = smooth < max(measured.noise_db, _FLOOR_DB) + drop_db
    edges = np.flatnonzero(np.diff(is_quiet, prepend=False, append=False)).reshape(-1, 2)
    pauses = []
    for start, stop in edges:
        start_s, end_s = float(start * LEVEL_S), float(stop * LEVEL_S)
        is_inside = start > 0 and stop < num_levels
        if is_inside and end_s - start_s >= MIN_PAUSE_S:
            pauses.append(Pause(start_s, end_s, find_quietest(level_db, start_s, end_s)))
    return pauses


def cut_sound(wave: Waveform, at_s: float) -> tuple[Waveform, Waveform]:
    """Cuts a clip in two; raises UsageError where one would be too short for `prepare`."""
    at = round(at_s * wave.rate)
    shortest_s = min(at, len(wave.samples) - at) / wave.rate
    if shortest_s < max(LIMITS.min_duration_s, _EDGE_S):
        raise UsageError(
            f"One part would have {max(0.0, shortest_s):.2f} s, and clips need {LIMITS.min_duration_s:g} s.",
            next_step="Choose another place.",
        )
    return Waveform(wave.samples[:at], wave.rate), Waveform(wave.samples[at:], wave.rate)


def join_sounds(waves: Sequence[Waveform]) -> Waveform:
    """Joins clips at the highest of their sample rates; raises UsageError where the result would be too long."""
    seconds = sum(wave.duration_s for wave in waves)
    if seconds > LIMITS.max_duration_s:
        raise UsageError(
            f"The merged clip would have {seconds:.1f} s, and clips have at most {LIMITS.max_duration_s:g} s.",
            next_step="Merge shorter clips.",
        )
    rate = max(wave.rate for wave in waves)
    parts = [
        wave.samples if wave.rate == rate else soxr.resample(wave.samples, wave.rate, rate, quality="HQ")
        for wave in waves
    ]
    return Waveform(np.concatenate(parts), rate)


def make_file_name(id: str) -> str:
    """Returns a name of letters, figures, hyphens and underscores for the file of a new clip; its end is kept."""
    name = re.sub(r"[^\w-]+", "-", id)
    return name.encode()[-_MAX_NAME_BYTES:].decode("utf-8", "ignore").lstrip("-_")


def write_clip(folder: Path, id: str, wave: Waveform) -> str:
    """Writes a new clip; returns the name of its file."""
    name = f"{make_file_name(id)}.wav"
    write_file(folder / name, make_wav_header(wave.rate, len(wave.samples)) + to_pcm(wave).astype("<i2").tobytes())
    return name


def to_pcm(wave: Waveform) -> NDArray[np.int16]:
    """Returns 16-bit samples; those of a 16-bit recording come out as they are in its file."""
    scaled: Floats = np.rint(wave.samples * np.float32(32768))
    return np.clip(scaled, -32768, 32767).astype(np.int16)
