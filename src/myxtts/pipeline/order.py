"""Which utterances make which batch: a pure function of the index, the seed, the epoch and the batch settings.

A position in training is one integer: epoch times batches per epoch plus the batch in the epoch. Every epoch has the
same number of batches of each shape, so any position is reached at once, and resuming needs nothing but the integer.
Nothing here depends on the state of a random generator, nor on how rows or speakers are numbered: a place in the order
is a hash of the utterance's key, and lengths before trimming decide what is batched together. So the order is the same
whether features come from a store, from one that was repaired, or straight from recordings.
Shape legend: N utterances, B utterances of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import DataError
from myxtts.pipeline.buckets import Shape, make_buckets, sort_small

# Which utterance gives the voice of another: one of the same speaker, of the same batch where that is possible.


class VoiceChooser:
    """For each utterance another one of the same speaker; its own where the speaker has no other.

    Utterances are known by their place in the order of keys, so the choice within a speaker does not depend on rows,
    and speakers are only told apart, so it does not depend on their numbers. Those of the same batch come first if they
    are long enough: they are loaded anyway, and making features on the fly would take twice as long without them.
    """

    def __init__(self, speakers_N: NDArray[np.integer], is_long_N: NDArray[np.bool_]) -> None:
        self._speakers, self._is_long = np.asarray(speakers_N), is_long_N
        self._by_speaker = sort_small(speakers_N)
        ordered = speakers_N[self._by_speaker]
        first_of = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        sizes = np.diff(np.append(first_of, len(speakers_N)))
        self._start, self._size, self._rank = (np.empty(len(speakers_N), np.int64) for _ in range(3))
        self._start[self._by_speaker] = np.repeat(first_of, sizes)
        self._size[self._by_speaker] = np.repeat(sizes, sizes)
        self._rank[self._by_speaker] = np.arange(len(speakers_N)) - np.repeat(first_of, sizes)

    def choose(self, places_B: NDArray[np.int64], hashes_B: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The places of the voices [B]; `hashes` decide among several."""
        speakers_B = self._speakers[places_B]
        fits_BB = (speakers_B[:, None] == speakers_B[None]) & self._is_long[places_B][None]
        np.fill_diagonal(fits_BB, False)
        num_fitting_B = fits_BB.sum(axis=1)
        wanted_B = (hashes_B % np.maximum(num_fitting_B, 1).astype(np.uint64)).astype(np.int64)
        # The first place in a row at which so many and one more have been counted.
        inside_B = places_B[(np.cumsum(fits_BB, axis=1) > wanted_B[:, None]).argmax(axis=1)]
        return np.where(num_fitting_B > 0, inside_B, self._choose_anywhere(places_B, hashes_B))

    def _choose_anywhere(self, places_B: NDArray[np.int64], hashes_B: NDArray[np.uint64]) -> NDArray[np.int64]:
        size = self._size[places_B]
        step = 1 + (hashes_B % np.maximum(size - 1, 1).astype(np.uint64)).astype(np.int64)
        return self._by_speaker[self._start[places_B] + (self._rank[places_B] + step) % size]


NO_ROW = -1
"""Fills a batch that has fewer utterances than its shape."""

_EPOCH_SALT, _BATCH_SALT, _REFERENCE_SALT = 1, 2, 3


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """One batch: rows of the store [B], the row that gives each its reference voice [B], and the shape to fill.

    `keys` [B] are what chance depends on for each utterance, by default its row.
    """

    position: int
    epoch: int
    rows: NDArray[np.int64]
    references: NDArray[np.int64]
    shape: Shape
    keys: NDArray[np.uint64] | None = None

    @property
    def num_real(self) -> int:
        return int(np.count_nonzero(self.rows != NO_ROW))

    def take_shard(self, shard: int, num_shards: int) -> BatchPlan:
        """The slice of one replica or host."""
        shape = self.shape.share(num_shards)
        part = slice(shard * shape.num_utterances, (shard + 1) * shape.num_utterances)
        keys = None if self.keys is None else self.keys[part]
        return BatchPlan(self.position, self.epoch, self.rows[part], self.references[part], shape, keys)


class BatchOrder:
    """The batches of all epochs over a set of utterances.

    `num_frames` and `num_tokens` say what an utterance takes up in a batch. `source_frames`, by default the same, says
    what it is batched by, and `keys`, by default its row, what it is shuffled by. A voice is preferably taken from the
    same batch, which then need not load it, if it has at least `num_reference_frames`.
    """

    def __init__(
        self,
        rows: NDArray[np.integer],
        num_frames: NDArray[np.integer],
        num_tokens: NDArray[np.integer],
        speakers: NDArray[np.integer],
        *,
        seed: int,
        batch_size: int,
        keys: NDArray[np.integer] | None = None,
        source_frames: NDArray[np.integer] | None = None,
        frame_budget: int | None = None,
        num_shapes: int = 8,
        multiple_of: int = 1,
        shuffle: bool = True,
        num_reference_frames: int = 0,
    ) -> None:
        if len(rows) == 0:
            raise DataError("There are no utterances to make batches of.", next_step="Check the corpus and its split.")
        self._keys = np.asarray(rows if keys is None else keys).astype(np.uint64)
        by_key = np.argsort(self._keys, kind="stable")
        self._keys, self._rows = self._keys[by_key], np.asarray(rows, np.int64)[by_key]
        self._seed, self._shuffle = seed, shuffle
        lengths = np.asarray(num_frames if source_frames is None else source_frames)[by_key]
        buckets = make_buckets(lengths, num_shapes, batch_size, frame_budget, multiple_of)
        self._bucket_of = buckets.number_of
        self.shapes = buckets.make_shapes(np.asarray(num_frames)[by_key], np.asarray(num_tokens)[by_key])
        self._starts, self._shape_numbers = buckets.cut_batches()
        self._voices = VoiceChooser(np.asarray(speakers)[by_key], lengths >= num_reference_frames)
        self._plan_epoch = lru_cache(maxsize=2)(self._compute_epoch)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The utterances of every epoch, by key."""
        return self._rows

    @property
    def num_batches_per_epoch(self) -> int:
        return len(self._shape_numbers)

    def batch(self, position: int) -> BatchPlan:
        """The batch at a position, in whatever epoch it falls."""
        epoch, index = divmod(position, self.num_batches_per_epoch)
        places, shape_numbers, starts = self._plan_epoch(epoch)
        shape = self.shapes[int(shape_numbers[index])]
        chosen = places[int(starts[index]) : int(starts[index + 1])]
        rows, references = (np.full(shape.num_utterances, NO_ROW, np.int64) for _ in range(2))
        keys = np.zeros(shape.num_utterances, np.uint64)
        rows[: len(chosen)], keys[: len(chosen)] = self._rows[chosen], self._keys[chosen]
        hashes = hash_numbers(self._keys[chosen], self._seed, epoch, _REFERENCE_SALT)
        references[: len(chosen)] = self._rows[self._voices.choose(chosen, hashes)]
        return BatchPlan(position, epoch, rows, references, shape, keys)

    def _compute_epoch(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Utterances in the order of an epoch, and for each of its batches the shape and where it starts."""
        places = np.arange(len(self._rows))
        if self._shuffle:
            places = np.argsort(hash_numbers(self._keys, self._seed, epoch, _EPOCH_SALT), kind="stable")
        # Stable, so that each shape keeps the shuffled order.
        places = places[np.argsort(self._bucket_of[places], kind="stable")]
        if not self._shuffle:
            return places, self._shape_numbers, self._starts
        return _shuffle_batches(places, self._shape_numbers, self._starts, self._seed, epoch)


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
