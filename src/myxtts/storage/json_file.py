"""Reads JSON from files that nobody vouches for: small, flat, without duplicate keys, NaN or endless numbers."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from myxtts.errors import StorageError, warn_user
from myxtts.storage.atomic import pass_fault_point, write_atomically
from myxtts.types import Say

_MAX_NUMBER_LENGTH = 40
_MAX_DEPTH = 12


class JsonRefusedError(ValueError):
    """What is wrong with a text that was to be JSON, in words that complete "it cannot be used: ..."."""


def parse_json_object(raw: bytes) -> dict[str, Any]:
    """The object that `raw` holds; raises JsonRefusedError for anything else or anything out of the ordinary."""
    try:
        value = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_refuse_duplicates,
            parse_int=_parse_int,
            parse_float=_parse_float,
            parse_constant=_refuse_constant,
        )
    except JsonRefusedError:
        raise
    except (ValueError, RecursionError) as error:
        raise JsonRefusedError(f"it is not JSON ({_shorten(str(error))})") from error
    if not isinstance(value, dict):
        raise JsonRefusedError("it holds no JSON object")
    _refuse_depth(value)
    return value


def is_whole_number(value: object) -> bool:
    """Whether a JSON value is a whole number of at least 0; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise JsonRefusedError(f"it names {_shorten(twice)!r} twice")
    return fields


def _parse_int(text: str) -> int:
    if len(text) > _MAX_NUMBER_LENGTH:
        raise JsonRefusedError(f"it holds a number of {len(text)} digits")
    return int(text)


def _parse_float(text: str) -> float:
    value = float(text) if len(text) <= _MAX_NUMBER_LENGTH else math.inf
    if not math.isfinite(value):
        raise JsonRefusedError(f"it holds the number {_shorten(text)}, which is out of range")
    return value


def _refuse_constant(text: str) -> float:
    raise JsonRefusedError(f"it holds {text}, which is no number")


def _refuse_depth(value: object) -> None:
    level = [value]
    for _ in range(_MAX_DEPTH):
        inside: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inside += item.values()
            elif isinstance(item, list):
                inside += item
        if not inside:
            return
        level = inside
    raise JsonRefusedError(f"it is nested more than {_MAX_DEPTH} deep")


def _shorten(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}…"


# Files to which a run adds a line of JSON now and then. That a line cannot be written never stops a training.


class JsonLines:
    """One file of lines, each a JSON object with the `step` it belongs to."""

    def __init__(self, path: Path, warn: Say = warn_user) -> None:
        self.path = path
        self._warn = warn
        self.num_lost = 0

    def append(self, fields: Mapping[str, Any]) -> bool:
        """Adds a line in one write; what is not finite becomes null. Gives whether it was written."""
        line = json.dumps(_make_plain(fields), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"
        try:
            with self.path.open("ab") as file:
                pass_fault_point("append")
                if not self._ends_with_newline():
                    line = "\n" + line
                file.write(line.encode("utf-8", "backslashreplace"))
        except OSError as error:
            self.num_lost += 1
            if self.num_lost == 1:
                reason = error.strerror or str(error)
                self._warn(f"Could not write to {self.path}: {reason}. Training goes on without these lines.")
            return False
        return True

    def read(self) -> Iterator[dict[str, Any]]:
        """The lines that are whole; one that a kill cut short is left out."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for line in file:
                try:
                    fields = json.loads(line)
                except ValueError:
                    continue
                if isinstance(fields, dict):
                    yield fields

    def drop_after(self, step: int) -> None:
        """Removes lines of later steps, which a resumed training does again."""
        kept = [fields for fields in self.read() if not _is_after(fields, step)]
        if not self.path.exists():
            return
        lines = "".join(json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n" for fields in kept)
        try:
            with write_atomically(self.path) as file:
                file.write(lines.encode("utf-8", "backslashreplace"))
        except StorageError as error:
            self._warn(f"{error} The file keeps lines of steps that are done again.")

    def _ends_with_newline(self) -> bool:
        """False where a kill cut the last line short."""
        with self.path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return True
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


def _is_after(fields: Mapping[str, Any], step: int) -> bool:
    value = fields.get("step")
    return isinstance(value, int) and value > step


def _make_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _make_plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_make_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


# Reads what is added to a file of lines by another process, however that process treats the file.

_BACKLOG_BYTES = 256 * 1024
_MAX_LINE_BYTES = 1024 * 1024


class JsonTail:
    """Gives the new objects of a file of JSON lines each time it is asked.

    It starts near the end of a long file, waits for the rest of a line that is only half written, and starts anew
    where the file was cut or replaced. What is no JSON object is left out.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._rest = b""
        self._is_skipping = False
        self.changed_at: float | None = None
        """When the file was last written to, by the clock of the file system."""
        self.was_replaced = False
        """Whether the last reading found the file cut or replaced: what it gave is not what has just been added."""

    def read(self) -> list[dict[str, Any]]:
        """Raises nothing: a file that cannot be read has nothing new."""
        self.was_replaced = False
        try:
            return self._parse(self._read_new_bytes())
        except OSError:
            self.close()
            return []

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None
        self._rest, self._is_skipping = b"", False

    def _read_new_bytes(self) -> bytes:
        status = self._path.stat()
        self.changed_at = status.st_mtime
        if self._file is not None and not self._is_same(self._file, status):
            self.close()
            self.was_replaced = True
        if self._file is None:
            self._file = self._path.open("rb", buffering=0)
        if status.st_size - self._file.tell() > _BACKLOG_BYTES:
            # Only what is recent counts, and reading all of a long run would take seconds.
            self._file.seek(status.st_size - _BACKLOG_BYTES)
            self._rest, self._is_skipping = b"", True
        return self._file.read(_BACKLOG_BYTES)

    @staticmethod
    def _is_same(file: IO[bytes], status: os.stat_result) -> bool:
        """False where another file has taken the name, or this one has become shorter than what was read."""
        own = os.fstat(file.fileno())
        return (own.st_dev, own.st_ino) == (status.st_dev, status.st_ino) and file.tell() <= status.st_size

    def _parse(self, content: bytes) -> list[dict[str, Any]]:
        *lines, self._rest = (self._rest + content).split(b"\n")
        if len(self._rest) > _MAX_LINE_BYTES:
            self._rest, self._is_skipping = b"", True
        if lines and self._is_skipping:
            self._is_skipping = False
            lines = lines[1:]
        return [fields for line in lines if (fields := _parse_line(line)) is not None]


def _parse_line(line: bytes) -> dict[str, Any] | None:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None
