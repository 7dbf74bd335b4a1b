"""SQLite table of seen ids, texts and audio checksums: finds duplicates in constant memory.

It also counts the utterances of each group that must stay in one split, and chooses the groups of the validation split.
Keys are 16-byte BLAKE2b hashes of a kind and a value, so that a long text takes no more space than an id.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from myxtts.types import Split


@dataclass(frozen=True, slots=True)
class Sighting:
    """The transcript line on which a key was seen first; `split` is None for paths of recordings."""

    file: str
    line: int
    id: str
    split: Split | None

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.id})"


class SeenTable:
    """Keys of accepted utterances, and sizes of the groups that must lie in one split.

    A context manager; the database file is removed at its end.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.unlink(missing_ok=True)
        self._database = sqlite3.connect(path)
        # A scratch file, worthless after a crash: no journal and no syncing.
        self._database.executescript(
            """PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -32768;
            CREATE TABLE seen (key BLOB PRIMARY KEY, file TEXT, line INTEGER, id TEXT, split TEXT) WITHOUT ROWID;
            CREATE TABLE groups (rank BLOB PRIMARY KEY, num_utterances INTEGER) WITHOUT ROWID;"""
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()
        self._path.unlink(missing_ok=True)

    def find_any(self, keys: Mapping[str, str]) -> dict[str, Sighting]:
        """Returns the sightings of those keys that were seen before, by kind, in the order of `keys`."""
        kinds = {_digest(kind, value): kind for kind, value in keys.items()}
        query = f"SELECT key, file, line, id, split FROM seen WHERE key IN ({', '.join('?' * len(kinds))})"  # noqa: S608
        with closing(self._database.execute(query, tuple(kinds))) as rows:
            found = {kinds[key]: Sighting(*place) for key, *place in rows}
        return {kind: found[kind] for kind in keys if kind in found}

    def record(self, keys: Mapping[str, str], sighting: Sighting) -> None:
        """Stores the sighting of keys; the first of each key is kept."""
        place = (sighting.file, sighting.line, sighting.id, sighting.split)
        rows = [(_digest(kind, value), *place) for kind, value in keys.items()]
        self._database.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?, ?, ?, ?)", rows)

    def count_in_group(self, rank: bytes) -> None:
        """Adds one utterance to the group of this rank, a hash of what its utterances have in common."""
        statement = "INSERT INTO groups VALUES (?, 1) ON CONFLICT DO UPDATE SET num_utterances = num_utterances + 1"
        self._database.execute(statement, (rank,))

    @property
    def num_groups(self) -> int:
        return int(self._database.execute("SELECT count(*) FROM groups").fetchone()[0])

    def find_validation_limit(self, num_wanted: float) -> bytes | None:
        """Returns the highest rank of the validation split: groups in order of rank until there are enough utterances.

        The order is random, since ranks are hashes. The last group always stays with training.
        """
        limit, total = None, 0
        remaining = self.num_groups
        with closing(self._database.execute("SELECT rank, num_utterances FROM groups ORDER BY rank")) as rows:
            for rank, num_utterances in rows:
                remaining -= 1
                if total >= num_wanted or remaining == 0:
                    break
                limit, total = bytes(rank), total + num_utterances
        return limit


def _digest(kind: str, value: str) -> bytes:
    # Names of files may hold bytes that are not UTF-8.
    return hashlib.blake2b(f"{kind}\0{value}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
