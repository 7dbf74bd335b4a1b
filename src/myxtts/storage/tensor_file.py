"""Reads and writes safetensors files: streamed writing with a checksum, reading after strict header validation.

    8 bytes   length of the heading
    heading   JSON: name -> dtype, shape, offsets; texts under __metadata__
    data      the arrays one behind the other, without gaps

A sealed file ends with a tensor of four bytes, the crc32c of every byte before it. The format is that of the
safetensors library, which is not used because it is less strict: it accepts names given twice, unknown keys, any name
("../x", control characters, a megabyte) and headings of 100 MB, raises AttributeError for types that numpy lacks, and
writes to a path only, where a seal, an atomic rename and fsync need an open file.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, Annotated, Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from myxtts.storage.atomic import pass_fault_point
from myxtts.storage.json_file import FileModel, JsonRefusedError, check_fields, parse_json_object
from myxtts.storage.regular_file import FileRefusedError, open_regular

Array = NDArray[Any]

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "I16": np.dtype(np.int16),
    "U16": np.dtype(np.uint16),
    "I32": np.dtype(np.int32),
    "U32": np.dtype(np.uint32),
    "I64": np.dtype(np.int64),
    "U64": np.dtype(np.uint64),
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
}
try:
    import ml_dtypes
except ImportError:
    # Only checkpoints hold bfloat16, and what reads them installs it.
    pass
else:
    DTYPES["BF16"] = np.dtype(ml_dtypes.bfloat16)
_CODES = {dtype: code for code, dtype in DTYPES.items()}

MAX_HEADING_BYTES = 4_000_000
"""Bounds what a foreign file makes us parse; 200 bytes for each of `MAX_TENSORS`."""
MAX_TENSORS = 20_000
MAX_DIMENSIONS = 8
MAX_NAME_LENGTH = 300
SEAL_NAME = "~crc32c"
"""Name of the last tensor of a sealed file, four bytes; other safetensors readers see an ordinary tensor."""
_METADATA_NAME = "__metadata__"
_LENGTH = struct.Struct("<Q")
_SEAL = struct.Struct("<I")
_BLOCK_BYTES = 1 << 22
_MAX_FILE_BYTES = 1 << 40
"""Larger than any file of ours: only its heading and the tensors that it lists are read."""


class TensorFileError(FileRefusedError):
    """Why a safetensors file is refused, in words that complete "it cannot be used: ..."."""


_Size = Annotated[int, Field(ge=0)]


class _EntryFields(FileModel):
    """Header entry of one tensor, as in the JSON."""

    dtype: str
    shape: Annotated[list[_Size], Field(max_length=MAX_DIMENSIONS)]
    data_offsets: Annotated[list[_Size], Field(min_length=2, max_length=2)]


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One array of a file; offsets count from the end of the heading."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Heading:
    """A validated header: entries in the order of their data, metadata, and the raw bytes for the checksum."""

    entries: tuple[TensorEntry, ...]
    metadata: dict[str, str]
    raw: bytes

    @property
    def num_values(self) -> int:
        """Number of scalars in all tensors."""
        return sum(math.prod(entry.shape) for entry in self.entries)


def find_non_finite(arrays: Mapping[str, Array]) -> list[str]:
    """Returns the names of the arrays that hold NaN or infinity."""
    return [name for name, array in arrays.items() if not np.isfinite(array).all()]


def fingerprint_arrays(arrays: Mapping[str, Array]) -> str:
    """Returns the crc32c of all names and values in hexadecimal; the order of the mapping does not matter."""
    crc = 0
    for name in sorted(arrays):
        crc = google_crc32c.extend(google_crc32c.extend(crc, name.encode()), _view_bytes(arrays[name]))
    return f"{crc:08x}"


def write_tensors(file: IO[bytes], arrays: Mapping[str, Array], metadata: Mapping[str, str], *, seal: bool) -> int:
    """Writes arrays and metadata to an open file, sealed if asked; returns the crc32c of all bytes written."""
    items = dict(arrays)
    if seal:
        items[SEAL_NAME] = np.zeros(1, np.uint32)
    heading = _make_heading(items, metadata)
    file.write(heading)
    crc = int(google_crc32c.value(heading))
    # Streamed with a running checksum; the seal is the last item, so its value is known when it is written.
    for name, array in items.items():
        raw = _view_bytes(array) if name != SEAL_NAME else np.frombuffer(_SEAL.pack(crc), np.uint8)
        pass_fault_point("tensor_write")
        file.write(raw.data)
        crc = int(google_crc32c.extend(crc, raw))
    return crc


def read_heading(file: BufferedReader) -> Heading:
    """Reads and validates the header of a file opened at its start, against the file's size; reads no tensor data."""
    num_bytes = os.fstat(file.fileno()).st_size
    start = file.read(_LENGTH.size)
    if len(start) < _LENGTH.size:
        raise TensorFileError(f"it has only {num_bytes} bytes")
    (length,) = _LENGTH.unpack(start)
    if length > MAX_HEADING_BYTES:
        raise TensorFileError(f"its heading claims {length:,} bytes, more than {MAX_HEADING_BYTES:,}")
    if length > num_bytes - _LENGTH.size:
        raise TensorFileError(f"its heading claims {length:,} bytes, the file has {num_bytes:,}: it is cut short")
    raw = file.read(length)
    try:
        fields = parse_json_object(raw)
    except JsonRefusedError as error:
        raise TensorFileError(f"its heading is damaged: {error}") from error
    metadata = _check_metadata(fields.pop(_METADATA_NAME, {}))
    if len(fields) > MAX_TENSORS:
        raise TensorFileError(f"it names {len(fields):,} tensors, more than {MAX_TENSORS:,}")
    entries = sorted(
        (_check_entry(name, entry) for name, entry in fields.items()), key=lambda entry: (entry.begin, entry.end)
    )
    # All sizes are validated against the file here, so that no tensor is allocated for a header that lies.
    _check_layout(entries, num_bytes - _LENGTH.size - length)
    return Heading(tuple(entries), metadata, start + raw)


def read_tensors(file: BufferedReader, heading: Heading, *, sealed: bool) -> tuple[dict[str, Array], int]:
    """Reads all arrays behind a header just read; returns them and the crc32c of the file. Verifies the seal."""
    if sealed:
        _check_seal(file, heading)
    arrays: dict[str, Array] = {}
    crc = int(google_crc32c.value(heading.raw))
    for entry in heading.entries:
        try:
            array = np.empty(entry.shape, DTYPES[entry.dtype])
        except MemoryError as error:
            raise TensorFileError(f"{entry.name} has {entry.end - entry.begin:,} bytes, more than are free") from error
        raw = _view_bytes(array)
        if file.readinto(raw.data) != raw.nbytes:
            raise TensorFileError(f"it ends within {entry.name}")
        arrays[entry.name] = array
        crc = int(google_crc32c.extend(crc, raw))
    if sealed:
        del arrays[SEAL_NAME]
    return arrays, crc


def load_tensors(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Reads a sealed file; returns its arrays and its metadata. Raises FileRefusedError and OSError."""
    with open_regular(path, _MAX_FILE_BYTES) as file:
        heading = read_heading(file)
        arrays, _ = read_tensors(file, heading, sealed=True)
        return arrays, heading.metadata


def _check_seal(file: BufferedReader, heading: Heading) -> None:
    """Compares the checksum at the end of a file before memory is allocated for its tensors; a heading may lie."""
    last = heading.entries[-1] if heading.entries else None
    if last is None or last.name != SEAL_NAME or last.end - last.begin != _SEAL.size:
        raise TensorFileError("it has no seal at its end")
    start, num_left = file.tell(), last.begin
    crc = int(google_crc32c.value(heading.raw))
    while num_left and (block := file.read(min(num_left, _BLOCK_BYTES))):
        crc = int(google_crc32c.extend(crc, block))
        num_left -= len(block)
    if num_left or file.read(_SEAL.size) != _SEAL.pack(crc):
        raise TensorFileError("its checksum does not match")
    file.seek(start)


def _view_bytes(array: Array) -> NDArray[np.uint8]:
    """Returns the bytes of a contiguous array without a copy, as an array: google_crc32c takes no memoryview."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _make_heading(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    """Length and JSON of the heading, padded with spaces to a multiple of 8 bytes as the safetensors library does."""
    fields: dict[str, Any] = {_METADATA_NAME: dict(metadata)} if metadata else {}
    offset = 0
    for name, array in arrays.items():
        assert array.dtype in _CODES, f"{name} is of type {array.dtype}, which has no place in a file"
        _check_name(name)
        end = offset + array.nbytes
        fields[name] = {"dtype": _CODES[array.dtype], "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    raw = json.dumps(fields, ensure_ascii=True, separators=(",", ":")).encode()
    raw = raw.ljust(-(-len(raw) // 8) * 8)
    assert len(raw) <= MAX_HEADING_BYTES, f"a heading of {len(raw):,} bytes could not be read again"
    assert len(arrays) <= MAX_TENSORS, f"{len(arrays):,} tensors could not be read again"
    return _LENGTH.pack(len(raw)) + raw


def _check_metadata(value: object) -> dict[str, str]:
    """The safetensors format allows texts only."""
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise TensorFileError("its metadata are not texts")
    return value


def _check_name(name: str) -> None:
    """Refuses names that could act as paths or corrupt a terminal; writers and readers use the same rule."""
    parts = name.split("/")
    if not name.isprintable() or "\\" in name or not 0 < len(name) <= MAX_NAME_LENGTH or {"", ".", ".."} & set(parts):
        raise TensorFileError(f"a tensor is called {name[:80]!r}, which is no name for one")


def _check_entry(name: str, entry: object) -> TensorEntry:
    """Validates the header entry of one tensor: known dtype, possible shape, and as many bytes as these two need."""
    _check_name(name)
    try:
        found = check_fields(entry, _EntryFields)
    except JsonRefusedError as error:
        raise TensorFileError(f"the tensor {name} is not described as it should be: {error}") from error
    dtype, shape, (begin, end) = found.dtype, found.shape, found.data_offsets
    if dtype not in DTYPES:
        raise TensorFileError(f"the tensor {name} is of the type {dtype[:40]!r}, which is not known")
    # Sizes of 0 count as 1, so that they cannot hide an impossible size beside them.
    if math.prod(size or 1 for size in shape) > 1 << 48:
        raise TensorFileError(f"the tensor {name} has the shape {str(shape)[:80]}, which is impossible")
    if end - begin != math.prod(shape) * DTYPES[dtype].itemsize:
        raise TensorFileError(f"the tensor {name} has {end - begin:,} bytes, which do not fit its shape {shape}")
    return TensorEntry(name, dtype, tuple(shape), begin, end)


def _check_layout(entries: Sequence[TensorEntry], num_data_bytes: int) -> None:
    """Raises TensorFileError unless every byte behind the header belongs to exactly one tensor."""
    end = 0
    for entry in entries:
        if entry.begin != end:
            problem = "overlaps the one before it" if entry.begin < end else "leaves a gap before it"
            raise TensorFileError(f"the tensor {entry.name} {problem}")
        end = entry.end
    if end > num_data_bytes:
        raise TensorFileError(f"its tensors need {end:,} bytes, but it has {num_data_bytes:,}: it is cut short")
    if end < num_data_bytes:
        raise TensorFileError(f"{num_data_bytes - end:,} bytes behind its tensors belong to none of them")
