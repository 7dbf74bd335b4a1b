"""Memory maps of the data files of a generation: read-ahead, and errors instead of SIGBUS where a file is cut short.

All files are mapped when a store is opened, so that a reader can go on when a later generation replaces this one and
its files are removed. Each map holds a file open, so the process's limit of open files is raised where necessary.

Read-ahead: `mmap.madvise` holds the GIL while a busy disk queues the request, and one call per range makes threads take
the GIL a hundred times a batch. One process_madvise call for all ranges does neither; where the kernel does not offer
or allow it, each range is requested by a ctypes call of madvise, which releases the GIL.

Guarded reads: touching a page of a mapping that its file no longer has, or that the disk cannot read, sends SIGBUS to
the thread that touches it. A handler of Python's `signal` module cannot help, for it would run only after the
instruction that fails again and again. One that is set through libc runs at once, in the middle of the copy: it notes
the file, puts a page of zeros in the place of the missing one, and the copy goes on. What was copied is checked
afterwards, see `FeatureStore.guard_reads`. A read outside such a section ends the process as before, but says why.

Bytes that were overwritten are noticed by the size and the time of the last change of the files, which are looked at so
seldom that it costs no time. Limits: what was read in the moment before is not noticed; the handler needs 64-bit Linux,
and one that another library sets later replaces it; a disk that gives other bytes than were written changes no time.
Shape legend: R records, P ranges of pages.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import resource
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

FileKey = tuple[int, Part]
"""Segment and part: what names a data file of a generation."""

_IS_SUPPORTED = sys.platform == "linux" and ctypes.sizeof(ctypes.c_void_p) == 8
_ADDRESS_OFFSET = 16
"""Of `si_addr`, the address that could not be read, in a `siginfo_t` of 64-bit Linux."""
_SA_SIGINFO, _MAP_FIXED = 0x4, 0x10
_LOOK_EVERY_S, _LOOK_EVERY_S_PER_FILE = 0.02, 1e-4
"""Interval of looking at all files, which takes a microsecond a file: a hundredth of the time of one processor."""

_library = ctypes.CDLL(None)
_library.mmap.restype = ctypes.c_void_p
_library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_advise = _library.madvise
_advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_call_system = _library.syscall
_call_system.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint)
_call_system.restype = ctypes.c_long
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    """`struct sigaction` of glibc and musl."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


@dataclass(frozen=True, slots=True)
class _Mapped:
    """A mapped file: its addresses, its path, and the guard of its store."""

    start: int
    stop: int
    path: str
    key: FileKey
    suspects: set[FileKey]


_mapped: dict[int, _Mapped] = {}
"""All mapped files of this process, by address."""
_section = threading.local()
"""Has the attribute `is_guarded` while its thread reads in a guarded section."""


class ReadGuard:
    """Watches the mapped files of a generation; any number of threads may call it."""

    def __init__(self) -> None:
        self._watched: dict[FileKey, tuple[int, int, int]] = {}  # descriptor, size, time of the last change
        self._suspects: set[FileKey] = set()
        self._next_look = 0.0

    def watch(self, key: FileKey, data: NDArray[np.uint8], path: Path) -> None:
        """Begins to watch a file that has just been mapped."""
        if len(data) == 0:
            return
        start = data.ctypes.data
        _mapped[start] = _Mapped(start, start + len(data), str(path), key, self._suspects)
        # The address may be given to something else as soon as the map is gone.
        weakref.finalize(data, _mapped.pop, start, None).atexit = False
        _install_handler()
        # Without a descriptor to spare, or if the file is gone by now, changes of its bytes are not noticed.
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            weakref.finalize(data, os.close, descriptor).atexit = False
            found = os.fstat(descriptor)
            self._watched[key] = descriptor, found.st_size, found.st_mtime_ns

    @contextmanager
    def section(self) -> Iterator[None]:
        """Inside it this thread survives reads of missing pages; they give zeros."""
        _section.is_guarded = True
        try:
            yield
        finally:
            _section.is_guarded = False

    def find_suspects(self) -> set[FileKey]:
        """The files that could not be read, or have been written to, since they were mapped.

        A file that was removed or replaced by another is not suspect: the mapping still shows the old file.
        """
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + max(_LOOK_EVERY_S, len(self._watched) * _LOOK_EVERY_S_PER_FILE)
            for key, (descriptor, num_bytes, changed_at) in list(self._watched.items()):
                found = os.fstat(descriptor)
                if found.st_size != num_bytes or found.st_mtime_ns != changed_at:
                    self._suspects.add(key)
        return self._suspects


def _handle(_signal: int, info: int, _context: int) -> None:
    """Runs in the thread that touched a missing page, and returns to the instruction that did."""
    address = ctypes.c_void_p.from_address(info + _ADDRESS_OFFSET).value or 0
    mapped = next((file for file in list(_mapped.values()) if file.start <= address < file.stop), None)
    if mapped is None:
        # Not a file of a store: the instruction fails again, under the handler that was there before.
        _library.sigaction(signal.SIGBUS, ctypes.byref(_previous), None)
        return
    if not getattr(_section, "is_guarded", False):
        message = (
            f"myxtts: {mapped.path} was cut short, or could not be read, while this program was reading it (at byte "
            f"{address - mapped.start:,}). Run myxtts cache repair.\n"
        )
        os.write(2, message.encode("utf-8", "surrogateescape"))
        os._exit(DataError.exit_code)
    # First the note, then the zeros: a thread that reads the zeros finds the file among the suspects.
    mapped.suspects.add(mapped.key)
    page = address // mmap.PAGESIZE * mmap.PAGESIZE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
    _library.mmap(page, mmap.PAGESIZE, mmap.PROT_READ, flags, -1, 0)


_handler: Any = _Handler(_handle)
_previous = _Action()


def _install_handler() -> None:
    """Installs the handler unless it is installed; other libraries (Ray) replace it with their own."""
    if not _IS_SUPPORTED:
        return
    action, present = _Action(handler=ctypes.cast(_handler, ctypes.c_void_p), flags=_SA_SIGINFO), _Action()
    _library.sigaction(signal.SIGBUS, None, ctypes.byref(present))
    if present.handler != action.handler:
        _library.sigaction(signal.SIGBUS, ctypes.byref(action), ctypes.byref(_previous))


class MappedFiles:
    """Memory-mapped data files of a generation, by segment and part; mapped on first use and kept open."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._maps: dict[tuple[int, Part], NDArray[np.uint8]] = {}
        self.guard = ReadGuard()

    def get(self, segment: int, part: Part) -> NDArray[np.uint8]:
        """Returns the mapped bytes of a data file; raises OSError if it cannot be opened."""
        key = (segment, part)
        found = self._maps.get(key)
        if found is None:
            path = part_path(self._folder, segment, part)
            found = self._maps[key] = _map_file(path)
            self.guard.watch(key, found, path)
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
        # One that the map holds, and one to notice changes by.
        _allow_open_files(2 * len(num_needed_bytes))
        for (segment, part), needed in num_needed_bytes.items():
            path = part_path(self._folder, segment, part)
            try:
                found = len(self.get(segment, part))
            except FileRefusedError as error:
                raise damaged(path, str(error)) from error
            except OSError as error:
                if error.errno == errno.EMFILE:
                    raise DataError(
                        f"The feature cache has {len(num_needed_bytes):,} data files, more than this process may open.",
                        next_step="Run myxtts cache compact, or raise the limit with ulimit -n.",
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
