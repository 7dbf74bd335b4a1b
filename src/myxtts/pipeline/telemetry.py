"""What the feed measures of itself: waits, depth, padding, and how busy the accelerator could be.

Accelerator utilisation (AU) is the share of wall time in which the consumer was not waiting for data; effective AU
also counts padding as waste. The first step is left out of both: it compiles and warms up.
"""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import numpy as np


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One batch handed to the consumer. `interval_s` is the time since the one before."""

    position: int
    wait_s: float
    interval_s: float
    load_s: float
    transfer_s: float
    depth: int
    num_frames: int
    num_padded_frames: int
    num_utterances: int
    shape: str


@dataclass(frozen=True, slots=True)
class FeedStats:
    """A summary of the steps so far, the first left out."""

    num_batches: int
    num_utterances: int
    utterances_per_s: float
    batches_per_s: float
    mean_wait_s: float
    max_wait_s: float
    mean_load_s: float
    mean_transfer_s: float
    mean_depth: float
    padding: float
    au: float
    effective_au: float
    step_variation: float


class Telemetry:
    """Collects step records in constant memory and, where a file is given, appends each as a line of JSON."""

    def __init__(self, path: Path | None = None, window: int = 1000) -> None:
        self._file: IO[str] | None = path.open("a", encoding="utf-8") if path else None
        self._intervals: deque[float] = deque(maxlen=window)
        self._sums = dict.fromkeys(
            ("wait", "interval", "load", "transfer", "depth", "frames", "padded", "utterances"), 0.0
        )
        self._num_batches = 0
        self._max_wait_s = 0.0
        self._last: float | None = None

    def record(
        self,
        position: int,
        wait_s: float,
        load_s: float,
        transfer_s: float,
        depth: int,
        shape: str,
        frames: tuple[int, int, int],
    ) -> float:
        """Notes a step and gives the time since the one before, 0 for the first.

        `frames` are real frames, padded frames and utterances of the batch.
        """
        now = time.perf_counter()
        interval_s = now - self._last if self._last is not None else 0.0
        num_frames, num_padded, num_utterances = frames
        if self._last is not None:
            self._add(wait_s, interval_s, load_s, transfer_s, depth, frames)
        self._last = now
        if self._file is not None:
            step = StepRecord(
                position, wait_s, interval_s, load_s, transfer_s, depth, num_frames, num_padded, num_utterances, shape
            )
            self._file.write(json.dumps(asdict(step)) + "\n")
        return interval_s

    def _add(
        self,
        wait_s: float,
        interval_s: float,
        load_s: float,
        transfer_s: float,
        depth: int,
        frames: tuple[int, int, int],
    ) -> None:
        self._num_batches += 1
        self._max_wait_s = max(self._max_wait_s, wait_s)
        self._intervals.append(interval_s)
        values = (wait_s, interval_s, load_s, transfer_s, depth, *frames)
        for name, value in zip(self._sums, values, strict=True):
            self._sums[name] += value

    def summarize(self) -> FeedStats:
        sums, count = self._sums, max(1, self._num_batches)
        elapsed_s = max(sums["interval"], 1e-12)
        padding = 1 - sums["frames"] / sums["padded"] if sums["padded"] else 0.0
        au = 1 - min(1.0, sums["wait"] / elapsed_s) if self._num_batches else 0.0
        intervals = np.array(self._intervals)
        return FeedStats(
            num_batches=self._num_batches,
            num_utterances=int(sums["utterances"]),
            utterances_per_s=sums["utterances"] / elapsed_s,
            batches_per_s=self._num_batches / elapsed_s,
            mean_wait_s=sums["wait"] / count,
            max_wait_s=self._max_wait_s,
            mean_load_s=sums["load"] / count,
            mean_transfer_s=sums["transfer"] / count,
            mean_depth=sums["depth"] / count,
            padding=padding,
            au=au,
            effective_au=au * (1 - padding),
            step_variation=float(intervals.std() / intervals.mean()) if len(intervals) > 1 else 0.0,
        )

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
