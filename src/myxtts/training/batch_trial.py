"""Finds the largest batch by trying: a step in a process of its own, with half as many utterances until one fits.

A process of its own gives all its memory back, may be killed for want of it, and cannot take longer than it is allowed.
"""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path
from tempfile import TemporaryDirectory

from myxtts.config.schema import XTTSConfig
from myxtts.errors import HardwareError
from myxtts.types import Say

TOO_LARGE = 12
"""The exit code of a probe that ran out of memory."""
_KILLED_FOR_MEMORY = (TOO_LARGE, -signal.SIGKILL, -signal.SIGABRT, -signal.SIGSEGV)
_NUM_WORDS_SHOWN = 300


class Trial(Enum):
    """What became of a step that was tried. UNKNOWN: it took too long, or failed for another reason."""

    FITS = auto()
    TOO_LARGE = auto()
    UNKNOWN = auto()


TrySize = Callable[[int], Trial]


def find_fitting(estimated: int, multiple_of: int, try_size: TrySize, say: Say) -> int:
    """The estimated size or the first half of it that fits. Where a trial says nothing, what was reached is taken."""
    size = estimated
    while True:
        trial = try_size(size)
        if trial is not Trial.TOO_LARGE:
            if trial is Trial.FITS:
                say(f"A step of {size} utterances was tried, and fits.")
            return size
        if size <= multiple_of:
            raise HardwareError(
                f"The memory does not suffice for a batch of {size}.",
                next_step="Choose a smaller model (--model-size), set data.max_mel_frames lower, or free the device.",
            )
        say(f"A step of {size} utterances was tried, and does not fit.")
        size = max(1, size // 2 // multiple_of) * multiple_of


class StepTrials:
    """Tries steps of a training, all of them together within `time_limit_s`."""

    def __init__(self, config: XTTSConfig, budget_bytes: int, time_limit_s: float, say: Say) -> None:
        self._config, self._budget_bytes, self._say = config, budget_bytes, say
        self._deadline = time.monotonic() + time_limit_s

    def try_size(self, size: int) -> Trial:
        limit_s = math.ceil(self._deadline - time.monotonic())
        if limit_s <= 0:
            self._say("There is no time left to try smaller steps.")
            return Trial.UNKNOWN
        config = self._config.model_copy(update={"data.batch_size": size})
        with TemporaryDirectory(prefix="myxtts-probe-") as folder:
            file = Path(folder) / "config.yaml"
            file.write_text(config.to_yaml(), encoding="utf-8")
            command = [sys.executable, "-P", "-m", "myxtts.training.batch_probe"]
            command += [str(file), str(self._budget_bytes), str(limit_s)]
            done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return Trial.FITS
        if done.returncode in _KILLED_FOR_MEMORY:
            return Trial.TOO_LARGE
        reason = f"it took longer than {limit_s} s" if done.returncode == -signal.SIGALRM else _find_words(done.stderr)
        self._say(f"A step of {size} utterances could not be tried ({reason}): the size is only estimated.")
        return Trial.UNKNOWN


def _find_words(output: str) -> str:
    """The last thing that a process said."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:_NUM_WORDS_SHOWN] if lines else "it said nothing"
