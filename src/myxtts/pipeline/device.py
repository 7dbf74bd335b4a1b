"""Batches copied out of their buffers, to the device that trains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from myxtts.pipeline.feed import Transfer
from myxtts.types import Batch

ARRAYS = ("tokens", "token_lengths", "mel", "mel_lengths", "speaker", "language", "reference", "reference_lengths")


def copy_to_host(batch: Batch) -> Batch:
    """The batch as numpy arrays of its own."""
    copies: dict[str, Any] = {name: np.array(getattr(batch, name)) for name in ARRAYS}
    return replace(batch, **copies)


def make_device_transfer(device: str) -> Transfer:
    """A transfer that makes tensors on `device`, such as "/GPU:0" or "/CPU:0"."""
    import tensorflow as tf

    def copy_to_device(batch: Batch) -> Batch:
        with tf.device(device):
            tensors: dict[str, Any] = {name: tf.constant(getattr(batch, name)) for name in ARRAYS}
        return replace(batch, **tensors)

    return copy_to_device
