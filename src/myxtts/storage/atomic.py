"""Atomic file replacement, folder locks between processes, and named points for fault injection in tests.

A file appears under its final name only after its bytes and its folder entry have reached the disk, so that a kill or
a power loss at any moment leaves the old file or the new one: write to a temporary file, fsync, rename, fsync of the
folder.

Fault injection: `MYXTTS_FAULT=replace:1:kill` kills the process with SIGKILL the first time it reaches the point
`replace`. Without the variable a point costs one test of an empty list.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from myxtts.errors import BusyError, ConfigError, StorageError, UsageError
from myxtts.storage.regular_file import open_output, open_unfollowed

TEMPORARY_SUFFIX = ".myxtts-tmp"
"""Marks the files that `sweep_temporary_files` may delete."""
_FAULT_VARIABLE = "MYXTTS_FAULT"
_SPOIL = "nan"
_FAULT_KINDS = ("kill", "EIO", "ENOSPC", "delay", _SPOIL)
_FAULT_DELAY_S = 1.0
SPOILABLE_POINTS = ("gradients",)
"""Fault points in numerical code, where the kind `nan` asks the caller to corrupt its values."""


class _Fault:
    """One planned fault: the n-th time `point` is reached, `kind` happens."""

    def __init__(self, text: str) -> None:
        try:
            self.point, count, self.kind = text.split(":")
            self.remaining = int(count)
        except ValueError as error:
            raise ConfigError(
                f"{_FAULT_VARIABLE}={text!r} is not of the form point:n:kind.",
                next_step=f"Use one of the kinds {', '.join(_FAULT_KINDS)}, e.g. replace:1:kill, or unset it.",
            ) from error
        if self.kind not in _FAULT_KINDS:
            raise ConfigError(
                f"{_FAULT_VARIABLE} names the kind {self.kind!r}.", next_step=f"Use one of {', '.join(_FAULT_KINDS)}."
            )
        if self.kind == _SPOIL and self.point not in SPOILABLE_POINTS:
            raise ConfigError(
                f"{_FAULT_VARIABLE} asks for {_SPOIL} at {self.point!r}, where no numbers are computed.",
                next_step=f"Use it at {', '.join(SPOILABLE_POINTS)}.",
            )

    def reach(self, point: str) -> bool:
        """Counts down and triggers the fault; returns True where the caller is to replace its values by NaN."""
        if point != self.point:
            return False
        self.remaining -= 1
        if self.remaining != 0:
            return False
        if self.kind == _SPOIL:
            return True
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "delay":
            time.sleep(_FAULT_DELAY_S)
            return False
        code = getattr(errno, self.kind)
        raise OSError(code, f"{os.strerror(code)} (injected at {point})")


_faults: list[_Fault] = []


def plan_faults(text: str) -> None:
    """Parses MYXTTS_FAULT: point:n:kind, or several of them with commas between."""
    _faults[:] = [_Fault(part) for part in text.split(",") if part]


plan_faults(os.environ.get(_FAULT_VARIABLE, ""))


def pass_fault_point(point: str) -> bool:
    """Marks a named point; does nothing unless MYXTTS_FAULT plans a fault here.

    At a point of `SPOILABLE_POINTS` it returns whether the caller is to replace its values by NaN.
    """
    if not _faults:
        return False
    # A list, not any(): every fault must count this pass, also behind one that is due.
    return True in [fault.reach(point) for fault in _faults]


def is_fault_planned(point: str) -> bool:
    """Whether MYXTTS_FAULT names this point."""
    return any(fault.point == point for fault in _faults)


@contextmanager
def explain_storage_errors(path: str | Path, action: str) -> Iterator[None]:
    """Turns an OSError in the block into a StorageError that names the path and what to do.

    An error that names a file elsewhere is not about this path, and is left as it is.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error.filename, str) and not Path(error.filename).is_relative_to(Path(path).parent):
            raise
        steps = {
            errno.ENOSPC: "Free some space or choose a folder on another disk; what was there before is untouched.",
            errno.EDQUOT: "Your disk quota is used up: free some space or choose another folder.",
            errno.EFBIG: "The file size limit of this process or file system is reached: choose another folder.",
            errno.EROFS: "The file system is read-only: choose another folder.",
            errno.EACCES: "You may not write there: choose another folder or change its permissions.",
            errno.EPERM: "You may not write there: choose another folder or change its permissions.",
            errno.ELOOP: "Remove the link, or choose another path.",
            errno.EINVAL: "Remove what is there, or choose another path.",
            errno.ENOTDIR: "A part of this path is a file, not a folder: choose another path.",
        }
        reason = error.strerror or str(error)
        raise StorageError(
            f"Could not {action} {path}: {reason}.",
            next_step=steps.get(error.errno or 0, "Check the disk, then run the same command again."),
        ) from error


def sync_directory(directory: Path) -> None:
    """Flushes a folder's entries to disk (fsync), so that renames in it survive a power loss."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        pass_fault_point("sync_directory")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def write_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Yields a temporary binary file that is renamed to `path` when the block succeeds, and deleted when it raises."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    with explain_storage_errors(path, "write"):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Left by a killed process with the same number, or a symbolic link.
            temporary.unlink(missing_ok=True)
            with open_output(temporary) as file:
                pass_fault_point("write")
                yield file
                file.flush()
                pass_fault_point("fsync")
                os.fsync(file.fileno())
            pass_fault_point("replace")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_directory(path.parent)


def write_file(path: Path, content: bytes) -> None:
    """Writes a whole file in one step: a reader sees the old content or the new one. Raises StorageError."""
    with write_atomically(path) as file:
        file.write(content)


def refuse_filled_folder(folder: Path) -> None:
    """Raises UsageError where the folder for an output exists and is not empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already.", next_step="Give another --out, or remove it first.")


@contextmanager
def write_new_folder(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder that is renamed to `folder` when the block succeeds, and removed when it raises.

    Raises UsageError where `folder` exists, unless it is empty.
    """
    folder = folder.absolute()
    refuse_filled_folder(folder)
    with explain_storage_errors(folder, "write"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(TEMPORARY_SUFFIX, f".{folder.name}.", folder.parent))
        try:
            temporary.chmod(0o755)
            yield temporary
            sync_directory(temporary)
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        sync_directory(folder.parent)


def sweep_temporary_files(directory: Path) -> int:
    """Removes the files and folders that a killed writer left in `directory`; returns their number.

    Call it while holding the folder's lock. A link is removed, never what it leads to.
    """
    leftovers = list(directory.glob(f".*{TEMPORARY_SUFFIX}"))
    for leftover in leftovers:
        with explain_storage_errors(leftover, "remove"):
            if leftover.is_dir() and not leftover.is_symlink():
                shutil.rmtree(leftover)
            else:
                leftover.unlink(missing_ok=True)
    return len(leftovers)


@contextmanager
def lock_directory(directory: Path, purpose: str) -> Iterator[None]:
    """Holds an exclusive, non-blocking `flock` on `directory`; raises BusyError with the holder if it is taken.

    The kernel releases the lock when the process dies. The lock file stays: deleting it would race with a process
    that has opened it but not yet locked it.
    """
    with explain_storage_errors(directory, "write in"):
        directory.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = open_unfollowed(directory / ".lock", flags)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            # The holder wrote its process id and purpose into the lock file.
            holder = os.pread(descriptor, 100, 0).decode("utf-8", "replace").strip() or "another process"
            raise BusyError(
                f"{directory} is in use by {holder}.", next_step="Wait until it ends, or choose another folder."
            ) from error
        with explain_storage_errors(directory, "write in"):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} ({purpose})".encode(), 0)
        yield
    finally:
        os.close(descriptor)
