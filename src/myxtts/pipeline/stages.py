"""Stages of the feed behind the loaders, such as features on a data device and the copy to the model's devices.

Each has a thread or several, and a bounded queue of results, which stay in order; one without a queue works in the
thread of the consumer.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from myxtts.pipeline.load_ahead import Worker, join_all


@dataclass(frozen=True, slots=True)
class Stage:
    """`apply` is called with the result of the stage before, by as many threads as `num_threads`.

    Up to `num_ready` results wait in the queue behind it.
    """

    name: str
    apply: Callable[[Any], Any]
    num_ready: int
    num_threads: int = 1


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
        self._turns = [_Turns() for _ in self._threaded]
        # What each stage takes from, and last the consumer.
        self._sources = [source, *(ready.get for ready in self._queues)]
        self._is_closed = False
        self._workers: list[Worker] = []

    def start(self) -> None:
        names = [(number, stage.name) for number, stage in enumerate(self._threaded) for _ in range(stage.num_threads)]
        for number, name in names[len(self._workers) :]:
            self._workers.append(Worker(f"stage-{name}", partial(self._run, number)))

    @property
    def num_ready(self) -> int:
        """Results that wait for the next stage or for the consumer."""
        return sum(ready.qsize() for ready in self._queues)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come, because of the end or of an error."""
        return any(turns.has_ended for turns in self._turns)

    def take(self) -> Passed | None:
        """The next result of the last stage; None after the last. Raises what a stage or the source raised."""
        passed = None if self._is_closed else self._sources[-1]()
        if passed is None:
            # Put back, so that a later call finds the end too.
            for ready in self._queues[-1:]:
                ready.put(None)
            if not self._is_closed:
                self._raise_error()
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

    def _raise_error(self) -> None:
        """Raises what ended a stage; without an error, waits until all threads have ended."""
        for turns in self._turns:
            if turns.error is not None:
                raise turns.error
        for worker in self._workers:
            worker.outcome.result()

    def _run(self, number: int) -> None:
        """Body of a thread of a stage."""
        while self._move_one(number):
            continue

    def _move_one(self, number: int) -> bool:
        """Passes one result through a stage: in a call of its own, so that no thread holds on to a batch it passed.

        The end, or an error instead of a result, is handed on in its turn, and nothing behind it.
        """
        turns, result, turn = self._turns[number], None, 0
        try:
            with turns.taking:
                turn = turns.begin()
                passed = None
                if not (turns.is_over or turns.has_ended):
                    # Stays so if the source raises.
                    turns.is_over = True
                    passed = self._sources[number]()
                    turns.is_over = passed is None
            if passed is not None and not self._is_closed:
                result = _pass_through(self._threaded[number], passed)
            # Not held while the result waits for its turn.
            passed = None
            return result is not None and not turns.has_ended
        finally:
            turns.hand_on(turn, result, sys.exc_info()[1], self._queues[number])


class _Turns:
    """Keeps the results of a stage in order: its threads take one after the other, and hand on in the same order."""

    def __init__(self) -> None:
        self.taking = threading.Lock()
        self.is_over, self.has_ended = False, False
        """Whether nothing more is to be taken; whether nothing more is handed on."""
        self.error: BaseException | None = None
        self._moved = threading.Condition()
        self._num_begun, self._num_handed_on = 0, 0

    def begin(self) -> int:
        """The turn of a thread that takes now; `taking` must be held."""
        self._num_begun += 1
        return self._num_begun - 1

    def hand_on(self, turn: int, result: Passed | None, error: BaseException | None, ready: _BoundedQueue) -> None:
        """Puts a result into the queue when all before it are there; None is the end, with the error that caused it."""
        with self._moved:
            self._moved.wait_for(lambda: self._num_handed_on == turn)
        if not self.has_ended:
            if result is None:
                self.has_ended, self.error = True, error
            ready.put(result)
        with self._moved:
            self._num_handed_on += 1
            self._moved.notify_all()


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
