"""Order of batches: a pure function of the index, the seed, the epoch and the batch settings.

    lengths ─> buckets with a few static shapes ─> utterances shuffled within a bucket ─> batches shuffled

A position in training is one integer: epoch times batches per epoch plus the batch in the epoch. Every epoch has the
same number of batches of each shape, so any position is reached at once, and resuming needs nothing but the integer.
Nothing here depends on the state of a random generator, nor on how rows or speakers are numbered: utterances are
sorted by a hash of their key, and lengths before trimming decide what is batched together. So the order is the same
whether features come from a store, from one that was repaired, or straight from recordings.
Shape legend: N utterances, B utterances of a batch, L distinct rounded lengths, K shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

LENGTH_STEP = 8
"""Shapes are multiples of this many frames, which suits the matrix units of accelerators."""
NO_ROW = -1
"""Row number that fills a batch with fewer utterances than its shape."""

_MAX_CANDIDATES = 768
"""Distinct lengths that bucket limits are chosen from; the cost table has the square of it, 4.7 MB."""
_FORBIDDEN = np.iinfo(np.int64).max // 4
"""Cost of an impossible choice; a quarter of the range, so that sums of it do not overflow."""
_EPOCH_SALT, _BATCH_SALT, _REFERENCE_SALT = 1, 2, 3
"""Make the hashes of the three shuffles independent of each other."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A static batch shape: so many utterances of so many frames and tokens."""

    num_utterances: int
    num_frames: int
    num_tokens: int

    def share(self, num_shares: int) -> Shape:
        """The shape of one of several equal shares of the utterances."""
        return Shape(self.num_utterances // num_shares, self.num_frames, self.num_tokens)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """One batch: rows of the store [B], the row of each one's reference clip [B], and the shape to fill.

    `keys` [B] seed the random choices of each utterance; by default its row.
    """

    position: int
    epoch: int
    rows: NDArray[np.int64]
    references: NDArray[np.int64]
    shape: Shape
    keys: NDArray[np.uint64] | None = None

    @property
    def num_real(self) -> int:
        """Utterances of the batch; the rows behind them only fill the shape."""
        return int(np.count_nonzero(self.rows != NO_ROW))

    def take_shard(self, shard: int, num_shards: int) -> BatchPlan:
        """The slice of one replica or host."""
        shape = self.shape.share(num_shards)
        part = slice(shard * shape.num_utterances, (shard + 1) * shape.num_utterances)
        keys = None if self.keys is None else self.keys[part]
        return BatchPlan(self.position, self.epoch, self.rows[part], self.references[part], shape, keys)

    def list_distinct_rows(self) -> list[int]:
        """All rows to load, each once: a reference is often another utterance of the batch."""
        rows = np.concatenate([self.rows, self.references])
        distinct: list[int] = np.unique(rows[rows != NO_ROW]).tolist()
        return distinct


class BatchOrder:
    """The batches of all epochs over a set of utterances.

    `num_frames` and `num_tokens` are the lengths of an utterance in a batch. `source_frames`, by default the same, is
    the length it is bucketed by, and `keys`, by default its row, what it is shuffled by. A reference is preferably
    another utterance of the same batch, which is loaded anyway, if that has at least `num_reference_frames`.
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
        self._keys = np.asarray(rows if keys is None else keys).astype(np.uint64)
        by_key = np.argsort(self._keys, kind="stable")
        self._keys, self._rows = self._keys[by_key], np.asarray(rows, np.int64)[by_key]
        self._seed, self._shuffle = seed, shuffle
        lengths = np.asarray(num_frames if source_frames is None else source_frames)[by_key]
        buckets = make_buckets(lengths, num_shapes, batch_size, frame_budget, multiple_of)
        self._bucket_of = buckets.number_of
        self.shapes = buckets.make_shapes(np.asarray(num_frames)[by_key], np.asarray(num_tokens)[by_key])
        self._starts, self._shape_numbers = buckets.cut_batches()
        self._references = ReferenceChooser(np.asarray(speakers)[by_key], lengths >= num_reference_frames)
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
        epoch, number = divmod(position, self.num_batches_per_epoch)
        indices, shape_numbers, starts = self._plan_epoch(epoch)
        shape = self.shapes[int(shape_numbers[number])]
        chosen = indices[int(starts[number]) : int(starts[number + 1])]
        rows, references = (np.full(shape.num_utterances, NO_ROW, np.int64) for _ in range(2))
        keys = np.zeros(shape.num_utterances, np.uint64)
        rows[: len(chosen)], keys[: len(chosen)] = self._rows[chosen], self._keys[chosen]
        hashes = hash_numbers(self._keys[chosen], self._seed, epoch, _REFERENCE_SALT)
        references[: len(chosen)] = self._rows[self._references.choose(chosen, hashes)]
        return BatchPlan(position, epoch, rows, references, shape, keys)

    def shape_at(self, position: int) -> Shape:
        """The shape of the batch at a position."""
        epoch, number = divmod(position, self.num_batches_per_epoch)
        _, shape_numbers, _ = self._plan_epoch(epoch)
        return self.shapes[int(shape_numbers[number])]

    def _compute_epoch(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Utterances in the order of an epoch, and for each of its batches the shape and where it starts."""
        indices = np.arange(len(self._rows))
        if self._shuffle:
            indices = np.argsort(hash_numbers(self._keys, self._seed, epoch, _EPOCH_SALT), kind="stable")
        # Stable, so that each shape keeps the shuffled order.
        indices = indices[np.argsort(self._bucket_of[indices], kind="stable")]
        if not self._shuffle:
            return indices, self._shape_numbers, self._starts
        return _shuffle_batches(indices, self._shape_numbers, self._starts, self._seed, epoch)


def hash_numbers(numbers: NDArray[np.integer], *salts: int) -> NDArray[np.uint64]:
    """A 64-bit hash of each number, the same on every machine and version: the finaliser of SplitMix64 per salt."""
    mixed = np.asarray(numbers).astype(np.uint64)
    with np.errstate(over="ignore"):
        for salt in salts:
            mixed = (mixed ^ np.uint64(salt & 0xFFFFFFFFFFFFFFFF)) + np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed ^= mixed >> np.uint64(31)
    return mixed


def _shuffle_batches(
    indices: NDArray[np.int64], shape_numbers: NDArray[np.int64], starts: NDArray[np.int64], seed: int, epoch: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The same batches in a shuffled order, so that short and long ones alternate."""
    order = np.argsort(hash_numbers(np.arange(len(shape_numbers)), seed, epoch, _BATCH_SALT), kind="stable")
    sizes = np.diff(starts)[order]
    new_starts = np.concatenate([[0], np.cumsum(sizes)])
    # Index i of the new order reads from where its batch was before.
    sources = np.repeat(starts[:-1][order] - new_starts[:-1], sizes) + np.arange(len(indices))
    return indices[sources], shape_numbers[order], new_starts


class ReferenceChooser:
    """For each utterance a reference clip: another one of the same speaker; itself where the speaker has no other.

    Utterances are numbered in the order of their keys, so the choice within a speaker does not depend on rows, and
    speakers are only compared, so it does not depend on their numbers. Utterances of the same batch come first if they
    are long enough: they are loaded anyway, and computing features on the fly would take twice as long without them.
    """

    def __init__(self, speakers_N: NDArray[np.integer], is_long_N: NDArray[np.bool_]) -> None:
        self._speakers, self._is_long = np.asarray(speakers_N), is_long_N
        self._by_speaker = _sort_small(speakers_N)
        ordered = speakers_N[self._by_speaker]
        first_of = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        sizes = np.diff(np.append(first_of, len(speakers_N)))
        self._start, self._size, self._rank = (np.empty(len(speakers_N), np.int64) for _ in range(3))
        self._start[self._by_speaker] = np.repeat(first_of, sizes)
        self._size[self._by_speaker] = np.repeat(sizes, sizes)
        self._rank[self._by_speaker] = np.arange(len(speakers_N)) - np.repeat(first_of, sizes)

    def choose(self, indices_B: NDArray[np.int64], hashes_B: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The numbers of the reference clips [B]; `hashes` decide among several."""
        speakers_B = self._speakers[indices_B]
        fits_BB = (speakers_B[:, None] == speakers_B[None]) & self._is_long[indices_B][None]
        np.fill_diagonal(fits_BB, False)
        num_fitting_B = fits_BB.sum(axis=1)
        wanted_B = (hashes_B % np.maximum(num_fitting_B, 1).astype(np.uint64)).astype(np.int64)
        # The column at which the running count of fitting utterances exceeds the wanted one.
        inside_B = indices_B[(np.cumsum(fits_BB, axis=1) > wanted_B[:, None]).argmax(axis=1)]
        return np.where(num_fitting_B > 0, inside_B, self._choose_anywhere(indices_B, hashes_B))

    def _choose_anywhere(self, indices_B: NDArray[np.int64], hashes_B: NDArray[np.uint64]) -> NDArray[np.int64]:
        size = self._size[indices_B]
        step = 1 + (hashes_B % np.maximum(size - 1, 1).astype(np.uint64)).astype(np.int64)
        return self._by_speaker[self._start[indices_B] + (self._rank[indices_B] + step) % size]


@dataclass(frozen=True, slots=True)
class Buckets:
    """The bucket of each utterance [N], and of each bucket the number of utterances and its batch size [K]."""

    number_of: NDArray[np.uint8]
    counts: NDArray[np.int64]
    batch_sizes: NDArray[np.int64]

    def make_shapes(self, num_frames_N: NDArray[np.integer], num_tokens_N: NDArray[np.integer]) -> tuple[Shape, ...]:
        """The shape of each bucket: as tight as its utterances allow."""
        longest = []
        for lengths in (num_frames_N, num_tokens_N):
            longest_K = np.zeros(len(self.counts), np.int64)
            np.maximum.at(longest_K, self.number_of, np.asarray(lengths, np.int64))
            longest.append(_round_up(longest_K).tolist())
        return tuple(map(Shape, self.batch_sizes.tolist(), *longest))

    def cut_batches(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where batches start among the utterances, bucket by bucket, and where the last ends; the bucket of each."""
        num_batches = -(-self.counts // self.batch_sizes)
        buckets = np.repeat(np.arange(len(self.counts)), num_batches)
        in_bucket = np.arange(len(buckets)) - np.repeat(np.cumsum(num_batches) - num_batches, num_batches)
        firsts = np.cumsum(self.counts) - self.counts
        return np.append(firsts[buckets] + in_bucket * self.batch_sizes[buckets], self.counts.sum()), buckets


def make_buckets(
    lengths: NDArray[np.integer], num_shapes: int, batch_size: int, frame_budget: int | None, multiple_of: int = 1
) -> Buckets:
    """Sorts utterances by length into at most `num_shapes` buckets, for batches of `batch_size` or of a frame budget.

    Lengths are those before trimming, which every loader knows. Of equal ones the first come first. One batch of an
    epoch is not full. `multiple_of` is the number of replicas a batch is sliced for.
    """
    if frame_budget is None:
        size = max(1, batch_size // multiple_of) * multiple_of
        counts = _share_out_batches(np.sort(lengths), num_shapes, size)
        sizes = np.full(len(counts), size)
    else:
        limits = choose_lengths(lengths, num_shapes)
        sizes = np.maximum(1, frame_budget // limits // multiple_of) * multiple_of
        counts = _fill_batches(np.bincount(assign_buckets(lengths, limits), minlength=len(limits)), sizes)
        counts, sizes = counts[counts > 0], sizes[counts > 0]
    # A bucket that does not even fill one batch has a smaller batch.
    sizes = np.minimum(sizes, -(-counts // multiple_of) * multiple_of)
    numbers = np.empty(len(lengths), np.uint8)
    numbers[_sort_small(lengths)] = np.repeat(np.arange(len(counts)), counts)
    return Buckets(numbers, counts, sizes)


def choose_lengths(lengths: NDArray[np.integer], num_shapes: int) -> NDArray[np.int64]:
    """At most `num_shapes` increasing lengths with least padding; an utterance is padded to the first that holds it.

    Dynamic programming, exact for up to 768 distinct rounded lengths: the cheapest way to cover the first j lengths
    with k shapes is the cheapest way to cover some i < j with k - 1, and one shape for the rest.
    """
    candidates, counts = np.unique(_round_up(np.asarray(lengths, np.int64)), return_counts=True)
    if len(candidates) > _MAX_CANDIDATES:
        candidates, counts = _join_neighbours(candidates, counts)
    num_shapes = min(num_shapes, len(candidates))
    total_L = np.concatenate([[0], np.cumsum(counts)])
    # cost[i, j]: frames used when the lengths i..j-1 share one shape, which is the last of them.
    cost = (total_L[None, 1:] - total_L[:-1, None]) * candidates[None, :]
    cost = np.where(np.tri(len(candidates), dtype=bool).T, cost, _FORBIDDEN)
    best = cost[0].copy()
    choices = np.zeros((num_shapes, len(candidates)), np.int64)
    for shape in range(1, num_shapes):
        options = np.concatenate([[0], best[:-1]])[:, None] + cost
        options[0] = _FORBIDDEN
        choices[shape] = options.argmin(axis=0)
        best = options.min(axis=0)
    limits, stop = [], len(candidates)
    for shape in range(num_shapes - 1, -1, -1):
        limits.append(candidates[stop - 1])
        stop = int(choices[shape, stop - 1])
    return np.array(limits[::-1], np.int64)


def assign_buckets(lengths: NDArray[np.integer], limits: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each utterance the first shape that holds it."""
    return np.searchsorted(limits, np.asarray(lengths, np.int64))


def _share_out_batches(ordered: NDArray[np.integer], num_shapes: int, batch_size: int) -> NDArray[np.int64]:
    """How many utterances each bucket has, in batches of one size. The batch that is not full has the shortest.

    It may be a bucket of its own, and so a smaller batch, where that saves more padding than another shape would.
    """
    num_left = len(ordered) % batch_size
    ends = np.arange(num_left or batch_size, len(ordered) + 1, batch_size)
    longest = _round_up(ordered[ends - 1].astype(np.int64))
    limits = choose_lengths(longest, num_shapes)
    together = limits[assign_buckets(longest, limits)]
    if num_left and num_shapes > 1 and len(ends) > 1:
        others = choose_lengths(longest[1:], num_shapes - 1)
        apart = others[assign_buckets(longest[1:], others)]
        if num_left * longest[0] + batch_size * apart.sum() < batch_size * together.sum():
            counts = np.bincount(assign_buckets(longest[1:], others)) * batch_size
            return np.concatenate([[num_left], counts]).astype(np.int64)
    return np.bincount(assign_buckets(longest, limits), weights=np.diff(ends, prepend=0)).astype(np.int64)


def _fill_batches(counts_K: NDArray[np.int64], sizes_K: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many utterances each bucket keeps: whole batches. Its longest go to the next bucket."""
    kept, carried = [], 0
    for count, size in zip(counts_K.tolist(), sizes_K.tolist(), strict=True):
        available = count + carried
        kept.append(available // size * size)
        carried = available - kept[-1]
    kept[-1] += carried
    return np.array(kept, np.int64)


def _join_neighbours(
    candidates: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Joins neighbouring lengths until few enough are left; a joined length is the longest of its group."""
    groups = np.arange(len(candidates)) * _MAX_CANDIDATES // len(candidates)
    last = np.flatnonzero(np.diff(groups, append=groups[-1] + 1))
    return candidates[last], np.bincount(groups, counts).astype(np.int64)


def _sort_small(numbers: NDArray[np.integer]) -> NDArray[np.int64]:
    """Stable argsort of small numbers that are not negative: numpy radix-sorts types of up to 16 bits."""
    return np.argsort(np.asarray(numbers).astype(np.min_scalar_type(int(numbers.max()))), kind="stable")


def _round_up(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return -(-lengths // LENGTH_STEP) * LENGTH_STEP
