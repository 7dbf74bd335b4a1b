"""Spectrograms kept in memory from one epoch to the next, up to a number of bytes."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray


class MelMemory:
    """Keeps what comes first and never lets go of it. Any number of threads may call it.

    An epoch asks for every utterance once, in a new order. A memory that made room by dropping the oldest would drop
    each utterance shortly before it is asked for again; one that keeps its first ones serves the same share of every
    epoch, and the share is the share of the corpus that fits.
    """

    def __init__(self, budget_bytes: int, dtype: str) -> None:
        self._budget_bytes = budget_bytes
        self._dtype = np.dtype(dtype)
        self._mels: dict[int, NDArray[Any]] = {}
        self._num_bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._mels)

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def find(self, row: int) -> NDArray[Any] | None:
        return self._mels.get(row)

    def keep(self, row: int, mel_TM: NDArray[np.float32]) -> NDArray[Any]:
        """Keeps a spectrogram if there is room, and gives it as it would be kept.

        Numbers are rounded to the kept format whether there is room or not: what is trained on must not depend on
        how much memory the machine has.
        """
        rounded = mel_TM.astype(self._dtype, copy=False)
        with self._lock:
            if row not in self._mels and self._num_bytes + rounded.nbytes <= self._budget_bytes:
                # A view would hold on to all of the memory that it is a part of.
                self._mels[row] = rounded if rounded.base is None else rounded.copy()
                self._num_bytes += rounded.nbytes
        return rounded
