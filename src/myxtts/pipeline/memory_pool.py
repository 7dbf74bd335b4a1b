"""Memory that is touched once and used again and again: fresh pages cost more than the copying into them.

A lease ends by itself when nothing looks at its memory any more: no array, and no tensor that was made of one without
copying. So whoever is handed a batch may keep it for as long as it likes, and nobody has to say when it is done.
"""

from __future__ import annotations

import mmap
import weakref
from collections import deque
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

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
