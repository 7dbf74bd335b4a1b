"""Loads TensorFlow without what it says of its build on every start; whatever else it says still shows.

Whoever sets TF_CPP_MIN_LOG_LEVEL to 0 hears everything; other levels are kept, but TensorFlow knows them too late.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from myxtts.runtime.hardware import detect_hardware

LEVEL_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"
_EVERYTHING, _ALL_BUT_INFORMATION, _NOTHING = "0", "1", "3"
_HARMLESS = (
    "All log messages before absl::InitializeLog() is called",
    "oneDNN custom operations are on",
    "Could not find cuda drivers on your machine",
    "This TensorFlow binary is optimized to use available CPU instructions",
    "To enable the following instructions:",
)
"""Said before TensorFlow knows the level that was asked for."""


def load_tensorflow() -> None:
    """Imports TensorFlow. Call it where it would be imported next; later calls do nothing."""
    if "tensorflow" in sys.modules:
        return
    if os.environ.get(LEVEL_VARIABLE) == _EVERYTHING:
        _import()
        return
    # Errors without a GPU are about the missing GPU; with one, a warning may say which library it lacks.
    if LEVEL_VARIABLE not in os.environ:
        os.environ[LEVEL_VARIABLE] = _ALL_BUT_INFORMATION if detect_hardware().gpus else _NOTHING
    with _filter_errors():
        _import()


def select_worth_saying(text: bytes) -> bytes:
    """The lines that are not known to be harmless."""
    lines = text.splitlines(keepends=True)
    return b"".join(line for line in lines if not any(words.encode() in line for words in _HARMLESS))


def _import() -> None:
    import tensorflow  # noqa: F401 - loading it is all that is wanted


@contextmanager
def _filter_errors() -> Iterator[None]:
    """Holds back what is written straight to the error stream, and lets through at the end what is worth it."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        screen = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(screen, 2)
            held.seek(0)
            os.write(screen, select_worth_saying(held.read()))
            os.close(screen)
