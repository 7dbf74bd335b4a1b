"""The feed between loaders and training step: batches in order, loaded and moved ahead of the consumer by threads.

    positions ─> loader threads ─> batches in memory ─> stages: features, copies ─> batches on the device ─> consumer

Each stage behind the loaders has a thread and a bounded queue. A full queue blocks its stage, and so all before it:
the consumer's pace limits everything. A stage without a queue works in the thread of the consumer, when a batch is
asked for. Closing ends every thread.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from myxtts.errors import DataError
from myxtts.pipeline.batch import BatchLayout, Loader, MemoryPool
from myxtts.pipeline.load_ahead import NO_PRIORITY, LoadAhead, ThreadPriority, WorkerPool
from myxtts.pipeline.splits import BatchRange
from myxtts.pipeline.telemetry import FeedStats, StepRecord, Telemetry
from myxtts.pipeline.tune import FeedSettings, Tuner
from myxtts.types import Batch, Say

_POLL_S = 0.1
_WARM_UP_POLL_S = 0.01
_WARM_UP_LIMIT_S = 120.0
"""Without enough batches by then the model is not started."""
_NUM_BATCHES_AT_START = 6
"""Loaded ahead in memory that is ready before the first batch; the rest of the buffer is added during the run."""
_NUM_HELD = 2
"""References to the last batches of the consumer, so that freeing them does not take time in its thread."""
_GROWTH_SHARE = 0.02
"""Of the time of one processor; touching fresh memory at once would slow down loaders and consumer."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """When the consumer may start: with so many batches behind the stages, and not before the delay."""

    num_ready: int
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _HandedOut:
    """A batch that the consumer has, when it asked for it and got it, and whether the step before was retraced."""

    passed: Passed
    asked_at: float
    handed_at: float
    is_retraced_before: bool


class Feed:
    """The batches of a range in order. Use it as a context manager and iterate.

    The first of `stages` is given what was `Loaded`, the last one gives a `Batch`.
    """

    def __init__(
        self,
        batches: BatchRange,
        loader: Loader,
        layout: BatchLayout,
        stages: tuple[Stage, ...],
        *,
        num_workers: int,
        buffer_size: int,
        telemetry: Telemetry,
        warm_up: WarmUp | None = None,
        tuner: Tuner | None = None,
        priority: ThreadPriority = NO_PRIORITY,
        say: Say = lambda _sentence: None,
        advice: tuple[int, Callable[[FeedStats], str]] | None = None,
    ) -> None:
        self._telemetry, self._warm_up, self._tuner, self._advice = telemetry, warm_up, tuner, advice
        self.loader_name = loader.name
        self._handed_out: deque[_HandedOut] = deque()
        self._recording = threading.Lock()
        self._is_retraced = False
        self._say = say
        num_batches, num_queued = batches.stop - batches.start, sum(stage.num_ready for stage in stages)
        self._settings = FeedSettings(num_workers, max(1, min(buffer_size, num_batches)))
        # Besides the batches in memory: those in queues, one in each stage, the consumer's and those being loaded.
        num_beside = num_queued + len(stages) + 1 + _NUM_HELD + num_workers
        self._pool = MemoryPool(layout.num_bytes, buffer_size + num_beside)
        self._num_at_start = min(self._settings.buffer_size, _NUM_BATCHES_AT_START)
        self._num_touched_at_start = min(num_batches, self._num_at_start + num_beside)
        self._workers = WorkerPool(num_workers, tuner.limits.max_workers if tuner else num_workers, priority)
        self._ahead = LoadAhead(batches, loader, layout, self._pool, self._workers, self._num_at_start)
        # A batch inside a stage is not ready, and no more than the queues hold can be.
        self._most_ready = max(1, min(num_batches - len(stages), num_queued))
        self._chain = StageChain(self._load_next, stages)
        self._closed = threading.Event()
        self._grower = ThreadPoolExecutor(1, "myxtts-memory", priority.adopt)

    def __enter__(self) -> Self:
        for _ in range(self._num_touched_at_start):
            self._pool.add_touched()
        self._chain.start()
        self._grower.submit(self._grow)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Batch]:
        if self._warm_up is not None:
            self._wait_until_warm(self._warm_up)
            self._warm_up = None
        # No name here may hold on to a batch while the consumer works with it.
        yield from iter(self._take_batch, None)

    @property
    def depth(self) -> int:
        """Batches that wait, in memory or behind a stage."""
        return self._ahead.depth + self._chain.num_ready

    @property
    def settings(self) -> FeedSettings:
        """Threads and batches in memory as they are now."""
        return self._settings

    def note_retrace(self) -> None:
        """The consumer reports that the present step traced a new graph."""
        self._is_retraced = True

    def stats(self) -> FeedStats:
        self._record_steps(num_kept=0)
        return self._telemetry.summarize()

    def close(self) -> None:
        """Ends all threads; what they were doing is dropped."""
        self._closed.set()
        self._ahead.stop_waiting()
        self._chain.close()
        self._ahead.close()
        self._grower.shutdown(wait=True)
        self._record_steps(num_kept=0)
        self._telemetry.close()

    def _take_batch(self) -> Batch | None:
        asked_at = time.perf_counter()
        passed = self._chain.take()
        if passed is None:
            return None
        # Recording the step and freeing the batch are left to other threads.
        self._handed_out.append(_HandedOut(passed, asked_at, time.perf_counter(), self._is_retraced))
        self._is_retraced = False
        batch: Batch = passed.content
        return batch

    def _load_next(self) -> Passed | None:
        self._record_steps(num_kept=_NUM_HELD)
        loaded = self._ahead.take()
        if loaded is None:
            return None
        plan, shape = loaded.plan, loaded.plan.shape
        step = StepRecord(
            position=plan.position,
            wait_s=0.0,
            load_s=loaded.load_s,
            stages={},
            depth=self._ahead.depth,
            num_frames=int(loaded.arrays["mel_lengths"].sum()),
            num_padded_frames=shape.num_utterances * shape.num_frames,
            num_utterances=plan.num_real,
            shape=f"{shape.num_utterances}x{shape.num_frames}x{shape.num_tokens}",
        )
        return Passed(step, loaded, {})

    def _grow(self) -> None:
        """Allocates memory for the whole buffer, piece by piece, in a small share of the time."""
        while self._ahead.size < self._settings.buffer_size and not self._closed.is_set():
            started = time.perf_counter()
            self._pool.add_touched()
            self._ahead.resize(self._ahead.size + 1)
            self._closed.wait((time.perf_counter() - started) * (1 / _GROWTH_SHARE - 1))

    def _wait_until_warm(self, warm_up: WarmUp) -> None:
        """Waits until enough batches are ready and the delay has passed."""
        started = time.monotonic()
        mark = min(warm_up.num_ready, self._most_ready)
        self._say(f"Warm-up: waiting for {mark} batches and at least {warm_up.delay_s:g} s.")
        while True:
            elapsed_s, num_ready = time.monotonic() - started, self._chain.num_ready
            if self._chain.has_ended or (num_ready >= mark and elapsed_s >= warm_up.delay_s):
                break
            if elapsed_s > _WARM_UP_LIMIT_S:
                raise self._explain_no_data(num_ready, mark, elapsed_s)
            time.sleep(_WARM_UP_POLL_S)
        self._say(f"Start: {num_ready} batches were ready after {elapsed_s:.1f} s; the model starts.")

    def _explain_no_data(self, num_ready: int, mark: int, elapsed_s: float) -> DataError:
        loading = self._ahead.describe_next()
        return DataError(
            f"Only {num_ready} of {mark} batches are ready after {elapsed_s:.0f} s, so the model was not started"
            f"{f'; the first that is missing is {loading}' if loading else ''}.",
            next_step="Compute features once with myxtts precompute, or raise data.num_workers.",
        )

    def _record_steps(self, num_kept: int) -> None:
        """Records the steps of batches that were handed out, except for the last ones, which are still in use."""
        with self._recording:
            while len(self._handed_out) > num_kept:
                self._record(self._handed_out.popleft())

    def _record(self, handed_out: _HandedOut) -> None:
        asked_at, handed_at = handed_out.asked_at, handed_out.handed_at
        if handed_out.is_retraced_before:
            self._telemetry.note_retrace()
        step: StepRecord = handed_out.passed.label
        step = replace(step, wait_s=handed_at - asked_at, stages=handed_out.passed.seconds)
        interval_s = self._telemetry.record(step, asked_at, handed_at)
        if self._advice is not None and self._telemetry.num_steps >= self._advice[0]:
            self._say(self._advice[1](self._telemetry.summarize()))
            self._advice = None
        if self._tuner is not None and interval_s:
            self._tune(self._tuner, step.wait_s, interval_s, step.depth)

    def _tune(self, tuner: Tuner, wait_s: float, interval_s: float, depth: int) -> None:
        was_held = tuner.is_held
        change = tuner.observe(wait_s, interval_s, depth)
        if change is not None:
            self._settings = change
            self._workers.set_active(change.num_workers)
            self._ahead.resize(min(self._ahead.size, change.buffer_size))
            self._grower.submit(self._grow)
        if tuner.is_held and not was_held:
            self._say(tuner.describe())


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
                # Or this thread would keep the batch alive until the next one comes.
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
    """A bounded queue of two `SimpleQueue`, whose calls run in C: `queue.Queue` would cost the consumer more time."""

    def __init__(self, size: int) -> None:
        self._items: queue.SimpleQueue[Passed | None] = queue.SimpleQueue()
        self._slots: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(size):
            self._slots.put(None)

    def qsize(self) -> int:
        return self._items.qsize()

    def get(self, timeout: float | None = None) -> Passed | None:
        item = self._items.get(timeout=timeout)
        self._slots.put(None)
        return item

    def put(self, item: Passed | None, timeout: float) -> bool:
        """Whether a slot was free within the time; the end needs none."""
        if item is not None:
            try:
                self._slots.get(timeout=timeout)
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
