"""Imports TensorFlow with its start-up log lines filtered from stderr; all other lines still show.

TF_CPP_MIN_LOG_LEVEL=0 shows everything. TensorFlow applies other levels only after it has written those lines, so they
are filtered from the error stream.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from myxtts.errors import MissingExtraError

LEVEL_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"
_EVERYTHING, _ALL_BUT_INFORMATION, _NOTHING = "0", "1", "3"
_ABOUT_THE_BUILD = (
    b"All log messages before absl::InitializeLog() is called",
    b"oneDNN custom operations are on",
    b"Could not find cuda drivers on your machine",
    b"This TensorFlow binary is optimized to use available CPU instructions",
    b"To enable the following instructions:",
)


def has_tensorflow() -> bool:
    """Whether TensorFlow is installed; it is not loaded for that."""
    return has_module("tensorflow")


def has_module(name: str) -> bool:
    """Whether a package is installed; it is not loaded for that."""
    try:
        return find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):
        # What blocks or replaces modules may raise here.
        return False


def explain_missing_tensorflow(advice: str = "") -> MissingExtraError:
    """The error of a command that needs TensorFlow, where it is not installed."""
    return MissingExtraError(
        "This needs TensorFlow, which is not installed.", next_step=f"Run: pip install 'myxtts[train]'{advice}"
    )


def load_tensorflow() -> None:
    """Imports TensorFlow. Call it where it would be imported next; later calls do nothing.

    Raises MissingExtraError where it is not installed.
    """
    if "tensorflow" in sys.modules:
        return
    if not has_tensorflow():
        raise explain_missing_tensorflow()
    from myxtts.runtime.hardware import detect_hardware

    if os.environ.get(LEVEL_VARIABLE) == _EVERYTHING:
        _import()
        return
    # Errors without a GPU are about the missing GPU; with one, a warning may say which library it lacks.
    if LEVEL_VARIABLE not in os.environ:
        os.environ[LEVEL_VARIABLE] = _ALL_BUT_INFORMATION if detect_hardware().gpus else _NOTHING
    with _filter_errors():
        _import()


def _import() -> None:
    import tensorflow  # noqa: F401 - loading it is all that is wanted


@contextmanager
def _filter_errors() -> Iterator[None]:
    """Redirects file descriptor 2 to a temporary file, and replays it at the end without the lines about the build.

    The C++ runtime writes to the descriptor, so replacing `sys.stderr` would not catch it.
    """
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
            lines = held.read().splitlines(keepends=True)
            os.write(screen, b"".join(line for line in lines if not any(words in line for words in _ABOUT_THE_BUILD)))
            os.close(screen)
