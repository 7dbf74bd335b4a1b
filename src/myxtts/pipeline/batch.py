"""A batch from memory to device: its layout in a host buffer, filling it, and handing it on as arrays or tensors.

    MemoryPool ─> BatchLayout.view ─> Loader.fill ─> hand_over_arrays or transfer to devices ─> Batch

What arrays there are is declared in `myxtts.types.BATCH`. Nothing is copied within the host, except the rows of each of
several devices: arrays and host tensors are views of the memory that was filled, which is reused when the last of them
is gone. A batch crosses to a device in one piece (`pipeline.packed`).
Shape legend: B utterances, N tokens, T frames, M mel bands, R frames of the reference.
"""

from __future__ import annotations

import mmap
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.pipeline import packed
from myxtts.pipeline.order import BatchPlan, Shape, hash_numbers
from myxtts.store.index import Utterances
from myxtts.types import BATCH, Array, Batch

Arrays = dict[str, NDArray[Any]]
"""The arrays of a batch on the host, by name."""
FEATURES = tuple(array for array in BATCH if array.name != "durations")
"""Every batch has these; durations only where they are taken from the store."""
LABELS = tuple(array for array in FEATURES if array.name not in ("mel", "reference"))
"""What a batch for a data device has as well, beside waveforms."""

_HUGE_PAGE_BYTES = 2 << 20
_CROP_SALT = 4
"""Makes the hashes of reference crops independent of the order's own."""


class Loader(ABC):
    """Fills batches according to plans. `fill` is called by several threads at once."""

    name: str

    @abstractmethod
    def fill(self, plan: BatchPlan, arrays: Arrays) -> Arrays:
        """Fills the arrays, which have the shape of the plan and any content; all of each is overwritten.

        What is returned may be cut to what was needed. Its `mel_lengths` are the frames of each utterance.
        """

    @abstractmethod
    def name_utterances(self, plan: BatchPlan) -> tuple[str, ...]:
        """The id of each row; '' where a row only fills the shape."""

    def announce(self, plan: BatchPlan) -> None:  # noqa: B027 - most loaders have no use for it
        """Tells that a plan will be filled soon. Returns at once."""

    def close(self) -> None:  # noqa: B027 - most loaders hold nothing
        """Ends threads and connections of the loader."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A batch that a loader has filled, and how long it took."""

    plan: BatchPlan
    ids: tuple[str, ...]
    arrays: Arrays
    load_s: float

    def to_batch(self, arrays: Mapping[str, Any]) -> Batch:
        """The batch with these arrays or tensors."""
        return Batch(self.plan.position, self.ids, self.plan.num_real, **arrays)


class BatchLayout:
    """Views of one piece of memory as the arrays of a batch, of any of the shapes.

    `measure` gives the size of each axis letter for a shape. `num_bytes` is what the largest shape needs.
    """

    def __init__(
        self, arrays: Sequence[Array], shapes: Sequence[Shape], measure: Callable[[Shape], Mapping[str, int]]
    ) -> None:
        self._arrays, self._measure = tuple(arrays), measure
        self._places = {shape: self._place(shape) for shape in shapes}
        self.num_bytes = max(packed.align(stop) for places in self._places.values() for *_, stop in places)

    @classmethod
    def of_features(
        cls, shapes: Sequence[Shape], n_mels: int, num_reference_frames: int, *, has_durations: bool = False
    ) -> BatchLayout:
        """The layout of padded log-mels and labels: a whole `Batch`."""
        measure = partial(measure_axes, n_mels=n_mels, num_reference_frames=num_reference_frames)
        return cls(BATCH if has_durations else FEATURES, shapes, measure)

    def view(self, shape: Shape, memory: NDArray[np.uint8] | None = None) -> Arrays:
        """The arrays of a batch of this shape. They hold what was in the memory before; new memory is all zeros."""
        memory = allocate_aligned(self.num_bytes) if memory is None else memory
        assert len(memory) >= self.num_bytes, f"{len(memory)} of {self.num_bytes} bytes"
        return {
            array.name: memory[start:stop].view(array.dtype).reshape(dimensions)
            for array, dimensions, start, stop in self._places.get(shape) or self._place(shape)
        }

    def _place(self, shape: Shape) -> list[tuple[Array, tuple[int, ...], int, int]]:
        """Each array with its dimensions and its first and last byte: one behind the other, on aligned boundaries."""
        sizes = self._measure(shape)
        dimensions = [array.shape(sizes) for array in self._arrays]
        pairs = list(zip(self._arrays, dimensions, strict=True))
        places = packed.place_arrays(prod(of_array) * np.dtype(array.dtype).itemsize for array, of_array in pairs)
        return [(*pair, *place) for pair, place in zip(pairs, places, strict=True)]


def measure_axes(shape: Shape, n_mels: int, num_reference_frames: int) -> dict[str, int]:
    """The size of each axis of `BATCH`."""
    sizes = {"B": shape.num_utterances, "N": shape.num_tokens, "T": shape.num_frames}
    return {**sizes, "M": n_mels, "R": num_reference_frames}


def allocate_aligned(num_bytes: int) -> NDArray[np.uint8]:
    memory = np.zeros(num_bytes + packed.ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % packed.ALIGNMENT_BYTES
    return memory[start : start + num_bytes]


class MemoryPool:
    """Host memory for batches, reused because faults of fresh pages cost more than copying into them.

    Gives out pieces of `num_bytes`; at most `num_kept` returned ones wait. A piece returns by itself when no array and
    no tensor that shares its memory refers to it any more, so a consumer may keep a batch for as long as it likes.
    """

    def __init__(self, num_bytes: int, num_kept: int) -> None:
        self._num_bytes = num_bytes
        self._free: deque[tuple[mmap.mmap, int]] = deque(maxlen=num_kept)
        self.num_made = 0

    def lease(self) -> NDArray[np.uint8]:
        """A piece as an array of bytes, which begins on a page. It may hold anything."""
        try:
            memory, start = self._free.pop()
        except IndexError:
            memory, start = self._make()
        # Views refer to this array, which was made of the memory itself: it ends with the last of them.
        root = np.frombuffer(memory, np.uint8, self._num_bytes, start)
        weakref.finalize(root, self._free.append, (memory, start)).atexit = False
        return root

    def add_touched(self) -> None:
        """Makes one more piece and writes to all of it, so that its page faults happen now."""
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


class AssemblingLoader(Loader):
    """Loader that copies features and labels of utterances into the arrays of a batch, and pads them."""

    def __init__(
        self, utterances: Utterances, num_reference_frames: int, seed: int, arrays: Sequence[Array] = BATCH
    ) -> None:
        self._utterances, self._num_reference_frames, self._seed = utterances, num_reference_frames, seed
        self._padding = float(np.log(utterances.mel_definition.log_floor))
        pads = {"zero": 0.0, "log_floor": self._padding}
        self._pads = [(array.name, pads[array.pad]) for array in arrays if array.axes.split()[0] == "B"]

    def name_utterances(self, plan: BatchPlan) -> tuple[str, ...]:
        names = [self._utterances.id_of(row) for row in plan.rows[: plan.num_real].tolist()]
        return (*names, *[""] * (len(plan.rows) - len(names)))

    def _fill_labels(self, arrays: Arrays, plan: BatchPlan) -> None:
        """Tokens, speakers and languages; pads all arrays of the rows that only fill the shape."""
        num_real = plan.num_real
        rows = plan.rows[:num_real]
        for name, pad in self._pads:
            if name in arrays:
                arrays[name][num_real:] = pad
        tokens = self._utterances.read_tokens(rows)
        fill_rows(arrays["tokens"], tokens)
        arrays["token_lengths"][:num_real] = [len(values) for values in tokens]
        for name in ("speaker", "language"):
            arrays[name][:num_real] = self._utterances.columns[name][rows]

    def _fill_mels(self, arrays: Arrays, plan: BatchPlan, mels: Mapping[int, NDArray[Any]]) -> None:
        """The log-mels [T, M] of the plan's rows, given by row as float16 or float32."""
        mel_BTM, lengths_B = arrays["mel"], arrays["mel_lengths"]
        for index, row in enumerate(plan.rows[: plan.num_real].tolist()):
            mel_TM = mels[row]
            length = len(mel_TM)
            mel_BTM[index, :length] = mel_TM
            mel_BTM[index, length:] = self._padding
            lengths_B[index] = length

    def _fill_references(self, arrays: Arrays, plan: BatchPlan, mels: Mapping[int, NDArray[Any]]) -> None:
        """A random crop of each reference clip."""
        reference_BRM, lengths_B = arrays["reference"], arrays["reference_lengths"]
        for index, (row, crop_hash) in enumerate(self._list_references(plan)):
            mel_TM = mels[row]
            start, length = self._find_crop(len(mel_TM), crop_hash)
            reference_BRM[index, :length] = mel_TM[start : start + length]
            reference_BRM[index, length:] = self._padding
            lengths_B[index] = length

    def _list_references(self, plan: BatchPlan) -> list[tuple[int, int]]:
        """The row of each utterance's reference clip, and the hash that decides where its crop starts."""
        num_real = plan.num_real
        hashes = hash_crops(plan, self._seed)[:num_real]
        return list(zip(plan.references[:num_real].tolist(), hashes.tolist(), strict=True))

    def _find_crop(self, num_frames: int, crop_hash: int) -> tuple[int, int]:
        """First frame and number of frames of a reference: the whole clip if it is shorter than a reference."""
        num_spare = max(0, num_frames - self._num_reference_frames)
        return crop_hash % (num_spare + 1), min(num_frames, self._num_reference_frames)


def fill_rows(rows_BN: NDArray[Any], values: Sequence[NDArray[Any]]) -> None:
    """Copies values of different lengths into the rows; zeros stand behind them."""
    rows_BN[:] = 0
    for index, row in enumerate(values):
        rows_BN[index, : len(row)] = row


def hash_crops(plan: BatchPlan, seed: int) -> NDArray[np.uint64]:
    """For each utterance a number that decides where its reference starts: of its key, the seed and the epoch."""
    return hash_numbers(plan.rows if plan.keys is None else plan.keys, seed, plan.epoch, _CROP_SALT)


def hand_over_arrays(loaded: Loaded) -> Batch:
    """The batch as numpy arrays."""
    return loaded.to_batch(loaded.arrays)


def make_device_transfer(
    devices: Sequence[str], num_bytes: int, num_threads: int = 1
) -> Callable[[Loaded], packed.PackedBatch]:
    """A transfer to a device, such as "/GPU:0" or "/CPU:0"; several devices get equal shares of the rows.

    A batch crosses to each device by one copy. `num_bytes` is the size of the largest batch, and `num_threads` is how
    many threads call the transfer.
    """
    # Here, and not in the thread of a stage: an interrupt must not find a half imported TensorFlow.
    import tensorflow  # noqa: F401

    if len(devices) == 1:
        has_tensors = packed.is_host(devices[0])
        return lambda loaded: _pack(loaded, [packed.pack_views(loaded.arrays)], has_tensors).to_devices(devices)
    # Rows are a part of each array, so those of a device are copied into a piece of their own.
    pool = MemoryPool(
        num_bytes // len(devices) + len(BATCH) * packed.ALIGNMENT_BYTES, num_kept=num_threads * len(devices)
    )
    return lambda loaded: _pack(loaded, _copy_shares(loaded, len(devices), pool), has_tensors=True).to_devices(devices)


def _pack(loaded: Loaded, pieces: Sequence[packed.Packed], has_tensors: bool) -> packed.PackedBatch:
    """The batch in these pieces; its tensors share the memory of the host."""
    tensors = {name: packed.adopt(values) for name, values in loaded.arrays.items()} if has_tensors else None
    return packed.PackedBatch(loaded.plan.position, loaded.ids, loaded.plan.num_real, pieces, tensors)


def _copy_shares(loaded: Loaded, num_shares: int, pool: MemoryPool) -> list[packed.Packed]:
    """A piece for each of equal shares of the rows, in order."""
    size, rest = divmod(len(loaded.ids), num_shares)
    assert rest == 0, f"{len(loaded.ids)} rows cannot be shared by {num_shares}"
    return [
        packed.pack_copies({name: values[first : first + size] for name, values in loaded.arrays.items()}, pool.lease())
        for first in range(0, len(loaded.ids), size)
    ]
