"""Which recordings TensorFlow can decode: plain 16-bit WAV files. It is seen from the first bytes, once, at opening."""

from __future__ import annotations

import os
import struct
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from myxtts.corpus.listen import open_recording
from myxtts.corpus.rejections import AudioProblem
from myxtts.pipeline.source import RecordingSource

# Waiting for a disk or a network takes most of the time, so there are more threads than cores.
_NUM_THREADS = 8
_ROWS_PER_TASK = 256
_START_BYTES = 64
_MAX_CHUNKS = 100
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_FORMAT = struct.Struct("<HHIIHH")
_SIGNATURES = {b"fLaC": "FLAC", b"OggS": "OGG", b"RF64": "RF64", b"ID3\3": "MP3", b"ID3\4": "MP3"}


@dataclass(frozen=True, slots=True)
class Survey:
    """For each row whether the graph can load it, and for the others how many there are of each kind."""

    is_native: NDArray[np.bool_]
    obstacles: Counter[str]

    @property
    def num_native(self) -> int:
        return int(np.count_nonzero(self.is_native))


def survey_recordings(source: RecordingSource) -> Survey:
    """Looks at the first bytes of every recording."""

    def survey(start: int) -> list[str]:
        return [name_obstacle(source, row) for row in range(start, min(start + _ROWS_PER_TASK, len(source)))]

    is_native = np.zeros(len(source), bool)
    counts: Counter[str] = Counter()
    starts = range(0, len(source), _ROWS_PER_TASK)
    with ThreadPoolExecutor(_NUM_THREADS, "myxtts-survey") as pool:
        for start, obstacles in zip(starts, pool.map(survey, starts), strict=True):
            is_native[start : start + len(obstacles)] = [not obstacle for obstacle in obstacles]
            counts.update(obstacle for obstacle in obstacles if obstacle)
    return Survey(is_native, counts)


def name_obstacle(source: RecordingSource, row: int) -> str:
    """Why TensorFlow cannot decode a recording, in a word or two; '' if it can.

    What is missing or damaged is left to the other way of loading, which says what is wrong with it.
    """
    try:
        with open_recording(source.audio_path(row)) as descriptor:
            return _name_obstacle(descriptor, source, row)
    except AudioProblem as problem:
        return str(problem.reason)


def _name_obstacle(descriptor: int, source: RecordingSource, row: int) -> str:
    start = os.pread(descriptor, _START_BYTES, 0)
    if start[:4] != b"RIFF" or start[8:16] != b"WAVEfmt " or len(start) < 44:
        return _SIGNATURES.get(start[:4]) or ("unusual WAV" if start[:4] == b"RIFF" else _name_suffix(source, row))
    format_bytes = struct.unpack_from("<I", start, 16)[0]
    encoding, num_channels, rate_hz, _, block_bytes, num_bits = _FORMAT.unpack_from(start, 20)
    if encoding == _FLOAT:
        return "float WAV"
    if encoding in (_PCM, _EXTENSIBLE) and num_bits != 16:
        return f"{num_bits}-bit WAV"
    if encoding != _PCM or format_bytes not in (16, 18) or block_bytes != 2 * num_channels:
        return "unusual WAV"
    num_data_bytes = _find_data(descriptor, 20 + format_bytes)
    if num_data_bytes is None:
        return "unusual WAV"
    columns = source.columns
    known = (int(columns[name][row]) for name in ("num_samples", "num_channels", "sample_rate_hz"))
    return "" if (num_data_bytes // block_bytes, num_channels, rate_hz) == tuple(known) else "changed WAV"


def _find_data(descriptor: int, position: int) -> int | None:
    """The size of the one data chunk; None unless all chunks are as TensorFlow's decoder expects them.

    It steps from one chunk to the next without the byte that pads an odd one, up to the end of the file.
    """
    file_bytes, num_data_bytes = os.fstat(descriptor).st_size, None
    for _ in range(_MAX_CHUNKS):
        if position == file_bytes:
            return num_data_bytes
        heading = os.pread(descriptor, 8, position)
        if len(heading) < 8:
            return None
        name, num_bytes = heading[:4], struct.unpack("<I", heading[4:])[0]
        if name == b"data":
            if num_data_bytes is not None:
                return None
            num_data_bytes = num_bytes
        position += 8 + num_bytes
        if num_bytes % 2 or position > file_bytes:
            return None
    return None


def _name_suffix(source: RecordingSource, row: int) -> str:
    suffix = os.path.splitext(source.audio_path(row))[1]  # noqa: PTH122 -- per clip, half the cost of Path
    return suffix.lstrip(".").upper() or "unknown format"
