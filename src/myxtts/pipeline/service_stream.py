"""Batches of a few hundred plans, made by the workers of a tf.data service and received here in any order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

# TensorFlow has no public way to end an operation that waits, and the next batch may never come.
from tensorflow.python.eager import cancellation, context, execute

from myxtts.errors import DataError
from myxtts.pipeline.arrivals import StreamBrokenError
from myxtts.pipeline.native import TFNativeDataLoader
from myxtts.pipeline.order import NO_ROW, BatchPlan
from myxtts.pipeline.source import RecordingSource

Arrays = dict[str, NDArray[Any]]


class ServiceStream:
    """The batches of the plans, each once; those that a worker had under way when it was killed never come.

    The workers learn of the plans when it is made and begin when it is iterated. Paths and tokens of the utterances in
    use travel along, so that there should not be too many plans.
    """

    def __init__(
        self, native: TFNativeDataLoader, source: RecordingSource, address: str, plans: Sequence[BatchPlan]
    ) -> None:
        self._source, self._address, self._plans = source, address, plans
        self._cancellation = cancellation.CancellationManager()
        service = tf.data.experimental.service
        # A spectrogram hardly gets smaller, so compressing it would only cost time.
        distribute = service.distribute(service.ShardingPolicy.DYNAMIC, f"grpc://{address}", compression=None)
        options = tf.data.Options()
        # Ending an iterator that tunes itself can take a minute.
        options.autotune.enabled = False
        with tf.device("/CPU:0"):
            # As many batches at a time as the worker has processors.
            batches = native.dataset(plans, num_parallel_calls=tf.data.AUTOTUNE)
            try:
                self._batches = batches.apply(distribute).with_options(options)
            except tf.errors.OpError as error:
                raise self._explain_refusal(error) from error

    def __iter__(self) -> Iterator[tuple[int, Arrays]]:
        """Positions and arrays named like the fields of `Batch`, as they arrive."""
        try:
            yield from self._receive()
        except tf.errors.OutOfRangeError:
            return
        except tf.errors.OpError as error:
            if not self._cancellation.is_cancelled:
                raise self._explain_failure(error) from error

    def _receive(self) -> Iterator[tuple[int, Arrays]]:
        spec = self._batches.element_spec
        names = sorted(spec)
        types, shapes = [spec[name].dtype for name in names], [spec[name].shape for name in names]
        attributes = ("output_types", [kind.as_datatype_enum for kind in types], "output_shapes", shapes)
        with tf.device("/CPU:0"):
            iterator = tf.raw_ops.AnonymousIteratorV3(output_types=types, output_shapes=shapes)
            tf.raw_ops.MakeIterator(dataset=tf.data.experimental.to_variant(self._batches), iterator=iterator)
        for _ in self._plans:
            with tf.device("/CPU:0"):
                values = execute.execute_with_cancellation(
                    "IteratorGetNext", len(names), [iterator], attributes, context.context(), self._cancellation
                )
            arrays = {name: value.numpy() for name, value in zip(names, values, strict=True)}
            yield int(arrays["position"]), arrays

    def cancel(self) -> None:
        """Ends the iteration, also one that waits."""
        self._cancellation.start_cancel()

    def _explain_refusal(self, error: tf.errors.OpError) -> DataError:
        return DataError(
            f"What answers at {self._address} does not take batches to make: {_shorten(error)}",
            next_step=f"Start myxtts data-worker there with TensorFlow {tf.__version__}, as it is here, and give the "
            "address that it prints.",
        )

    def _explain_failure(self, error: tf.errors.OpError) -> DataError | StreamBrokenError:
        """An error of its own for a recording that is here, but not where the worker is."""
        if isinstance(error, tf.errors.NotFoundError | tf.errors.PermissionDeniedError):
            rows = np.unique([row for plan in self._plans for row in (*plan.rows, *plan.references) if row != NO_ROW])
            paths = (self._source.audio_path(row) for row in rows.tolist())
            path = next((path for path in paths if path in error.message), None)
            if path is not None and os.access(path, os.R_OK):
                return DataError(
                    f"A worker of the data service at {self._address} cannot open {path}, which is here.",
                    next_step="Make the recordings readable under the same paths wherever myxtts data-worker runs.",
                )
        return StreamBrokenError(_shorten(error))


def _shorten(error: tf.errors.OpError) -> str:
    return " ".join(error.message.split())[:500]
