"""Which utterances make which batch: a pure function of the index, the seed, the epoch and the batch settings.

A position in training is one integer: epoch times batches per epoch plus the batch in the epoch. Every epoch has the
same number of batches of each shape, so any position is reached at once, and resuming needs nothing but the integer.
Nothing here depends on the state of a random generator: a place in a shuffled order is a hash of what is shuffled.
Shape legend: N utterances, B utterances of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import DataError
from myxtts.pipeline.buckets import Shape, assign_buckets, choose_lengths, make_shapes

NO_ROW = -1
"""Fills a batch that has fewer utterances than its shape."""

_EPOCH_SALT, _BATCH_SALT, _REFERENCE_SALT = 1, 2, 3


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """One batch: rows of the store [B], the row that gives each its reference voice [B], and the shape to fill."""

    position: int
    epoch: int
    rows: NDArray[np.int64]
    references: NDArray[np.int64]
    shape: Shape

    @property
    def num_real(self) -> int:
        return int(np.count_nonzero(self.rows != NO_ROW))

    def take_shard(self, shard: int, num_shards: int) -> BatchPlan:
        """The slice of one replica or host."""
        size = self.shape.num_utterances // num_shards
        part = slice(shard * size, (shard + 1) * size)
        shape = Shape(size, self.shape.num_frames, self.shape.num_tokens)
        return BatchPlan(self.position, self.epoch, self.rows[part], self.references[part], shape)


class BatchOrder:
    """The batches of all epochs over a set of utterances."""

    def __init__(
        self,
        rows: NDArray[np.integer],
        num_frames: NDArray[np.integer],
        num_tokens: NDArray[np.integer],
        speakers: NDArray[np.integer],
        *,
        seed: int,
        batch_size: int,
        frame_budget: int | None = None,
        num_shapes: int = 8,
        multiple_of: int = 1,
        shuffle: bool = True,
    ) -> None:
        if len(rows) == 0:
            raise DataError("There are no utterances to make batches of.", next_step="Check the corpus and its split.")
        self._rows = np.asarray(rows, np.int64)
        self._seed, self._shuffle = seed, shuffle
        limits = choose_lengths(num_frames, num_shapes)
        self._buckets = assign_buckets(num_frames, limits)
        max_tokens = np.maximum.accumulate(
            [int(num_tokens[self._buckets == bucket].max(initial=0)) for bucket in range(len(limits))]
        )
        self.shapes = make_shapes(limits, max_tokens, batch_size, frame_budget, multiple_of)
        self._references = _ReferenceChooser(self._rows, np.asarray(speakers))
        self._num_batches = self._count_batches()
        self._plan_epoch = lru_cache(maxsize=2)(self._compute_epoch)

    @property
    def num_batches_per_epoch(self) -> int:
        return sum(self._num_batches)

    def batch(self, position: int) -> BatchPlan:
        """The batch at a position, in whatever epoch it falls."""
        epoch, index = divmod(position, self.num_batches_per_epoch)
        places, shape_numbers, starts = self._plan_epoch(epoch)
        shape = self.shapes[int(shape_numbers[index])]
        chosen = places[int(starts[index]) : int(starts[index + 1])]
        rows = np.full(shape.num_utterances, NO_ROW, np.int64)
        references = np.full(shape.num_utterances, NO_ROW, np.int64)
        rows[: len(chosen)] = self._rows[chosen]
        references[: len(chosen)] = self._references.choose(chosen, self._seed, epoch)
        return BatchPlan(position, epoch, rows, references, shape)

    def _count_batches(self) -> list[int]:
        """How many batches of each shape an epoch has: what does not fill a batch moves on to the next shape."""
        counts = np.bincount(self._buckets, minlength=len(self.shapes)).tolist()
        num_batches, carried = [], 0
        for count, shape in zip(counts, self.shapes, strict=True):
            num_full, carried = divmod(count + carried, shape.num_utterances)
            num_batches.append(num_full)
        if carried:
            num_batches[-1] += 1
        return num_batches

    def _compute_epoch(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Utterances in the order of an epoch, and for each of its batches the shape and where it starts."""
        num_utterances = len(self._rows)
        places = np.arange(num_utterances)
        if self._shuffle:
            places = np.argsort(hash_numbers(self._rows, self._seed, epoch, _EPOCH_SALT), kind="stable")
        # Stable, so that each shape keeps the shuffled order; carrying on to the next shape is then just a later cut.
        places = places[np.argsort(self._buckets[places], kind="stable")]
        sizes = np.repeat([shape.num_utterances for shape in self.shapes], self._num_batches)
        shape_numbers = np.repeat(np.arange(len(self.shapes)), self._num_batches)
        starts = np.minimum(np.concatenate([[0], np.cumsum(sizes)]), num_utterances)
        if not self._shuffle:
            return places, shape_numbers, starts
        return _shuffle_batches(places, shape_numbers, starts, self._seed, epoch)


class _ReferenceChooser:
    """For each utterance another one of the same speaker; its own where the speaker has no other."""

    def __init__(self, rows: NDArray[np.int64], speakers: NDArray[np.integer]) -> None:
        self._rows = rows
        self._by_speaker = np.argsort(speakers, kind="stable")
        ordered = speakers[self._by_speaker]
        first_of = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        sizes = np.diff(np.append(first_of, len(rows)))
        self._start = np.empty(len(rows), np.int64)
        self._start[self._by_speaker] = np.repeat(first_of, sizes)
        self._size = np.empty(len(rows), np.int64)
        self._size[self._by_speaker] = np.repeat(sizes, sizes)
        self._rank = np.empty(len(rows), np.int64)
        self._rank[self._by_speaker] = np.arange(len(rows)) - np.repeat(first_of, sizes)

    def choose(self, places: NDArray[np.int64], seed: int, epoch: int) -> NDArray[np.int64]:
        size, rank = self._size[places], self._rank[places]
        hashes = hash_numbers(self._rows[places], seed, epoch, _REFERENCE_SALT)
        step = 1 + (hashes % np.maximum(size - 1, 1).astype(np.uint64)).astype(np.int64)
        chosen = self._start[places] + (rank + step) % size
        return self._rows[self._by_speaker[chosen]]


def hash_numbers(numbers: NDArray[np.integer], *salts: int) -> NDArray[np.uint64]:
    """A well mixed 64-bit number for each number, the same on every machine and version."""
    mixed = np.asarray(numbers).astype(np.uint64)
    with np.errstate(over="ignore"):
        for salt in salts:
            mixed = (mixed ^ np.uint64(salt & 0xFFFFFFFFFFFFFFFF)) + np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed ^= mixed >> np.uint64(31)
    return mixed


def _shuffle_batches(
    places: NDArray[np.int64], shape_numbers: NDArray[np.int64], starts: NDArray[np.int64], seed: int, epoch: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The same batches in an order of their own, so that short and long ones alternate."""
    num_batches = len(shape_numbers)
    order = np.argsort(hash_numbers(np.arange(num_batches), seed, epoch, _BATCH_SALT), kind="stable")
    sizes = np.diff(starts)[order]
    new_starts = np.concatenate([[0], np.cumsum(sizes)])
    # Position i of the new order reads where its batch lay before.
    sources = np.repeat(starts[:-1][order] - new_starts[:-1], sizes) + np.arange(len(places))
    return places[sources], shape_numbers[order], new_starts
