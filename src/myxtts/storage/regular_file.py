"""Opens files for reading and writing: only regular files, of bounded size, and never through a link to write.

Any name may lead to something else than was written there: a pipe or a device would block or never end, a sparse file
of many gigabytes would fill the memory, and a symbolic link would let a file elsewhere be overwritten.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader, FileIO
from pathlib import Path
from typing import IO, Any, cast

_MAX_LINE_BYTES = 1 << 20


class FileRefusedError(ValueError):
    """Why a file cannot be used, in words that complete "it cannot be used: ..."."""


@contextmanager
def explain_read_errors(explain: Callable[[str], Exception], *, is_optional: bool = False) -> Iterator[None]:
    """Turns what opening and reading a file in the block raises into the error that `explain` makes of the reason.

    With `is_optional` a file that is not there raises FileNotFoundError or NotADirectoryError all the same.
    """
    try:
        yield
    except FileRefusedError as error:
        raise explain(str(error)) from error
    except OSError as error:
        if is_optional and isinstance(error, FileNotFoundError | NotADirectoryError):
            raise
        raise explain(f"it cannot be read ({error.strerror})") from error


class _Waitless(FileIO):
    """Reads a file that never blocks: files of the kernel, as in /proc, look regular, but a read may wait for ever."""

    def readinto(self, buffer: Any, /) -> int:
        num_read: int | None = super().readinto(buffer)
        if num_read is None:
            raise FileRefusedError("it cannot be read without waiting")
        return num_read


@contextmanager
def open_regular(
    path: Path | str, max_bytes: int | None = None, *, folder: int | None = None, follow_links: bool = True
) -> Iterator[BufferedReader]:
    """Opens a regular file of at most `max_bytes`; raises FileRefusedError for what is no file, or is larger.

    Without `max_bytes` the caller reads piece by piece. `folder` is the descriptor of the folder that `path` is
    relative to.
    """
    descriptor = open_descriptor(path, folder=folder, follow_links=follow_links)
    try:
        num_bytes = os.fstat(descriptor).st_size
        if max_bytes is not None and num_bytes > max_bytes:
            raise FileRefusedError(f"{Path(path).name} has {num_bytes:,} bytes, more than {max_bytes:,}")
        with BufferedReader(_Waitless(descriptor, closefd=False)) as file:
            yield cast("BufferedReader", file)
    finally:
        os.close(descriptor)


def open_descriptor(path: Path | str, *, folder: int | None = None, follow_links: bool = True) -> int:
    """Opens a regular file and returns its read-only descriptor; raises FileRefusedError for anything else."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags, dir_fd=folder)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        # A socket, or a device without a driver.
        raise FileRefusedError(f"{Path(path).name} is not a file") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileRefusedError(f"{Path(path).name} is not a file")
    return descriptor


def read_regular(path: Path | str, max_bytes: int) -> bytes:
    """Reads a whole regular file; raises FileRefusedError if it is none or larger, OSError if it cannot be read."""
    with open_regular(path, max_bytes) as file:
        # As many as there are: `read` allocates all that it is asked for. Files of the kernel do not say their size.
        return file.read(os.fstat(file.fileno()).st_size or max_bytes)


def try_read_regular(path: Path | None, max_bytes: int) -> bytes:
    """Reads a whole regular file; nothing where there is none that can be read."""
    try:
        return read_regular(path, max_bytes) if path is not None else b""
    except (OSError, FileRefusedError):
        return b""


def read_log_lines(file: BufferedReader) -> Iterator[bytes]:
    """Yields the lines of a log; ends at one of a megabyte, as in a file that is no log."""
    while (line := file.readline(_MAX_LINE_BYTES)) and len(line) < _MAX_LINE_BYTES:
        yield line


def open_output(path: Path | str, *, append: bool = False, buffering: int = -1) -> IO[bytes]:
    """Opens a file for writing and creates it if need be; raises OSError for a symbolic link, a pipe or a device.

    Without `append` its content is replaced. The mode of a new file is that of `open`.
    """
    flags = os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    flags |= os.O_RDWR | os.O_APPEND if append else os.O_WRONLY
    descriptor = open_unfollowed(path, flags)
    if not append:
        os.ftruncate(descriptor, 0)
    return os.fdopen(descriptor, "ab" if append else "wb", buffering)


def open_unfollowed(path: Path | str, flags: int) -> int:
    """As os.open with O_NOFOLLOW among the flags; a link and what is no regular file raise OSError that says so."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = "it is a symbolic link, and nothing is written through one"
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return descriptor
