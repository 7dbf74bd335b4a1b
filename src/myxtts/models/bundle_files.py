"""The files of a bundle: a folder that is replaced as a whole, and opened as something that may come from anywhere."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from io import BufferedReader
from pathlib import Path
from typing import Any

from myxtts.errors import DataError
from myxtts.files import TEMPORARY_SUFFIX, explain_storage_errors, pass_fault_point, sync_directory
from myxtts.models.tensor_file import Array, TensorFileError, find_non_finite, read_heading, read_tensors

_MAX_WEIGHTS_BYTES = 40_000_000_000
_LIBRARIES = ("myxtts", "tensorflow", "keras", "numpy")


def list_versions() -> dict[str, str]:
    """What a bundle was made with."""
    return {name: version(name) for name in _LIBRARIES}


def replace_folder(folder: Path, write_files: Callable[[Path], None], *weights: Mapping[str, Array]) -> None:
    """Puts what `write_files` writes in the place of `folder`; weights that are not finite are refused."""
    damaged = [name for arrays in weights for name in find_non_finite(arrays)]
    if damaged:
        raise DataError(f"These weights are not finite: {', '.join(damaged[:5])}.", next_step="Train with --resume.")
    temporary, old = _name_beside(folder, "new"), _name_beside(folder, "old")
    with explain_storage_errors(folder, "write"):
        shutil.rmtree(temporary, ignore_errors=True)
        _put_back(old, folder)
        try:
            temporary.mkdir(parents=True)
            write_files(temporary)
            # A folder with files in it cannot be replaced in one step; both are whole, whatever happens between.
            if folder.exists():
                folder.rename(old)
            pass_fault_point("bundle_rename")
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            _put_back(old, folder)
        sync_directory(folder.parent)


@contextmanager
def open_inside(folder: int, name: str, max_bytes: int) -> Iterator[BufferedReader]:
    """Opens a file of the folder itself: no link to elsewhere, no pipe that never answers, nothing endless."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise TensorFileError(f"{name} is not a file")
        if status.st_size > max_bytes:
            raise TensorFileError(f"{name} has {status.st_size:,} bytes, more than {max_bytes:,}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def read_weights(
    folder: int, name: str, checksums: Mapping[str, Any], check_size: Callable[[int], None] | None = None
) -> dict[str, Array]:
    """The weights in a file of the folder. `check_size` hears how many numbers it holds before they are read."""
    with open_inside(folder, name, _MAX_WEIGHTS_BYTES) as file:
        heading = read_heading(file)
        wrong = [entry.name for entry in heading.entries if entry.dtype != "F32"]
        if wrong:
            raise TensorFileError(f"{name} holds {wrong[0]}, which is not float32")
        if check_size is not None:
            check_size(heading.num_values)
        weights, crc = read_tensors(file, heading, sealed=False)
    if crc != checksums.get(name):
        raise TensorFileError(f"the checksum of {name} does not match")
    damaged = find_non_finite(weights)
    if damaged:
        raise TensorFileError(f"{name} holds {damaged[0]}, which is not finite")
    return weights


def _name_beside(folder: Path, role: str) -> Path:
    return folder.with_name(f".{folder.name}.{role}{TEMPORARY_SUFFIX}")


def _put_back(old: Path, folder: Path) -> None:
    """Removes the bundle that was moved aside, or puts it back where no other came in its place."""
    if old.exists() and not folder.exists():
        old.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
