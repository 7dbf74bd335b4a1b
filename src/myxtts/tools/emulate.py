"""Accelerator emulation: consumes batches and sleeps for a nominal step time, to measure the input pipeline.

Accelerator utilisation (AU) is nominal time / wall time, without the first step. The nominal time counts, not the
measured sleep, which is always a little longer and would flatter the pipeline. No pipeline reaches an AU of 1, so AU is
reported with its upper bound: the same loop over batches that are already in memory (`repeat_batches`). Used by
`myxtts bench`, and needs neither a GPU nor a model.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, TypeVar

import numpy as np
import psutil
from numpy.typing import NDArray

from myxtts.errors import UsageError

_STEPS_PER_MEMORY_SAMPLE = 50
"""Steps between two readings of resident memory, whose maximum is the reported peak."""
_FEWEST_STEPS = 2
"""The first step only starts the clock; one interval is the least that can be measured."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class StepTime:
    """A nominal step: `fixed_s` and `per_frame_s` for each frame of the batch, padding included."""

    fixed_s: float
    per_frame_s: float = 0.0

    @classmethod
    def make(cls, step_s: float | StepTime) -> StepTime:
        """Takes a step time as it is, and a number as fixed seconds."""
        return step_s if isinstance(step_s, StepTime) else cls(step_s)

    def of(self, num_padded_frames: int) -> float:
        return self.fixed_s + self.per_frame_s * num_padded_frames


@dataclass(frozen=True, slots=True)
class BatchSize:
    """Size of a batch: real utterances, their mel frames, and all frames of the padded shape (rows x frames)."""

    num_utterances: int
    num_frames: int
    num_padded_frames: int


class ProcessMeter:
    """Clock, sleep, CPU time of this process with its children, and its resident memory. Tests replace it."""

    def __init__(self) -> None:
        self._process = psutil.Process(os.getpid())

    def clock(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def read_cpu_s(self) -> float:
        """Returns the CPU seconds of this process and of the worker processes that are alive."""
        return time.process_time() + sum(_read_cpu_s(child) for child in self._process.children(recursive=True))

    def read_rss_bytes(self) -> int:
        return int(self._process.memory_info().rss)


def _read_cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


@dataclass(frozen=True, slots=True, eq=False)
class Emulation:
    """Measurements of an emulation. Arrays [steps] begin with the second step.

    `intervals_s` go from the end of one step to the end of the next; `waits_s` is the time in each of them until the
    batch arrived. `cpu_s` counts from the end of the first step. `rss_bytes` was read every fifty steps.
    """

    nominal_s: NDArray[np.float64]
    intervals_s: NDArray[np.float64]
    waits_s: NDArray[np.float64]
    num_utterances: int
    num_frames: int
    num_padded_frames: int
    cpu_s: float
    rss_bytes: tuple[int, ...]

    @property
    def num_steps(self) -> int:
        return len(self.intervals_s)

    @property
    def wall_s(self) -> float:
        return float(self.intervals_s.sum())

    @property
    def au(self) -> float:
        return self.measure_au(0, self.num_steps)

    @property
    def effective_au(self) -> float:
        """AU x (1 - padding): the share of time spent on real frames."""
        return self.au * (1 - self.padding)

    @property
    def padding(self) -> float:
        """Share of padded frames among all frames of the batches."""
        return 1 - self.num_frames / self.num_padded_frames if self.num_padded_frames else 0.0

    @property
    def step_variation(self) -> float:
        """Coefficient of variation of the step times: standard deviation / mean."""
        return float(self.intervals_s.std() / self.intervals_s.mean())

    @property
    def utterances_per_s(self) -> float:
        return self.num_utterances / self.wall_s

    @property
    def cpu_s_per_utterance(self) -> float:
        return self.cpu_s / self.num_utterances if self.num_utterances else 0.0

    @property
    def peak_rss_bytes(self) -> int:
        return max(self.rss_bytes)

    def measure_au(self, start: int, stop: int) -> float:
        """Returns the AU of the steps from `start` to `stop`; index 0 is the second step, as in the arrays."""
        return float(self.nominal_s[start:stop].sum() / self.intervals_s[start:stop].sum())


def measure_batch(batch: Any) -> BatchSize:
    """Measures a `Batch`, or a mapping with its `mel` and `mel_lengths`, such as a `tf.data` dataset yields.

    Rows of length 0 are padding and are not counted as utterances.
    """
    mel, lengths = _find_arrays(batch)
    real = np.asarray(lengths)
    return BatchSize(int(np.count_nonzero(real)), int(real.sum()), int(mel.shape[0]) * int(mel.shape[1]))


def _find_arrays(batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, Mapping) and {"mel", "mel_lengths"} <= batch.keys():
        return batch["mel"], batch["mel_lengths"]
    if hasattr(batch, "mel") and hasattr(batch, "mel_lengths"):
        return batch.mel, batch.mel_lengths
    raise UsageError(
        f"A batch is a {type(batch).__name__} without mel and mel_lengths, so its utterances cannot be counted.",
        next_step="Give emulate a function `measure` that counts them.",
    )


def repeat_batches(batches: Sequence[Item], num_steps: int) -> Iterator[Item]:
    """Cycles through batches in memory for `num_steps`: emulated over them, AU is the upper bound of any pipeline."""
    return islice(cycle(batches), num_steps)


def emulate(
    batches: Iterable[Any],
    step_s: float | StepTime,
    num_steps: int | None = None,
    *,
    host_load_s: float = 0.0,
    measure: Callable[[Any], BatchSize] = measure_batch,
    meter: ProcessMeter | None = None,
) -> Emulation:
    """Runs an emulated step of `step_s` for each of `batches`, or for the first `num_steps` of them.

    A step starts when its batch arrives; a late batch delays all later steps. The host works during the step, as with a
    real accelerator: it measures the batch, and for `host_load_s` it holds the GIL, as dispatching a training step
    does. The first step only starts the clock. Raises UsageError with fewer than two batches.
    """
    step_time, meter = StepTime.make(step_s), meter or ProcessMeter()
    arrivals: list[float] = []
    ends: list[float] = []
    sizes: list[BatchSize] = []
    rss_bytes: list[int] = []
    first_cpu_s = 0.0
    for batch in islice(batches, num_steps):
        arrivals.append(meter.clock())
        sizes.append(measure(batch))
        if len(sizes) % _STEPS_PER_MEMORY_SAMPLE == 1:
            rss_bytes.append(meter.read_rss_bytes())
        # Spinning in Python keeps the GIL from loader threads; sleeping would release it.
        while host_load_s > 0 and meter.clock() < arrivals[-1] + host_load_s:
            pass
        rest_s = arrivals[-1] + step_time.of(sizes[-1].num_padded_frames) - meter.clock()
        if rest_s > 0:
            meter.sleep(rest_s)
        if not ends:
            # Reading the CPU time of children takes a while, so it is done before the clock starts.
            first_cpu_s = meter.read_cpu_s()
        ends.append(meter.clock())
    if len(ends) < _FEWEST_STEPS:
        raise UsageError(
            f"There were {len(ends)} batches; it takes {_FEWEST_STEPS}, as the first does not count.",
            next_step="Give it more batches: several epochs, or smaller ones.",
        )
    counted = sizes[1:]
    return Emulation(
        nominal_s=np.array([step_time.of(size.num_padded_frames) for size in counted]),
        intervals_s=np.diff(ends),
        waits_s=np.array(arrivals[1:]) - np.array(ends[:-1]),
        num_utterances=sum(size.num_utterances for size in counted),
        num_frames=sum(size.num_frames for size in counted),
        num_padded_frames=sum(size.num_padded_frames for size in counted),
        cpu_s=meter.read_cpu_s() - first_cpu_s,
        rss_bytes=(*rss_bytes, meter.read_rss_bytes()),
    )
