"""Reads what is added to a file of lines by another process, however that process treats the file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO, Any

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
