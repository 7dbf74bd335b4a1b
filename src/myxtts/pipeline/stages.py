"""Stages of the feed behind the loaders, such as features on a data device and the copy to the model's devices.

Each has a thread and a bounded queue of results; one without a queue works in the thread of the consumer.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from myxtts.pipeline.load_ahead import Worker, join_all


@dataclass(frozen=True, slots=True)
class Stage:
    """`apply` is called with the result of the stage before; up to `num_ready` results wait in the queue behind it."""

    name: str
    apply: Callable[[Any], Any]
    num_ready: int


@dataclass(frozen=True, slots=True)
class Passed:
    """The result of a stage, its label from the source, and the seconds spent in each stage so far."""

    label: Any
    content: Any
    seconds: dict[str, float]


class StageChain:
    """Passes the results of `source` through the stages, in order, until it gives None."""

    def __init__(self, source: Callable[[], Passed | None], stages: tuple[Stage, ...]) -> None:
        self._threaded = tuple(stage for stage in stages if stage.num_ready > 0)
        self._inline = tuple(stage for stage in stages if stage.num_ready == 0)
        assert stages == self._threaded + self._inline, "a stage behind the consumer cannot have a thread"
        self._queues = [_BoundedQueue(stage.num_ready) for stage in self._threaded]
        # What each stage takes from, and last the consumer.
        self._sources = [source, *(ready.get for ready in self._queues)]
        self._is_closed = False
        self._workers: list[Worker] = []

    def start(self) -> None:
        for number in range(len(self._workers), len(self._threaded)):
            self._workers.append(Worker(f"stage-{self._threaded[number].name}", partial(self._run, number)))

    @property
    def num_ready(self) -> int:
        """Results that wait for the next stage or for the consumer."""
        return sum(ready.qsize() for ready in self._queues)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come, because of the end or of an error."""
        return any(worker.outcome.done() for worker in self._workers)

    def take(self) -> Passed | None:
        """The next result of the last stage; None after the last. Raises what a stage or the source raised."""
        passed = None if self._is_closed else self._sources[-1]()
        if passed is None:
            # Put back, so that a later call finds the end too.
            for ready in self._queues[-1:]:
                ready.put(None)
            # A thread ends when the one before it has ended, or with an error of its own.
            for worker in reversed(self._workers):
                if not self._is_closed:
                    worker.outcome.result()
            return None
        for stage in self._inline:
            passed = _pass_through(stage, passed)
        return passed

    def close(self) -> None:
        self._is_closed = True
        for ready in self._queues:
            ready.end()
        join_all(self._workers)
        for ready in self._queues:
            ready.end()

    def _run(self, number: int) -> None:
        """Body of the thread of a stage."""
        try:
            while self._move_one(number):
                continue
        finally:
            self._queues[number].put(None)

    def _move_one(self, number: int) -> bool:
        """Passes one result through a stage: in a call of its own, so that no thread holds on to a batch it passed."""
        passed = self._sources[number]()
        if passed is None or self._is_closed:
            return False
        passed = _pass_through(self._threaded[number], passed)
        self._queues[number].put(passed)
        return True


class _BoundedQueue:
    """A bounded queue of two `SimpleQueue`, whose calls run in C: `queue.Queue` would cost the consumer more time.

    The second one only wakes the producer, which counts the items itself: Ctrl-C at any moment can cost the consumer an
    item, but never leaves the producer asleep.
    """

    def __init__(self, size: int) -> None:
        self._size, self._has_ended = size, False
        self._items: queue.SimpleQueue[Passed | None] = queue.SimpleQueue()
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()

    def qsize(self) -> int:
        return self._items.qsize()

    def get(self) -> Passed | None:
        self._wake()
        item = self._items.get()
        self._wake()
        return item

    def put(self, item: Passed | None) -> None:
        """Waits until there is space; the end, None, needs none."""
        while item is not None and self._items.qsize() >= self._size and not self._has_ended:
            self._wakes.get()
        self._items.put(item)

    def end(self) -> None:
        """Drops what waits here; those who wait for an item or for space go on."""
        self._has_ended = True
        while not self._items.empty():
            self._items.get_nowait()
        self._items.put(None)
        self._wake()

    def _wake(self) -> None:
        if self._wakes.empty():
            self._wakes.put(None)


def _pass_through(stage: Stage, passed: Passed) -> Passed:
    started = time.perf_counter()
    content = stage.apply(passed.content)
    return Passed(passed.label, content, {**passed.seconds, stage.name: time.perf_counter() - started})
