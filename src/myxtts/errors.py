"""The exceptions a user may meet, one exit code per branch.

    MyXTTSError                 1   anything below
    ├── UsageError              2   a command was called in a way it cannot serve
    ├── DataError               3   recordings, transcripts or stored features are not usable
    ├── ConfigError             4   a setting is unknown, impossible or contradicts another
    ├── HardwareError           5   a GPU that was asked for is not there, or cannot be used
    ├── MissingExtraError       6   an optional dependency is needed and not installed
    ├── StorageError            7   the disk is full, read-only or refuses to write
    └── BusyError               8   another process holds the run or store

An interrupt ends with 130 (Ctrl-C) or 143 (SIGTERM), as shells expect.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

DAMAGED_FILE = "It is damaged, altered or from another version: take it again from where it was made."
INTERRUPTED_EXIT_CODE = 130
TERMINATED_EXIT_CODE = 143


class MyXTTSError(Exception):
    """Base class of all errors that a user can act on: `problem` says what is wrong, `next_step` what to do."""

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "error"

    def __init__(self, problem: str, *, next_step: str = "", details: dict[str, Any] | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.next_step = next_step
        self.details = details or {}

    def __str__(self) -> str:
        gap = "" if self.problem.endswith("\n") else " "  # A list, one item a line, ends with a line break.
        return f"{self.problem}{gap}{self.next_step}".rstrip()


class UsageError(MyXTTSError):
    exit_code = 2
    kind = "usage"


class DataError(MyXTTSError):
    exit_code = 3
    kind = "data"


class ConfigError(MyXTTSError):
    exit_code = 4
    kind = "configuration"


class HardwareError(MyXTTSError):
    exit_code = 5
    kind = "hardware"


class MissingExtraError(MyXTTSError):
    exit_code = 6
    kind = "missing extra"


class StorageError(MyXTTSError):
    exit_code = 7
    kind = "storage"


class BusyError(MyXTTSError):
    exit_code = 8
    kind = "busy"


def refuse(what: object, problem: str, next_step: str = DAMAGED_FILE) -> DataError:
    """The error for a file or folder that cannot be used; `problem` is a clause without a full stop."""
    return DataError(f"{what} cannot be used: {problem}.", next_step=next_step)


@contextmanager
def name_place(place: str | Path) -> Iterator[None]:
    """Puts a file or folder before an error that does not name it: where its content is checked, it is not known."""
    try:
        yield
    except MyXTTSError as error:
        if str(place) in str(error):
            raise
        raise type(error)(f"{place}: {error.problem}", next_step=error.next_step, details=error.details) from error


def warn_user(message: str) -> None:
    """The default way to warn where the caller gave none: an ordinary Python warning."""
    warnings.warn(message, UserWarning, stacklevel=4)
