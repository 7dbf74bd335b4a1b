"""The arrays of a batch, laid out in one piece of memory.

Every array begins on a boundary that lets TensorFlow take it over without copying.
Shape legend: B utterances, N tokens, T frames, M mel bands, R frames of the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from myxtts.pipeline.buckets import Shape

_ALIGNMENT_BYTES = 64


@dataclass(frozen=True, slots=True)
class HostBatch:
    """Views of a buffer in the shape of one batch, named like `Batch`.

    For a data device `mel` and `reference` are what it makes spectrograms of. `durations` are in memory of their own.
    """

    tokens: NDArray[np.int32]
    token_lengths: NDArray[np.int32]
    mel: Any
    mel_lengths: NDArray[np.int32]
    speaker: NDArray[np.int32]
    language: NDArray[np.int32]
    reference: Any
    reference_lengths: NDArray[np.int32]
    durations: NDArray[np.int32] | None = None


class BatchBuffer:
    """Room for one batch of any of the shapes, in `memory` or in memory of its own."""

    def __init__(
        self,
        shapes: Sequence[Shape],
        n_mels: int,
        num_reference_frames: int,
        memory: NDArray[np.uint8] | None = None,
    ) -> None:
        self._n_mels, self._num_reference_frames = n_mels, num_reference_frames
        if memory is None:
            memory = allocate_aligned(measure_buffer_bytes(shapes, n_mels, num_reference_frames))
        self._memory = memory

    def view(self, shape: Shape) -> HostBatch:
        """The arrays of a batch of this shape. They hold whatever was there before."""
        size, n_mels = shape.num_utterances, self._n_mels
        place = Placer(self._memory)
        return HostBatch(
            mel=place.take(np.float32, size, shape.num_frames, n_mels),
            reference=place.take(np.float32, size, self._num_reference_frames, n_mels),
            **place.take_labels(shape),
        )


class Placer:
    """Cuts aligned arrays out of a piece of memory, one behind the other."""

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self._memory, self._start = memory, 0

    def take(self, dtype: DTypeLike, *shape: int) -> NDArray[Any]:
        num_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        piece = self._memory[self._start : self._start + num_bytes]
        assert len(piece) == num_bytes, "the memory is too small for this shape"
        self._start += align(num_bytes)
        return piece.view(dtype).reshape(shape)

    def take_labels(self, shape: Shape) -> dict[str, NDArray[np.int32]]:
        """Everything of a batch that is not sound."""
        tokens = self.take(np.int32, shape.num_utterances, shape.num_tokens)
        names = ("token_lengths", "mel_lengths", "speaker", "language", "reference_lengths")
        return {"tokens": tokens, **{name: self.take(np.int32, shape.num_utterances) for name in names}}


def align(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def allocate_aligned(num_bytes: int) -> NDArray[np.uint8]:
    memory = np.zeros(num_bytes + _ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT_BYTES
    return memory[start : start + num_bytes]


def measure_buffer_bytes(shapes: Sequence[Shape], n_mels: int, num_reference_frames: int) -> int:
    """What one buffer weighs, without making it."""
    return max(_measure_shape(shape, n_mels, num_reference_frames) for shape in shapes)


def _measure_shape(shape: Shape, n_mels: int, num_reference_frames: int) -> int:
    size = shape.num_utterances
    numbers = (shape.num_frames * n_mels, num_reference_frames * n_mels, shape.num_tokens, 1, 1, 1, 1, 1)
    return sum(align(4 * size * count) for count in numbers)
