"""Writes a bundle while training goes on, whichever part of the voice it is of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from myxtts.errors import MyXTTSError
from myxtts.models.strict_json import JsonRefusedError, is_whole_number, parse_json_object
from myxtts.training.background import BackgroundThread
from myxtts.types import Say

_MAX_DESCRIPTION_BYTES = 4_000_000


class BackgroundWriter(BackgroundThread):
    """Writes a bundle in a thread of its own; what the disk refuses becomes a warning. Use it as a context.

    `step` is that of the bundle on the disk, None where there is none.
    """

    def __init__(self, description: Path, warn: Say) -> None:
        """`description` is the JSON file of the bundle, whose notes say of which step it is."""
        super().__init__("bundle")
        self._warn = warn
        self.step = _read_step(description)

    def start(self, step: int, write: Callable[[], None]) -> None:
        """Begins to write what is of this step; waits for the bundle before."""
        self._begin(partial(self._write, step, write))

    def _write(self, step: int, write: Callable[[], None]) -> None:
        try:
            write()
        except MyXTTSError as error:
            self._warn(f"{error} Training goes on; the bundle stays as it was.")
        else:
            self.step = step


def _read_step(description: Path) -> int | None:
    """The step whose weights a bundle says it holds."""
    try:
        fields = parse_json_object(description.read_bytes()[:_MAX_DESCRIPTION_BYTES])
    except (OSError, JsonRefusedError):
        return None
    notes = fields.get("notes")
    step = notes.get("step") if isinstance(notes, dict) else None
    return step if isinstance(step, int) and is_whole_number(step) else None
