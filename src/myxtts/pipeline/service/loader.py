"""Loader whose batches are computed by the workers of a tf.data service (`myxtts data-worker`).

    plans ─> chunks of a few hundred ─> workers ─> streams ─> reorder buffer ─> loader threads

Every position is filled exactly once, whatever the workers do: a batch that does not arrive is loaded on this machine.
Threads: one sends chunks of plans, one for each open stream receives, and one watches for a service that is silent.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from myxtts.config.schema import DataConfig
from myxtts.corpus.audio import AudioLimits
from myxtts.errors import ConfigError, DataError, MyXTTSError
from myxtts.pipeline.batch import Arrays, Loader
from myxtts.pipeline.order import BatchPlan
from myxtts.pipeline.recordings import RecordingSource, survey_recordings
from myxtts.pipeline.service.address import CONNECT_LIMIT_S, await_service, find_obstacle
from myxtts.pipeline.service.reorder import Missing, ReorderBuffer, StreamBrokenError
from myxtts.pipeline.splits import BatchRange
from myxtts.types import Say

if TYPE_CHECKING:
    from myxtts.pipeline.service.host import ServiceStream

_FIRST_CHUNK, _CHUNK = 64, 512
"""Batches in one request to the workers; the first request is small, so that batches arrive sooner."""
_NUM_AHEAD = 16
"""Batches that the reorder buffer keeps for later positions."""
_OVERTAKEN_LIMIT_S = 3.0
"""A batch counts as lost when later ones have been there for so long."""
_GONE_LIMIT_S, _MUTE_LIMIT_S = CONNECT_LIMIT_S, 30.0
"""Silence that is an error: where the service does not answer, and where it answers but no worker delivers."""
_MAX_BROKEN_STREAMS = 2
"""Broken streams in a row that are an error; after fewer their batches are loaded on this machine."""
_WATCH_EVERY_S, _PROBE_LIMIT_S = 0.5, 0.4
"""Interval of the watching thread, and time limit of its probe, which is shorter."""
_CLOSE_LIMIT_S = 2.0
"""Time that `close` waits for the threads, which may be blocked inside TensorFlow: one that returns from there while
Python ends would abort the program."""


def open_service_loader(
    source: RecordingSource,
    data: DataConfig,
    batches: BatchRange,
    num_reference_frames: int,
    seed: int,
    ram_budget_bytes: int,
    say: Say,
) -> tuple[ServiceLoader, list[str]]:
    """Opens the loader for `data.data_service`; returns it with messages for the user.

    Raises DataError if no service answers within 10 s or none of the recordings is a 16-bit WAV file, which is all that
    TensorFlow decodes on the workers.
    """
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
        batches.plan_of,
        start=batches.start,
        stop=batches.stop,
        can_send=lambda plan: bool(survey.is_native[plan.list_distinct_rows()].all()),
        say=say,
    )
    return loader, messages


class ServiceLoader(Loader):
    """Fills buffers with batches of a service, from position `start` to `stop`; `fill` blocks until one has arrived.

    `plan_of` returns the plan of a position, the same that `fill` is called with. `local` loads batches that the
    service cannot (`can_send`) or does not deliver. Threads start with the first `fill`; `close` ends them.
    """

    name = "service"

    def __init__(
        self,
        address: str,
        open_stream: Callable[[Sequence[BatchPlan]], ServiceStream],
        local: Loader,
        plan_of: Callable[[int], BatchPlan],
        *,
        start: int,
        stop: int,
        can_send: Callable[[BatchPlan], bool],
        say: Say,
    ) -> None:
        self._address, self._open_stream, self._local = address, open_stream, local
        self._plan_of, self._start, self._stop, self._can_send = plan_of, start, stop, can_send
        self._say = say
        self._buffer = ReorderBuffer(start, stop, num_ahead=_NUM_AHEAD, patience_s=_OVERTAKEN_LIMIT_S)
        self._streams: dict[range, ServiceStream] = {}
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._num_broken = 0
        self.num_received = self.num_lost = 0

    def fill(self, plan: BatchPlan, arrays: Arrays) -> Arrays:
        """Copies the batch of this plan from the reorder buffer, or loads it on this machine if it is missing."""
        self._start_threads()
        received: dict[str, Any] | Missing = self._buffer.take(plan.position)
        if isinstance(received, Missing):
            if received is Missing.LOST:
                self._note_loss(plan.position)
            return self._local.fill(plan, arrays)
        with self._lock:
            self.num_received += 1
        for name, values in arrays.items():
            assert values.shape == received[name].shape, f"{name} of batch {plan.position} was made from another plan"
            np.copyto(values, received[name])
        return arrays

    def name_utterances(self, plan: BatchPlan) -> tuple[str, ...]:
        return self._local.name_utterances(plan)

    def close(self) -> None:
        """Ends all threads; consumers that wait in `fill` get an error."""
        self._closed.set()
        self._buffer.fail(DataError("The loader was closed while it waited for a batch of the data service."))
        with self._lock:
            streams, threads = list(self._streams.values()), list(self._threads)
        for stream in streams:
            stream.cancel()
        deadline = time.monotonic() + _CLOSE_LIMIT_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._local.close()

    def _start_threads(self) -> None:
        """Starts the sending and the watching thread, once."""
        with self._lock:
            if self._threads or self._closed.is_set():
                return
            self._run(self._send_chunks, "myxtts-service-plans")
            self._run(self._watch, "myxtts-service-watch")

    def _run(self, task: Callable[[], None], name: str) -> None:
        # Daemon threads: TensorFlow retries a dead service without end, and cannot be interrupted.
        thread = threading.Thread(target=task, name=name, daemon=True)
        self._threads = [known for known in self._threads if known.is_alive() or known.ident is None]
        self._threads.append(thread)
        thread.start()

    def _note_loss(self, position: int) -> None:
        """Counts a lost batch; only the first one is reported."""
        with self._lock:
            self.num_lost += 1
            is_first = self.num_lost == 1
        if is_first:
            self._say(
                f"Batch {position} did not arrive from the data service at {self._address}; perhaps a worker has "
                "ended. What does not arrive is loaded on this machine."
            )

    def _send_chunks(self) -> None:
        """Body of the sending thread: sends chunks of plans, each before the batches of the last one run out."""
        try:
            for chunk in self._cut_chunks():
                plans = [plan for plan in map(self._plan_of, chunk) if self._can_send(plan)]
                stream = self._open_when_reachable(plans) if plans else None
                if not self._buffer.wait_for_demand():
                    return
                self._buffer.expect([plan.position for plan in plans], announced_up_to=chunk.stop)
                if stream is not None:
                    self._receive_in_background(stream, chunk)
        except MyXTTSError as error:
            self._buffer.fail(error)

    def _cut_chunks(self) -> Iterator[range]:
        """Yields ranges of positions: a small first chunk, then chunks of 512."""
        begin = self._start
        for size in itertools.chain([_FIRST_CHUNK], itertools.repeat(_CHUNK)):
            if begin >= self._stop or self._closed.is_set():
                return
            yield range(begin, min(begin + size, self._stop))
            begin += size

    def _open_when_reachable(self, plans: Sequence[BatchPlan]) -> ServiceStream | None:
        """Waits until the service answers, then opens a stream; `_watch` reports a service that stays silent."""
        while find_obstacle(self._address, _GONE_LIMIT_S):
            if self._closed.wait(_WATCH_EVERY_S):
                return None
        return self._open_stream(plans)

    def _receive_in_background(self, stream: ServiceStream, chunk: range) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            self._streams[chunk] = stream
            self._run(partial(self._receive, stream, chunk), f"myxtts-service-{chunk.start}")

    def _receive(self, stream: ServiceStream, chunk: range) -> None:
        """Body of a receiving thread: moves batches into the buffer; those missing at the end count as lost."""
        try:
            for position, arrays in stream:
                if not self._buffer.put(position, arrays):
                    return
            self._num_broken = 0
            self._buffer.give_up(chunk)
        except StreamBrokenError as problem:
            self._handle_break(problem, chunk)
        except MyXTTSError as error:
            self._buffer.fail(error)
        finally:
            stream.cancel()

    def _handle_break(self, problem: StreamBrokenError, chunk: range) -> None:
        """Gives up the batches of a broken stream; too many breaks in a row are an error."""
        self._num_broken += 1
        what = f"The data service at {self._address} failed: {problem}"
        if self._num_broken >= _MAX_BROKEN_STREAMS:
            step = "See what myxtts data-worker says there, or load without data.data_service."
            self._buffer.fail(DataError(what, next_step=step))
            return
        self._say(f"{what}. Up to {len(chunk)} batches are loaded on this machine, then it is tried again.")
        self._buffer.give_up(chunk)

    def _watch(self) -> None:
        """Body of the watching thread: cancels finished streams, and fails if no batch arrives for too long."""
        while not self._closed.wait(_WATCH_EVERY_S):
            self._end_finished_streams()
            silence_s = self._buffer.measure_silence_s()
            if silence_s < min(_GONE_LIMIT_S, _MUTE_LIMIT_S):
                continue
            obstacle = find_obstacle(self._address, _PROBE_LIMIT_S)
            if obstacle and silence_s >= _GONE_LIMIT_S:
                self._fail_silent(silence_s, f"it does not answer any more ({obstacle})")
            elif silence_s >= _MUTE_LIMIT_S:
                self._fail_silent(silence_s, "it answers, but no worker of it does")

    def _end_finished_streams(self) -> None:
        """Cancels streams with no batch left to expect; one that lost batches would wait for them forever."""
        with self._lock:
            finished = [chunk for chunk in self._streams if not self._buffer.is_expecting(chunk)]
            for chunk in finished:
                self._streams.pop(chunk).cancel()

    def _fail_silent(self, silence_s: float, reason: str) -> None:
        self._buffer.fail(
            DataError(
                f"The data service at {self._address} has sent nothing for {silence_s:.0f} s: {reason}.",
                next_step="Start myxtts data-worker there again and resume, or load without data.data_service.",
            )
        )
