"""Timing loops of the diagnosis: loading alone, step alone, the full training loop, and two variants in alternation.

Other load on the machine can only lengthen a measurement. So everything is measured in several blocks, and the
shortest counts. `read_runnable_s` adds the run-queue delay to CPU time, which tells CPU-bound stages on a crowded
machine from I/O-bound ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import psutil

from myxtts.errors import DataError
from myxtts.tools.diagnose.evidence import LoopTimes, Times

Work = Callable[[Any], Any]
"""A training step or a transfer, called with a batch."""
_FEWEST_BATCHES = 4
"""A time limit ends a loop only after this many batches."""
_NUM_BLOCKS = 3
"""Blocks among which the time limit is divided; the shortest counts."""
_PAUSE_S = 0.03
"""Longest pause between two timed calls."""


class BatchSource(Protocol):
    """Endless iterator over batches, epoch after epoch. `num_epochs` counts the epochs that were started."""

    num_epochs: int

    def open(self) -> AbstractContextManager[Iterator[Any]]: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """End of a measurement: after `num_batches`, or after `time_limit_s` if batches are slow."""

    num_batches: int = 50
    time_limit_s: float = 30.0


@dataclass(frozen=True, slots=True, eq=False)
class AloneTimes:
    """Loading times without a step, and the CPU load meanwhile.

    `alone_s` leaves out the first batch of each epoch, which is in `epoch_starts_s`. `runnable_s` is CPU time plus time
    queued for a core, `num_free_cores` the mean number of idle cores.
    """

    alone_s: Times
    epoch_starts_s: Times
    cpu_s: float
    runnable_s: float
    num_free_cores: float


def describe_shape(batch: Any) -> str:
    """Returns the shapes of all arrays of a batch as one key; a new key may retrace a `tf.function`."""
    return " ".join(str(tuple(part.shape)) for part in list_arrays(batch))


def list_arrays(batch: Any) -> list[Any]:
    """Returns all arrays of a batch, from nested dicts, lists, tuples and dataclasses."""
    if hasattr(batch, "shape"):
        return [batch]
    if isinstance(batch, dict):
        return [array for part in batch.values() for array in list_arrays(part)]
    if isinstance(batch, list | tuple):
        return [array for part in batch for array in list_arrays(part)]
    fields = getattr(batch, "__dataclass_fields__", None)
    return [array for name in fields for array in list_arrays(getattr(batch, name))] if fields else []


def run_together(source: BatchSource, step: Work, transfer: Work | None, limits: Limits) -> LoopTimes:
    """Times the full training loop: wait for a batch, transfer, step.

    One extra step runs first and is not counted. The time limit starts after it.
    """
    waits_s, transfers_s, steps_s = [], [], []
    is_epoch_start, is_new_shape = [], []
    seen: set[str] = set()
    cpu_s = 0.0
    with source.open() as batches:
        deadline = time.perf_counter() + limits.time_limit_s
        for number in range(limits.num_batches + 1):
            epoch = source.num_epochs
            asked = time.perf_counter()
            batch = next(batches)
            arrived = time.perf_counter()
            moved = transfer(batch) if transfer is not None else batch
            started = time.perf_counter()
            step(moved)
            ended = time.perf_counter()
            shape = describe_shape(batch)
            del batch, moved
            if number == 0:
                # The first step traces the graph and fills the buffers.
                cpu_s, deadline = read_runnable_s(), ended + limits.time_limit_s
            else:
                waits_s.append(arrived - asked)
                transfers_s.append(started - arrived)
                steps_s.append(ended - started)
                is_epoch_start.append(source.num_epochs > epoch)
                is_new_shape.append(shape not in seen)
            seen.add(shape)
            if ended > deadline and number >= _FEWEST_BATCHES:
                break
    return LoopTimes(
        np.array(waits_s),
        np.array(transfers_s),
        np.array(steps_s),
        np.array(is_epoch_start, bool),
        np.array(is_new_shape, bool),
        read_runnable_s() - cpu_s,
    )


def run_alone(source: BatchSource, limits: Limits) -> AloneTimes:
    """Times loading without a step, after one batch of warm-up."""
    usual: list[float] = []
    starts: list[float] = []
    with source.open() as batches:
        next(batches)
        runnable_s, cpu_s, idle_s = read_runnable_s(), time.process_time(), _read_idle_s()
        asked = began = time.perf_counter()
        for number in range(limits.num_batches):
            epoch = source.num_epochs
            next(batches)
            arrived = time.perf_counter()
            (starts if source.num_epochs > epoch else usual).append(arrived - asked)
            asked = arrived
            if arrived - began > limits.time_limit_s and number >= _FEWEST_BATCHES:
                break
        elapsed_s = max(asked - began, 1e-9)
        free = (_read_idle_s() - idle_s) / elapsed_s
        cpu_s, runnable_s = time.process_time() - cpu_s, read_runnable_s() - runnable_s
    return AloneTimes(np.array(usual or starts), np.array(starts), cpu_s, runnable_s, max(0.0, free))


def run_alone_calmly(source: BatchSource, limits: Limits, num_blocks: int = _NUM_BLOCKS) -> AloneTimes:
    """Returns the block with the shortest mean loading time."""
    share = Limits(limits.num_batches, limits.time_limit_s / num_blocks)
    return min((run_alone(source, share) for _ in range(num_blocks)), key=lambda times: float(times.alone_s.mean()))


def run_calmly(run: Callable[[Limits], LoopTimes], limits: Limits, num_blocks: int = _NUM_BLOCKS) -> LoopTimes:
    """Runs several blocks and returns the one with the shortest mean interval."""
    share = Limits(limits.num_batches, limits.time_limit_s / num_blocks)
    return min((run(share) for _ in range(num_blocks)), key=lambda times: times.interval_s)


def time_step(step: Work, batches: Sequence[Any], num_rounds: int = 5, time_limit_s: float = 10.0) -> float:
    """Returns the mean over batches of the shortest step on each, with batches in memory.

    The first call on each batch is not counted, because it may trace a graph. Batches beyond the time limit are left
    out.
    """
    times = []
    began = time.perf_counter()
    for batch in batches:
        step(batch)
        times.append(time_calls(lambda: step(batch), num_rounds))  # noqa: B023 - called at once
        if time.perf_counter() - began > time_limit_s:
            break
    return float(np.mean(times))


def time_calls(work: Callable[[], object], num_calls: int = 5) -> float:
    """Returns the seconds of the shortest call."""
    times = []
    for _ in range(num_calls):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
        # The scheduler ranks a thread that never sleeps behind others; a training loop does sleep, so pause here too.
        time.sleep(min(times[-1], _PAUSE_S))
    return min(times)


def take_samples(source: BatchSource, num_batches: int) -> list[Any]:
    """Returns copies of the first batches; views would keep the buffers of the feed occupied."""
    with source.open() as batches:
        return [copy_arrays(next(batches)) for _ in range(num_batches)]


def copy_arrays(batch: Any) -> Any:
    """Returns the batch with its NumPy arrays copied; tensors are immutable and kept."""
    if isinstance(batch, np.ndarray):
        return batch.copy()
    if isinstance(batch, dict):
        return {name: copy_arrays(part) for name, part in batch.items()}
    if isinstance(batch, list | tuple) and not hasattr(batch, "_fields"):
        return type(batch)(copy_arrays(part) for part in batch)
    return batch


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Mean step intervals of the blocks of the old and the new variant.

    `low` and `high` compare the extremes: shortest old with longest new block, and the reverse.
    """

    old_s: Times
    new_s: Times

    @property
    def factor(self) -> float:
        """Speed-up of the new variant, from the shortest block of each."""
        return float(self.old_s.min() / self.new_s.min())

    @property
    def low(self) -> float:
        return float(self.old_s.min() / self.new_s.max())

    @property
    def high(self) -> float:
        return float(self.old_s.max() / self.new_s.min())


def compare_in_turn(
    run_old: Callable[[], LoopTimes], run_new: Callable[[], LoopTimes], num_rounds: int = 3
) -> Comparison:
    """Runs both variants in the order old, new, new, old, old, new, so that drift of the machine affects both alike."""
    old_s: list[float] = []
    new_s: list[float] = []
    for number in range(num_rounds):
        turns = [(run_old, old_s), (run_new, new_s)]
        for run, times in turns if number % 2 == 0 else reversed(turns):
            times.append(run().interval_s)
    return Comparison(np.array(old_s), np.array(new_s))


def read_runnable_s() -> float:
    """Returns the seconds that threads of this process ran or were queued for a core, summed over threads.

    The second field of Linux's `schedstat` is the run-queue delay in ns; elsewhere only CPU time is counted.
    """
    delay_ns = 0
    for file in Path("/proc/self/task").glob("*/schedstat"):
        # A thread may end between being listed and being read.
        with suppress(OSError, ValueError):
            delay_ns += int(file.read_text().split()[1])
    return time.process_time() + delay_ns / 1e9


def _read_idle_s() -> float:
    """Returns the idle seconds of the cores in this process's affinity mask, summed."""
    per_core = psutil.cpu_times(percpu=True)
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(per_core))
    return float(sum(per_core[core].idle for core in allowed if core < len(per_core)))


def refuse_empty(what: str) -> DataError:
    return DataError(f"{what} gave no batch at all.", next_step="Check that it yields batches when it is iterated.")
