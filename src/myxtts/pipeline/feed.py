"""The feed between loaders and training step: a bounded buffer, filled ahead by threads, emptied in order.

    positions ─> loader threads ─> ring of buffers ─> transfer thread ─> batches on the device ─> consumer

A thread takes the next position only when a buffer is free, so the consumer's pace holds everything back. What a
thread raises reaches the consumer with the utterances it was loading. A loader that hangs is tried once more, then
named. Closing ends every thread.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Protocol, Self

from myxtts.errors import DataError, MyXTTSError
from myxtts.pipeline.buffers import BatchBuffer, HostBatch
from myxtts.pipeline.order import BatchOrder, BatchPlan
from myxtts.pipeline.telemetry import FeedStats, Telemetry
from myxtts.pipeline.tune import Tuner
from myxtts.pipeline.workers import WorkerPool
from myxtts.types import Batch

_POLL_S = 0.1
_WARM_UP_POLL_S = 0.01


class Loader(Protocol):
    """Fills a buffer with the utterances of a plan. `fill` is called by several threads at once."""

    name: str

    def fill(self, plan: BatchPlan, buffer: BatchBuffer) -> HostBatch: ...
    def name_utterances(self, plan: BatchPlan) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class WarmUp:
    """When the consumer may start: with so many batches ready, not before the delay; and when to give up."""

    num_ready: int
    delay_s: float = 0.0
    time_limit_s: float = 120.0
    say: Callable[[str], None] = lambda _sentence: None


Transfer = Callable[[Batch], Batch]
"""Copies a batch out of its buffer, to wherever the model is; the buffer is used again as soon as it returns."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    batch: HostBatch
    load_s: float


@dataclass(frozen=True, slots=True)
class _Pending:
    plan: BatchPlan
    buffer: BatchBuffer
    future: Future[_Loaded]


@dataclass(frozen=True, slots=True)
class _Ready:
    batch: Batch
    load_s: float
    transfer_s: float
    depth: int
    num_frames: int


class Feed:
    """Batches in order, from `start` up to `stop`. Use it as a context manager and iterate."""

    def __init__(
        self,
        order: BatchOrder,
        loader: Loader,
        transfer: Transfer,
        make_buffer: Callable[[], BatchBuffer],
        *,
        start: int,
        stop: int,
        num_workers: int,
        buffer_size: int,
        prefetch_size: int,
        telemetry: Telemetry,
        shard: tuple[int, int] = (0, 1),
        warm_up: WarmUp | None = None,
        tuner: Tuner | None = None,
        stall_limit_s: float = 60.0,
    ) -> None:
        self._order, self._loader, self._transfer, self._shard = order, loader, transfer, shard
        self._next, self._stop = start, stop
        self._telemetry, self._stall_limit_s = telemetry, stall_limit_s
        self._warm_up, self._tuner = warm_up, tuner
        self._make_buffer = make_buffer
        self._num_buffers, self._num_buffers_wanted = 0, max(1, min(buffer_size, stop - start))
        self._pending: deque[_Pending] = deque()
        self._ready: queue.Queue[_Ready | None] = queue.Queue(max(1, prefetch_size))
        self._closed = threading.Event()
        self._loaders = WorkerPool(num_workers, tuner.limits.max_workers if tuner else num_workers)
        self._transferrer = ThreadPoolExecutor(1, "myxtts-transfer")
        self._pump: Future[None] | None = None

    def __enter__(self) -> Self:
        self._pump = self._transferrer.submit(self._run_transfer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Batch]:
        if self._warm_up is not None:
            self._wait_until_warm(self._warm_up)
            self._warm_up = None
        while True:
            started = time.perf_counter()
            ready = self._ready.get()
            if ready is None:
                break
            wait_s = time.perf_counter() - started
            batch = ready.batch
            size, num_frames_padded = batch.mel.shape[0], batch.mel.shape[0] * batch.mel.shape[1]
            shape = f"{size}x{batch.mel.shape[1]}x{batch.tokens.shape[1]}"
            frames = (ready.num_frames, num_frames_padded, batch.num_real)
            interval_s = self._telemetry.record(
                batch.position, wait_s, ready.load_s, ready.transfer_s, ready.depth, shape, frames
            )
            self._tune(wait_s, interval_s)
            yield batch
        assert self._pump is not None
        self._pump.result()

    @property
    def depth(self) -> int:
        """Batches that are loaded and wait in memory."""
        return sum(pending.future.done() for pending in list(self._pending))

    def _wait_until_warm(self, warm_up: WarmUp) -> None:
        """Lets the data side get ahead: until enough batches are ready and the delay has passed."""
        started = time.monotonic()
        mark = min(warm_up.num_ready, self._num_buffers_wanted)
        while True:
            elapsed_s = time.monotonic() - started
            num_ready = self.depth + self._ready.qsize()
            assert self._pump is not None
            if self._pump.done() or (num_ready >= mark and elapsed_s >= warm_up.delay_s):
                break
            if elapsed_s > warm_up.time_limit_s:
                self._complain_of_no_data(num_ready, mark, elapsed_s)
            time.sleep(_WARM_UP_POLL_S)
        warm_up.say(f"Warm-up: {num_ready} batches ready after {elapsed_s:.1f} s; the model starts.")

    def _complain_of_no_data(self, num_ready: int, mark: int, elapsed_s: float) -> None:
        waiting = next((pending.plan for pending in list(self._pending) if not pending.future.done()), None)
        loading = f"; loading now: {self._describe(waiting)}" if waiting else ""
        raise DataError(
            f"After {elapsed_s:.0f} s {num_ready} of {mark} batches are ready, so the model was not started{loading}.",
            next_step="Compute features once with myxtts precompute, or raise data.num_workers.",
        )

    def stats(self) -> FeedStats:
        return self._telemetry.summarize()

    def close(self) -> None:
        """Ends all threads; what they were loading is dropped."""
        self._closed.set()
        self._drain()
        self._transferrer.shutdown(wait=True)
        has_hung = any(pending.future.running() for pending in self._pending)
        self._loaders.shutdown(wait=not has_hung)
        self._telemetry.close()

    def _drain(self) -> None:
        while True:
            try:
                self._ready.get_nowait()
            except queue.Empty:
                return

    def _run_transfer(self) -> None:
        """The transfer thread: takes batches in order, copies them on, and gives their buffers out again."""
        try:
            self._add_buffers()
            while self._pending and not self._closed.is_set():
                pending = self._pending[0]
                loaded, buffer = self._await(pending)
                self._pending.popleft()
                if loaded is None:
                    return
                self._hand_over(pending.plan, loaded)
                if self._num_buffers > self._num_buffers_wanted:
                    self._num_buffers -= 1
                else:
                    self._submit_next(buffer)
                self._add_buffers()
        finally:
            self._put(None)

    def _add_buffers(self) -> None:
        while self._num_buffers < self._num_buffers_wanted and self._next < self._stop:
            self._num_buffers += 1
            self._submit_next(self._make_buffer())

    def _tune(self, wait_s: float, interval_s: float) -> None:
        change = self._tuner.observe(wait_s, interval_s) if self._tuner and interval_s else None
        if change is not None:
            self._loaders.set_active(change.num_workers)
            self._num_buffers_wanted = change.buffer_size

    def _submit_next(self, buffer: BatchBuffer) -> None:
        if self._next >= self._stop or self._closed.is_set():
            return
        plan = self._order.batch(self._next).take_shard(*self._shard)
        self._next += 1
        self._pending.append(_Pending(plan, buffer, self._loaders.submit(partial(self._load, plan, buffer))))

    def _load(self, plan: BatchPlan, buffer: BatchBuffer) -> _Loaded:
        started = time.perf_counter()
        return _Loaded(self._loader.fill(plan, buffer), time.perf_counter() - started)

    def _await(self, pending: _Pending) -> tuple[_Loaded | None, BatchBuffer]:
        """The loaded batch; one that hangs is loaded again in a new thread, then given up. None if closing."""
        for attempt in (1, 2):
            future, buffer = pending.future, pending.buffer
            if attempt == 2:
                buffer = self._make_buffer()
                rescue = ThreadPoolExecutor(1, "myxtts-load-again")
                future = rescue.submit(self._load, pending.plan, buffer)
                rescue.shutdown(wait=False)
            if self._is_done_in_time(future):
                return self._take_result(future, pending.plan), buffer
            if self._closed.is_set():
                return None, buffer
        raise DataError(
            f"Loading batch {pending.plan.position} hangs: twice {self._stall_limit_s:g} s without a result "
            f"({self._describe(pending.plan)}).",
            next_step="Check the disk of the recordings or features, e.g. with myxtts precompute --check.",
        )

    def _is_done_in_time(self, future: Future[_Loaded]) -> bool:
        deadline = time.monotonic() + self._stall_limit_s
        while not future.done() and not self._closed.is_set() and time.monotonic() < deadline:
            wait([future], timeout=_POLL_S)
        return future.done()

    def _take_result(self, future: Future[_Loaded], plan: BatchPlan) -> _Loaded:
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

    def _hand_over(self, plan: BatchPlan, loaded: _Loaded) -> None:
        started = time.perf_counter()
        host = loaded.batch
        num_frames = int(host.mel_lengths.sum())
        batch = self._transfer(
            Batch(
                position=plan.position,
                ids=self._loader.name_utterances(plan),
                num_real=plan.num_real,
                tokens=host.tokens,
                token_lengths=host.token_lengths,
                mel=host.mel,
                mel_lengths=host.mel_lengths,
                speaker=host.speaker,
                language=host.language,
                reference=host.reference,
                reference_lengths=host.reference_lengths,
            )
        )
        transfer_s = time.perf_counter() - started
        self._put(_Ready(batch, loaded.load_s, transfer_s, self.depth, num_frames))

    def _put(self, item: _Ready | None) -> None:
        while not self._closed.is_set():
            try:
                self._ready.put(item, timeout=_POLL_S)
            except queue.Full:
                continue
            return
