"""The rows of all segments as one table: the newest row of each utterance, at the place of its first.

A segment is read, copied into the table and forgotten, so that opening a store costs what its table weighs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import DataError
from myxtts.store.index import COLUMNS, ROW_BYTES, SPLITS, SegmentIndex, read_index
from myxtts.types import Split

_NUM_NAMES_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Table:
    """Columns [N] as in an index. Names are joined; `id_start` and `id_end` say where an id lies in `ids`.

    `by_hash` lists the rows in the order of their id's hash.
    """

    columns: dict[str, NDArray[Any]]
    ids: bytes
    speakers: tuple[str, ...]
    languages: tuple[str, ...]
    by_hash: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.columns["id_hash"])

    def id_of(self, row: int) -> str:
        start, stop = int(self.columns["id_start"][row]), int(self.columns["id_end"][row])
        return self.ids[start:stop].decode("utf-8", "surrogatepass")

    def join_as(self, split: Split, speakers: Sequence[str], languages: Sequence[str]) -> Table:
        """The same rows as a split of another table, with speakers and languages numbered as that does."""
        columns = self.columns | {
            "speaker": renumber_names(self.columns["speaker"], self.speakers, speakers, "speakers"),
            "language": renumber_names(self.columns["language"], self.languages, languages, "languages"),
            "split": np.full(len(self), SPLITS.index(split), np.uint8),
        }
        return replace(self, columns=columns, speakers=tuple(speakers), languages=tuple(languages))

    def find_rows(self, hash: int) -> list[int]:
        """The rows whose id has this hash."""
        hashes, wanted = self.columns["id_hash"], np.uint64(hash)
        start = int(np.searchsorted(hashes, wanted, "left", sorter=self.by_hash))
        stop = int(np.searchsorted(hashes, wanted, "right", sorter=self.by_hash))
        return [int(row) for row in self.by_hash[start:stop]]


def join_indexes(paths: Sequence[Path]) -> Table:
    """Reads the indexes in order, oldest first; raises DataError if one is missing or damaged."""
    # More than the files can hold; what is not filled is never touched and takes no memory.
    capacity = sum(_measure_file(path) // ROW_BYTES for path in paths)
    columns: dict[str, NDArray[Any]] = {name: np.empty(capacity, kind) for name, kind in COLUMNS.items()}
    columns["id_start"] = np.empty(capacity, np.uint64)
    speakers, languages = _Names(), _Names()
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
    return Table(columns, b"".join(ids), all_speakers, all_languages, by_hash)


def renumber_names(column: NDArray[Any], names: Sequence[str], wanted: Sequence[str], what: str) -> NDArray[Any]:
    """A column that numbers `names`, numbering them as `wanted` does; raises DataError where that lacks one."""
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


def _place_ids(columns: dict[str, NDArray[Any]], place: slice, index: SegmentIndex, num_before: int) -> None:
    ends = columns["id_end"][place]
    ends += np.uint64(num_before)
    if len(ends):
        starts = columns["id_start"][place]
        starts[0] = num_before
        starts[1:] = ends[:-1]


def _keep_newest_rows(columns: dict[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Leaves for each utterance its last row, in the order of the first ones; gives the rows in order of hash."""
    hashes = columns["id_hash"]
    # Most stores hold every utterance once, which a sort shows that is many times faster than a stable one.
    order = np.argsort(hashes)
    if not columns["removed"].any() and not _has_twins(hashes[order]):
        return order
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    is_first = np.ones(len(hashes), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    is_last = np.ones(len(hashes), bool)
    is_last[:-1] = is_first[1:]
    firsts, lasts = order[is_first], order[is_last]
    newest = lasts[np.argsort(firsts, kind="stable")]
    newest = newest[columns["removed"][newest] == 0]
    for name in columns:
        # One column after the other, because two whole tables would be twice the memory.
        columns[name] = columns[name][newest]
    return np.argsort(columns["id_hash"])


def _has_twins(ordered: NDArray[np.uint64]) -> bool:
    return bool((ordered[1:] == ordered[:-1]).any())


class _Names:
    """Names that several indexes number each in its own way, numbered together."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._last: tuple[tuple[str, ...], NDArray[np.uint32]] = (), np.zeros(0, np.uint32)

    def translate(self, names: tuple[str, ...]) -> NDArray[np.uint32]:
        """The common numbers of an index's names. Indexes in a row often have the same ones."""
        if names == self._last[0]:
            return self._last[1]
        codes = self._codes
        for name in names:
            if name not in codes:
                codes[name] = len(codes)
        self._last = names, np.fromiter(map(codes.__getitem__, names), np.uint32, len(names))
        return self._last[1]

    def sort(self, column: NDArray[Any]) -> tuple[NDArray[Any], tuple[str, ...]]:
        """The column and the names it refers to, numbered in alphabetical order; names without a row are dropped."""
        is_used = np.zeros(len(self._codes), bool)
        is_used[column] = True
        names = sorted(name for name, code in self._codes.items() if is_used[code])
        places = np.zeros(len(self._codes), column.dtype)
        places[[self._codes[name] for name in names]] = np.arange(len(names))
        return places[column], tuple(names)
