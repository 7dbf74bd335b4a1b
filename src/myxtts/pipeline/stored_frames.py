"""Batches of stored spectrograms without padding, for a data device that pads and casts them.

Frames of all utterances lie one behind the other in the number format of the store, so that nothing crosses to the
device that is not needed there.
Shape legend: B utterances, N tokens, T frames, F frames of all utterances, R frames of the reference, M mel bands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from myxtts.pipeline.assemble import BatchAssembler, find_crop, hash_crops
from myxtts.pipeline.buckets import Shape
from myxtts.pipeline.buffers import HostBatch, Placer, align, allocate_aligned
from myxtts.pipeline.loader import Loader
from myxtts.pipeline.order import NO_ROW, BatchPlan
from myxtts.pipeline.read_ahead import ReadAhead
from myxtts.store.reader import FeatureStore


@dataclass(frozen=True, slots=True)
class Frames:
    """Spectrograms one behind the other, and the width that each is to be padded to."""

    values: NDArray[Any]  # float16 or float32 [F, M], at least one frame
    num_frames: int


@dataclass(frozen=True, slots=True)
class FrameBatch:
    """A batch on its way to the data device, named like `Batch`."""

    tokens: NDArray[np.int32]
    token_lengths: NDArray[np.int32]
    mel: Frames
    mel_lengths: NDArray[np.int32]
    speaker: NDArray[np.int32]
    language: NDArray[np.int32]
    reference: Frames
    reference_lengths: NDArray[np.int32]


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

    def view(self, shape: Shape) -> FrameBatch:
        """All that a batch of this shape may need, with whatever was there before; few batches fill it."""
        size, place = shape.num_utterances, Placer(self._memory)

        def take_frames(num_frames: int) -> Frames:
            return Frames(place.take(self._dtype, size * num_frames, self._n_mels), num_frames)

        return FrameBatch(
            mel=take_frames(shape.num_frames),
            reference=take_frames(self._num_reference_frames),
            tokens=place.take(np.int32, size, shape.num_tokens),
            token_lengths=place.take(np.int32, size),
            mel_lengths=place.take(np.int32, size),
            speaker=place.take(np.int32, size),
            language=place.take(np.int32, size),
            reference_lengths=place.take(np.int32, size),
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


class FrameLoader(Loader):
    """Fills batches with the frames of a feature store. Any number of threads may call it."""

    name = "frames"

    def __init__(self, store: FeatureStore, num_reference_frames: int, seed: int, ram_budget_bytes: int = 0) -> None:
        self._store, self._num_reference_frames, self._seed = store, num_reference_frames, seed
        self._read_ahead = ReadAhead(store, ram_budget_bytes)
        self._assembler = BatchAssembler(
            store,
            lambda rows: store.read_parts(rows, "tokens"),
            num_reference_frames,
            seed,
            store.settings.mel.log_floor,
        )

    def fill(self, plan: BatchPlan, buffer: FrameBuffer) -> FrameBatch:
        batch = buffer.view(plan.shape)
        # Labels have the same names in every batch of the host.
        self._assembler.fill_labels(cast(HostBatch, batch), plan)
        mels = self._store.read_mels(plan.rows[: plan.num_real])
        return replace(
            batch,
            mel=_put_frames(batch.mel, batch.mel_lengths, mels),
            reference=_put_frames(batch.reference, batch.reference_lengths, self._cut_voices(plan)),
        )

    def name_utterances(self, plan: BatchPlan) -> tuple[str, ...]:
        return self._assembler.name_utterances(plan)

    def announce(self, plan: BatchPlan) -> None:
        self._read_ahead.announce(plan)

    def close(self) -> None:
        self._read_ahead.close()

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
