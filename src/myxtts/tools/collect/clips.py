"""Cuts the clips of a recording into WAV files, and measures level, noise and clipping of each.

Files are whole or absent, and named after their place in the recording, so that a start after a kill knows what is
there. What was measured is kept in a journal beside them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.corpus.audio import FRAME_S, measure_levels
from myxtts.features.extract import quantize_samples
from myxtts.features.wave_file import write_sound
from myxtts.storage.atomic import explain_storage_errors
from myxtts.storage.json_file import FileModel, JsonRefusedError, ends_with_newline, parse_json_line
from myxtts.storage.regular_file import open_output, open_regular, read_log_lines
from myxtts.tools.collect.cuts import Span
from myxtts.tools.collect.recordings import Recording, open_blocks
from myxtts.types import Floats, Waveform

CLIP_FOLDER = "clips"
_FULL_SCALE = 32767


class Measured(FileModel):
    """Level of the speech and of the noise in dB below full scale, and the share of samples at full scale."""

    id: str
    level_db: float
    noise_db: float
    clipped_share: float

    @property
    def snr_db(self) -> float:
        return self.level_db - self.noise_db


@dataclass(frozen=True, slots=True)
class Clip:
    """A clip of a recording, `id` being the name of its file."""

    id: str
    recording: Recording
    span: Span


def name_clips(recording: Recording, spans: Sequence[Span]) -> list[Clip]:
    """Names clips by their start and end in milliseconds."""
    return [
        Clip(f"{recording.name}_{round(1000 * span.start_s):08}_{round(1000 * span.end_s):08}", recording, span)
        for span in spans
    ]


class Journal:
    """Lines of JSON that are appended one by one; a line that a kill cut short is left out when it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, fields: dict[str, Any]) -> None:
        line = json.dumps(fields, ensure_ascii=False) + "\n"
        with explain_storage_errors(self._path, "write"), open_output(self._path, append=True) as file:
            if not ends_with_newline(self._path):
                line = f"\n{line}"
            file.write(line.encode("utf-8", "backslashreplace"))

    def read(self, model: type[FileModel]) -> Iterator[Any]:
        """Yields the lines that are of the model."""
        if not self._path.exists():
            return
        with open_regular(self._path) as file:
            for line in read_log_lines(file):
                try:
                    yield parse_json_line(line, model)
                except JsonRefusedError:
                    continue


def cut_clips(
    clips: Sequence[Clip], folder: Path, journal: Journal, progress: Callable[[float], None] = lambda _: None
) -> dict[str, Measured]:
    """Writes the clips of one recording that are not there yet; returns what is measured of all, by id.

    `progress` gets the seconds of the recording that were passed. Raises AudioProblem where it cannot be decoded.
    """
    known = {row.id: row for row in journal.read(Measured) if (folder / f"{row.id}.wav").is_file()}
    wanted = [clip for clip in clips if clip.id not in known]
    for clip, wave in read_clips(wanted, progress):
        write_sound(folder / f"{clip.id}.wav", wave)
        measured = measure_clip(clip.id, quantize_samples(wave.samples), wave.rate)
        journal.append(measured.model_dump())
        known[clip.id] = measured
    return {clip.id: known[clip.id] for clip in clips}


def read_clips(
    clips: Sequence[Clip], progress: Callable[[float], None] = lambda _: None
) -> Iterator[tuple[Clip, Waveform]]:
    """Decodes a recording and yields the sound of its clips, in order; holds no more than a clip and a block."""
    if not clips:
        return
    with open_blocks(clips[0].recording.path) as blocks:
        held: Floats = np.zeros(0, np.float32)
        held_start = 0
        waiting = list(reversed(clips))
        for block in blocks.samples:
            held = np.concatenate([held, block])
            held_end = held_start + len(held)
            while waiting and round(waiting[-1].span.end_s * blocks.rate) <= held_end:
                yield waiting[-1], _cut(waiting.pop().span, held, held_start, blocks.rate)
            if not waiting:
                return
            # Clips may share a pause, so the next one may begin before the last one ended.
            start = min(round(waiting[-1].span.start_s * blocks.rate), held_end)
            if start > held_start:
                held, held_start = held[start - held_start :].copy(), start
            progress(held_end / blocks.rate)
        for clip in reversed(waiting):
            yield clip, _cut(clip.span, held, held_start, blocks.rate)


def _cut(span: Span, held: Floats, held_start: int, rate: int) -> Waveform:
    start, stop = (max(0, round(place_s * rate) - held_start) for place_s in (span.start_s, span.end_s))
    return Waveform(held[start:stop], rate)


def measure_clip(id: str, pcm: NDArray[np.int16], rate: int) -> Measured:
    """Measures a clip by frames of 20 ms: speech is what is near the loudest ones, noise the quietest tenth."""
    size = max(1, round(FRAME_S * rate))
    num_frames = max(1, len(pcm) // size)
    frames = np.resize(pcm.astype(np.float64) / _FULL_SCALE, num_frames * size).reshape(num_frames, size)
    levels = measure_levels(np.square(frames).mean(axis=1))
    # One step below: 16-bit samples that were decoded to float and quantised again come out as 32,766.
    clipped = np.count_nonzero(np.abs(pcm.astype(np.int32)) >= _FULL_SCALE - 1) / max(1, len(pcm))
    return Measured(
        id=id,
        level_db=round(levels.level_db, 1),
        noise_db=round(levels.noise_db, 1),
        clipped_share=round(clipped, 5),
    )
