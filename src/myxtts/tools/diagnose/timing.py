"""Timing loops of the diagnosis: loading alone, step alone, the full training loop, and two variants in alternation.

Other load on the machine can only lengthen a measurement. So everything is measured in several blocks, and the
shortest counts. CPU time includes the run-queue delay (`read_runnable_s`), which tells CPU-bound stages on a crowded
machine from I/O-bound ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import psutil

from myxtts.runtime.hardware import count_cpus
from myxtts.runtime.timing import read_runnable_s, run_in_turns, time_calls
from myxtts.tools.diagnose.evidence import LoopTimes, Machine, Times

Work = Callable[[Any], Any]
"""A training step or a transfer, called with a batch."""
_FEWEST_BATCHES = 4
"""A time limit ends a loop only after this many batches."""
_STEP_LIMIT_S = 10.0
"""Time after which `time_step` takes no further batch."""
_NUM_BLOCKS = 3
"""Blocks among which the time limit is divided; the shortest counts."""


class BatchSource(Protocol):
    """Endless iterator over batches, epoch after epoch. `num_epochs` counts the epochs that were started."""

    num_epochs: int

    def open(self) -> AbstractContextManager[Iterator[Any]]: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """End of a measurement: after `num_batches`, or after `time_limit_s` if batches are slow."""

    num_batches: int
    time_limit_s: float


@dataclass(frozen=True, slots=True, eq=False)
class AloneTimes:
    """Loading times without a step, and the CPU load meanwhile.

    `alone_s` leaves out the first batch of each epoch, which is in `epoch_starts_s`.
    """

    alone_s: Times
    epoch_starts_s: Times
    machine: Machine

    @property
    def interval_s(self) -> float:
        return float(self.alone_s.mean())

    @property
    def epoch_stall_s(self) -> float:
        """Median extra time of the first batch of an epoch; the very first epoch is not measured."""
        if not len(self.epoch_starts_s):
            return 0.0
        return max(0.0, float(np.median(self.epoch_starts_s)) - float(np.median(self.alone_s)))


_Times = TypeVar("_Times", LoopTimes, AloneTimes)


def list_arrays(batch: Any) -> list[Any]:
    """Returns all arrays of a batch, from nested dicts, lists, tuples and dataclasses."""
    found: list[Any] = []
    map_arrays(batch, found.append)
    return found


def map_arrays(batch: Any, change: Work) -> Any:
    """Returns the batch with `change` applied to every array in nested dicts, lists, tuples and dataclasses."""
    if hasattr(batch, "shape"):
        return change(batch)
    if isinstance(batch, dict):
        return {name: map_arrays(part, change) for name, part in batch.items()}
    if isinstance(batch, list | tuple):
        parts = [map_arrays(part, change) for part in batch]
        if all(new is old for new, old in zip(parts, batch, strict=True)):
            return batch
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    if is_dataclass(batch) and not isinstance(batch, type):
        old = {one.name: getattr(batch, one.name) for one in fields(batch)}
        new = {name: map_arrays(part, change) for name, part in old.items()}
        if all(new[name] is part for name, part in old.items()):
            return batch
        # A subclass may hold its arrays in another form, such as one packed piece: the changed batch has arrays only.
        plain = next(base for base in type(batch).__mro__ if "__dataclass_fields__" in vars(base))
        return plain(**new)
    return batch


def run_together(source: BatchSource, step: Work, transfer: Work | None, limits: Limits) -> LoopTimes:
    """Times the full training loop: wait for a batch, transfer, step.

    One extra step runs first and is not counted. The time limit starts after it.
    """
    waits_s, transfers_s, steps_s = [], [], []
    is_epoch_start, is_new_shape, shapes = [], [], []
    numbers: dict[str, int] = {}
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
            # A new combination of shapes may retrace a `tf.function`.
            shape = " ".join(str(tuple(part.shape)) for part in list_arrays(batch))
            del batch, moved
            if number == 0:
                # The first step traces the graph and fills the buffers.
                deadline, numbers[shape] = ended + limits.time_limit_s, 0
            else:
                waits_s.append(arrived - asked)
                transfers_s.append(started - arrived)
                steps_s.append(ended - started)
                is_epoch_start.append(source.num_epochs > epoch)
                is_new_shape.append(shape not in numbers)
                shapes.append(numbers.setdefault(shape, len(numbers)))
            if ended > deadline and number >= _FEWEST_BATCHES:
                break
    return LoopTimes(
        np.array(waits_s),
        np.array(transfers_s),
        np.array(steps_s),
        np.array(is_epoch_start, bool),
        np.array(is_new_shape, bool),
        np.array(shapes),
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
        ends_s = time.process_time() - cpu_s, read_runnable_s() - runnable_s, _read_idle_s() - idle_s
        num_used, num_wanted, num_free = (seconds / max(asked - began, 1e-9) for seconds in ends_s)
    num_cores = count_cpus()
    machine = Machine(num_cores, num_used, num_wanted, float(np.clip(num_free, 0.0, num_cores)))
    return AloneTimes(np.array(usual or starts), np.array(starts), machine)


def run_calmly(run: Callable[[Limits], _Times], limits: Limits) -> _Times:
    """Runs several blocks and returns the one with the shortest mean interval."""
    share = Limits(limits.num_batches, limits.time_limit_s / _NUM_BLOCKS)
    return min((run(share) for _ in range(_NUM_BLOCKS)), key=lambda times: times.interval_s)


def time_step(step: Work, batches: Sequence[Any], num_rounds: int = 5) -> float:
    """Returns the mean over batches of the shortest step on each, with batches in memory.

    The first call on each batch is not counted, because it may trace a graph. Batches beyond the time limit are left
    out.
    """
    times = []
    began = time.perf_counter()
    for batch in batches:
        step(batch)
        times.append(time_calls(lambda: step(batch), num_rounds))  # noqa: B023 - called at once
        if time.perf_counter() - began > _STEP_LIMIT_S:
            break
    return float(np.mean(times))


def take_samples(source: BatchSource, num_batches: int) -> list[Any]:
    """Returns copies of the first batches; views would keep the buffers of the feed occupied."""
    with source.open() as batches:
        return [map_arrays(next(batches), _copy) for _ in range(num_batches)]


def _copy(array: Any) -> Any:
    """Copies NumPy arrays; tensors are immutable."""
    return array.copy() if isinstance(array, np.ndarray) else array


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


def compare_in_turn(run_old: Callable[[], LoopTimes], run_new: Callable[[], LoopTimes], num_rounds: int) -> Comparison:
    """Runs both variants in the order old, new, new, old, old, new, so that drift of the machine affects both alike."""
    loops = run_in_turns({"old": run_old, "new": run_new}, num_rounds)
    old_s, new_s = (np.array([loop.interval_s for loop in loops[name]]) for name in ("old", "new"))
    return Comparison(old_s, new_s)


def _read_idle_s() -> float:
    """Returns the idle seconds of the cores in this process's affinity mask, summed."""
    per_core = psutil.cpu_times(percpu=True)
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(per_core))
    return float(sum(per_core[core].idle for core in allowed if core < len(per_core)))
