"""What happens to a batch between loading and the model, stage by stage, each in a thread of its own.

    source ─> stage ─> queue ─> stage ─> queue ─> consumer

A queue that is full holds its stage back, and so all stages before it. A stage without a queue works in the thread of
the consumer, when a batch is asked for.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Stage:
    """`apply` is called with what the stage before gave; up to `num_ready` results wait behind it."""

    name: str
    apply: Callable[[Any], Any]
    num_ready: int


@dataclass(frozen=True, slots=True)
class Passed:
    """What came out of a stage, what is known of it from the start, and the seconds spent in each stage so far."""

    label: Any
    content: Any
    seconds: dict[str, float]


class StageChain:
    """Passes what `source` gives through the stages, in order, until it gives None."""

    def __init__(self, source: Callable[[], Passed | None], stages: tuple[Stage, ...]) -> None:
        self._source = source
        self._threaded = tuple(stage for stage in stages if stage.num_ready > 0)
        self._inline = tuple(stage for stage in stages if stage.num_ready == 0)
        assert stages == self._threaded + self._inline, "a stage behind the consumer cannot have a thread"
        self._queues = [_BoundedQueue(stage.num_ready) for stage in self._threaded]
        self._closed = threading.Event()
        self._threads = ThreadPoolExecutor(max(1, len(self._threaded)), "myxtts-stage")
        self._running: list[Future[None]] = []

    def start(self) -> None:
        for number in range(len(self._threaded)):
            self._running.append(self._threads.submit(self._run, number))

    @property
    def num_ready(self) -> int:
        """Results that wait for the next stage or for the consumer."""
        return sum(ready.qsize() for ready in self._queues)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come, because of the end or of an error."""
        return any(thread.done() for thread in self._running)

    def take(self) -> Passed | None:
        """The next result of the last stage; None after the last. Raises what a stage or the source raised."""
        passed = self._queues[-1].get() if self._queues else self._source()
        if passed is None:
            # A thread ends when the one before it has ended, or with an error of its own.
            for thread in reversed(self._running):
                thread.result()
            return None
        for stage in self._inline:
            passed = _pass_through(stage, passed)
        return passed

    def close(self) -> None:
        self._closed.set()
        self._threads.shutdown(wait=True)
        for ready in self._queues:
            ready.clear()

    def _run(self, number: int) -> None:
        """The thread of a stage."""
        stage = self._threaded[number]
        try:
            while not self._closed.is_set():
                passed = self._source() if number == 0 else self._get(self._queues[number - 1])
                if passed is None:
                    return
                passed = _pass_through(stage, passed)
                self._put(self._queues[number], passed)
                # What is handed on must not live here until the next one comes.
                del passed
        finally:
            self._put(self._queues[number], None)

    def _get(self, ready: _BoundedQueue) -> Passed | None:
        while not self._closed.is_set():
            try:
                return ready.get(timeout=_POLL_S)
            except queue.Empty:
                continue
        return None

    def _put(self, ready: _BoundedQueue, passed: Passed | None) -> None:
        while not self._closed.is_set() and not ready.put(passed, timeout=_POLL_S):
            continue


class _BoundedQueue:
    """A queue that costs the consumer next to nothing: two calls that Python itself takes no part in."""

    def __init__(self, size: int) -> None:
        self._items: queue.SimpleQueue[Passed | None] = queue.SimpleQueue()
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(size):
            self._room.put(None)

    def qsize(self) -> int:
        return self._items.qsize()

    def get(self, timeout: float | None = None) -> Passed | None:
        item = self._items.get(timeout=timeout)
        self._room.put(None)
        return item

    def put(self, item: Passed | None, timeout: float) -> bool:
        """Whether there was room within the time; the end always has room."""
        if item is not None:
            try:
                self._room.get(timeout=timeout)
            except queue.Empty:
                return False
        self._items.put(item)
        return True

    def clear(self) -> None:
        while not self._items.empty():
            self._items.get_nowait()


def _pass_through(stage: Stage, passed: Passed) -> Passed:
    started = time.perf_counter()
    content = stage.apply(passed.content)
    return Passed(passed.label, content, {**passed.seconds, stage.name: time.perf_counter() - started})
