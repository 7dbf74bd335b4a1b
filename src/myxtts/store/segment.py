"""Writes one segment of a store: data files first, then the index that refers to them.

Data goes to temporary files, is fsynced and renamed; the index is written atomically last. A kill at any moment leaves
either no index, in which case the data files are orphans that `resume_segments` removes, or a complete segment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Self

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from myxtts.storage.atomic import (
    TEMPORARY_SUFFIX,
    explain_storage_errors,
    pass_fault_point,
    sync_directory,
    write_atomically,
)
from myxtts.storage.regular_file import open_output, open_regular
from myxtts.store.index import PartEntry, Row, read_index, write_index
from myxtts.store.layout import ALIGNMENT, PARTS, Part, align, index_path, make_part_heading, part_path

_ZEROS = bytes(ALIGNMENT)
_BUFFER_BYTES = 1 << 20
"""Buffer of a data file: without it every token record would be a system call of its own."""


class SegmentWriter:
    """Context manager that writes the utterances of a segment; leaving the block without `commit` drops them."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.number = folder, number
        self._rows: list[Row] = []
        self._files: dict[Part, IO[bytes]] = {}
        self._begun: list[Part] = []
        self._offsets: dict[Part, int] = {}

    def __enter__(self) -> Self:
        return self

    def add(self, row: Row, values: Mapping[Part, NDArray[np.generic]]) -> None:
        """Appends the arrays of an utterance's new parts; parts in earlier segments are referred to by `row.parts`."""
        with explain_storage_errors(self.folder, "write in"):
            entries = {part: self._write_record(part, array) for part, array in values.items()}
        self._rows.append(replace(row, parts={**(row.parts or {}), **entries}))

    def __len__(self) -> int:
        return len(self._rows)

    def commit(self) -> None:
        """Makes the segment visible: data to disk under its final name, then the index."""
        with explain_storage_errors(self.folder, "write in"):
            for part, file in self._files.items():
                file.flush()
                pass_fault_point("segment_fsync")
                os.fsync(file.fileno())
                file.close()
                pass_fault_point("segment_replace")
                self._temporary(part).replace(part_path(self.folder, self.number, part))
            sync_directory(self.folder)
        self._files = {}
        write_index(index_path(self.folder, self.number), self._rows)

    def __exit__(self, *_: object) -> None:
        """Closes and deletes the temporary files; after `commit` there are none."""
        for file in self._files.values():
            # close() flushes the buffer, which fails on a full disk; the file is deleted anyway.
            with suppress(OSError):
                file.close()
        for part in self._begun:
            self._temporary(part).unlink(missing_ok=True)

    def _temporary(self, part: Part) -> Path:
        return self.folder / f".{self.number:06}.{part}{TEMPORARY_SUFFIX}"

    def _open_file(self, part: Part) -> IO[bytes]:
        """Opens the temporary data file of a part and writes its heading."""
        # Registered first, so that a signal during the opening leaves no file behind.
        self._begun.append(part)
        file = open_output(self._temporary(part), buffering=_BUFFER_BYTES)
        self._files[part] = file
        self._offsets[part] = file.write(make_part_heading(self.number, part))
        return file

    def _write_record(self, part: Part, array: NDArray[np.generic]) -> PartEntry:
        """Appends the bytes of an array, padded to the alignment; the checksum covers the padding."""
        file = self._files.get(part) or self._open_file(part)
        offset = self._offsets[part]
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        padding = _ZEROS[: align(raw.nbytes) - raw.nbytes]
        pass_fault_point("segment_write")
        file.write(raw.data)
        file.write(padding)
        self._offsets[part] = offset + raw.nbytes + len(padding)
        crc = google_crc32c.extend(google_crc32c.value(raw), padding)
        return PartEntry(self.number, offset, len(array), crc)


def adopt_segment(staged: Path, folder: Path, number: int) -> None:
    """Moves a segment that was committed in another folder of the same file system to its place, the index last.

    Raises DataError where the index there is damaged.
    """
    read_index(index_path(staged, number))
    with explain_storage_errors(folder, "write in"):
        for part in PARTS:
            path = part_path(staged, number, part)
            if path.exists():
                path.replace(part_path(folder, number, part))
        sync_directory(folder)
        pass_fault_point("segment_adopt")
        index_path(staged, number).replace(index_path(folder, number))
        sync_directory(folder)


def restore_heading(folder: Path, segment: int, part: Part, num_bytes: int) -> None:
    """Rewrites the first `num_bytes` of a data file with an intact heading, padded to the alignment.

    Records are copied unchecked, they have their own checksums.
    """
    path = part_path(folder, segment, part)
    with open_regular(path) as old, write_atomically(path) as file:
        old.seek(ALIGNMENT)
        file.write(make_part_heading(segment, part))
        for start in range(ALIGNMENT, align(num_bytes), _BUFFER_BYTES):
            file.write(old.read(min(_BUFFER_BYTES, align(num_bytes) - start)))
