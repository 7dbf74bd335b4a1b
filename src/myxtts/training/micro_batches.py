"""Micro-batches: what a training step is given, cut by rows and distributed over the replicas of a strategy.

A micro-batch of the feed is one vector for each replica (`Packed`), and is cut into its tensors inside the step.
Shape legend: B utterances of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, cast

import tensorflow as tf

from myxtts.pipeline.packed import Packed, PackedBatch
from myxtts.runtime.plan import CPU_DEVICE
from myxtts.types import Batch, Tensor

_PLACING_STRATEGIES = (
    tf.distribute.OneDeviceStrategy,
    tf.distribute.MirroredStrategy,
    tf.distribute.MultiWorkerMirroredStrategy,
)
MicroBatch = dict[str, Tensor]
"""Named tensors whose first axis is B, or values per replica of such tensors."""
StepInput = MicroBatch | Packed
"""A micro-batch as a step takes it: in one piece, which is cut inside the step, or as separate tensors."""
_Part = TypeVar("_Part", bound=StepInput)


def select_tensors(batch: Batch) -> StepInput:
    """The tensors of a batch; its names and numbers would make a new graph for every batch."""
    if isinstance(batch, PackedBatch):
        (piece,) = batch.pieces
        return piece
    return batch.arrays()


def count_real_utterances(part: MicroBatch) -> Tensor:
    """Rows that are utterances; padding rows have no frames."""
    return tf.math.count_nonzero(part["mel_lengths"], dtype=tf.float32)


def split_rows(part: MicroBatch, num_parts: int) -> list[MicroBatch]:
    """The micro-batch cut by rows into so many of equal size, in order, on the devices where its tensors are."""
    if num_parts == 1:
        return [part]
    sizes = {name: tensor.shape[0] for name, tensor in part.items()}
    assert all(size % num_parts == 0 for size in sizes.values()), f"{sizes} rows cannot be cut into {num_parts} parts"

    def cut(name: str, tensor: Tensor, number: int) -> Tensor:
        # Eager operations without a device run on the first GPU, wherever their inputs are.
        with tf.device(tensor.device):
            return tensor[number * sizes[name] // num_parts :][: sizes[name] // num_parts]

    return [{name: cut(name, tensor, number) for name, tensor in part.items()} for number in range(num_parts)]


def take_rows(part: MicroBatch, number: Tensor, num_parts: int) -> MicroBatch:
    """One of so many equal parts, by rows; its number is a tensor, so that one compiled graph serves all parts."""

    def take(tensor: Tensor) -> Tensor:
        # Not a slice: XLA takes its beginning for a constant, and compiles a graph for each.
        return tf.gather(tf.reshape(tensor, [num_parts, -1, *tensor.shape[1:]]), number)

    return {name: take(tensor) for name, tensor in part.items()}


def count_rows(part: StepInput) -> int:
    """Rows of a micro-batch, with those that only fill it."""
    return part.num_rows if isinstance(part, Packed) else int(next(iter(part.values())).shape[0])


def list_replica_devices(strategy: Any) -> tuple[str, ...]:
    """The device of each replica of this process."""
    # The default strategy, which trains on the CPU, has no devices of its own.
    return tuple(strategy.extended.worker_devices) if isinstance(strategy, _PLACING_STRATEGIES) else (CPU_DEVICE,)


def enter_device(strategy: Any) -> AbstractContextManager[Any]:
    """Context in which operations run where the model is: on its first device, if it has several.

    Without it they run on the first GPU, which may be another one, and a compiled function runs where it is called.
    """
    is_placed = isinstance(strategy, _PLACING_STRATEGIES)
    return tf.device(list_replica_devices(strategy)[0]) if is_placed else nullcontext()


def distribute_parts(strategy: Any, parts: Sequence[_Part]) -> _Part:
    """One micro-batch from the rows of each replica of this process."""
    if strategy.num_replicas_in_sync == 1:
        (part,) = parts
        return part
    num_local = len(list_replica_devices(strategy))
    assert len(parts) == num_local, f"{len(parts)} parts for {num_local} replicas"
    values = [part.vector if isinstance(part, Packed) else part for part in parts]
    per_replica: Any = strategy.experimental_distribute_values_from_function(
        # Replica ids count over all workers; `parts` are those of this worker.
        lambda context: values[context.replica_id_in_sync_group % num_local]
    )
    if isinstance(parts[0], Packed):
        per_replica = Packed(per_replica, parts[0].layout)
    return cast("_Part", per_replica)
