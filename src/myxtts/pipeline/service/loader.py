"""The loader whose batches are made by the workers of a tf.data service (`myxtts data-worker`).

    plans ─> chunks of a few hundred ─> workers ─> streams ─> arrivals, by position ─> whoever fills a buffer

Every position is filled exactly once, whatever the workers do: what does not arrive is loaded on this machine.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from myxtts.config.schema import DataConfig
from myxtts.corpus.audio import AudioLimits
from myxtts.errors import ConfigError, DataError, MyXTTSError
from myxtts.pipeline.batch import BatchBuffer, HostBatch, Loader
from myxtts.pipeline.device import ARRAYS
from myxtts.pipeline.order import NO_ROW, BatchPlan
from myxtts.pipeline.recordings import RecordingSource, survey_recordings
from myxtts.pipeline.service.address import CONNECT_LIMIT_S, await_service, find_obstacle
from myxtts.pipeline.service.reorder import Missing, ReorderBuffer, StreamBrokenError
from myxtts.types import Say

_FIRST_CHUNK, _CHUNK = 64, 512
"""Batches that workers learn of at a time: few at first, which start sooner."""
_NUM_AHEAD = 16
_MAX_BROKEN_STREAMS = 2
_WATCH_EVERY_S, _PROBE_LIMIT_S = 0.5, 0.4
_CLOSE_LIMIT_S = 0.5


class Stream(Protocol):
    """Batches of some plans in any order, as position and arrays by name."""

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]: ...
    def cancel(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a batch that others have overtaken, for a service that is gone, and for one that is mute."""

    overtaken_s: float = 3.0
    gone_s: float = CONNECT_LIMIT_S
    mute_s: float = 30.0


class ServiceLoader(Loader):
    """Fills buffers with batches of a service, from position `start` to `stop`; `fill` waits until one is there.

    `plan_of` gives the plan of a position, the same that `fill` is called with. `local` loads what the service cannot
    (`can_send` says so) or does not bring. Threads start with the first batch that is wanted; `close` ends them.
    """

    name = "service"

    def __init__(
        self,
        address: str,
        open_stream: Callable[[Sequence[BatchPlan]], Stream],
        local: Loader,
        plan_of: Callable[[int], BatchPlan],
        *,
        start: int,
        stop: int,
        can_send: Callable[[BatchPlan], bool] = lambda _plan: True,
        say: Say = lambda _sentence: None,
        patience: Patience | None = None,
        chunk_sizes: tuple[int, int] = (_FIRST_CHUNK, _CHUNK),
        num_ahead: int = _NUM_AHEAD,
    ) -> None:
        self._address, self._open_stream, self._local = address, open_stream, local
        self._plan_of, self._start, self._stop, self._can_send = plan_of, start, stop, can_send
        self._say, self._patience, self._chunk_sizes = say, patience or Patience(), chunk_sizes
        self._arrivals = ReorderBuffer(start, stop, num_ahead=num_ahead, patience_s=self._patience.overtaken_s)
        self._streams: dict[range, Stream] = {}
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._num_broken = 0
        self.num_received = self.num_lost = 0

    def fill(self, plan: BatchPlan, buffer: BatchBuffer) -> HostBatch:
        self._start_threads()
        arrived = self._arrivals.take(plan.position)
        if isinstance(arrived, Missing):
            if arrived is Missing.LOST:
                self._note_loss(plan.position)
            batch: HostBatch = self._local.fill(plan, buffer)
            return batch
        with self._lock:
            self.num_received += 1
        return _copy_arrays(arrived, plan, buffer)

    def name_utterances(self, plan: BatchPlan) -> tuple[str, ...]:
        return self._local.name_utterances(plan)

    def close(self) -> None:
        """Ends all threads; whoever waits for a batch gets an error."""
        self._closed.set()
        self._arrivals.fail(DataError("The loader was closed while it waited for a batch of the data service."))
        with self._lock:
            streams, threads = list(self._streams.values()), list(self._threads)
        for stream in streams:
            stream.cancel()
        deadline = time.monotonic() + _CLOSE_LIMIT_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._local.close()

    def _start_threads(self) -> None:
        with self._lock:
            if self._threads or self._closed.is_set():
                return
            self._run(self._send_chunks, "myxtts-service-plans")
            self._run(self._watch, "myxtts-service-watch")

    def _run(self, task: Callable[[], None], name: str) -> None:
        # Daemons, since TensorFlow asks a service that has just died for ever and cannot be stopped.
        thread = threading.Thread(target=task, name=name, daemon=True)
        self._threads = [known for known in self._threads if known.is_alive() or known.ident is None]
        self._threads.append(thread)
        thread.start()

    def _note_loss(self, position: int) -> None:
        with self._lock:
            self.num_lost += 1
            is_first = self.num_lost == 1
        if is_first:
            self._say(
                f"Batch {position} did not arrive from the data service at {self._address}; perhaps a worker has "
                "ended. What does not arrive is loaded on this machine."
            )

    def _send_chunks(self) -> None:
        """Tells the workers of one chunk of plans after the other, each before the one in front of it runs out."""
        try:
            for chunk in self._cut_chunks():
                plans = [plan for plan in map(self._plan_of, chunk) if self._can_send(plan)]
                stream = self._open_when_reachable(plans) if plans else None
                if not self._arrivals.wait_for_demand():
                    return
                self._arrivals.expect([plan.position for plan in plans], announced_up_to=chunk.stop)
                if stream is not None:
                    self._receive_in_background(stream, chunk)
        except MyXTTSError as error:
            self._arrivals.fail(error)

    def _cut_chunks(self) -> Iterator[range]:
        first, others = self._chunk_sizes
        begin = self._start
        for size in itertools.chain([first], itertools.repeat(others)):
            if begin >= self._stop or self._closed.is_set():
                return
            yield range(begin, min(begin + size, self._stop))
            begin += size

    def _open_when_reachable(self, plans: Sequence[BatchPlan]) -> Stream | None:
        """A service that is gone is reported by the watch, as soon as somebody misses its batches."""
        while find_obstacle(self._address, self._patience.gone_s):
            if self._closed.wait(_WATCH_EVERY_S):
                return None
        return self._open_stream(plans)

    def _receive_in_background(self, stream: Stream, chunk: range) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            self._streams[chunk] = stream
            self._run(partial(self._receive, stream, chunk), f"myxtts-service-{chunk.start}")

    def _receive(self, stream: Stream, chunk: range) -> None:
        try:
            for position, arrays in stream:
                if not self._arrivals.bring(position, arrays):
                    return
            self._num_broken = 0
            self._arrivals.give_up(chunk)
        except StreamBrokenError as problem:
            self._handle_break(problem, chunk)
        except MyXTTSError as error:
            self._arrivals.fail(error)
        finally:
            stream.cancel()

    def _handle_break(self, problem: StreamBrokenError, chunk: range) -> None:
        self._num_broken += 1
        what = f"The data service at {self._address} failed: {problem}"
        if self._num_broken >= _MAX_BROKEN_STREAMS:
            step = "See what myxtts data-worker says there, or load without data.data_service."
            self._arrivals.fail(DataError(what, next_step=step))
            return
        self._say(f"{what}. Up to {len(chunk)} batches are loaded on this machine, then it is tried again.")
        self._arrivals.give_up(chunk)

    def _end_finished_streams(self) -> None:
        """A stream that lost batches would wait for them."""
        with self._lock:
            finished = [chunk for chunk in self._streams if not self._arrivals.is_expecting(chunk)]
            for chunk in finished:
                self._streams.pop(chunk).cancel()

    def _watch(self) -> None:
        """Turns a service that says nothing for too long into an error."""
        while not self._closed.wait(_WATCH_EVERY_S):
            self._end_finished_streams()
            silence_s = self._arrivals.measure_silence_s()
            if silence_s < min(self._patience.gone_s, self._patience.mute_s):
                continue
            obstacle = find_obstacle(self._address, _PROBE_LIMIT_S)
            if obstacle and silence_s >= self._patience.gone_s:
                self._arrivals.fail(self._describe_silence(silence_s, f"it does not answer any more ({obstacle})"))
            elif silence_s >= self._patience.mute_s:
                self._arrivals.fail(self._describe_silence(silence_s, "it answers, but no worker of it does"))

    def _describe_silence(self, silence_s: float, reason: str) -> DataError:
        return DataError(
            f"The data service at {self._address} has sent nothing for {silence_s:.0f} s: {reason}.",
            next_step="Start myxtts data-worker there again and resume, or load without data.data_service.",
        )


def open_service_loader(
    source: RecordingSource,
    data: DataConfig,
    plan_of: Callable[[int], BatchPlan],
    *,
    start: int,
    stop: int,
    num_reference_frames: int,
    seed: int,
    ram_budget_bytes: int = 0,
    say: Say = lambda _sentence: None,
    patience: Patience | None = None,
) -> tuple[ServiceLoader, list[str]]:
    """The loader for `data.data_service`, and what there is to say about it; an error within 10 s if none answers."""
    address = data.data_service
    assert address is not None
    if not data.use_tf_native_loading:
        raise ConfigError(
            "data.data_service needs data.use_tf_native_loading, which is false: its workers run TensorFlow alone.",
            next_step="Set one of the two back.",
        )
    await_service(address)
    survey = survey_recordings(source)
    kinds = ", ".join(kind for kind, _ in survey.obstacles.most_common())
    if survey.num_native == 0:
        raise DataError(
            f"The data service can load none of these recordings: none is a 16-bit WAV file ({kinds}).",
            next_step="Convert them to 16-bit WAV files, or load without data.data_service.",
        )
    from myxtts.pipeline.loaders.native import TFNativeDataLoader
    from myxtts.pipeline.service.host import ServiceStream

    limits = AudioLimits.from_config(data)
    native = TFNativeDataLoader(source, limits, num_reference_frames, seed, ram_budget_bytes, survey)

    def can_send(plan: BatchPlan) -> bool:
        rows = np.concatenate([plan.rows, plan.references])
        return bool(survey.is_native[rows[rows != NO_ROW]].all())

    messages = [f"Features are made by the data service at {address}."]
    if survey.obstacles:
        messages.append(
            f"{survey.obstacles.total():,} of {len(source):,} recordings are beyond it ({kinds}): batches that need "
            "one of them are loaded on this machine."
        )
    loader = ServiceLoader(
        address,
        partial(ServiceStream, native, source, address),
        native,
        plan_of,
        start=start,
        stop=stop,
        can_send=can_send,
        say=say,
        patience=patience,
    )
    return loader, messages


def _copy_arrays(arrays: dict[str, Any], plan: BatchPlan, buffer: BatchBuffer) -> HostBatch:
    batch = buffer.view(plan.shape)
    for name in ARRAYS:
        room, values = getattr(batch, name), arrays[name]
        assert room.shape == values.shape, f"{name} of batch {plan.position} was made from another plan"
        np.copyto(room, values)
    return batch
