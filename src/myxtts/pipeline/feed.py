"""The feed between loaders and training step: batches in order, loaded and moved ahead of the consumer by threads.

    positions ─> loader threads ─> batches in memory ─> stages: features, copies ─> batches on the device ─> consumer

Each stage behind the loaders has a thread or several, and a bounded queue. A full queue blocks its stage, and so all
before it: the consumer's pace limits everything. A stage without a queue works in the thread of the consumer, when a
batch is asked for. Threads start with the first batch. They end when the feed is closed, when nothing refers to it any
more, or when the program ends: all are daemons, and none holds a reference to the `Feed`.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Self

from myxtts.errors import DataError, UsageError
from myxtts.pipeline.batch import BatchLayout, Loader, MemoryPool
from myxtts.pipeline.load_ahead import NO_PRIORITY, LoadAhead, ThreadPriority, Worker, join_all
from myxtts.pipeline.splits import BatchRange
from myxtts.pipeline.stages import Passed, Stage, StageChain
from myxtts.pipeline.telemetry import FeedStats, StepRecord, Telemetry
from myxtts.pipeline.tune import FeedSettings, Tuner
from myxtts.types import Batch, Say

_WARM_UP_POLL_S = 0.01
_WARM_UP_LIMIT_S = 120.0
"""By then the model starts with fewer batches than asked for; without a single one the run ends."""
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
    """The batches of a range in order: iterate it, best inside `with`, which ends its threads at once.

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
        self.loader_name = loader.name
        self._warm_up, self._say, self._is_retraced = warm_up, say, False
        steps = _StepLog(telemetry, tuner, advice, say)
        self._threads = _FeedThreads(batches, loader, layout, stages, num_workers, buffer_size, priority, steps)
        weakref.finalize(self, self._threads.abandon).atexit = False

    def __enter__(self) -> Self:
        self._threads.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Batch]:
        self._threads.start()
        if self._warm_up is not None:
            self._wait_until_warm(self._warm_up)
            self._warm_up = None
        # No name here may hold on to a batch while the consumer works with it.
        yield from iter(self._take_batch, None)

    @property
    def depth(self) -> int:
        """Batches that wait, in memory or behind a stage."""
        return self._threads.ahead.depth + self._threads.chain.num_ready

    @property
    def settings(self) -> FeedSettings:
        """Threads and batches in memory as they are now."""
        return self._threads.settings

    def note_retrace(self) -> None:
        """The consumer reports that the present step traced a new graph."""
        self._is_retraced = True

    def stats(self) -> FeedStats:
        return self._threads.summarize()

    def close(self) -> None:
        """Ends all threads; what they were doing is dropped."""
        self._threads.close()

    def _take_batch(self) -> Batch | None:
        asked_at = time.perf_counter()
        passed = self._threads.take()
        if passed is None:
            return None
        # Recording the step and freeing the batch are left to other threads.
        self._threads.steps.handed_out.append(_HandedOut(passed, asked_at, time.perf_counter(), self._is_retraced))
        self._is_retraced = False
        batch: Batch = passed.content
        return batch

    def _wait_until_warm(self, warm_up: WarmUp) -> None:
        """Waits until enough batches are ready and the delay has passed."""
        started, chain = time.monotonic(), self._threads.chain
        mark = min(warm_up.num_ready, self._threads.most_ready)
        self._say(f"Filling the buffer: waiting for {mark} batches and at least {warm_up.delay_s:g} s.")
        while True:
            elapsed_s, num_ready = time.monotonic() - started, chain.num_ready
            if chain.has_ended or (num_ready >= mark and elapsed_s >= warm_up.delay_s):
                break
            if elapsed_s > max(_WARM_UP_LIMIT_S, warm_up.delay_s):
                if num_ready > 0:
                    self._say(f"Loading is slow: training starts with {num_ready} of {mark} batches, and will wait.")
                    break
                loading = self._threads.ahead.describe_next()
                raise DataError(
                    f"No batch is ready after {elapsed_s:.0f} s, so the model was not "
                    f"started{f'; the first that is missing is {loading}' if loading else ''}.",
                    next_step="Compute features once with myxtts precompute, or raise data.num_workers.",
                )
            time.sleep(_WARM_UP_POLL_S)
        self._say(f"Start: {num_ready} batches were ready after {elapsed_s:.1f} s; training starts.")


class _StepLog:
    """Records the steps of batches that were handed out, and draws conclusions from them: tuning and advice."""

    def __init__(
        self, telemetry: Telemetry, tuner: Tuner | None, advice: tuple[int, Callable[[FeedStats], str]] | None, say: Say
    ) -> None:
        self.telemetry, self.tuner, self._advice, self._say = telemetry, tuner, advice, say
        self.handed_out: deque[_HandedOut] = deque()
        self._recording = threading.Lock()

    def record(self, num_kept: int) -> FeedSettings | None:
        """Records all but the last batches, which are still in use; gives new settings if tuning calls for them."""
        change = None
        with self._recording:
            while len(self.handed_out) > num_kept:
                change = self._record(self.handed_out.popleft()) or change
        return change

    def _record(self, handed_out: _HandedOut) -> FeedSettings | None:
        asked_at, handed_at = handed_out.asked_at, handed_out.handed_at
        step: StepRecord = handed_out.passed.label
        step = replace(step, wait_s=handed_at - asked_at, stages=handed_out.passed.seconds)
        interval_s = self.telemetry.record(step, asked_at, handed_at, is_retraced_before=handed_out.is_retraced_before)
        if self._advice is not None and self.telemetry.num_steps >= self._advice[0]:
            self._say(self._advice[1](self.telemetry.summarize()))
            self._advice = None
        return self._tune(self.tuner, step, interval_s) if self.tuner is not None and interval_s else None

    def _tune(self, tuner: Tuner, step: StepRecord, interval_s: float) -> FeedSettings | None:
        was_held = tuner.is_held
        change = tuner.observe(step.wait_s, interval_s, step.depth)
        if tuner.is_held and not was_held:
            self._say(tuner.describe())
        return change


class _FeedThreads:
    """Loaders, memory, stages and the record of steps: all that the threads of a feed work with.

    One more thread, the keeper, starts the others, adds memory, and closes everything when the feed is abandoned.
    """

    def __init__(
        self,
        batches: BatchRange,
        loader: Loader,
        layout: BatchLayout,
        stages: tuple[Stage, ...],
        num_workers: int,
        buffer_size: int,
        priority: ThreadPriority,
        steps: _StepLog,
    ) -> None:
        self.steps, self._priority = steps, priority
        num_batches, num_queued = batches.stop - batches.start, sum(stage.num_ready for stage in stages)
        self.settings = FeedSettings(num_workers, max(1, min(buffer_size, num_batches)))
        # Besides the batches in memory: those in queues, one in each thread, the consumer's and those being loaded.
        num_in_stages = sum(stage.num_threads for stage in stages)
        num_beside = num_queued + num_in_stages + 1 + _NUM_HELD + num_workers
        self._pool = MemoryPool(layout.num_bytes, buffer_size + num_beside)
        num_at_start = min(self.settings.buffer_size, _NUM_BATCHES_AT_START)
        self._num_touched_at_start = min(num_batches, num_at_start + num_beside)
        max_workers = steps.tuner.most.num_workers if steps.tuner else num_workers
        self.ahead = LoadAhead(batches, loader, layout, self._pool, num_workers, max_workers, num_at_start, priority)
        # A batch inside a stage is not ready, and no more than the queues hold can be.
        self.most_ready = max(1, min(num_batches - num_in_stages, num_queued))
        self.chain = StageChain(self._load_next, stages)
        # Whether to end, or to look again for memory to add. Unlike locks it is safe inside a garbage collection.
        self._calls: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._keeper: Worker | None = None
        self._lock, self._is_started, self._is_closing = threading.Lock(), False, False
        self._process = os.getpid()

    def start(self) -> None:
        """Lets the keeper start the others: an interrupt of the main thread must not leave some of them out."""
        if self._keeper is None and not self._is_closing:
            # A thread that is inside TensorFlow when Python ends may abort the program.
            atexit.register(self.close)
            self._keeper = Worker("feed", self._keep)

    def take(self) -> Passed | None:
        if os.getpid() != self._process:
            raise UsageError(
                "This feed belongs to the process that opened it: its threads do not exist in a forked one.",
                next_step="Call open_batches in the process that takes the batches.",
            )
        passed = self.chain.take()
        if passed is None and self._keeper is not None and self._keeper.outcome.done():
            self._keeper.outcome.result()
        return passed

    def summarize(self) -> FeedStats:
        self._record_steps(num_kept=0)
        return self.steps.telemetry.summarize()

    def abandon(self) -> None:
        """Nothing refers to the feed any more. Takes no lock, for a garbage collection may call it at any moment."""
        self._calls.put(True)
        if self._keeper is None:
            self.steps.telemetry.close()

    def close(self) -> None:
        """Ends all threads. A second caller waits for the first."""
        if os.getpid() != self._process:
            return
        self._is_closing = True
        self._calls.put(True)
        with self._lock:
            self.ahead.stop()
            self.chain.close()
            self.ahead.close()
            if self._keeper is not None:
                join_all([self._keeper])
            self._record_steps(num_kept=0)
            self.steps.telemetry.close()
            atexit.unregister(self.close)

    def _keep(self) -> None:
        """Body of the keeper: starts all threads, adds memory during the run, and closes what was abandoned."""
        with self._lock:
            # An interrupt may have hidden from `start` that there is a keeper.
            if self._is_started or self._is_closing:
                return
            self._is_started = True
            with ExitStack() as failed:
                failed.callback(self.chain.close)
                failed.callback(self.ahead.stop)
                for _ in range(self._num_touched_at_start):
                    self._pool.add_touched()
                self.ahead.start()
                self.chain.start()
                failed.pop_all()
        # Not before, for threads inherit it.
        self._priority.adopt()
        self._add_memory()
        if not self._is_closing:
            self.close()

    def _add_memory(self) -> None:
        """Memory for the whole buffer, piece by piece in a small share of the time; until it is called to end."""
        is_over, pause_s = False, 0.0
        while not is_over:
            is_grown = self.ahead.size >= self.settings.buffer_size
            try:
                is_over = self._calls.get(timeout=None if is_grown else pause_s)
            except queue.Empty:
                started = time.perf_counter()
                self._pool.add_touched()
                self.ahead.resize(self.ahead.size + 1)
                pause_s = (time.perf_counter() - started) * (1 / _GROWTH_SHARE - 1)

    def _load_next(self) -> Passed | None:
        self._record_steps(num_kept=_NUM_HELD)
        loaded = self.ahead.take()
        if loaded is None:
            return None
        plan, shape = loaded.plan, loaded.plan.shape
        step = StepRecord(
            position=plan.position,
            wait_s=0.0,
            load_s=loaded.load_s,
            stages={},
            depth=self.ahead.depth,
            num_frames=int(loaded.arrays["mel_lengths"].sum()),
            num_padded_frames=shape.num_utterances * shape.num_frames,
            num_utterances=plan.num_real,
            shape=f"{shape.num_utterances}x{shape.num_frames}x{shape.num_tokens}",
        )
        return Passed(step, loaded, {})

    def _record_steps(self, num_kept: int) -> None:
        change = self.steps.record(num_kept)
        if change is not None:
            self.settings = change
            self.ahead.set_active(change.num_workers)
            self.ahead.resize(min(self.ahead.size, change.buffer_size))
            self._calls.put(False)
