"""Batches handed on from their buffers: as arrays, as tensors on the device that trains, or shared out over several.

Nothing is copied within the host: arrays and host tensors look at the memory that was filled, which is used again when
the last of them is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from myxtts.pipeline.batch import HostBatch
from myxtts.pipeline.load_ahead import Loaded
from myxtts.types import Batch

ARRAYS = ("tokens", "token_lengths", "mel", "mel_lengths", "speaker", "language", "reference", "reference_lengths")
"""What every batch has; some have durations besides."""


def hand_over_arrays(loaded: Loaded) -> Batch:
    """The batch as numpy arrays."""
    host: HostBatch = loaded.content
    return Batch(
        position=loaded.plan.position,
        ids=loaded.ids,
        num_real=loaded.plan.num_real,
        durations=host.durations,
        **{name: getattr(host, name) for name in ARRAYS},
    )


def list_arrays(batch: Batch) -> tuple[str, ...]:
    """The names of the arrays that this batch has."""
    return ARRAYS if batch.durations is None else (*ARRAYS, "durations")


def make_device_transfer(devices: Sequence[str]) -> Callable[[Loaded], Batch]:
    """A transfer to tensors on a device, such as "/GPU:0" or "/CPU:0"; several devices get equal shares of the rows."""
    share_out = make_sharing(devices)

    def transfer(loaded: Loaded) -> Batch:
        return share_out(adopt_arrays(hand_over_arrays(loaded)))

    return transfer


def adopt_arrays(batch: Batch) -> Batch:
    """The arrays of a batch as tensors of the host that look at the same memory."""
    import tensorflow as tf

    adopt = tf.experimental.dlpack.from_dlpack
    return replace(batch, **{name: adopt(getattr(batch, name).__dlpack__()) for name in list_arrays(batch)})


def make_sharing(devices: Sequence[str]) -> Callable[[Batch], Batch]:
    """Moves a batch of tensors to a device, or the rows of it to several."""
    if len(devices) == 1:
        return lambda batch: move_tensors(batch, devices[0])

    def share_out(batch: Batch) -> Batch:
        shares = split_batch(batch, len(devices))
        return replace(
            batch,
            shares=tuple(move_tensors(share, device) for share, device in zip(shares, devices, strict=True)),
        )

    return share_out


def move_tensors(batch: Batch, device: str) -> Batch:
    """The batch with its tensors on a device. Those that lie there already are taken as they are."""
    import tensorflow as tf

    if batch.mel.device.endswith(_full_name(device)):
        return batch
    with tf.device(device):
        return replace(batch, **{name: tf.identity(getattr(batch, name)) for name in list_arrays(batch)})


def split_batch(batch: Batch, num_shares: int) -> list[Batch]:
    """The rows of a batch in equal shares, in order."""
    import tensorflow as tf

    size = len(batch.ids) // num_shares
    assert size * num_shares == len(batch.ids), f"{len(batch.ids)} rows cannot be shared by {num_shares}"
    # Not by slices: TensorFlow has mixed up the bounds of slices that two threads took at the same time.
    names = list_arrays(batch)
    pieces: dict[str, list[Any]] = {name: tf.split(getattr(batch, name), num_shares) for name in names}
    shares = []
    for number in range(num_shares):
        ids = batch.ids[number * size : (number + 1) * size]
        tensors = {name: pieces[name][number] for name in names}
        shares.append(replace(batch, ids=ids, num_real=sum(map(bool, ids)), **tensors))
    return shares


def _full_name(device: str) -> str:
    """As the end of a tensor's device: "/CPU:0" is "/device:CPU:0" there."""
    return f"/device:{device.removeprefix('/')}"
