"""Asking the system to read mapped files into memory, without waiting for the disk.

The method of `mmap` keeps all other Python threads waiting while a busy disk takes the request, and a call for each
stretch makes threads take turns a hundred times a batch. One call of the system for all stretches does neither; where
the system does not offer it or does not allow it, there is a call for each.
Shape legend: P pieces.
"""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np
from numpy.typing import NDArray

_MAX_TOGETHER = 1024
_PROCESS_MADVISE = 440  # on every kind of processor

_library = ctypes.CDLL(None)
_advise = _library.madvise
_advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_call_system = _library.syscall
_call_system.argtypes = (
    ctypes.c_long,
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_uint,
)
_call_system.restype = ctypes.c_long


def request_memory(pieces_P2: NDArray[np.uint64]) -> None:
    """Requests stretches of mapped memory, given as address and size in whole pages.

    What cannot be read is complained of when it is needed.
    """
    for start in range(0, len(pieces_P2), _MAX_TOGETHER):
        pieces = np.ascontiguousarray(pieces_P2[start : start + _MAX_TOGETHER])
        if not _request_together(pieces):
            request_singly(pieces)


def request_singly(pieces_P2: NDArray[np.uint64]) -> None:
    for address, size in pieces_P2.tolist():
        _advise(address, size, mmap.MADV_WILLNEED)


def _request_together(pieces_P2: NDArray[np.uint64]) -> bool:
    """Whether the system took all requests in one call, which Linux does from 5.10 on, in some places as root only."""
    if not hasattr(os, "pidfd_open"):
        return False
    try:
        process = os.pidfd_open(os.getpid())
    except OSError:
        return False
    try:
        address, count = pieces_P2.ctypes.data, len(pieces_P2)
        return bool(_call_system(_PROCESS_MADVISE, process, address, count, mmap.MADV_WILLNEED, 0) >= 0)
    finally:
        os.close(process)
