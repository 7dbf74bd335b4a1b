"""What every loader is to the feed."""

from __future__ import annotations

import mmap
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from myxtts.pipeline.buckets import Shape
from myxtts.pipeline.order import NO_ROW, BatchPlan, hash_numbers


class Loader(ABC):
    """Fills buffers with the utterances of plans. `fill` is called by several threads at once."""

    name: str

    @abstractmethod
    def fill(self, plan: BatchPlan, buffer: Any) -> Any:
        """The batch of a plan, made in the memory of the buffer; its `mel_lengths` say how many frames are real."""

    @abstractmethod
    def name_utterances(self, plan: BatchPlan) -> tuple[str, ...]:
        """The id of each row; '' where a row only fills the shape."""

    def announce(self, plan: BatchPlan) -> None:  # noqa: B027 - most loaders have no use for it
        """Says that a plan will be filled soon. Returns at once."""

    def close(self) -> None:  # noqa: B027 - most loaders hold nothing
        """Ends what the loader has under way."""


# The arrays of a batch, laid out in one piece of memory.
#
# Every array begins on a boundary that lets TensorFlow take it over without copying.
# Shape legend: B utterances, N tokens, T frames, M mel bands, R frames of the reference.

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


# What every loader does with features once it has them: putting them into the arrays of a batch.
#
# Shape legend: B utterances, N tokens, T frames, M mel bands, R frames of the reference.

_CROP_SALT = 4

ReadMel = Callable[[int], NDArray[Any]]
"""Gives the spectrogram [T, M] of a row, as float16 or float32."""


ReadTokens = Callable[[NDArray[np.integer[Any]]], Sequence[NDArray[np.int32]]]
"""Gives the tokens of many rows."""


class UtteranceTable(Protocol):
    """Utterances by row: a feature store, or the recordings of a corpus."""

    @property
    def columns(self) -> dict[str, NDArray[Any]]: ...
    def id_of(self, row: int) -> str: ...


class BatchAssembler:
    """Fills the arrays of a batch, those behind its last utterance included: buffers are used again and again."""

    def __init__(
        self,
        table: UtteranceTable,
        read_tokens: ReadTokens,
        num_reference_frames: int,
        seed: int,
        log_floor: float,
    ) -> None:
        self._table, self._read_tokens = table, read_tokens
        self._num_reference_frames, self._seed = num_reference_frames, seed
        self.padding = float(np.log(log_floor))

    def name_utterances(self, plan: BatchPlan) -> tuple[str, ...]:
        return tuple("" if row == NO_ROW else self._table.id_of(int(row)) for row in plan.rows)

    def fill_labels(self, batch: HostBatch, plan: BatchPlan) -> None:
        """Tokens, speakers and languages."""
        rows = plan.rows[: plan.num_real]
        batch.tokens[:] = 0
        batch.token_lengths[len(rows) :] = 0
        for place, tokens in enumerate(self._read_tokens(rows)):
            batch.tokens[place, : len(tokens)] = tokens
            batch.token_lengths[place] = len(tokens)
        for name in ("speaker", "language"):
            values = getattr(batch, name)
            values[: len(rows)] = self._table.columns[name][rows]
            values[len(rows) :] = 0

    def fill_mels(self, batch: HostBatch, plan: BatchPlan, read_mel: ReadMel) -> None:
        for place, row in enumerate(plan.rows):
            mel_TM = read_mel(int(row)) if row != NO_ROW else batch.mel[place, :0]
            length = len(mel_TM)
            batch.mel[place, :length] = mel_TM
            batch.mel[place, length:] = self.padding
            batch.mel_lengths[place] = length

    def fill_references(self, batch: HostBatch, plan: BatchPlan, read_mel: ReadMel) -> None:
        """A stretch of each reference clip."""
        hashes = hash_crops(plan, self._seed)
        for place, row in enumerate(plan.references):
            if row == NO_ROW:
                batch.reference[place] = self.padding
                batch.reference_lengths[place] = 0
                continue
            mel_TM = read_mel(int(row))
            start, length = find_crop(len(mel_TM), self._num_reference_frames, int(hashes[place]))
            batch.reference[place, :length] = mel_TM[start : start + length]
            batch.reference[place, length:] = self.padding
            batch.reference_lengths[place] = length


def hash_crops(plan: BatchPlan, seed: int) -> NDArray[np.uint64]:
    """For each utterance a number that decides where its reference starts: of itself, the seed and the epoch."""
    return hash_numbers(plan.rows if plan.keys is None else plan.keys, seed, plan.epoch, _CROP_SALT)


def find_crop(num_frames: int, num_reference_frames: int, crop_hash: int) -> tuple[int, int]:
    """First frame and number of frames of a reference: all of a clip that is shorter than asked for."""
    num_spare = max(0, num_frames - num_reference_frames)
    return crop_hash % (num_spare + 1), min(num_frames, num_reference_frames)


# Memory that is touched once and used again and again: fresh pages cost more than the copying into them.
#
# A lease ends by itself when nothing looks at its memory any more: no array, and no tensor that was made of one
# without
# copying. So whoever is handed a batch may keep it for as long as it likes, and nobody has to say when it is done.

_HUGE_PAGE_BYTES = 2 << 20

Piece = NDArray[np.uint8]


class MemoryPool:
    """Gives out pieces of `num_bytes`, and again those that came back; at most `num_kept` of these wait."""

    def __init__(self, num_bytes: int, num_kept: int) -> None:
        self._num_bytes = num_bytes
        self._free: deque[tuple[mmap.mmap, int]] = deque(maxlen=num_kept)
        self.num_made = 0

    def lease(self) -> Piece:
        """A piece as an array of bytes, which begins on a page. It may hold anything."""
        try:
            memory, start = self._free.pop()
        except IndexError:
            memory, start = self._make()
        # Views of an array refer to the array that was made of the memory itself: it ends with the last of them.
        root = np.frombuffer(memory, np.uint8, self._num_bytes, start)
        weakref.finalize(root, self._free.append, (memory, start)).atexit = False
        return root

    def add_touched(self) -> None:
        """Makes one more piece and lets its pages come into being, which may take longer than filling it."""
        memory, start = self._make()
        np.frombuffer(memory, np.uint8, self._num_bytes, start)[:] = 0
        self._free.append((memory, start))

    def _make(self) -> tuple[mmap.mmap, int]:
        memory = mmap.mmap(-1, self._num_bytes + _HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # A page fault for every two megabytes instead of every four kilobytes, where the system has such pages.
        with suppress(OSError, AttributeError):
            memory.madvise(mmap.MADV_HUGEPAGE)
        self.num_made += 1
        return memory, -np.frombuffer(memory, np.uint8).ctypes.data % _HUGE_PAGE_BYTES
