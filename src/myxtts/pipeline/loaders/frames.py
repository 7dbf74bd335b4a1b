"""Batches of stored spectrograms without padding, for a data device that pads and casts them.

Frames of all utterances lie one behind the other in the number format of the store, so that nothing crosses to the
device that is not needed there.
Shape legend: B utterances, N tokens, T frames, F frames of all utterances, R frames of the reference, M mel bands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from myxtts.pipeline.batch import HostBatch, Placer, align, allocate_aligned, find_crop, hash_crops
from myxtts.pipeline.buckets import Shape
from myxtts.pipeline.loaders.store import StoreLoader
from myxtts.pipeline.order import NO_ROW, BatchPlan


@dataclass(frozen=True, slots=True)
class Frames:
    """Spectrograms one behind the other, and the width that each is to be padded to."""

    values: NDArray[Any]  # float16 or float32 [F, M], at least one frame
    num_frames: int


class FrameBuffer:
    """Room for the frames of one batch of any of the shapes, in `memory` or in memory of its own."""

    def __init__(
        self,
        shapes: Sequence[Shape],
        n_mels: int,
        num_reference_frames: int,
        dtype: DTypeLike,
        memory: NDArray[np.uint8] | None = None,
    ) -> None:
        self._n_mels, self._num_reference_frames, self._dtype = n_mels, num_reference_frames, dtype
        num_bytes = measure_frame_buffer_bytes(shapes, n_mels, num_reference_frames, dtype)
        self._memory = allocate_aligned(num_bytes) if memory is None else memory
        assert len(self._memory) >= num_bytes

    def view(self, shape: Shape) -> HostBatch:
        """All that a batch of this shape may need, with whatever was there before; few batches fill it."""
        size, place = shape.num_utterances, Placer(self._memory)

        def take_frames(num_frames: int) -> Frames:
            return Frames(place.take(self._dtype, size * num_frames, self._n_mels), num_frames)

        return HostBatch(
            mel=take_frames(shape.num_frames),
            reference=take_frames(self._num_reference_frames),
            **place.take_labels(shape),
        )


def measure_frame_buffer_bytes(
    shapes: Sequence[Shape], n_mels: int, num_reference_frames: int, dtype: DTypeLike
) -> int:
    """What one buffer weighs, without making it."""
    frame_bytes = np.dtype(dtype).itemsize * n_mels

    def measure(shape: Shape) -> int:
        widths = (frame_bytes * shape.num_frames, frame_bytes * num_reference_frames, 4 * shape.num_tokens, *[4] * 5)
        return sum(align(shape.num_utterances * width) for width in widths)

    return max(map(measure, shapes))


class FrameLoader(StoreLoader):
    """Fills batches with the frames of a feature store. Any number of threads may call it."""

    name = "frames"

    def fill(self, plan: BatchPlan, buffer: FrameBuffer) -> HostBatch:
        batch = buffer.view(plan.shape)
        self._assembler.fill_labels(batch, plan)
        mels = self._store.read_mels(plan.rows[: plan.num_real])
        return replace(
            self._add_durations(batch, plan),
            mel=_put_frames(batch.mel, batch.mel_lengths, mels),
            reference=_put_frames(batch.reference, batch.reference_lengths, self._cut_voices(plan)),
        )

    def _cut_voices(self, plan: BatchPlan) -> list[NDArray[Any]]:
        voices = []
        for row, crop_hash in zip(plan.references, hash_crops(plan, self._seed).tolist(), strict=True):
            if row == NO_ROW:
                continue
            mel_TM = self._store.read_mel(int(row))
            start, length = find_crop(len(mel_TM), self._num_reference_frames, crop_hash)
            voices.append(mel_TM[start : start + length])
        return voices


def _put_frames(room: Frames, lengths: NDArray[np.int32], mels: list[NDArray[Any]]) -> Frames:
    """Puts the spectrograms one behind the other and notes how long each is; the places behind them have none."""
    lengths[:] = 0
    lengths[: len(mels)] = [len(mel_TM) for mel_TM in mels]
    num_frames = int(lengths.sum())
    np.concatenate(mels, out=room.values[:num_frames])
    return Frames(room.values[:num_frames], room.num_frames)
