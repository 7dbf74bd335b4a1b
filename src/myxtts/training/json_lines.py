"""Files to which a run adds a line of JSON now and then. That a line cannot be written never stops a training."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from myxtts.errors import StorageError, warn_user
from myxtts.files import pass_fault_point, write_atomically
from myxtts.types import Say


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
