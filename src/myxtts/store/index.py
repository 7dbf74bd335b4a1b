"""The index of a segment: fixed columns, one row an utterance, in one checked file.

    heading  magic, number of the segment, sizes, crc32c of these and of all that follows
    texts    JSON: names of speakers and languages that the columns refer to
    columns  one after the other, each aligned
    ids      UTF-8, back to back

Columns are views of the file's bytes, so a million rows cost what they weigh and nothing more.
Shape legend: N rows.
"""

from __future__ import annotations

import hashlib
import json
import struct
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
from myxtts.files import write_atomically
from myxtts.store.layout import PARTS, Part, align

SPLITS = ("train", "val", "test")
_MAGIC = b"MYXIDX02"
_SIZES = struct.Struct("<IQQQ")
_HEADING = struct.Struct("<8sIQQQI")
_HEADING_BYTES = 64

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
"""What is known of an utterance. `id_end` is where its id ends; a part it does not have has length 0.

`source_frames` are its mel frames before silence was trimmed, 0 where the recording did not say how long it is.
"""
ROW_BYTES = sum(np.dtype(kind).itemsize for kind in COLUMNS.values())


@dataclass(frozen=True, slots=True)
class PartEntry:
    """Where a record lies, how many frames, tokens or samples it has, and the crc32c of its aligned bytes."""

    segment: int
    offset: int
    length: int
    crc: int


@dataclass(frozen=True, slots=True)
class Row:
    """One utterance of a segment; `removed` rows only take an earlier row away."""

    id: str
    speaker: str = ""
    language: str = ""
    split: str = "train"
    source_crc: int = 0
    text_crc: int = 0
    source_frames: int = 0
    removed: bool = False
    parts: dict[Part, PartEntry] | None = None


@dataclass(frozen=True)
class SegmentIndex:
    """The columns of one segment as arrays [N], and its names."""

    columns: dict[str, NDArray[Any]]
    ids: bytes
    speakers: tuple[str, ...]
    languages: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.columns["id_hash"])


_NO_ENTRY = PartEntry(0, 0, 0, 0)


def hash_id(id: str) -> int:
    return _hash_bytes(id.encode("utf-8", "surrogatepass"))


def _hash_bytes(id: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(id, digest_size=8).digest(), "little")


def encode_index(segment: int, rows: Sequence[Row]) -> bytes:
    """The bytes of an index file."""
    speakers = sorted({row.speaker for row in rows})
    languages = sorted({row.language for row in rows})
    ids = [row.id.encode("utf-8", "surrogatepass") for row in rows]
    # Escapes instead of UTF-8, which has no room for the lone surrogates that a damaged transcript may bring.
    texts = json.dumps({"speakers": speakers, "languages": languages}).encode()
    body = bytearray(texts.ljust(align(len(texts)), b" "))
    columns = _fill_columns(rows, ids, speakers, languages)
    for name, kind in COLUMNS.items():
        raw = np.array(columns[name], kind).tobytes()
        body += raw.ljust(align(len(raw)), b"\0")
    body += b"".join(ids)
    sizes = (segment, len(rows), len(texts), len(body))
    crc = google_crc32c.extend(google_crc32c.value(_SIZES.pack(*sizes)), bytes(body))
    return _HEADING.pack(_MAGIC, *sizes, crc).ljust(_HEADING_BYTES, b"\0") + bytes(body)


def _fill_columns(
    rows: Sequence[Row], ids: list[bytes], speakers: list[str], languages: list[str]
) -> dict[str, Sequence[int]]:
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
    with write_atomically(path) as file:
        file.write(encode_index(int(path.stem), rows))


def read_index(path: Path) -> SegmentIndex:
    """The index in `path`, checked against its checksum; raises DataError if it is missing or damaged."""
    try:
        raw = np.fromfile(path, np.uint8)
    except OSError as error:
        raise _complain(path, f"it cannot be read ({error.strerror})") from error
    problem = find_index_damage(raw, int(path.stem))
    if problem:
        raise _complain(path, problem)
    _, _, num_rows, num_text_bytes, _, _ = _HEADING.unpack(raw[: _HEADING.size].tobytes())
    speakers, languages = _parse_texts(raw[_HEADING_BYTES : _HEADING_BYTES + num_text_bytes].tobytes())
    position = _HEADING_BYTES + align(num_text_bytes)
    columns: dict[str, NDArray[Any]] = {}
    for name, kind in COLUMNS.items():
        num_bytes = num_rows * np.dtype(kind).itemsize
        columns[name] = raw[position : position + num_bytes].view(kind)
        position += align(num_bytes)
    return SegmentIndex(columns, raw[position:].tobytes(), speakers, languages)


@lru_cache(maxsize=4)
def _parse_texts(texts: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    fields = json.loads(texts)
    return tuple(fields["speakers"]), tuple(fields["languages"])


def find_index_damage(raw: NDArray[np.uint8], segment: int) -> str:
    """What is wrong with the bytes of the index of a segment, or ''."""
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


def _complain(path: Path, problem: str) -> DataError:
    return DataError(f"{path} is damaged: {problem}.", next_step="Run myxtts precompute --fix to repair the store.")
