"""Guards reads of mapped files: a file that is cut short under a reader raises an error instead of ending the process.

Touching a page of a mapping that its file no longer has, or that the disk cannot read, sends SIGBUS to the thread that
touches it. A handler of Python's `signal` module cannot help, for it would run only after the instruction that fails
again and again. One that is set through libc runs at once, in the middle of the copy: it notes the file, puts a page of
zeros in the place of the missing one, and the copy goes on. What was copied is checked afterwards, see
`FeatureStore.guard_reads`. A read outside such a section ends the process as before, but says why.

Bytes that were overwritten are noticed by the size and the time of the last change of the files, which are looked at so
seldom that it costs no time. Limits: what was read in the moment before is not noticed; the handler needs 64-bit Linux,
and one that another library sets later replaces it; a disk that gives other bytes than were written changes no time.
"""

from __future__ import annotations

import ctypes
import mmap
import os
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
from myxtts.store.layout import Part

FileKey = tuple[int, Part]
"""Segment and part: what names a data file of a generation."""

_IS_SUPPORTED = sys.platform == "linux" and ctypes.sizeof(ctypes.c_void_p) == 8
_ADDRESS_OFFSET = 16
"""Of `si_addr`, the address that could not be read, in a `siginfo_t` of 64-bit Linux."""
_SA_SIGINFO, _MAP_FIXED = 0x4, 0x10
_LOOK_EVERY_S, _LOOK_EVERY_S_PER_FILE = 0.02, 1e-4
"""Interval of looking at all files, which takes a microsecond a file: a hundredth of the time of one processor."""

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
_library = ctypes.CDLL(None)
_library.mmap.restype = ctypes.c_void_p
_library.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)


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
            f"{address - mapped.start:,}). Run myxtts precompute --fix to repair the store.\n"
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
