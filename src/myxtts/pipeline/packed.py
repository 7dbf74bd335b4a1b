"""A batch in one piece: all of its arrays in one vector, which crosses to a device by a single copy.

A copy to a GPU begins only when the GPU has done what it was given before, and TensorFlow leaves 32-bit integers in
host memory until a step asks for them. So nothing crosses array by array: the arrays of a batch lie one behind the
other in host memory (`BatchLayout`), cross as one vector of float32, and are cut out of it inside the compiled step.
The vector carries integers as bits. As floats most of them are denormal numbers, some are NaN, and arithmetic would
change both: the vector may be cut, joined and copied, but never computed with.
Shape legend: B utterances, W numbers of the vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from myxtts.types import BATCH, Batch, Tensor

ALIGNMENT_BYTES = 64
"""TensorFlow takes over host memory without a copy only if it is aligned to this."""
_NUMBER_BYTES = 4
_CARRIER = "float32"
"""Of the vector. Not int32, which TensorFlow would keep in host memory."""
_NAMES = frozenset(array.name for array in BATCH)


class PackedArray(NamedTuple):
    """Name, number format and shape of an array inside a vector."""

    name: str
    dtype: str
    shape: tuple[int, ...]


PackedLayout = tuple[PackedArray, ...]
"""The arrays of a vector in order."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Arrays of 4-byte numbers in one vector [W], each beginning at a multiple of 64 bytes.

    An argument like any other for functions of TensorFlow, by the protocol of the two methods: the vector is a tensor
    of theirs, or one for each replica, and the layout a part of their signature.
    """

    vector: Tensor
    layout: PackedLayout

    def __tf_flatten__(self) -> tuple[tuple[PackedLayout], tuple[Tensor]]:
        return (self.layout,), (self.vector,)

    @classmethod
    def __tf_unflatten__(cls, metadata: tuple[PackedLayout], components: tuple[Tensor]) -> Packed:
        return cls(*components, *metadata)

    @property
    def num_rows(self) -> int:
        return self.layout[0].shape[0]

    def to_device(self, device: str) -> Packed:
        """The same on a device, by one copy; itself if it is on the host and the device is the host."""
        import tensorflow as tf

        if is_host(device) and is_host(self.vector.device):
            return self
        with tf.device(device):
            return Packed(tf.identity(self.vector), self.layout)


def is_host(device: str) -> bool:
    """Whether a device, by any of its names, is the memory that loaders fill."""
    return device.endswith("CPU:0")


def place_arrays(num_bytes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First and last byte of arrays of these sizes, one behind the other on aligned boundaries."""
    start = 0
    for size in num_bytes:
        yield start, start + size
        start += align(size)


def align(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def adopt(array: NDArray[Any]) -> Tensor:
    """A tensor of the host that shares the array's memory."""
    import tensorflow as tf

    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def pack_views(arrays: Mapping[str, NDArray[Any]]) -> Packed:
    """Arrays of the host that lie one behind the other already, as `BatchLayout` places them. Nothing is copied."""
    layout, starts, num_bytes = _place(arrays)
    first, *_, last = arrays.values()
    begin = _find_address(first)
    assert _find_address(last) - begin == starts[-1], f"{tuple(arrays)} do not lie one behind the other"
    memory: Any = first.base
    offset = begin - _find_address(memory)
    return Packed(adopt(np.ndarray(num_bytes // _NUMBER_BYTES, _CARRIER, memory, offset)), layout)


def pack_copies(arrays: Mapping[str, NDArray[Any]], memory: NDArray[np.uint8]) -> Packed:
    """Any arrays of the host, copied into one piece of memory, which must be aligned."""
    layout, starts, num_bytes = _place(arrays)
    for values, start in zip(arrays.values(), starts, strict=True):
        memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)[...] = values
    return Packed(adopt(memory[:num_bytes].view(_CARRIER)), layout)


def resize_rows(layout: PackedLayout, num_rows: int) -> PackedLayout:
    """The same arrays with another number of rows."""
    return tuple(array._replace(shape=(num_rows, *array.shape[1:])) for array in layout)


def _place(arrays: Mapping[str, NDArray[Any]]) -> tuple[PackedLayout, tuple[int, ...], int]:
    """The layout of these arrays, the first byte of each, and the bytes of all with those that fill the last one."""
    return _place_like(tuple((name, values.dtype, values.shape) for name, values in arrays.items()))


@lru_cache(maxsize=256)
def _place_like(
    arrays: tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...],
) -> tuple[PackedLayout, tuple[int, ...], int]:
    assert all(dtype.itemsize == _NUMBER_BYTES for _, dtype, _ in arrays), f"not of 4-byte numbers: {arrays}"
    places = list(place_arrays(prod(shape) * _NUMBER_BYTES for *_, shape in arrays))
    layout = tuple(PackedArray(name, dtype.name, shape) for name, dtype, shape in arrays)
    return layout, tuple(start for start, _ in places), align(places[-1][1])


def _find_address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


# What follows runs inside compiled functions of the step as well as eagerly.


def unpack(part: Packed | dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors by name; a part that is not packed as it is."""
    if not isinstance(part, Packed):
        return part
    return _read_bits(cut_vector(part), part.layout)


def _read_bits(carriers: Mapping[str, Tensor], layout: PackedLayout) -> dict[str, Tensor]:
    """The same tensors as numbers of their own format."""
    import tensorflow as tf

    return {
        array.name: carriers[array.name] if array.dtype == _CARRIER else tf.bitcast(carriers[array.name], array.dtype)
        for array in layout
    }


def cut_vector(part: Packed) -> dict[str, Tensor]:
    """The tensors by name in their shapes, but all as float32: integers are still to be read as such."""
    import tensorflow as tf

    sizes: list[int] = []
    for array in part.layout:
        size = prod(array.shape)
        sizes += [size, align(size * _NUMBER_BYTES) // _NUMBER_BYTES - size]
    # Not by slices: TensorFlow has mixed up the bounds of eager slices that two threads took at the same time.
    pieces = tf.split(part.vector, sizes)[::2]
    return {array.name: tf.reshape(piece, array.shape) for array, piece in zip(part.layout, pieces, strict=True)}


def join_vector(carriers: Mapping[str, Tensor]) -> Tensor:
    """The vector [W] of tensors that are all float32, with zeros behind each up to its boundary."""
    import tensorflow as tf

    pieces: list[Tensor] = []
    for carrier in carriers.values():
        size = prod(carrier.shape)
        pieces += [tf.reshape(carrier, [-1]), tf.zeros([align(size * _NUMBER_BYTES) // _NUMBER_BYTES - size])]
    return tf.concat(pieces, axis=0)


class PackedBatch(Batch):
    """A batch in one piece, or in one for each share of its rows.

    Training gives the pieces to its step. The tensors of a batch on a device are cut out of them when the first is
    asked for; those of the host, which share its memory, are given.
    """

    __slots__ = ("_tensors", "pieces")
    pieces: tuple[Packed, ...]

    def __init__(
        self,
        position: int,
        ids: tuple[str, ...],
        num_real: int,
        pieces: Sequence[Packed],
        tensors: Mapping[str, Tensor] | None = None,
        shares: tuple[Batch, ...] = (),
    ) -> None:
        known = {"position": position, "ids": ids, "num_real": num_real, "shares": shares, "pieces": tuple(pieces)}
        for name, value in {**known, "_tensors": tensors}.items():
            object.__setattr__(self, name, value)
        if tensors is not None:
            self._set_tensors(tensors)

    def to_devices(self, devices: Sequence[str]) -> PackedBatch:
        """Copies the piece to a device, or each of several to its own; the whole batch then stays where it is."""
        assert len(self.pieces) == len(devices), f"{len(self.pieces)} pieces for {len(devices)} devices"
        moved = [piece.to_device(device) for piece, device in zip(self.pieces, devices, strict=True)]
        if len(devices) > 1:
            # Pieces are kept only where the tensors of the whole can be had from nowhere else.
            pieces = self.pieces if self._tensors is None else ()
            shares = tuple(self._share_out(moved))
            return PackedBatch(self.position, self.ids, self.num_real, pieces, self._tensors, shares)
        return self if moved[0] is self.pieces[0] else PackedBatch(self.position, self.ids, self.num_real, moved)

    def _share_out(self, pieces: Sequence[Packed]) -> Iterator[PackedBatch]:
        first = 0
        for piece in pieces:
            ids = self.ids[first : first + piece.num_rows]
            yield PackedBatch(self.position, ids, sum(map(bool, ids)), [piece])
            first += piece.num_rows

    def __getattr__(self, name: str) -> Any:
        # Called for an attribute that is not set.
        if name not in _NAMES:
            raise AttributeError(f"A batch has no {name}.", name=name, obj=self)
        self._set_tensors(self._cut_tensors())
        return getattr(self, name)

    def _set_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        for name in _NAMES:
            object.__setattr__(self, name, tensors.get(name))

    def _cut_tensors(self) -> Mapping[str, Tensor]:
        """All tensors, on the device of the pieces."""
        import tensorflow as tf

        # Eager operations without a device run on the first GPU, wherever their inputs are.
        with tf.device(self.pieces[0].vector.device):
            rows = [cut_vector(piece) for piece in self.pieces]
            whole = rows[0] if len(rows) == 1 else {name: tf.concat([one[name] for one in rows], 0) for name in rows[0]}
            return _read_bits(whole, self.pieces[0].layout)
