"""Loads batches ahead with several threads, and hands them out in order.

A thread loads the next position only when the buffer has space for it, so the consumer's pace limits everything. What
a thread raises is raised again where the batch is taken, with the ids of the utterances it was loading. A loader that
hangs is tried once more in another thread, then reported.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from myxtts.errors import DataError, MyXTTSError
from myxtts.pipeline.batch import BatchLayout, Loaded, Loader, MemoryPool
from myxtts.pipeline.order import BatchPlan
from myxtts.pipeline.splits import BatchRange

_POLL_S = 0.1
_NUM_ANNOUNCED = 16
_STALL_LIMIT_S = 60.0
"""A batch that takes longer counts as hanging; even slow disks need seconds."""
_CLOSE_LIMIT_S = 2.0
"""Time that closing waits for threads; one that hangs in a read of a broken disk is left behind."""
_LEAST_NICENESS = 19


class Worker(threading.Thread):
    """A thread that starts at once; `outcome` has what its work returns or raises.

    A daemon: a thread that hangs in a read of a broken disk must not keep the process alive.
    """

    def __init__(self, name: str, work: Callable[[], Any]) -> None:
        super().__init__(name=f"myxtts-{name}", daemon=True)
        self.outcome: Future[Any] = Future()
        self._work = work
        self.start()

    def run(self) -> None:
        deliver(self.outcome, self._work)


def deliver(outcome: Future[Any], work: Callable[[], Any]) -> None:
    """Calls `work`, and stores what it returns or raises, where the caller of `result` gets it."""

    def pass_on(_kind: Any, error: BaseException | None, _trace: Any) -> bool:
        if error is not None:
            outcome.set_exception(error)
        return True

    with ExitStack() as stack:
        stack.push(pass_on)
        outcome.set_result(work())


def join_all(threads: Iterable[threading.Thread]) -> None:
    """Waits a limited time until the threads have ended; the calling thread may be one of them."""
    deadline = time.monotonic() + _CLOSE_LIMIT_S
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))


@dataclass(frozen=True, slots=True)
class ThreadPriority:
    """How much nicer loader threads are than the process, and how many processors they leave to other threads."""

    niceness: int = 0
    num_reserved_cpus: int = 0

    def adopt(self) -> None:
        """Applies it to the calling thread, where the system supports that per thread."""
        if not hasattr(os, "sched_setaffinity"):
            return
        cpus = sorted(os.sched_getaffinity(0))
        if 0 < self.num_reserved_cpus < len(cpus):
            os.sched_setaffinity(0, cpus[self.num_reserved_cpus :])
        if self.niceness:
            thread = threading.get_native_id()
            # Relative: under `nice` an absolute value could ask for a higher priority, which is refused.
            niceness = os.getpriority(os.PRIO_PROCESS, thread) + self.niceness
            os.setpriority(os.PRIO_PROCESS, thread, min(niceness, _LEAST_NICENESS))


NO_PRIORITY = ThreadPriority()


@dataclass(slots=True)
class _Pending:
    """A batch that a thread has begun to load."""

    plan: BatchPlan
    outcome: Future[Loaded] = field(default_factory=Future)
    has_hung: bool = False


class LoadAhead:
    """Loads the batches of a range in order, at most `size` of them ahead of `take`.

    `num_active` of the threads load at the same time. One lock guards all state. A thread that begins wakes the next
    one, which may begin as well: waking all of them for every batch would cost the consumer time.
    """

    def __init__(
        self,
        batches: BatchRange,
        loader: Loader,
        layout: BatchLayout,
        pool: MemoryPool,
        num_active: int,
        max_workers: int,
        size: int,
        priority: ThreadPriority = NO_PRIORITY,
    ) -> None:
        self._batches, self._loader, self._layout, self._pool = batches, loader, layout, pool
        self._num_active, self._size, self._priority = max(1, num_active), size, priority
        self._num_threads = max(1, num_active, max_workers)
        self._next = batches.start
        self._announced: deque[BatchPlan] = deque()
        self._pending: deque[_Pending] = deque()
        self._num_running = 0
        self._lock = threading.Lock()
        self._may_load, self._has_begun = threading.Condition(self._lock), threading.Condition(self._lock)
        self._is_closed = False
        self._threads: list[Worker] = []

    def start(self) -> None:
        while len(self._threads) < self._num_threads:
            self._add_thread()

    @property
    def depth(self) -> int:
        """Batches that are loaded and wait."""
        return sum(pending.outcome.done() for pending in tuple(self._pending))

    @property
    def size(self) -> int:
        return self._size

    def resize(self, size: int) -> None:
        """Changes how many batches may be ahead; a smaller number takes effect as batches are taken."""
        with self._lock:
            self._size = max(1, size)
            self._may_load.notify()

    def set_active(self, num_active: int) -> None:
        """Changes how many threads load at the same time."""
        with self._lock:
            self._num_active = max(1, num_active)
            self._may_load.notify()

    def take(self) -> Loaded | None:
        """The next batch; None after the last, or when closing."""
        with self._lock:
            self._has_begun.wait_for(lambda: self._pending or self._is_over())
            if not self._pending or self._is_closed:
                return None
            pending = self._pending[0]
        if not self._await(pending):
            return None
        with self._lock:
            self._pending.popleft()
            self._may_load.notify()
        return self._take_result(pending)

    def describe_next(self) -> str:
        """The next batch and its utterances, in words."""
        pending = next(iter(tuple(self._pending)), None)
        return "" if pending is None else f"batch {pending.plan.position} ({self._describe(pending.plan)})"

    def stop(self) -> None:
        """Nothing more is begun or waited for."""
        with self._lock:
            self._is_closed = True
            self._may_load.notify_all()
            self._has_begun.notify_all()

    def close(self) -> None:
        """Ends all threads; what they were loading is dropped."""
        self.stop()
        # Threads that wait inside the loader end with it.
        self._loader.close()
        join_all(self._threads)

    def _add_thread(self) -> None:
        self._threads.append(Worker(f"load-{len(self._threads)}", self._work))

    def _work(self) -> None:
        """Body of a loader thread."""
        self._priority.adopt()
        while self._load_next():
            continue

    def _load_next(self) -> bool:
        """Loads the next batch when there is space for it; False if there is nothing more to load."""
        with self._lock:
            self._may_load.wait_for(lambda: self._is_over() or self._may_begin())
            self._may_load.notify()
            if self._is_over():
                return False
            self._announce_ahead()
            pending = _Pending(self._announced.popleft())
            self._pending.append(pending)
            self._num_running += 1
            self._has_begun.notify()
        deliver(pending.outcome, partial(self._load, pending.plan))
        with self._lock:
            # A thread that hung has been replaced meanwhile.
            self._num_running -= not pending.has_hung
        return True

    def _may_begin(self) -> bool:
        return len(self._pending) < self._size and self._num_running < self._num_active

    def _is_over(self) -> bool:
        """Whether nothing more will begin."""
        return self._is_closed or (self._next >= self._batches.stop and not self._announced)

    def _announce_ahead(self) -> None:
        while len(self._announced) < _NUM_ANNOUNCED and self._next < self._batches.stop:
            plan = self._batches.plan_of(self._next)
            self._next += 1
            self._loader.announce(plan)
            self._announced.append(plan)

    def _load(self, plan: BatchPlan) -> Loaded:
        started = time.perf_counter()
        arrays = self._loader.fill(plan, self._layout.view(plan.shape, self._pool.lease()))
        return Loaded(plan, self._loader.name_utterances(plan), arrays, time.perf_counter() - started)

    def _await(self, pending: _Pending) -> bool:
        """Waits for a batch. One that hangs is loaded again in a new thread, then given up. False if closing."""
        if not self._is_done_in_time(pending.outcome) and not self._is_closed:
            self._load_again(pending)
        if self._is_done_in_time(pending.outcome) or self._is_closed:
            return not self._is_closed
        raise DataError(
            f"Loading batch {pending.plan.position} hangs: twice {_STALL_LIMIT_S:g} s without a result "
            f"({self._describe(pending.plan)}).",
            next_step="Check the disk of the recordings or features, e.g. with myxtts cache check.",
        )

    def _load_again(self, pending: _Pending) -> None:
        """Gives the place of a thread that hangs to a new one, and loads its batch in one more."""
        with self._lock:
            self._num_running -= 1
            pending.has_hung = True
            self._add_thread()
        pending.outcome = Worker("load-again", partial(self._load, pending.plan)).outcome

    def _is_done_in_time(self, outcome: Future[Loaded]) -> bool:
        deadline = time.monotonic() + _STALL_LIMIT_S
        while not outcome.done() and not self._is_closed and time.monotonic() < deadline:
            wait([outcome], timeout=_POLL_S)
        return outcome.done()

    def _take_result(self, pending: _Pending) -> Loaded:
        """What a thread loaded; what it raised instead is raised here with the utterances it was loading."""
        plan, error = pending.plan, pending.outcome.exception()
        if error is None:
            return pending.outcome.result()
        if isinstance(error, MyXTTSError):
            raise error
        raise DataError(
            f"Loading batch {plan.position} failed with {type(error).__name__}: {error} ({self._describe(plan)}).",
            next_step="Check these utterances, e.g. with myxtts cache check.",
        ) from error

    def _describe(self, plan: BatchPlan) -> str:
        names = [name for name in self._loader.name_utterances(plan) if name]
        return f"utterances {', '.join(names[:8])}{' …' if len(names) > 8 else ''}"
