"""Which utterance gives the voice of another: one of the same speaker, of the same batch where that is possible."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from myxtts.pipeline.buckets import sort_small


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
