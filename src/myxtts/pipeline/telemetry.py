"""Telemetry of the feed: waits, depth, padding and accelerator utilisation, step by step and as a summary.

Accelerator utilisation (AU) as the feed sees it is the share of wall time in which the consumer was not waiting for
data; effective AU also counts padding as waste. Whether the device was busy meanwhile, the feed cannot know. The first
step is left out of both: it compiles and warms up.
"""

from __future__ import annotations

import io
import json
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np

from myxtts.errors import StorageError, refuse
from myxtts.storage.atomic import explain_storage_errors, write_atomically
from myxtts.storage.regular_file import FileRefusedError, open_output, open_regular, read_log_lines
from myxtts.types import Say

_WINDOW = 1000
"""Last intervals that the variation of step times is computed from."""
_SUMMED = ("wait_s", "step_s", "load_s", "depth", "num_frames", "num_padded_frames", "num_utterances")


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One batch handed to the consumer, and the step it was used in.

    `stages` are the seconds of each stage behind the loader: `transfer` is the copy to the device and `transfer_wait`
    the time until the device began with it. `step_s` is the time until the next batch was asked for, `is_retraced`
    whether the consumer made a new graph in it.
    """

    position: int
    wait_s: float
    load_s: float
    stages: dict[str, float]
    depth: int
    num_frames: int
    num_padded_frames: int
    num_utterances: int
    shape: str
    step_s: float = 0.0
    is_retraced: bool = False

    @property
    def interval_s(self) -> float:
        return self.wait_s + self.step_s


@dataclass(frozen=True, slots=True)
class FeedStats:
    """A summary of the steps so far, the first left out. `mean_stage_s` has an entry for each stage."""

    num_batches: int
    num_utterances: int
    utterances_per_s: float
    batches_per_s: float
    mean_wait_s: float
    max_wait_s: float
    mean_step_s: float
    mean_load_s: float
    mean_stage_s: dict[str, float]
    mean_depth: float
    num_retraces: int
    num_shapes: int
    padding: float
    au: float
    effective_au: float
    step_variation: float


class CopyClock:
    """Splits the time of copies to a GPU into copying and waiting.

    A copy begins when the GPU has done all it was given before, so its duration is mostly that of a training step. The
    fastest copy by size shows the speed of the connection: those before the first step find an idle GPU.
    """

    def __init__(self) -> None:
        self._fastest = float("inf")

    def split(self, stages: dict[str, float], size: float) -> dict[str, float]:
        """Returns the stages with `transfer` split; `size` is any measure that bytes are proportional to."""
        seconds = stages.get("transfer")
        if seconds is None or size <= 0:
            return stages
        self._fastest = min(self._fastest, seconds / size)
        copy_s = min(seconds, self._fastest * size)
        return {**stages, "transfer": copy_s, "transfer_wait": seconds - copy_s}


def _open_lines(path: Path) -> IO[str]:
    """Opens the file for appending, buffered by line."""
    with explain_storage_errors(path, "write"):
        # A line at a time, so that a monitor of the run sees each step as it ends.
        return io.TextIOWrapper(open_output(path, append=True), encoding="utf-8", line_buffering=True)


class Telemetry:
    """Collects step records in constant memory and, where a file is given, appends each as a line of JSON.

    `start` is the position of the first batch: lines of it and of later ones, which are done again, leave the file.
    `is_copied` tells whether batches are copied to another device, where a copy may have to wait.
    """

    def __init__(
        self, path: Path | None = None, say: Say = lambda _sentence: None, start: int = 0, *, is_copied: bool = False
    ) -> None:
        self._path, self._say = path, say
        self._copies = CopyClock() if is_copied else None
        if path is not None:
            # First, because a file that cannot be appended to must not be replaced either.
            _open_lines(path).close()
            self._drop_from(path, start)
        self._file: IO[str] | None = _open_lines(path) if path else None
        self._intervals: deque[float] = deque(maxlen=_WINDOW)
        self._sums = dict.fromkeys(_SUMMED, 0.0)
        self._stage_sums: Counter[str] = Counter()
        self._shapes: set[str] = set()
        self._num_finished = self._num_retraces = 0
        self._max_wait_s = 0.0
        self._current: StepRecord | None = None
        self._handed_at = 0.0

    @property
    def num_steps(self) -> int:
        """Finished steps, the first left out."""
        return max(0, self._num_finished - 1)

    def record(self, step: StepRecord, asked_at: float, handed_at: float, *, is_retraced_before: bool = False) -> float:
        """Records a batch and when it was asked for and handed over; gives the time since the one before, or 0.

        `is_retraced_before` tells whether the consumer made a new graph in the step before.
        """
        self._finish(asked_at, is_retraced_before)
        if self._copies is not None:
            step = replace(step, stages=self._copies.split(step.stages, step.num_padded_frames))
        interval_s = handed_at - self._handed_at if self._current is not None else 0.0
        self._current, self._handed_at = step, handed_at
        self._shapes.add(step.shape)
        return interval_s

    def _finish(self, now: float, is_retraced: bool = False) -> None:
        if self._current is None:
            return
        step = replace(self._current, step_s=now - self._handed_at, is_retraced=is_retraced)
        self._num_retraces += is_retraced
        if self._num_finished:
            for name in _SUMMED:
                self._sums[name] += getattr(step, name)
            for name, seconds in step.stages.items():
                self._stage_sums[name] += seconds  # type: ignore[assignment]
            self._intervals.append(step.interval_s)
            self._max_wait_s = max(self._max_wait_s, step.wait_s)
        self._num_finished += 1
        if self._file is not None:
            self._write(self._file, step)

    def _write(self, file: IO[str], step: StepRecord) -> None:
        """A full disk ends telemetry, not the training."""
        try:
            file.write(json.dumps(asdict(step)) + "\n")
        except OSError as error:
            self._say(f"Could not write to {self._path}: {error.strerror}. The run continues without these lines.")
            self._close_file()

    def _drop_from(self, path: Path, start: int) -> None:
        """Keeps the whole lines of earlier positions; memory holds one line at a time."""
        if not path.exists():
            return
        try:
            with open_regular(path) as file:
                if all(_is_before(line, start) for line in read_log_lines(file)):
                    return
            with open_regular(path) as old, write_atomically(path) as kept:
                kept.writelines(line for line in read_log_lines(old) if _is_before(line, start))
        except FileRefusedError as error:
            raise refuse(path, str(error), "Remove what is there.") from error
        except StorageError as error:
            self._say(f"{error} The file keeps lines of batches that are loaded again.")

    def _close_file(self) -> None:
        if self._file is not None:
            # What is still in its buffer is the line that could not be written.
            with suppress(OSError):
                self._file.close()
            self._file = None

    def summarize(self) -> FeedStats:
        sums, count = self._sums, max(1, self.num_steps)
        elapsed_s = max(sums["wait_s"] + sums["step_s"], 1e-12)
        padding = 1 - sums["num_frames"] / sums["num_padded_frames"] if sums["num_padded_frames"] else 0.0
        au = 1 - min(1.0, sums["wait_s"] / elapsed_s) if self.num_steps else 0.0
        intervals = np.array(self._intervals)
        return FeedStats(
            num_batches=self.num_steps,
            num_utterances=int(sums["num_utterances"]),
            utterances_per_s=sums["num_utterances"] / elapsed_s,
            batches_per_s=self.num_steps / elapsed_s,
            mean_wait_s=sums["wait_s"] / count,
            max_wait_s=self._max_wait_s,
            mean_step_s=sums["step_s"] / count,
            mean_load_s=sums["load_s"] / count,
            mean_stage_s={name: seconds / count for name, seconds in self._stage_sums.items()},
            mean_depth=sums["depth"] / count,
            num_retraces=self._num_retraces,
            num_shapes=len(self._shapes),
            padding=padding,
            au=au,
            effective_au=au * (1 - padding),
            step_variation=float(intervals.std() / intervals.mean()) if len(intervals) > 1 else 0.0,
        )

    def close(self) -> None:
        self._finish(time.perf_counter())
        self._current = None
        self._close_file()


def _is_before(line: bytes, start: int) -> bool:
    """Whether a line is whole and of a batch before the position; a kill may have cut the last one short."""
    try:
        fields = json.loads(line)
    except ValueError:
        return False
    position = fields.get("position") if isinstance(fields, dict) else None
    return line.endswith(b"\n") and isinstance(position, int) and position < start
