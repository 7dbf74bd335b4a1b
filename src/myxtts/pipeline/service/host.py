"""tf.data service: the server, a worker with a dispatcher unless it joins another one, and the stream of a client.

`DataHost` runs in `myxtts data-worker`. `ServiceStream` runs in the training process: it sends batch plans as a dataset
to the dispatcher, which shards them dynamically over its workers, and receives the batches in any order.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import tensorflow as tf
from tensorflow.python.eager import cancellation, context, execute

from myxtts.errors import DataError
from myxtts.pipeline.loaders.native import TFNativeDataLoader
from myxtts.pipeline.order import BatchPlan
from myxtts.pipeline.recordings import RecordingSource
from myxtts.pipeline.service.address import (
    ListenAddress,
    find_obstacle,
    join_address,
    keep_to_loopback,
    skip_proxies,
    split_address,
)
from myxtts.pipeline.service.reorder import StreamBrokenError

_HEARTBEAT_MS = 1000
"""Interval at which a worker reports to the dispatcher and asks for new tasks."""
_NUM_CHUNKS_KEPT = 32
"""Dataset definitions that a dispatcher keeps on disk; it never deletes any itself."""
_PROBE_LIMIT_S = 1.0
"""Time limit for probing the dispatcher in `describe`."""


class DataHost:
    """Dispatcher and worker, serving from construction until `stop`; use it as a context.

    The dispatcher writes into `work_folder`, which `stop` removes.
    """

    def __init__(self, listen: ListenAddress, work_folder: Path) -> None:
        skip_proxies()
        service = tf.data.experimental.service
        self._dispatcher: Any = None
        self._folder = work_folder
        if listen.joined is None:
            # On disk: a dispatcher keeps every dataset definition that it was given, and would fill the memory.
            config = service.DispatcherConfig(port=listen.port, work_dir=str(work_folder))
            self._dispatcher = _start(service.DispatchServer, config, f"a dispatcher at port {listen.port}")
            # TensorFlow listens on every network from here on: closed at once, before the worker takes its time.
            _close_to_others(self._dispatcher.target, listen)
        self.address = listen.joined or join_address(listen.host, split_address(self._dispatcher.target)[1])
        config = service.WorkerConfig(
            dispatcher_address=self.address,
            worker_address=f"{join_address(listen.host, 0).removesuffix('0')}%port%",
            port=listen.port if listen.joined else listen.worker_port,
            heartbeat_interval_ms=_HEARTBEAT_MS,
        )
        self._worker = _start(service.WorkerServer, config, f"a worker for {self.address}")
        _close_to_others(self._worker._address, listen)
        self.worker_address = join_address(listen.host, split_address(self._worker._address)[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stops the worker before the dispatcher it reports to."""
        self._worker.stop()
        if self._dispatcher is not None:
            self._dispatcher.stop()
        shutil.rmtree(self._folder)

    def describe(self) -> str:
        """State of the worker in one line, for the log."""
        num_tasks = self._worker._num_tasks()
        work = f"working on {num_tasks} chunk{'s' if num_tasks > 1 else ''} of batches" if num_tasks else "idle"
        if self._dispatcher is None:
            obstacle = find_obstacle(self.address, _PROBE_LIMIT_S)
            return f"the dispatcher at {self.address} does not answer ({obstacle})" if obstacle else work
        num_workers = self._dispatcher._num_workers()
        return f"{work}; {num_workers} worker{'s' if num_workers > 1 else ''} registered"

    def drop_old_chunks(self) -> None:
        """Deletes old dataset definitions; only a worker that joins late could still need one."""
        chunks = self._folder / "datasets"
        if not chunks.is_dir():
            return
        by_age = sorted(chunks.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in by_age[:-_NUM_CHUNKS_KEPT]:
            path.unlink()


def _close_to_others(address: str, listen: ListenAddress) -> None:
    """Keeps a server that has started to this machine, unless others were asked for."""
    if listen.is_private:
        keep_to_loopback([split_address(address)[1]])


def _start(server: Any, config: Any, what: str) -> Any:
    """Starts a server; turns errors of TensorFlow into DataError."""
    try:
        return server(config)
    except (RuntimeError, tf.errors.OpError) as error:
        raise DataError(
            f"TensorFlow cannot start {what}: {' '.join(str(error).split())}",
            next_step=f"Give the address that myxtts data-worker printed there, with TensorFlow {tf.__version__} on "
            "both sides.",
        ) from error


class ServiceStream:
    """Iterates over the batches of some plans in any order, each once; those lost with a killed worker never arrive.

    The plans are sent on construction, and workers begin when it is iterated. Audio paths and tokens of the utterances
    are part of the dataset that is sent, so there should not be too many plans.
    """

    def __init__(
        self, native: TFNativeDataLoader, source: RecordingSource, address: str, plans: Sequence[BatchPlan]
    ) -> None:
        self._source, self._address, self._plans = source, address, plans
        self._cancellation = cancellation.CancellationManager()
        service = tf.data.experimental.service
        # Spectrograms hardly compress, so compression would only cost time.
        distribute = service.distribute(service.ShardingPolicy.DYNAMIC, f"grpc://{address}", compression=None)
        options = tf.data.Options()
        # Destroying an iterator with autotune can take a minute.
        options.autotune.enabled = False
        with tf.device("/CPU:0"):
            # AUTOTUNE: as many batches in parallel as the worker has processors.
            batches = native.dataset(plans, num_parallel_calls=tf.data.AUTOTUNE)
            try:
                self._batches = batches.apply(distribute).with_options(options)
            except tf.errors.OpError as error:
                raise self._explain_refusal(error) from error

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields positions and arrays named like the fields of `Batch`, as they arrive."""
        try:
            yield from self._receive()
        except tf.errors.OutOfRangeError:
            return
        except tf.errors.OpError as error:
            if not self._cancellation.is_cancelled:
                raise self._explain_failure(error) from error

    def _receive(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Calls IteratorGetNext with a cancellation manager, once for each plan."""
        spec = self._batches.element_spec
        names = sorted(spec)
        types, shapes = [spec[name].dtype for name in names], [spec[name].shape for name in names]
        attributes = ("output_types", [kind.as_datatype_enum for kind in types], "output_shapes", shapes)
        with tf.device("/CPU:0"):
            iterator = tf.raw_ops.AnonymousIteratorV3(output_types=types, output_shapes=shapes)
            tf.raw_ops.MakeIterator(dataset=tf.data.experimental.to_variant(self._batches), iterator=iterator)
        for _ in self._plans:
            # TensorFlow has no public way to cancel an operation that waits, and the next batch may never come.
            with tf.device("/CPU:0"):
                values = execute.execute_with_cancellation(
                    "IteratorGetNext", len(names), [iterator], attributes, context.context(), self._cancellation
                )
            arrays = {name: value.numpy() for name, value in zip(names, values, strict=True)}
            yield int(arrays["position"]), arrays

    def cancel(self) -> None:
        """Ends the iteration, also while it waits for a batch."""
        self._cancellation.start_cancel()

    def _explain_refusal(self, error: tf.errors.OpError) -> DataError:
        return DataError(
            f"What answers at {self._address} does not take batches to make: {_shorten(error)}",
            next_step=f"Start myxtts data-worker there with TensorFlow {tf.__version__}, as it is here, and give the "
            "address that it prints.",
        )

    def _explain_failure(self, error: tf.errors.OpError) -> DataError | StreamBrokenError:
        """DataError for a recording that is readable here but not on the worker, else StreamBrokenError."""
        if isinstance(error, tf.errors.NotFoundError | tf.errors.PermissionDeniedError):
            rows = {row for plan in self._plans for row in plan.list_distinct_rows()}
            paths = (self._source.audio_path(row) for row in sorted(rows))
            path = next((path for path in paths if path in error.message), None)
            if path is not None and os.access(path, os.R_OK):
                return DataError(
                    f"A worker of the data service at {self._address} cannot open {path}, which is here.",
                    next_step="Make the recordings readable under the same paths wherever myxtts data-worker runs.",
                )
        return StreamBrokenError(_shorten(error))


def _shorten(error: tf.errors.OpError) -> str:
    return " ".join(error.message.split())[:500]
