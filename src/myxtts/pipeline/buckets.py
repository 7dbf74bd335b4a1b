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


def choose_lengths(lengths: NDArray[np.integer], num_shapes: int) -> NDArray[np.int64]:
    """At most `num_shapes` increasing lengths; each utterance is padded to the first that holds it.

    Exact for up to 768 distinct rounded lengths: the cheapest way to cover the first j lengths with k shapes is the
    cheapest way to cover some i < j with k - 1, and one shape for the rest.
    """
    rounded = -(-np.asarray(lengths, np.int64) // LENGTH_STEP) * LENGTH_STEP
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


def make_shapes(
    limits: NDArray[np.int64],
    max_tokens: NDArray[np.int64],
    batch_size: int,
    frame_budget: int | None,
    multiple_of: int = 1,
) -> tuple[Shape, ...]:
    """The shape of each bucket: `batch_size` utterances, or as many as the frame budget holds.

    `multiple_of` is the number of replicas a batch is sliced for.
    """
    shapes = []
    for num_frames, num_tokens in zip(limits.tolist(), max_tokens.tolist(), strict=True):
        wanted = batch_size if frame_budget is None else max(1, frame_budget // num_frames)
        num_utterances = max(1, wanted // multiple_of) * multiple_of
        shapes.append(Shape(num_utterances, num_frames, -(-num_tokens // LENGTH_STEP) * LENGTH_STEP))
    return tuple(shapes)


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
