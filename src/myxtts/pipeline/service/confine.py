"""Confines the process of a data worker: which files it may read and write (Landlock), and how large they may become.

A tf.data service executes any graph that a client sends. Graph operations read and write files, so whoever reaches the
port could otherwise read the user's keys, or write a program into a start-up file. Landlock (Linux 5.13 and later) lets
a process give up rights for good, without being root; the rules hold for threads that are started afterwards.
"""

from __future__ import annotations

import ctypes
import os
import resource
import stat
import struct
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from myxtts.errors import StorageError

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System call numbers, the same on every architecture."""
_ASK_VERSION, _RULE_PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE = 1 << 14
_RIGHTS_OF_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
"""All rights on files that a version knows; later ones add rights for devices and networks."""
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
"""Rights that a rule for a single file may name."""
_SYSTEM_PLACES = (
    *("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/nix", "/etc", "/sys"),
    *("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"),
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems", "/proc/sys"),
)
"""What Python and TensorFlow read of a system; no home folders, and of /proc no other processes."""
_MAX_FILE_BYTES = 4 << 30
"""Of what the dispatcher writes: definitions of datasets, a few megabytes each."""


def make_work_folder() -> Path:
    """A new folder that only this user may enter, inside one that later workers of the user share."""
    parent = Path(tempfile.gettempdir()) / f"myxtts-data-worker-{os.geteuid()}"
    parent.mkdir(mode=0o700, exist_ok=True)
    found = parent.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise StorageError(
            f"{parent} is not a folder that only this user may enter.",
            next_step="Remove it, or set the variable TMPDIR to a folder of your own.",
        )
    return Path(tempfile.mkdtemp(dir=parent))


def confine_process(work_folder: Path, recordings: Sequence[Path]) -> str:
    """Limits this process from now on; returns a sentence that says what it still may do.

    It may write below the folder that `work_folder` is in, and read `recordings` besides Python and the system; without
    `recordings` it may read everything. Call it before TensorFlow is loaded and threads are started.
    """
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MAX_FILE_BYTES, _MAX_FILE_BYTES))
    # Keras looks for its settings in the home folder, which is not readable any more.
    os.environ["HOME"] = os.environ["TMPDIR"] = tempfile.tempdir = str(work_folder)
    # Where scikit-learn is installed, Keras loads joblib, which would warn that it may not start processes.
    os.environ["JOBLIB_MULTIPROCESSING"] = "0"
    sys.dont_write_bytecode = True
    readable = [*map(Path, _SYSTEM_PLACES), *_find_python_folders(), *recordings] if recordings else [Path("/")]
    try:
        _restrict_files(readable, work_folder.parent)
    except OSError as error:
        return (
            f"This system does not limit which files it reads and writes (Landlock: {error.strerror}): through it, "
            "clients can read and write all that you may."
        )
    places = ", ".join(map(str, recordings))
    if recordings:
        return f"It may read {places}, Python and the system, and write nothing but its own temporary files."
    return (
        "It may write nothing but its own temporary files, and read all that you may; name the folders of the "
        "recordings with --recordings to limit that too."
    )


def _find_python_folders() -> Iterator[Path]:
    """Where this Python and its packages are."""
    package = Path(__file__).parents[3]
    for path in {Path(name).resolve() for name in (sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path) if name}:
        # `python -m` searches the present folder too, which may be anything.
        if path != Path.cwd():
            yield path
    yield package


def _restrict_files(readable: Sequence[Path], writable: Path) -> None:
    """Gives up all rights on files but these; raises OSError where the kernel has no Landlock or it is switched off."""
    library = ctypes.CDLL(None, use_errno=True)

    def call(number: int, *arguments: object) -> int:
        result = int(library.syscall(ctypes.c_long(number), *arguments))
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result

    version = call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_ASK_VERSION))
    rights = _RIGHTS_OF_VERSION[min(version, max(_RIGHTS_OF_VERSION))]
    attributes = struct.pack("=Q", rights)
    ruleset = call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
    try:
        rules = [*((path, _READ & rights) for path in readable), (writable, rights), (Path(os.devnull), rights)]
        for path, allowed in rules:
            with _open_place(path) as descriptor:
                if descriptor is not None:
                    rule = struct.pack("=Qi", allowed if path.is_dir() else allowed & _OF_FILES, descriptor)
                    call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_RULE_PATH_BENEATH), rule, ctypes.c_uint(0))
        if library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
    finally:
        os.close(ruleset)


@contextmanager
def _open_place(path: Path) -> Iterator[int | None]:
    """A descriptor that only names a file or folder; None where there is none."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)
