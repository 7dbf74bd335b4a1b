"""Memory maps of the data files of a generation, and read-ahead requests for parts of them.

All files are mapped when a store is opened, so that a reader can go on when a later generation replaces this one and
its files are removed. Each map holds a file open, so the process's limit of open files is raised where necessary.

Read-ahead: `mmap.madvise` holds the GIL while a busy disk queues the request, and one call per range makes threads take
the GIL a hundred times a batch. One process_madvise call for all ranges does neither; where the kernel does not offer
or allow it, each range is requested by a ctypes call of madvise, which releases the GIL.
Shape legend: R records, P ranges of pages.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import resource
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import DataError
from myxtts.storage.regular_file import FileRefusedError, open_descriptor
from myxtts.store.layout import Part, damaged, part_path

_NUM_OTHER_FILES = 512
"""Files that a process has open besides those of the store."""
_EMPTY = np.zeros(0, np.uint8)
_REQUEST_BYTES = 128 * 1024
"""The kernel reads at most this much for one request, unless the device's read-ahead was raised."""
_MAX_TOGETHER = 1024  # IOV_MAX
_PROCESS_MADVISE = 440  # system call number, the same on every architecture

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


class MappedFiles:
    """Memory-mapped data files of a generation, by segment and part; mapped on first use and kept open."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._maps: dict[tuple[int, Part], NDArray[np.uint8]] = {}

    def get(self, segment: int, part: Part) -> NDArray[np.uint8]:
        """Returns the mapped bytes of a data file; raises OSError if it cannot be opened."""
        key = (segment, part)
        found = self._maps.get(key)
        if found is None:
            found = self._maps[key] = _map_file(part_path(self._folder, segment, part))
        return found

    def request(
        self, part: Part, segments_R: NDArray[np.integer], starts_R: NDArray[np.uint64], stops_R: NDArray[np.uint64]
    ) -> None:
        """Requests asynchronous read-ahead (MADV_WILLNEED) of byte ranges of one part, given by segment [R]."""
        bases = {segment: self.get(segment, part).ctypes.data for segment in set(segments_R.tolist())}
        bases_R = np.array([bases[segment] for segment in segments_R.tolist()], np.uint64)
        request_memory(_cut_pages(bases_R + starts_R, bases_R + stops_R))

    def map_all(self, num_needed_bytes: dict[tuple[int, Part], int]) -> None:
        """Maps the files of these segments and parts; raises DataError if one is missing or shorter than needed."""
        _allow_open_files(len(num_needed_bytes))
        for (segment, part), needed in num_needed_bytes.items():
            path = part_path(self._folder, segment, part)
            try:
                found = len(self.get(segment, part))
            except FileRefusedError as error:
                raise damaged(path, str(error)) from error
            except OSError as error:
                if error.errno == errno.EMFILE:
                    raise DataError(
                        f"The store has {len(num_needed_bytes):,} data files, more than this process may open.",
                        next_step="Run myxtts precompute --compact, or raise the limit with ulimit -n.",
                    ) from error
                raise damaged(path, f"it cannot be read ({error.strerror})") from error
            if found < needed:
                raise damaged(path, f"it has {found:,} bytes, at least {needed:,} are needed")


def _map_file(path: Path) -> NDArray[np.uint8]:
    """Maps a file read-only; an empty file, which mmap refuses, gives an empty array."""
    descriptor = open_descriptor(path)
    try:
        if os.fstat(descriptor).st_size == 0:
            return _EMPTY
        return np.frombuffer(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ), np.uint8)
    finally:
        os.close(descriptor)


def _allow_open_files(num_files: int) -> None:
    """Raises the process's soft limit as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = num_files + _NUM_OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _cut_pages(starts_R: NDArray[np.uint64], stops_R: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Address and size [P, 2] of the pages that hold these bytes; adjacent ranges are joined, then cut to requests."""
    page = mmap.PAGESIZE
    # In page numbers: sort by start, then join ranges that touch or overlap the furthest end so far.
    by_start = np.argsort(starts_R)
    firsts = starts_R[by_start].astype(np.int64) // page
    ends = np.maximum.accumulate(-(-stops_R[by_start].astype(np.int64) // page))
    is_apart = np.concatenate([[True], firsts[1:] > ends[:-1]])
    firsts, ends = firsts[is_apart], ends[np.append(np.flatnonzero(is_apart)[1:] - 1, len(ends) - 1)]
    # Cut each joined range into requests of `step` pages; `in_run` numbers the requests within their range.
    step = _REQUEST_BYTES // page
    num_pieces = -(-(ends - firsts) // step)
    in_run = np.arange(num_pieces.sum()) - np.repeat(np.cumsum(num_pieces) - num_pieces, num_pieces)
    pieces = np.repeat(firsts, num_pieces) + in_run * step
    sizes = np.minimum(np.repeat(ends, num_pieces) - pieces, step)
    return (np.stack([pieces, sizes], axis=1) * page).astype(np.uint64)


def request_memory(pieces_P2: NDArray[np.uint64]) -> None:
    """Requests ranges of mapped memory, given as address and size in whole pages, and ignores failures.

    Reading a range that could not be read ahead raises the error.
    """
    for start in range(0, len(pieces_P2), _MAX_TOGETHER):
        pieces = np.ascontiguousarray(pieces_P2[start : start + _MAX_TOGETHER])
        if not _request_together(pieces):
            request_singly(pieces)


def request_singly(pieces_P2: NDArray[np.uint64]) -> None:
    """One madvise call a range: the fallback without process_madvise."""
    for address, size in pieces_P2.tolist():
        _advise(address, size, mmap.MADV_WILLNEED)


def _request_together(pieces_P2: NDArray[np.uint64]) -> bool:
    """Calls process_madvise; returns False where the kernel lacks it (before Linux 5.10) or allows it to root only."""
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
