"""A few static shapes for utterances of many lengths, chosen so that least is wasted on padding.

Shape legend: N utterances, L distinct rounded lengths, K shapes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LENGTH_STEP = 8
"""Shapes are multiples of this many frames, which suits the matrix units of accelerators."""

_MAX_CANDIDATES = 768


@dataclass(frozen=True, slots=True)
class Shape:
    """A static batch shape: so many utterances of so many frames and tokens."""

    num_utterances: int
    num_frames: int
    num_tokens: int

    def share(self, num_shares: int) -> Shape:
        """The shape of one of several equal shares of the utterances."""
        return Shape(self.num_utterances // num_shares, self.num_frames, self.num_tokens)


def choose_lengths(lengths: NDArray[np.integer], num_shapes: int) -> NDArray[np.int64]:
    """At most `num_shapes` increasing lengths; each utterance is padded to the first that holds it.

    Exact for up to 768 distinct rounded lengths: the cheapest way to cover the first j lengths with k shapes is the
    cheapest way to cover some i < j with k - 1, and one shape for the rest.
    """
    rounded = _round_up(np.asarray(lengths, np.int64))
    candidates, counts = np.unique(rounded, return_counts=True)
    if len(candidates) > _MAX_CANDIDATES:
        candidates, counts = _thin_out(candidates, counts)
    num_shapes = min(num_shapes, len(candidates))
    total_L = np.concatenate([[0], np.cumsum(counts)])
    # cost[i, j]: frames used when the lengths i..j-1 share one shape, which is the last of them.
    cost = (total_L[None, 1:] - total_L[:-1, None]) * candidates[None, :]
    cost = np.where(np.tri(len(candidates), dtype=bool).T, cost, np.iinfo(np.int64).max // 4)
    best = cost[0].copy()
    choices = np.zeros((num_shapes, len(candidates)), np.int64)
    for shape in range(1, num_shapes):
        options = np.concatenate([[0], best[:-1]])[:, None] + cost
        options[0] = np.iinfo(np.int64).max // 4
        choices[shape] = options.argmin(axis=0)
        best = options.min(axis=0)
    return _trace_back(candidates, choices)


def assign_buckets(lengths: NDArray[np.integer], limits: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each utterance the first shape that holds it."""
    return np.searchsorted(limits, np.asarray(lengths, np.int64))


def measure_padding(lengths: NDArray[np.integer], limits: NDArray[np.int64]) -> float:
    """The share of frames that is padding when every utterance is padded to its own shape."""
    padded = limits[assign_buckets(lengths, limits)].sum()
    return float(1 - np.asarray(lengths, np.int64).sum() / padded) if padded else 0.0


@dataclass(frozen=True, slots=True)
class Buckets:
    """Which bucket each utterance is in [N], how many utterances a bucket has and how many a batch of it [K]."""

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

    Lengths are those before trimming, which everyone who loads the corpus knows. Of equal ones the first come first.
    One batch of an epoch is not full. `multiple_of` is the number of replicas a batch is sliced for.
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
    numbers[sort_small(lengths)] = np.repeat(np.arange(len(counts)), counts)
    return Buckets(numbers, counts, sizes)


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
    """How many utterances each bucket keeps: what fills its batches. It passes its longest on to the next bucket."""
    kept, carried = [], 0
    for count, size in zip(counts_K.tolist(), sizes_K.tolist(), strict=True):
        available = count + carried
        kept.append(available // size * size)
        carried = available - kept[-1]
    kept[-1] += carried
    return np.array(kept, np.int64)


def sort_small(numbers: NDArray[np.integer]) -> NDArray[np.int64]:
    """The order of small numbers that are not negative, stable: numpy sorts few bits many times faster than many."""
    return np.argsort(np.asarray(numbers).astype(np.min_scalar_type(int(numbers.max()))), kind="stable")


def _round_up(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return -(-lengths // LENGTH_STEP) * LENGTH_STEP


def _thin_out(candidates: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Joins neighbouring lengths until few enough are left; a joined length is the longest of its own."""
    groups = np.arange(len(candidates)) * _MAX_CANDIDATES // len(candidates)
    last = np.flatnonzero(np.diff(groups, append=groups[-1] + 1))
    return candidates[last], np.bincount(groups, counts).astype(np.int64)


def _trace_back(candidates: NDArray[np.int64], choices: NDArray[np.int64]) -> NDArray[np.int64]:
    limits = []
    stop = len(candidates)
    for shape in range(len(choices) - 1, -1, -1):
        limits.append(candidates[stop - 1])
        stop = int(choices[shape, stop - 1])
    return np.array(limits[::-1], np.int64)
