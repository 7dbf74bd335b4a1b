"""Measurements in a process of their own, with one computing thread, so that nothing else is measured along."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

import psutil

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
NO_NOISE = {"TF_CPP_MIN_LOG_LEVEL": "3"}
_WATCH_S = 0.25
_QUIET_PERCENT = 7.0


def run_alone(measure: Callable[[str], Mapping[str, float]], argument: str) -> dict[str, float]:
    """Calls a function of a module in a new process; the libraries read their number of threads when they load."""
    command = [sys.executable, "-m", "benchmarks.alone", measure.__module__, measure.__name__, argument]
    environment = {**os.environ, **ONE_THREAD, **NO_NOISE}
    result = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{measure.__module__}.{measure.__name__} failed:\n{result.stderr}")
    figures: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return figures


class QuietMoments:
    """Waits until other programs leave the processors free, but all in all no longer than its patience."""

    def __init__(self, patience_s: float) -> None:
        self._end = time.monotonic() + patience_s

    def wait(self) -> None:
        while time.monotonic() < self._end and psutil.cpu_percent(_WATCH_S) > _QUIET_PERCENT:
            pass


def main() -> None:
    module, function, argument = sys.argv[1:]
    figures = getattr(importlib.import_module(module), function)(argument)
    sys.stdout.write(f"{json.dumps(figures)}\n")


if __name__ == "__main__":
    main()
