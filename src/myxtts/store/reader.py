"""`FeatureStore`: zero-copy random access to stored features in memory-mapped files.

An utterance is addressed by its row, 0 to len - 1; rebuilding an utterance does not change the order of rows. A reader
sees the generation that was current when it was opened; later commits need a new `open`.
Shape legend: N rows, T frames, M mel bands, B batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from myxtts.errors import DataError
from myxtts.storage.regular_file import FileRefusedError
from myxtts.store.index import PartEntry, Utterances, hash_id, join_indexes
from myxtts.store.layout import (
    ALIGNMENT,
    PARTS,
    STORE_FILE_NAME,
    Part,
    StoreState,
    align,
    damaged,
    index_path,
    make_part_heading,
    name_generation,
    part_path,
    read_state,
    require_store,
)
from myxtts.store.mapping import MappedFiles

if TYPE_CHECKING:
    from myxtts.store.verify import VerifyReport

_PART_DTYPES: dict[str, np.dtype[Any]] = {
    "tokens": np.dtype("<i4"),
    "pcm": np.dtype("<i2"),
    "durations": np.dtype("<i4"),
}
"""Types of the records besides mel, whose type is a setting; little-endian on every machine."""


@dataclass(frozen=True, slots=True)
class StoredUtterance:
    """One utterance of a store; the arrays are views of mapped files."""

    id: str
    mel: NDArray[Any]
    tokens: NDArray[np.int32]
    speaker: str
    language: str
    split: str


class FeatureStore(Utterances):
    """Reads the features of a feature cache, by utterance.

    The constructor maps files lazily, which writers use on incomplete generations; training uses `open`, which maps
    every file at once.
    """

    def __init__(self, folder: Path, state: StoreState) -> None:
        self.folder, self.state = folder, state
        self.generation_folder = folder / name_generation(state.generation)
        self.settings = state.settings
        self.mel_definition = self.settings.mel
        paths = [index_path(self.generation_folder, number) for number in state.segments]
        table, self._rows_by_hash = join_indexes(paths)
        self.columns, self._ids = table.columns, table.ids
        """Columns [N] of the joined index; see `store.index.COLUMNS`."""
        self.speakers, self.languages = table.speakers, table.languages
        self._files = MappedFiles(self.generation_folder)
        self._other_durations: tuple[NDArray[np.int64], NDArray[np.int32]] | None = None

    @classmethod
    def open(cls, folder: str | Path) -> FeatureStore:
        """Opens the current generation: verifies all index checksums, maps all files; retries if it is superseded."""
        folder = Path(folder)
        state = _read_present_state(folder)
        # Mapping all files takes a moment without a lock, so the generation may be removed underneath.
        while True:
            try:
                store = cls(folder, state)
                store.refuse_wrong_count()
                store._files.map_all(store.measure_files())
            except DataError:
                # A writer may have committed a new generation and removed this one in the meantime.
                newer = _read_present_state(folder)
                if newer == state:
                    raise
                state = newer
            else:
                return store

    def refuse_wrong_count(self) -> None:
        """Raises DataError unless there are as many utterances as store.json says."""
        if len(self) != self.state.num_utterances:
            problem = f"it names {self.state.num_utterances:,} utterances, its segments hold {len(self):,}"
            raise damaged(self.folder / STORE_FILE_NAME, problem)

    def id_of(self, row: int) -> str:
        start, stop = int(self.columns["id_start"][row]), int(self.columns["id_end"][row])
        return self._ids[start:stop].decode("utf-8", "surrogatepass")

    def find(self, id: str) -> int | None:
        """The row of an utterance, or None; a binary search by the hash of its id."""
        hashes, wanted = self.columns["id_hash"], np.uint64(hash_id(id))
        start = int(np.searchsorted(hashes, wanted, "left", sorter=self._rows_by_hash))
        stop = int(np.searchsorted(hashes, wanted, "right", sorter=self._rows_by_hash))
        return next((int(row) for row in self._rows_by_hash[start:stop] if self.id_of(row) == id), None)

    @property
    def mel_dtype(self) -> np.dtype[Any]:
        return np.dtype("<f2" if self.settings.mel_dtype == "float16" else "<f4")

    def __getitem__(self, row: int) -> StoredUtterance:
        return StoredUtterance(self.id_of(row), self.read_mel(row), self.read_part(row, "tokens"), *self.labels_of(row))

    def read_mel(self, row: int) -> NDArray[Any]:
        """The spectrogram [T, M] as stored, not copied."""
        return self.read_part(row, "mel").reshape(-1, self.n_mels)

    def read_part(self, row: int, part: Part) -> NDArray[Any]:
        """Returns the values of a part as a flat view; empty where the utterance has no such part."""
        entry, dtype = self.entry(row, part), self._dtype_of(part)
        if entry.length == 0:
            return np.zeros(0, dtype)
        start = entry.offset
        stop = start + entry.length * self._width_of(part) * dtype.itemsize
        return self._files.get(entry.segment, part)[start:stop].view(dtype)

    def read_parts(self, rows: NDArray[np.integer[Any]], part: Part) -> list[NDArray[Any]]:
        """Vectorised `read_part`: one index lookup for all rows, which matters for the loaders."""
        dtype = self._dtype_of(part)
        columns = [self.columns[f"{part}_{name}"][rows].tolist() for name in ("segment", "offset", "length")]
        num_bytes, get = self._width_of(part) * dtype.itemsize, self._files.get
        return [
            get(segment, part)[offset : offset + length * num_bytes].view(dtype) if length else np.zeros(0, dtype)
            for segment, offset, length in zip(*columns, strict=True)
        ]

    def read_mels(self, rows: NDArray[np.integer[Any]]) -> list[NDArray[Any]]:
        """The spectrograms [T, M] of many rows as stored, not copied."""
        n_mels = self.n_mels
        return [values.reshape(-1, n_mels) for values in self.read_parts(rows, "mel")]

    def read_tokens(self, rows: NDArray[np.integer[Any]]) -> list[NDArray[np.int32]]:
        return self.read_parts(rows, "tokens")

    def use_durations(self, lengths_N: NDArray[np.integer[Any]], frames: NDArray[np.int32]) -> None:
        """Durations come from these arrays instead of the cache: the number of tokens by row, and all frames joined."""
        assert lengths_N.shape == (len(self),), f"durations of {lengths_N.shape} rows"
        assert lengths_N.sum() == len(frames), "durations do not fit their lengths"
        self._other_durations = np.cumsum([0, *lengths_N.tolist()]), frames

    def read_durations(self, rows: NDArray[np.integer[Any]]) -> list[NDArray[np.int32]]:
        """The durations of many rows, not copied; empty where an utterance has none."""
        if self._other_durations is None:
            return self.read_parts(rows, "durations")
        starts, frames = self._other_durations
        return [frames[starts[row] : starts[row + 1]] for row in rows.tolist()]

    def read_record(self, row: int, part: Part) -> NDArray[Any]:
        """As `read_part`, but spectrograms have their shape [T, M], which `SegmentWriter` takes the length from."""
        return self.read_mel(row) if part == "mel" else self.read_part(row, part)

    def verify_and_fix_cache(self, fix: bool = False) -> VerifyReport:
        """Checks every byte of the cache; with `fix`, makes what is broken again from its recordings.

        After a repair open the cache again: this object still sees the files as they were.
        """
        from myxtts.store.verify import verify_store

        return verify_store(self.folder, fix=fix)

    def copy_mels(self, rows: NDArray[np.integer[Any]], out: NDArray[np.float32], padding: float) -> NDArray[np.int32]:
        """Copies spectrograms into out [B, T, M] (casting to float32) and pads them; returns their lengths [B]."""
        lengths: NDArray[np.int32] = self.columns["mel_length"][rows].astype(np.int32)
        for place, (mel_TM, length) in enumerate(zip(self.read_mels(rows), lengths.tolist(), strict=True)):
            out[place, :length] = mel_TM
            out[place, length:] = padding
        return lengths

    @contextmanager
    def guard_reads(self, rows: Sequence[int], parts: Sequence[Part]) -> Iterator[None]:
        """Around reads of these records: raises DataError afterwards if one of them was damaged under the reader.

        Checksums are computed only where a data file could not be read or was written to since the cache was opened.
        """
        guard = self._files.guard
        with guard.section():
            yield
            suspects = guard.find_suspects()
            for row, part in product(rows, parts) if suspects else ():
                self._refuse_damage(row, part, suspects)

    def _refuse_damage(self, row: int, part: Part, suspects: Collection[tuple[int, Part]]) -> None:
        """Raises DataError for a damaged record in one of the data files."""
        entry = self.entry(row, part)
        is_suspect = entry.length > 0 and (entry.segment, part) in suspects
        problem = self.find_damage(row, part) if is_suspect else ""
        if problem:
            path = part_path(self.generation_folder, entry.segment, part)
            is_short = path.is_file() and path.stat().st_size < int(self._find_stops(np.array([row]), part)[0])
            problem = "its data file was cut short while it was in use" if is_short else problem
            raise damaged(f"The {part} of utterance {self.id_of(row)} in {path}", problem)

    def request_pages(self, rows: NDArray[np.integer[Any]], part: Part) -> None:
        """Requests read-ahead of a part of these utterances; returns without waiting for the disk."""
        rows = rows[self.columns[f"{part}_length"][rows] > 0]
        if len(rows) == 0:
            return
        starts = self.columns[f"{part}_offset"][rows]
        self._files.request(part, self.columns[f"{part}_segment"][rows], starts, self._find_stops(rows, part))

    def list_files(self, parts: Sequence[Part]) -> dict[Path, int]:
        """Returns the data files of these parts in order of part and segment, with their least size in bytes."""
        sizes = self.measure_files()
        keys = sorted((key for key in sizes if key[1] in parts), key=lambda key: (parts.index(key[1]), key[0]))
        return {part_path(self.generation_folder, *key): sizes[key] for key in keys}

    def entry(self, row: int, part: Part) -> PartEntry:
        values = (int(self.columns[f"{part}_{name}"][row]) for name in ("segment", "offset", "length", "crc"))
        return PartEntry(*values)

    def find_damage(self, row: int, part: Part) -> str:
        """Verifies the crc32c and the values of a record; returns what is wrong with it, or ''."""
        entry = self.entry(row, part)
        stop = entry.offset + align(entry.length * self._width_of(part) * self._dtype_of(part).itemsize)
        try:
            data = self._files.get(entry.segment, part)
        except OSError as error:
            return f"its data file cannot be read: {error.strerror}"
        except FileRefusedError as error:
            return f"its data file cannot be used: {error}"
        if len(data) < stop:
            return "its data file is cut off"
        if google_crc32c.value(data[entry.offset : stop]) != entry.crc:
            return "its checksum does not match"
        return self._find_impossible_values(row, part)

    def _find_impossible_values(self, row: int, part: Part) -> str:
        """A checksum only shows that nothing has changed since it was computed."""
        values = self.read_part(row, part)
        if part == "mel" and not np.isfinite(values).all():
            return "it holds NaN or infinity"
        if part == "tokens":
            limit = self.state.num_token_ids or np.iinfo(np.int32).max
            wrong = values[(values < 0) | (values >= limit)]
            if len(wrong):
                return f"it holds the token {wrong[0]}, but there are only 0 to {limit - 1}"
        if part == "durations":
            num_tokens, num_frames = self.entry(row, "tokens").length, self.entry(row, "mel").length
            if values.min() < 0 or len(values) != num_tokens or int(values.sum(dtype=np.int64)) != num_frames:
                return f"they do not spread {num_frames} frames over {num_tokens} tokens"
        return ""

    def refuse_damage(self, row: int, advice: str) -> None:
        """Raises DataError for the first damaged record of an utterance."""
        for part in PARTS:
            damage = self.find_damage(row, part) if self.entry(row, part).length else ""
            if damage:
                raise damaged(f"The stored {part} of {self.id_of(row)}", damage, advice)

    def has_damaged_heading(self, segment: int, part: Part) -> bool:
        """Whether the first bytes of a data file are wrong; False for a missing file, which `find_damage` reports."""
        try:
            heading = self._files.get(segment, part)[:ALIGNMENT].tobytes()
        except (OSError, FileRefusedError):
            return False
        return heading != make_part_heading(segment, part)

    def measure_files(self) -> dict[tuple[int, Part], int]:
        """Returns the data files that rows refer to, by segment and part, with their least size in bytes."""
        num_bytes: dict[tuple[int, Part], int] = {}
        for part in PARTS:
            rows = np.flatnonzero(self.columns[f"{part}_length"])
            segments = self.columns[f"{part}_segment"][rows]
            numbers, places = np.unique(segments, return_inverse=True)
            longest = np.zeros(len(numbers), np.uint64)
            np.maximum.at(longest, places, self._find_stops(rows, part))
            num_bytes |= {(number, part): stop for number, stop in zip(numbers.tolist(), longest.tolist(), strict=True)}
        return num_bytes

    def _find_stops(self, rows: NDArray[np.integer[Any]], part: Part) -> NDArray[np.uint64]:
        """Returns the byte offsets behind the records of a part, without padding."""
        record_bytes = np.uint64(self._width_of(part) * self._dtype_of(part).itemsize)
        starts, lengths = self.columns[f"{part}_offset"][rows], self.columns[f"{part}_length"][rows]
        stops: NDArray[np.uint64] = starts + lengths * record_bytes
        return stops

    def _dtype_of(self, part: Part) -> np.dtype[Any]:
        return self.mel_dtype if part == "mel" else _PART_DTYPES[part]

    def _width_of(self, part: Part) -> int:
        """Values per unit of length: a frame of a mel has one a band."""
        return self.n_mels if part == "mel" else 1


def _read_present_state(folder: Path) -> StoreState:
    """Reads store.json; raises DataError where there is no finished store."""
    require_store(folder)
    state = read_state(folder)
    assert state is not None, folder
    return state
