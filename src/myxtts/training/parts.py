"""What a training step is fed: tensors of a batch, cut by rows for replicas and micro-batches.

Shape legend: B utterances of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import tensorflow as tf

from myxtts.types import Batch, Tensor

Part = dict[str, Tensor]
"""Named tensors whose first axis is B, or values per replica of such tensors."""

_NOT_TENSORS = {"position", "ids", "num_real", "shares"}


def select_tensors(batch: Batch) -> Part:
    """The part of a batch that a graph can take; its names and numbers would make a new graph for every batch."""
    named = {field.name: getattr(batch, field.name) for field in fields(batch) if field.name not in _NOT_TENSORS}
    return {name: tensor for name, tensor in named.items() if tensor is not None}


def count_real_utterances(part: Part) -> Tensor:
    """How many rows are utterances; those that only fill the shape have no frames."""
    return tf.math.count_nonzero(part["mel_lengths"], dtype=tf.float32)


def split_rows(part: Part, num_parts: int) -> list[Part]:
    """The part cut into so many of equal size, in order."""
    sizes = {name: tensor.shape[0] for name, tensor in part.items()}
    assert all(size % num_parts == 0 for size in sizes.values()), f"{sizes} rows cannot be cut into {num_parts} parts"
    return [
        {name: tensor[place * sizes[name] // num_parts :][: sizes[name] // num_parts] for name, tensor in part.items()}
        for place in range(num_parts)
    ]


def distribute_parts(strategy: Any, parts: Sequence[Part]) -> Part:
    """One micro-batch made of a part for each replica of this process."""
    if strategy.num_replicas_in_sync == 1:
        (part,) = parts
        return part
    num_local = len(strategy.extended.worker_devices)
    assert len(parts) == num_local, f"{len(parts)} parts for {num_local} replicas"
    per_replica: Part = strategy.experimental_distribute_values_from_function(
        # Replicas are numbered over all workers, parts within this one.
        lambda context: parts[context.replica_id_in_sync_group % num_local]
    )
    return per_replica
