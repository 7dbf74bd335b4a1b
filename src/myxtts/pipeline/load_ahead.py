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
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from myxtts.errors import DataError, MyXTTSError
from myxtts.pipeline.batch import BatchLayout, Loaded, Loader, MemoryPool
from myxtts.pipeline.order import BatchPlan
from myxtts.pipeline.splits import BatchRange

_POLL_S = 0.1
_NUM_ANNOUNCED = 16
_STALL_LIMIT_S = 60.0
"""A batch that takes longer counts as hanging; even slow disks need seconds."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Pending:
    plan: BatchPlan
    future: Future[Loaded]


class LoadAhead:
    """Loads the batches of a range, at most `size` of them ahead of `take`."""

    def __init__(
        self,
        batches: BatchRange,
        loader: Loader,
        layout: BatchLayout,
        pool: MemoryPool,
        workers: WorkerPool,
        size: int,
    ) -> None:
        self._batches, self._loader, self._layout, self._pool, self._workers = batches, loader, layout, pool, workers
        self._next = batches.start
        self._announced: deque[BatchPlan] = deque()
        self._size = size
        self._pending: deque[_Pending] = deque()
        self._submitting = threading.Lock()
        self._closed = threading.Event()

    @property
    def depth(self) -> int:
        """Batches that are loaded and wait."""
        return sum(pending.future.done() for pending in tuple(self._pending))

    @property
    def size(self) -> int:
        return self._size

    def resize(self, size: int) -> None:
        """Changes how many batches may be ahead; a smaller number takes effect as batches are taken."""
        self._size = max(1, size)
        self._submit_up_to_size()

    def take(self) -> Loaded | None:
        """The next batch; None after the last, or when closing."""
        self._submit_up_to_size()
        if not self._pending or self._closed.is_set():
            return None
        pending = self._pending[0]
        future = self._await(pending)
        if future is None:
            return None
        self._pending.popleft()
        self._submit_up_to_size()
        return self._take_result(future, pending.plan)

    def describe_next(self) -> str:
        """The next batch and its utterances, in words."""
        pending = next(iter(tuple(self._pending)), None)
        return "" if pending is None else f"batch {pending.plan.position} ({self._describe(pending.plan)})"

    def stop_waiting(self) -> None:
        self._closed.set()

    def close(self) -> None:
        """Ends all threads; what they were loading is dropped."""
        with self._submitting:
            self._closed.set()
        # Threads that wait inside the loader end with it.
        self._loader.close()
        has_hung = any(pending.future.running() for pending in self._pending)
        self._workers.shutdown(wait=not has_hung)

    def _submit_up_to_size(self) -> None:
        with self._submitting:
            while len(self._pending) < self._size and not self._closed.is_set():
                self._announce_ahead()
                if not self._announced:
                    return
                plan = self._announced.popleft()
                self._pending.append(_Pending(plan, self._workers.submit(partial(self._load, plan))))

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

    def _await(self, pending: _Pending) -> Future[Loaded] | None:
        """The finished future; a batch that hangs is loaded again in a new thread, then given up. None if closing."""
        for future in self._try_twice(pending):
            if self._is_done_in_time(future):
                return future
            if self._closed.is_set():
                return None
        raise DataError(
            f"Loading batch {pending.plan.position} hangs: twice {_STALL_LIMIT_S:g} s without a result "
            f"({self._describe(pending.plan)}).",
            next_step="Check the disk of the recordings or features, e.g. with myxtts precompute --check.",
        )

    def _try_twice(self, pending: _Pending) -> Iterator[Future[Loaded]]:
        yield pending.future
        rescue = ThreadPoolExecutor(1, "myxtts-load-again")
        try:
            yield rescue.submit(self._load, pending.plan)
        finally:
            rescue.shutdown(wait=False)

    def _is_done_in_time(self, future: Future[Loaded]) -> bool:
        if future.done():
            return True
        deadline = time.monotonic() + _STALL_LIMIT_S
        while not future.done() and not self._closed.is_set() and time.monotonic() < deadline:
            wait([future], timeout=_POLL_S)
        return future.done()

    def _take_result(self, future: Future[Loaded], plan: BatchPlan) -> Loaded:
        """What a thread loaded; what it raised instead is raised here with the utterances it was loading."""
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, MyXTTSError):
            raise error
        raise DataError(
            f"Loading batch {plan.position} failed with {type(error).__name__}: {error} ({self._describe(plan)}).",
            next_step="Check these utterances, e.g. with myxtts precompute --check.",
        ) from error

    def _describe(self, plan: BatchPlan) -> str:
        names = [name for name in self._loader.name_utterances(plan) if name]
        return f"utterances {', '.join(names[:8])}{' …' if len(names) > 8 else ''}"


@dataclass(frozen=True, slots=True)
class ThreadPriority:
    """Niceness of loader threads, and the number of processors they leave to the threads that drive the devices."""

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
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self.niceness)


NO_PRIORITY = ThreadPriority()


@dataclass(frozen=True, slots=True)
class _Task:
    number: int
    future: Future[Any]
    run: Callable[[], Any]


class WorkerPool:
    """Runs tasks in the order they come, at most `num_active` at a time out of `max_workers` threads.

    Unlike an executor, the number of active threads can change while they work, and tasks begin strictly in order.
    """

    def __init__(self, num_active: int, max_workers: int, priority: ThreadPriority = NO_PRIORITY) -> None:
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._num_submitted = self._num_begun = self._num_running = 0
        self._num_active = max(1, num_active)
        self._changed = threading.Condition()
        self._priority = priority
        # Daemons, since a thread that hangs in a read of a broken disk must not keep the process alive.
        self._threads = [
            threading.Thread(target=self._work, name=f"myxtts-load-{number}", daemon=True)
            for number in range(max(1, num_active, max_workers))
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, task: Callable[[], Result]) -> Future[Result]:
        future: Future[Result] = Future()
        with self._changed:
            self._tasks.put(_Task(self._num_submitted, future, task))
            self._num_submitted += 1
        return future

    def set_active(self, num_active: int) -> None:
        with self._changed:
            self._num_active = max(1, num_active)
            self._changed.notify_all()

    def shutdown(self, *, wait: bool) -> None:
        """Drops what has not begun; with `wait`, returns when what has begun is done."""
        for _ in self._threads:
            self._tasks.put(None)
        with self._changed:
            self._num_active = 0
            self._changed.notify_all()
        for thread in self._threads if wait else ():
            thread.join()

    def _work(self) -> None:
        self._priority.adopt()
        while (task := self._tasks.get()) is not None:
            if not self._await_turn(task.number):
                task.future.cancel()
                continue
            task.future.set_running_or_notify_cancel()
            with _deliver(task.future):
                task.future.set_result(task.run())
            with self._changed:
                self._num_running -= 1
                self._changed.notify_all()

    def _await_turn(self, number: int) -> bool:
        """Whether a task may begin: in its order, when few enough others run. Not when the pool is closing."""

        def is_over_or_mine() -> bool:
            is_mine = number == self._num_begun and self._num_running < self._num_active
            return is_mine or self._num_active == 0

        with self._changed:
            self._changed.wait_for(is_over_or_mine)
            if self._num_active == 0:
                return False
            self._num_begun += 1
            self._num_running += 1
            # The task behind this one may begin as well.
            self._changed.notify_all()
            return True


@contextmanager
def _deliver(future: Future[Any]) -> Iterator[None]:
    """Stores whatever is raised inside in the future, where the caller of `result` gets it."""
    with ExitStack() as stack:

        def pass_on(_kind: Any, error: BaseException | None, _trace: Any) -> bool:
            if error is not None:
                future.set_exception(error)
            return True

        stack.push(pass_on)
        yield
