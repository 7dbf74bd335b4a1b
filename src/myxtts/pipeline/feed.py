"""The feed between loaders and training step: a bounded buffer, filled ahead by threads, emptied in order.

    positions ─> loader threads ─> batches in memory ─> stages: features, copies ─> batches on the device ─> consumer

The consumer's pace holds everything back. Closing ends every thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from myxtts.errors import DataError
from myxtts.pipeline.batch import Loader, MemoryPool, Piece
from myxtts.pipeline.load_ahead import LoadAhead
from myxtts.pipeline.order import BatchPlan
from myxtts.pipeline.stages import Passed, Stage, StageChain
from myxtts.pipeline.telemetry import FeedStats, StepRecord, Telemetry
from myxtts.pipeline.tune import FeedSettings, Tuner
from myxtts.pipeline.workers import NO_MANNERS, ThreadPriority, WorkerPool
from myxtts.types import Batch, Say

_WARM_UP_POLL_S = 0.01
_NUM_BATCHES_AT_START = 6
"""Loaded ahead in memory that is made ready before the first batch; the rest of the buffer comes while the run goes."""
_NUM_HELD = 2
"""Batches held for the consumer, so that not its thread has to let go of them."""
_GROWTH_SHARE = 0.02
"""Of the time of one processor; touching fresh memory in one go would keep loaders and consumer from theirs."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """When the consumer may start: with so many batches behind the stages, not before the delay; when to give up."""

    num_ready: int
    delay_s: float = 0.0
    time_limit_s: float = 120.0


@dataclass(frozen=True, slots=True)
class BufferFactory:
    """Makes the buffer that a loader fills out of a piece of memory of so many bytes."""

    num_bytes: int
    make: Callable[[Piece], Any]


@dataclass(frozen=True, slots=True)
class _Label:
    """What is known of a batch as soon as it is loaded, so that the consumer need not look at it."""

    plan: BatchPlan
    num_real: int
    load_s: float
    depth: int
    num_frames: int


@dataclass(frozen=True, slots=True)
class _HandedOut:
    """A batch that the consumer has, when it asked for it and got it, and whether the step before was retraced."""

    passed: Passed
    asked_at: float
    handed_at: float
    is_retraced_before: bool


class Feed:
    """Batches in order, from `start` up to `stop`. Use it as a context manager and iterate.

    The first of `stages` is given what was `Loaded`, the last one gives a `Batch`.
    """

    def __init__(
        self,
        plan_of: Callable[[int], BatchPlan],
        loader: Loader,
        stages: tuple[Stage, ...],
        room: BufferFactory,
        *,
        start: int,
        stop: int,
        num_workers: int,
        buffer_size: int,
        telemetry: Telemetry,
        warm_up: WarmUp | None = None,
        tuner: Tuner | None = None,
        manners: ThreadPriority = NO_MANNERS,
        stall_limit_s: float = 60.0,
        say: Say = lambda _sentence: None,
        advice: tuple[int, Callable[[FeedStats], str]] | None = None,
    ) -> None:
        self._telemetry, self._warm_up, self._tuner, self._advice = telemetry, warm_up, tuner, advice
        self.loader_name = loader.name
        self._handed_out: deque[_HandedOut] = deque()
        self._recording = threading.Lock()
        self._is_retraced = False
        self._say = say
        self._settings = FeedSettings(num_workers, max(1, min(buffer_size, stop - start)))
        # Beside the batches in memory: those in queues, in the hands of stages and consumer, and one being loaded.
        num_beside = sum(stage.num_ready for stage in stages) + len(stages) + 1 + _NUM_HELD + num_workers
        self._pool = MemoryPool(room.num_bytes, buffer_size + num_beside)
        self._num_at_start = min(self._settings.buffer_size, _NUM_BATCHES_AT_START)
        self._num_touched_at_start = min(stop - start, self._num_at_start + num_beside)
        self._workers = WorkerPool(num_workers, tuner.limits.max_workers if tuner else num_workers, manners)
        self._ahead = LoadAhead(
            plan_of,
            loader,
            lambda: room.make(self._pool.lease()),
            self._workers,
            start=start,
            stop=stop,
            size=self._num_at_start,
            stall_limit_s=stall_limit_s,
        )
        # What is in the hands of a stage is not ready, and no more than its queues hold can be.
        self._most_ready = max(1, min(stop - start - len(stages), sum(stage.num_ready for stage in stages)))
        self._conveyor = StageChain(self._load_next, stages)
        self._closed = threading.Event()
        self._grower = ThreadPoolExecutor(1, "myxtts-memory", manners.adopt)

    def __enter__(self) -> Self:
        for _ in range(self._num_touched_at_start):
            self._pool.add_touched()
        self._conveyor.start()
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
        """Batches that are loaded or further, and wait."""
        return self._ahead.depth + self._conveyor.num_ready

    @property
    def num_on_device(self) -> int:
        """Batches that wait behind the stages, for the consumer or for the next stage."""
        return self._conveyor.num_ready

    @property
    def is_grown(self) -> bool:
        """Whether there is memory for all batches that may wait; it is made ready while the run goes on."""
        return self._ahead.size >= self._settings.buffer_size

    @property
    def settings(self) -> FeedSettings:
        """Threads and batches in memory as they are now."""
        return self._settings

    def note_retrace(self) -> None:
        """Told by the consumer when the present step made a new graph, for the record."""
        self._is_retraced = True

    def stats(self) -> FeedStats:
        self._record_steps(num_kept=0)
        return self._telemetry.summarize()

    def close(self) -> None:
        """Ends all threads; what they were doing is dropped."""
        self._closed.set()
        self._ahead.stop_waiting()
        self._conveyor.close()
        self._ahead.close()
        self._grower.shutdown(wait=True)
        self._record_steps(num_kept=0)
        self._telemetry.close()

    def _take_batch(self) -> Batch | None:
        asked_at = time.perf_counter()
        passed = self._conveyor.take()
        if passed is None:
            return None
        # Whatever else there is to do for the batch, and letting go of it, is left to other threads.
        self._handed_out.append(_HandedOut(passed, asked_at, time.perf_counter(), self._is_retraced))
        self._is_retraced = False
        batch: Batch = passed.content
        return batch

    def _load_next(self) -> Passed | None:
        self._record_steps(num_kept=_NUM_HELD)
        loaded = self._ahead.take()
        if loaded is None:
            return None
        num_frames = int(loaded.content.mel_lengths.sum())
        label = _Label(loaded.plan, loaded.plan.num_real, loaded.load_s, self._ahead.depth, num_frames)
        return Passed(label, loaded, {})

    def _grow(self) -> None:
        """Makes room for the whole buffer, piece by piece, in a small share of the time."""
        while self._ahead.size < self._settings.buffer_size and not self._closed.is_set():
            started = time.perf_counter()
            self._pool.add_touched()
            self._ahead.resize(self._ahead.size + 1)
            self._closed.wait((time.perf_counter() - started) * (1 / _GROWTH_SHARE - 1))

    def _wait_until_warm(self, warm_up: WarmUp) -> None:
        """Lets the data side get ahead: until enough batches are ready and the delay has passed."""
        started = time.monotonic()
        mark = min(warm_up.num_ready, self._most_ready)
        self._say(f"Warm-up: waiting for {mark} batches and at least {warm_up.delay_s:g} s.")
        while True:
            elapsed_s, num_ready = time.monotonic() - started, self._conveyor.num_ready
            if self._conveyor.has_ended or (num_ready >= mark and elapsed_s >= warm_up.delay_s):
                break
            if elapsed_s > warm_up.time_limit_s:
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
        """Takes account of batches that were handed out, except for the last ones, which are still worked with."""
        with self._recording:
            while len(self._handed_out) > num_kept:
                self._record(self._handed_out.popleft())

    def _record(self, handed_out: _HandedOut) -> None:
        label: _Label = handed_out.passed.label
        shape, wait_s = label.plan.shape, handed_out.handed_at - handed_out.asked_at
        if handed_out.is_retraced_before:
            self._telemetry.note_retrace()
        interval_s = self._telemetry.record(
            StepRecord(
                position=label.plan.position,
                wait_s=wait_s,
                load_s=label.load_s,
                stages=handed_out.passed.seconds,
                depth=label.depth,
                num_frames=label.num_frames,
                num_padded_frames=shape.num_utterances * shape.num_frames,
                num_utterances=label.num_real,
                shape=f"{shape.num_utterances}x{shape.num_frames}x{shape.num_tokens}",
            ),
            handed_out.asked_at,
            handed_out.handed_at,
        )
        self._advise()
        if self._tuner is not None and interval_s:
            self._tune(self._tuner, wait_s, interval_s, label.depth)

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

    def _advise(self) -> None:
        if self._advice is not None and self._telemetry.num_steps >= self._advice[0]:
            self._say(self._advice[1](self._telemetry.summarize()))
            self._advice = None
