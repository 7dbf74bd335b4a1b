"""The recordings of a prepared corpus by row, for loading on the fly, and a survey of those TensorFlow can decode.

`RecordingSource` has the columns of a feature store without features. Everything lies in a few flat arrays, so that a
million utterances cost a few hundred megabytes, tokens included.
Shape legend: U utterances.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.config.schema import DataConfig
from myxtts.corpus.audio import AudioHeader, AudioLimits, check_header, open_recording
from myxtts.corpus.corpus_file import Corpus
from myxtts.corpus.rejections import AudioProblem
from myxtts.errors import DataError
from myxtts.features.definition import AudioDefinition, MelDefinition, count_source_frames
from myxtts.store.index import SPLITS, NameCodes, Utterances, hash_id
from myxtts.text.frontend import FrontEnd
from myxtts.types import Utterance

_CHUNK_UTTERANCES = 512
_NUM_THREADS = 8
"""Waiting for a disk or a network takes most of the survey's time, so there are more threads than cores."""
_ROWS_PER_TASK = 256
_START_BYTES = 64
_MAX_CHUNKS = 100
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
"""Encodings of the WAV format chunk."""
_FORMAT = struct.Struct("<HHIIHH")
_COLUMNS = {
    "id_hash": "Q",
    "source_frames": "I",
    "tokens_length": "I",
    "speaker": "I",
    "language": "I",
    "split": "B",
    "num_samples": "q",
    "sample_rate_hz": "i",
    "num_channels": "i",
    "source_crc": "I",
}
"""Columns that the corpus gives, and their types as codes of `array`."""
_SIGNATURES = {b"fLaC": "FLAC", b"OggS": "OGG", b"RF64": "RF64", b"ID3\3": "MP3", b"ID3\4": "MP3"}


class RecordingSource(Utterances):
    """Utterances in the order of the corpus, speakers and languages in alphabetical order: as a new store numbers them.

    `columns` are arrays [U] named as in a store. `mel_length` is the most that an utterance can have: what it has
    before silence is trimmed, or what the longest accepted recording has where a stream does not say. Made by `open`.
    """

    def __init__(self, data: DataConfig, rows: _Rows) -> None:
        self.mel_definition = MelDefinition.from_config(data)
        self.audio_definition = AudioDefinition.from_config(data)
        self.mel_dtype = data.mel_dtype
        self._rows = rows
        self.columns = columns = {name: np.asarray(values) for name, values in rows.columns.items()}
        columns["speaker"], self.speakers = rows.speakers.sort(columns["speaker"])
        columns["language"], self.languages = rows.languages.sort(columns["language"])
        columns["mel_length"] = _bound_lengths(
            columns["source_frames"], columns["sample_rate_hz"], self.mel_definition, data.max_duration_s
        )
        self._token_ends = np.cumsum(columns["tokens_length"], dtype=np.int64)
        self._tokens = np.asarray(rows.tokens, np.int32)

    @classmethod
    def open(cls, corpus: Corpus, data: DataConfig) -> RecordingSource:
        """Reads the corpus and encodes its texts; refuses a corpus that was prepared under wider limits."""
        rows = _Rows(MelDefinition.from_config(data))
        _read_rows(rows, corpus, corpus.load_frontend(), AudioLimits.from_config(data))
        return cls(data, rows)

    def id_of(self, row: int) -> str:
        return self._rows.ids[row]

    def audio_path(self, row: int) -> str:
        return self._rows.paths[row]

    def read_tokens(self, rows: NDArray[np.integer[Any]]) -> list[NDArray[np.int32]]:
        ends = self._token_ends
        return [self._tokens[ends[row - 1] if row else 0 : ends[row]] for row in rows.tolist()]

    def utterance(self, row: int) -> Utterance:
        columns, (speaker, language, split) = self.columns, self.labels_of(row)
        return Utterance(
            id=self.id_of(row),
            audio=self.audio_path(row),
            text=self._rows.texts[row],
            speaker=speaker,
            language=language,
            # The pool keeps '' where the corpus has no phonemes; its phonemes are never an empty string.
            phonemes=self._rows.phonemes[row] or None,
            split=split,
            num_samples=int(columns["num_samples"][row]),
            sample_rate_hz=int(columns["sample_rate_hz"][row]),
            num_channels=int(columns["num_channels"][row]),
            checksum=int(columns["source_crc"][row]),
        )


def _bound_lengths(
    source_frames: NDArray[np.uint32], rates: NDArray[np.int32], mel: MelDefinition, max_duration_s: float
) -> NDArray[np.uint32]:
    """The most frames that each utterance can have; a stream of unknown length is as long as recordings may be."""
    bounds = source_frames.copy()
    for row in np.flatnonzero(source_frames == 0).tolist():
        rate = int(rates[row])
        bounds[row] = count_source_frames(int(max_duration_s * rate) + 1, rate, mel)
    return bounds


class _StringPool:
    """Many strings in one array of bytes, without an object for each."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._ends = array("q")

    def append(self, string: str) -> None:
        self._text += string.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._text))

    def __getitem__(self, row: int) -> str:
        start = self._ends[row - 1] if row else 0
        return self._text[start : self._ends[row]].decode("utf-8", "surrogatepass")


class _Rows:
    """Utterances as they are read, column by column."""

    def __init__(self, mel: MelDefinition) -> None:
        self._mel = mel
        self.ids, self.paths, self.texts, self.phonemes = (_StringPool() for _ in range(4))
        self.speakers, self.languages = NameCodes(), NameCodes()
        self.tokens = array("i")
        self.columns = {name: array(kind) for name, kind in _COLUMNS.items()}

    def append(self, utterance: Utterance, tokens: NDArray[np.int32]) -> None:
        self.ids.append(utterance.id)
        self.paths.append(utterance.audio)
        self.texts.append(utterance.text)
        self.phonemes.append(utterance.phonemes or "")
        self.tokens.frombytes(np.ascontiguousarray(tokens, np.int32).tobytes())
        row = {
            "id_hash": hash_id(utterance.id),
            "source_frames": count_source_frames(utterance.num_samples, utterance.sample_rate_hz, self._mel),
            "tokens_length": len(tokens),
            "speaker": self.speakers.add(utterance.speaker),
            "language": self.languages.add(utterance.language),
            "split": SPLITS.index(utterance.split),
            "num_samples": utterance.num_samples,
            "sample_rate_hz": utterance.sample_rate_hz,
            "num_channels": utterance.num_channels,
            "source_crc": utterance.checksum,
        }
        for name, value in row.items():
            self.columns[name].append(value)


def _read_rows(rows: _Rows, corpus: Corpus, frontend: FrontEnd, limits: AudioLimits) -> None:
    """Checks what the corpus says of each recording: better here than in the middle of an epoch."""
    num_refused, example = 0, ""
    utterances = corpus.utterances_as_read(frontend)
    while chunk := list(islice(utterances, _CHUNK_UTTERANCES)):
        encodings = frontend.encode_batch(
            [utterance.text for utterance in chunk],
            [utterance.language for utterance in chunk],
            [utterance.phonemes for utterance in chunk],
        )
        for utterance, encoding in zip(chunk, encodings, strict=True):
            rows.append(utterance, encoding.ids)
            rate, num_channels = utterance.sample_rate_hz, utterance.num_channels
            try:
                check_header(AudioHeader(rate, num_channels, utterance.num_samples or None), limits)
            except AudioProblem as problem:
                num_refused += 1
                example = example or f"{utterance.id} ({utterance.audio}): {problem.detail}"
    if num_refused:
        raise DataError(
            f"{num_refused:,} of {corpus.num_utterances:,} recordings in {corpus.file} are outside the limits of this "
            f"configuration, such as {example}.",
            next_step="Run myxtts prepare again with this configuration, which leaves them out, or widen it.",
        )


@dataclass(frozen=True, slots=True)
class Survey:
    """Which rows TensorFlow can decode (plain 16-bit WAV files), and how many others there are of each kind."""

    is_native: NDArray[np.bool_]
    obstacles: Counter[str]

    @property
    def num_native(self) -> int:
        return int(np.count_nonzero(self.is_native))

    def describe_obstacles(self) -> str:
        counts = self.obstacles.most_common()
        return ", ".join(name if len(counts) == 1 else f"{count:,} {name}" for name, count in counts)


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

    A missing or damaged recording is left to the Python loader, which reports what is wrong with it.
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
