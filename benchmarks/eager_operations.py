"""Counts operations that Python starts one by one, for the suite `card` and for the tests of the training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock


@contextmanager
def count_eager_operations() -> Iterator[Callable[[], int]]:
    """Context whose function tells how many operations TensorFlow's Python has executed; a graph counts as one."""
    from tensorflow.python import pywrap_tfe

    num_started = 0

    def count(plain: Any) -> Any:
        def start(*arguments: Any) -> Any:
            nonlocal num_started
            num_started += 1
            return plain(*arguments)

        return start

    names = ("TFE_Py_Execute", "TFE_Py_FastPathExecute")
    with mock.patch.multiple(pywrap_tfe, **{name: count(getattr(pywrap_tfe, name)) for name in names}):
        yield lambda: num_started
