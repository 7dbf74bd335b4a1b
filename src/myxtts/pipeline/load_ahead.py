"""Batches loaded ahead by several threads and taken in order.

A thread loads the next position only when there is room for it, so whoever takes the batches holds everything back.
What a thread raises is raised again where the batch is taken, with the utterances it was loading. A loader that hangs
is tried once more in another thread, then named.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any

from myxtts.errors import DataError, MyXTTSError
from myxtts.pipeline.batch import Loader
from myxtts.pipeline.order import BatchPlan
from myxtts.pipeline.workers import WorkerPool

_POLL_S = 0.1
_NUM_ANNOUNCED = 16


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a loader made of a plan, and how long it took."""

    plan: BatchPlan
    ids: tuple[str, ...]
    content: Any
    load_s: float


@dataclass(frozen=True, slots=True)
class _Pending:
    plan: BatchPlan
    future: Future[Loaded]


class LoadAhead:
    """Loads the plans of positions `start` to `stop`, at most `size` of them ahead of `take`."""

    def __init__(
        self,
        plan_of: Callable[[int], BatchPlan],
        loader: Loader,
        make_buffer: Callable[[], Any],
        workers: WorkerPool,
        *,
        start: int,
        stop: int,
        size: int,
        stall_limit_s: float,
    ) -> None:
        self._plan_of, self._loader, self._make_buffer, self._workers = plan_of, loader, make_buffer, workers
        self._next, self._stop = start, stop
        self._announced: deque[BatchPlan] = deque()
        self._size, self._stall_limit_s = size, stall_limit_s
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
        """Room for more batches at once, or for fewer as they are taken."""
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
        """What is being loaded first, in words."""
        pending = next(iter(tuple(self._pending)), None)
        return "" if pending is None else f"batch {pending.plan.position} ({self._describe(pending.plan)})"

    def stop_waiting(self) -> None:
        self._closed.set()

    def close(self) -> None:
        """Ends all threads; what they were loading is dropped."""
        with self._submitting:
            self._closed.set()
        # Whoever waits inside the loader ends with it.
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
        while len(self._announced) < _NUM_ANNOUNCED and self._next < self._stop:
            plan = self._plan_of(self._next)
            self._next += 1
            self._loader.announce(plan)
            self._announced.append(plan)

    def _load(self, plan: BatchPlan) -> Loaded:
        started = time.perf_counter()
        content = self._loader.fill(plan, self._make_buffer())
        return Loaded(plan, self._loader.name_utterances(plan), content, time.perf_counter() - started)

    def _await(self, pending: _Pending) -> Future[Loaded] | None:
        """The finished future; a batch that hangs is loaded again in a new thread, then given up. None if closing."""
        for future in self._try_twice(pending):
            if self._is_done_in_time(future):
                return future
            if self._closed.is_set():
                return None
        raise DataError(
            f"Loading batch {pending.plan.position} hangs: twice {self._stall_limit_s:g} s without a result "
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
        deadline = time.monotonic() + self._stall_limit_s
        while not future.done() and not self._closed.is_set() and time.monotonic() < deadline:
            wait([future], timeout=_POLL_S)
        return future.done()

    def _take_result(self, future: Future[Loaded], plan: BatchPlan) -> Loaded:
        """What a thread loaded; what it raised instead is passed on with the utterances it was loading."""
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
