"""Columnar index of a segment, one row an utterance, and the in-memory table that joins the indexes of a store.

    heading  magic, number of the segment, sizes, crc32c of these and of all that follows
    texts    JSON: names of speakers and languages that the columns refer to
    columns  one after the other, each aligned
    ids      UTF-8, back to back

The columns of a segment are views of the file's bytes. The table keeps the newest row of each utterance, at the
position of its first (last writer wins). A segment is read, copied into the table and dropped, so that opening a store
takes no more memory than its table: 116 bytes a row as in the files, 16 for id starts and hash order, and the ids.
Shape legend: N rows.
"""

from __future__ import annotations

import hashlib
import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from myxtts.errors import DataError
from myxtts.features.definition import MelDefinition
from myxtts.storage.atomic import write_file
from myxtts.storage.regular_file import explain_read_errors, read_regular
from myxtts.store.layout import ALIGNMENT, PARTS, Part, align, damaged
from myxtts.types import Split

SPLITS: tuple[Split, ...] = ("train", "val", "test")
_MAGIC = b"MYXIDX02"
_SIZES = struct.Struct("<IQQQ")
_HEADING = struct.Struct("<8sIQQQI")
_HEADING_BYTES = 64
"""40 bytes of heading, zero-padded to the alignment of the columns."""
_NUM_NAMES_SHOWN = 8
MAX_INDEX_BYTES = 1 << 28
"""Bounds what a damaged file makes us read: ten times the index of 16,384 utterances with ids of a kilobyte."""
_MAX_OFFSET = 1 << 48
_MAX_LENGTH = 1 << 31
"""Frames, tokens or samples of a record; with `_MAX_OFFSET`, the end of every record is far below 2^63."""

COLUMNS: dict[str, str] = {
    "id_hash": "<u8",
    "id_end": "<u8",
    **{f"{part}_offset": "<u8" for part in PARTS},
    **{f"{part}_segment": "<u4" for part in PARTS},
    **{f"{part}_length": "<u4" for part in PARTS},
    **{f"{part}_crc": "<u4" for part in PARTS},
    "source_crc": "<u4",
    "text_crc": "<u4",
    "source_frames": "<u4",
    "speaker": "<u4",
    "language": "<u2",
    "split": "u1",
    "removed": "u1",
}
"""Columns and their types. `id_end` is the offset behind the id; a part that an utterance does not have has length 0.

`source_frames` are the mel frames before silence was trimmed, 0 where the header of the recording has no length.
"""
ROW_BYTES = sum(np.dtype(kind).itemsize for kind in COLUMNS.values())


@dataclass(frozen=True, slots=True)
class PartEntry:
    """Position of a record: segment and byte offset, length in frames, tokens or samples, crc32c with its padding."""

    segment: int
    offset: int
    length: int
    crc: int


@dataclass(frozen=True, slots=True)
class Row:
    """One utterance of a segment; a `removed` row is a tombstone that deletes earlier rows of the same id."""

    id: str
    speaker: str = ""
    language: str = ""
    split: str = "train"
    source_crc: int = 0
    text_crc: int = 0
    source_frames: int = 0
    removed: bool = False
    parts: dict[Part, PartEntry] | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Columns [N] of one segment or of a whole store, and the names that they refer to.

    In a segment `id_end` counts from the start of its ids; a store has `id_start` too, and both count in all its ids.
    """

    columns: dict[str, NDArray[Any]]
    ids: bytes
    speakers: tuple[str, ...]
    languages: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.columns["id_hash"])


_NO_ENTRY = PartEntry(0, 0, 0, 0)


def hash_id(id: str) -> int:
    """Returns the 64-bit BLAKE2b hash that stands for an id in joins.

    Two of a million ids collide with a probability of about 3e-8 (n² / 2^65).
    """
    return _hash_bytes(id.encode("utf-8", "surrogatepass"))


def _hash_bytes(id: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(id, digest_size=8).digest(), "little")


def encode_index(segment: int, rows: Sequence[Row]) -> bytes:
    """Serialises rows to the bytes of an index file."""
    speakers = sorted({row.speaker for row in rows})
    languages = sorted({row.language for row in rows})
    ids = [row.id.encode("utf-8", "surrogatepass") for row in rows]
    # Escapes, because UTF-8 cannot encode the lone surrogates that a damaged transcript may contain.
    texts = json.dumps({"speakers": speakers, "languages": languages}).encode()
    body = bytearray(texts.ljust(align(len(texts)), b" "))
    columns = _fill_columns(rows, ids, speakers, languages)
    for name, kind in COLUMNS.items():
        raw = np.array(columns[name], kind).tobytes()
        body += raw.ljust(align(len(raw)), b"\0")
    body += b"".join(ids)
    sizes = (segment, len(rows), len(texts), len(body))
    crc = google_crc32c.extend(google_crc32c.value(_SIZES.pack(*sizes)), np.frombuffer(body, np.uint8))
    return _HEADING.pack(_MAGIC, *sizes, crc).ljust(_HEADING_BYTES, b"\0") + body


def _fill_columns(
    rows: Sequence[Row], ids: list[bytes], speakers: list[str], languages: list[str]
) -> dict[str, Sequence[int]]:
    """Returns the values of each column; speakers and languages are dictionary-encoded by their sorted names."""
    speaker_codes = {name: code for code, name in enumerate(speakers)}
    language_codes = {name: code for code, name in enumerate(languages)}
    columns: dict[str, Sequence[int]] = {
        "id_hash": [_hash_bytes(id) for id in ids],
        "id_end": list(accumulate(map(len, ids))),
        "source_crc": [row.source_crc for row in rows],
        "text_crc": [row.text_crc for row in rows],
        "source_frames": [row.source_frames for row in rows],
        "speaker": [speaker_codes[row.speaker] for row in rows],
        "language": [language_codes[row.language] for row in rows],
        "split": [SPLITS.index(row.split) for row in rows],
        "removed": [row.removed for row in rows],
    }
    for part in PARTS:
        entries = [(row.parts or {}).get(part, _NO_ENTRY) for row in rows]
        columns[f"{part}_segment"] = [entry.segment for entry in entries]
        columns[f"{part}_offset"] = [entry.offset for entry in entries]
        columns[f"{part}_length"] = [entry.length for entry in entries]
        columns[f"{part}_crc"] = [entry.crc for entry in entries]
    return columns


def write_index(path: Path, rows: Sequence[Row]) -> None:
    """Writes the index of the segment that `path` is named after."""
    write_file(path, encode_index(int(path.stem), rows))


def read_index(path: Path) -> Table:
    """Reads and verifies the index in `path`; raises DataError if it is missing, damaged or holds the impossible."""
    with explain_read_errors(lambda reason: damaged(path, reason)):
        raw = np.frombuffer(read_regular(path, MAX_INDEX_BYTES), np.uint8)
    problem = find_index_damage(raw, int(path.stem))
    if problem:
        raise damaged(path, problem)
    _, _, num_rows, num_text_bytes, _, _ = _HEADING.unpack(raw[: _HEADING.size].tobytes())
    position = _HEADING_BYTES + align(num_text_bytes)
    if position + _count_column_bytes(num_rows) > len(raw):
        raise damaged(path, f"it has no room for the {num_rows:,} rows of its heading")
    names = _parse_texts(raw[_HEADING_BYTES : _HEADING_BYTES + num_text_bytes].tobytes())
    if names is None:
        raise damaged(path, "its names of speakers and languages are no texts")
    columns: dict[str, NDArray[Any]] = {}
    for name, kind in COLUMNS.items():
        num_bytes = num_rows * np.dtype(kind).itemsize
        columns[name] = raw[position : position + num_bytes].view(kind)
        position += align(num_bytes)
    table = Table(columns, raw[position:].tobytes(), *names)
    problem = _find_impossible_values(table, int(path.stem))
    if problem:
        raise damaged(path, problem)
    return table


def _count_column_bytes(num_rows: int) -> int:
    return sum(align(num_rows * np.dtype(kind).itemsize) for kind in COLUMNS.values())


# Not validated by a pydantic model, which refuses lone surrogates. Cached, because consecutive segments often have the
# same names.
@lru_cache(maxsize=4)
def _parse_texts(texts: bytes) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Returns the names of speakers and of languages; None where the JSON is something else."""
    try:
        fields = json.loads(texts)
        lists = [fields["speakers"], fields["languages"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in lists):
        return None
    return tuple(lists[0]), tuple(lists[1])


def _find_impossible_values(table: Table, segment: int) -> str:
    """Returns which column of an index holds what no writer could have written, or ''.

    A checksum only shows that nothing has changed since it was computed.
    """
    columns, ids = table.columns, np.frombuffer(table.ids, np.uint8)
    limits = {
        "speaker": len(table.speakers) - 1,
        "language": len(table.languages) - 1,
        "split": len(SPLITS) - 1,
        "removed": 1,
        "id_end": len(ids),
        **{f"{part}_segment": segment for part in PARTS},
        **{f"{part}_offset": _MAX_OFFSET for part in PARTS},
        **{f"{part}_length": _MAX_LENGTH for part in PARTS},
    }
    for name, most in limits.items():
        if len(table) and int(columns[name].max()) > most:
            return f"its column {name} holds {int(columns[name].max()):,}, more than {most:,}"
    if any((columns[f"{part}_offset"] % ALIGNMENT).any() for part in PARTS):
        return "its records are not aligned"
    ends = columns["id_end"]
    if (ends[1:] < ends[:-1]).any() or (int(ends[-1]) if len(ends) else 0) != len(ids):
        return "its ids do not follow each other"
    starts = ends[:-1][ends[:-1] < len(ids)]
    # A byte of the form 10xxxxxx continues a character: an id cannot begin with one.
    if len(ids) and ((ids[starts] & 0xC0) == 0x80).any():
        return "its ids are not UTF-8"
    try:
        table.ids.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return "its ids are not UTF-8"
    return ""


def find_index_damage(raw: NDArray[np.uint8], segment: int) -> str:
    """Returns why the bytes are not an intact index of this segment, or ''."""
    if len(raw) < _HEADING_BYTES:
        return "it is cut off"
    magic, number, num_rows, num_text_bytes, num_body_bytes, crc = _HEADING.unpack(raw[: _HEADING.size].tobytes())
    if magic != _MAGIC:
        return "it does not begin as an index does"
    if len(raw) != _HEADING_BYTES + num_body_bytes:
        return f"it has {len(raw):,} bytes, its heading promises {_HEADING_BYTES + num_body_bytes:,}"
    if raw[_HEADING.size : _HEADING_BYTES].any():
        return "its heading is not as it was written"
    sizes = _SIZES.pack(number, num_rows, num_text_bytes, num_body_bytes)
    if google_crc32c.extend(google_crc32c.value(sizes), raw[_HEADING_BYTES:]) != crc:
        return "its checksum does not match"
    return "" if number == segment else f"it is the index of segment {number}"


def join_indexes(paths: Sequence[Path]) -> tuple[Table, NDArray[np.int64]]:
    """Reads the indexes, oldest first, into one table of the newest rows; raises DataError if one is damaged.

    Returns it with the order [N] of its rows by the hash of their ids.
    """
    # An upper bound; pages that are never written take no memory.
    capacity = sum(min(_measure_file(path), MAX_INDEX_BYTES) // ROW_BYTES for path in paths)
    columns: dict[str, NDArray[Any]] = {name: np.empty(capacity, kind) for name, kind in COLUMNS.items()}
    columns["id_start"] = np.empty(capacity, np.uint64)
    speakers, languages = NameCodes(), NameCodes()
    ids: list[bytes] = []
    num_rows, num_id_bytes = 0, 0
    for path in paths:
        index = read_index(path)
        place = slice(num_rows, num_rows + len(index))
        for name in COLUMNS:
            columns[name][place] = index.columns[name]
        columns["speaker"][place] = speakers.translate(index.speakers)[index.columns["speaker"]]
        columns["language"][place] = languages.translate(index.languages)[index.columns["language"]]
        _place_ids(columns, place, index, num_id_bytes)
        ids.append(index.ids)
        num_rows, num_id_bytes = place.stop, num_id_bytes + len(index.ids)
    columns = {name: values[:num_rows] for name, values in columns.items()}
    by_hash = _keep_newest_rows(columns)
    columns["speaker"], all_speakers = speakers.sort(columns["speaker"])
    columns["language"], all_languages = languages.sort(columns["language"])
    return Table(columns, b"".join(ids), all_speakers, all_languages), by_hash


class Utterances(ABC):
    """Utterances by row, with all that is known of them before features are loaded: a store, or recordings.

    `columns` are arrays [N], of which those of speaker and language refer to `speakers` and `languages`.
    """

    columns: dict[str, NDArray[Any]]
    speakers: tuple[str, ...]
    languages: tuple[str, ...]
    mel_definition: MelDefinition

    def __len__(self) -> int:
        return len(self.columns["id_hash"])

    @property
    def n_mels(self) -> int:
        return self.mel_definition.n_mels

    @abstractmethod
    def id_of(self, row: int) -> str: ...

    @abstractmethod
    def read_tokens(self, rows: NDArray[np.integer[Any]]) -> list[NDArray[np.int32]]:
        """The tokens of many rows, not copied."""

    def rows_of_split(self, split: str) -> NDArray[np.int64]:
        return np.flatnonzero(self.columns["split"] == SPLITS.index(split))

    def labels_of(self, row: int) -> tuple[str, str, Split]:
        """Speaker, language and split of an utterance."""
        speaker, language, split = (int(self.columns[name][row]) for name in ("speaker", "language", "split"))
        return self.speakers[speaker], self.languages[language], SPLITS[split]

    def join_as(self, split: Split, speakers: Sequence[str], languages: Sequence[str]) -> None:
        """Becomes a split of another corpus, whose names count; raises DataError where that lacks one of them."""
        self.columns |= {
            "speaker": _renumber_names(self.columns["speaker"], self.speakers, speakers, "speakers"),
            "language": _renumber_names(self.columns["language"], self.languages, languages, "languages"),
            "split": np.full(len(self), SPLITS.index(split), np.uint8),
        }
        self.speakers, self.languages = tuple(speakers), tuple(languages)


def _renumber_names(column: NDArray[Any], names: Sequence[str], wanted: Sequence[str], what: str) -> NDArray[Any]:
    """Recodes a column from positions in `names` to positions in `wanted`; raises DataError for a name not in it."""
    numbers = {name: number for number, name in enumerate(wanted)}
    missing = sorted(set(names) - set(numbers))
    if missing:
        num_more = len(missing) - _NUM_NAMES_SHOWN
        shown = ", ".join(missing[:_NUM_NAMES_SHOWN]) + (f" and {num_more:,} more" if num_more > 0 else "")
        raise DataError(
            f"The validation corpus has {what} that the training corpus has not: {shown}.",
            next_step="Prepare both together, which numbers all: myxtts prepare TRAIN --val-data VAL --out CORPUS",
        )
    places: NDArray[Any] = np.array([numbers[name] for name in names], column.dtype)
    return np.take(places, column)


def _measure_file(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        # Reading it will say what is wrong.
        return 0


def _place_ids(columns: dict[str, NDArray[Any]], place: slice, index: Table, num_before: int) -> None:
    """Turns the ends of ids within one segment into starts and ends within the joined ids."""
    ends = columns["id_end"][place]
    ends += np.uint64(num_before)
    if len(ends):
        starts = columns["id_start"][place]
        starts[0] = num_before
        starts[1:] = ends[:-1]


def _keep_newest_rows(columns: dict[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Keeps the last row of each id hash, ordered by first occurrence, in place; returns the rows sorted by hash."""
    hashes = columns["id_hash"]
    # Most stores hold every utterance once: then an unstable sort, which is many times faster, is enough.
    order = np.argsort(hashes)
    if not columns["removed"].any() and not _has_twins(hashes[order]):
        return order
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    # Rows of one id are neighbours in `ordered`, oldest first because the sort is stable.
    is_first = np.ones(len(hashes), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    is_last = np.ones(len(hashes), bool)
    is_last[:-1] = is_first[1:]
    firsts, lasts = order[is_first], order[is_last]
    # The newest version takes the position of the oldest, so that rebuilding an utterance keeps the order of rows.
    newest = lasts[np.argsort(firsts, kind="stable")]
    newest = newest[columns["removed"][newest] == 0]
    for name in columns:
        # One column after the other: a second whole table would double the memory.
        columns[name] = columns[name][newest]
    return np.argsort(columns["id_hash"])


def _has_twins(ordered: NDArray[np.uint64]) -> bool:
    return bool((ordered[1:] == ordered[:-1]).any())


class NameCodes:
    """Codes of the speakers or languages of many segments or utterances, in the order in which they come up."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._last: tuple[tuple[str, ...], NDArray[np.uint32]] = (), np.zeros(0, np.uint32)

    def add(self, name: str) -> int:
        """Returns the code of a name, which may be new."""
        return self._codes.setdefault(name, len(self._codes))

    def translate(self, names: tuple[str, ...]) -> NDArray[np.uint32]:
        """Returns the common code of each name of a segment; the last result is reused while names stay the same."""
        if names == self._last[0]:
            return self._last[1]
        self._last = names, np.fromiter(map(self.add, names), np.uint32, len(names))
        return self._last[1]

    def sort(self, column: NDArray[Any]) -> tuple[NDArray[Any], tuple[str, ...]]:
        """Recodes a column so that codes are alphabetical and dense; returns it with its names, unused ones dropped."""
        is_used = np.zeros(len(self._codes), bool)
        is_used[column] = True
        names = sorted(name for name, code in self._codes.items() if is_used[code])
        places = np.zeros(len(self._codes), column.dtype)
        places[[self._codes[name] for name in names]] = np.arange(len(names))
        return places[column], tuple(names)
