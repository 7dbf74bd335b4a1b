"""Cache of compiled steps on disk, so that a second start of the same shapes compiles nothing.

TensorFlow writes each function that XLA compiled into the folder of --tf_xla_persistent_cache_directory, and finds it
there by a hash of its graph (HLO). It writes in place, trusts what it reads and never removes anything: a file cut
short ends the training with an error, and code of another processor ends it with SIGILL. So TensorFlow is given a
private folder of this process. `use_group` puts the checked files of earlier sessions into it as hard links, and
`publish` adds what was compiled to the cache:

    ~/.cache/myxtts/compiled/PLATFORM/GROUP/NAME.pb.CHECKSUM    files of earlier sessions
    ~/.cache/myxtts/compiled/PLATFORM/session-XXXX/NAME.pb      private folder of a process, removed when it ends

PLATFORM stands for the version of TensorFlow, the processor, the GPUs and the options of XLA; GROUP for the model and
its batch shapes. Files that `add` puts into a group, such as traced graphs, are found in the same way. The checksum in
the name makes a file and its checksum appear at once, so that processes need no lock.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import platform
import shutil
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from myxtts.runtime.hardware import Gpu, count_cpus
from myxtts.storage.regular_file import open_unfollowed
from myxtts.types import Say

_FLAGS = "TF_XLA_FLAGS"
_COMPILER_FLAGS = "XLA_FLAGS"
_FOLDER_FLAG = "--tf_xla_persistent_cache_directory"
_SESSION_PREFIX = "session-"
_LOCK_NAME = ".lock"
MAX_CACHE_BYTES = 2_000_000_000
"""Size of the cache over all platforms; groups that were not used for longest are removed. A shape takes about 10 MB
for `tiny`."""
_MIN_FREE_BYTES = 500_000_000
"""Free space that the disk must have: files of a session are written before anything can be removed."""


@dataclass
class CompileCache:
    """The cache as one process uses it. Without a private folder (`session`) it is off, and its methods do nothing."""

    platform: Path | None = None
    session: Path | None = None
    group: Path | None = None
    num_found: int = 0
    """Functions of earlier sessions that were put into the private folder."""
    _warn: Say = print
    _lock: int = -1
    _known: set[str] = field(default_factory=set)

    @property
    def is_on(self) -> bool:
        return self.session is not None

    def use_group(self, key: str) -> None:
        """Makes the files of a group available to TensorFlow. Damaged ones are removed."""
        if self.platform is None or self.session is None:
            return
        self.group = self.platform / hashlib.sha256(key.encode()).hexdigest()[:32]
        for path in _list_files(self.group):
            name, _, checksum = path.name.rpartition(".")
            # One that another process removes meanwhile, or that the disk cannot read, is compiled again.
            with suppress(OSError):
                if _hash_file(path) == checksum:
                    _link(path, self.session / name)
                    self.num_found += 1
                else:
                    path.unlink()
        # The groups that were not used for longest are removed first.
        with suppress(OSError):
            os.utime(self.group)

    def mark(self) -> None:
        """Leaves out of the next `publish` what is there now: functions that others have compiled."""
        if self.session is not None:
            self._known.update(path.name for path in _list_files(self.session))

    def publish(self) -> int:
        """Adds what was compiled since `mark` to the cache, as far as there is room; returns its number.

        Call it when no function is being compiled: TensorFlow writes in place.
        """
        if self.platform is None or self.session is None or self.group is None:
            return 0
        new = [path for path in _list_files(self.session) if path.name not in self._known]
        self._known.update(path.name for path in new)
        try:
            self.group.mkdir(mode=0o700, exist_ok=True)
            for path in new:
                _link(path, self.group / f"{path.name}.{_hash_file(path)}")
            _remove_old(self.platform.parent, keep=self.group)
        except OSError as error:
            # Nothing is lost: the next start compiles again.
            self._warn(f"Compiled steps are not kept for the next start: {error}")
        return len(new)

    def read(self, name: str) -> bytes | None:
        """Content of a file that `add` has put into the group in an earlier session."""
        try:
            return None if self.session is None else (self.session / name).read_bytes()
        except OSError:
            return None

    def add(self, name: str, content: bytes) -> None:
        """Adds a file of our own to the group, for later sessions."""
        if self.group is None:
            return
        # Nothing is lost where that fails: the next start makes the content again.
        with suppress(OSError), tempfile.NamedTemporaryFile(dir=self.session, prefix=".") as file:
            file.write(content)
            file.flush()
            self.group.mkdir(mode=0o700, exist_ok=True)
            _link(Path(file.name), self.group / f"{name}.{hashlib.sha256(content).hexdigest()}")

    def give_up(self, reason: object) -> None:
        """Goes on without the cache, after TensorFlow could not read or write a file of it; its group is removed.

        TensorFlow cannot be told another folder any more, so the private folder is moved to the folder for temporary
        files. A function whose file failed must be traced again: TensorFlow remembers the error under its name.
        """
        if self.session is None:
            return
        self._warn(f"Compiled steps of earlier starts cannot be used, so the step is compiled again: {reason}")
        if self.group is not None:
            _remove(self.group)
        elsewhere, kept = tempfile.mkdtemp(prefix="myxtts-compiled-"), self.session
        _remove(kept)
        kept.unlink(missing_ok=True)
        kept.symlink_to(elsewhere, target_is_directory=True)
        atexit.register(shutil.rmtree, elsewhere, ignore_errors=True)
        atexit.register(kept.unlink, missing_ok=True)
        self.platform = self.group = self.session = None
        self.num_found = 0

    def close(self) -> None:
        """Removes the private folder."""
        if self.session is not None:
            _remove(self.session)
            self.session = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


_present = CompileCache()


def get_compile_cache() -> CompileCache:
    """The cache that `start_compile_cache` has started in this process, or one that is off."""
    return _present


def start_compile_cache(gpus: tuple[Gpu, ...], say: Say) -> None:
    """Starts the cache for this process, before XLA is used in it; where that is impossible, `say` is told why.

    A folder that the user has set in TF_XLA_FLAGS is left alone, as is the one of an earlier call.
    """
    global _present  # noqa: PLW0603 - TensorFlow reads its flags once in a process
    if _FOLDER_FLAG in os.environ.get(_FLAGS, ""):
        return
    try:
        _present = open_compile_cache(find_cache_folder(os.environ), gpus, say)
    except (OSError, RuntimeError, metadata.PackageNotFoundError) as error:
        say(f"Compiled steps are not kept for the next start: {error}")
        return
    atexit.register(_present.close)
    os.environ[_FLAGS] = f"{os.environ.get(_FLAGS, '')} {_FOLDER_FLAG}={_present.session}".strip()


def open_compile_cache(folder: Path, gpus: tuple[Gpu, ...], warn: Say) -> CompileCache:
    """Makes the private folder of this process; raises OSError where nothing can be kept, or not safely."""
    place = folder / name_platform(gpus, os.environ)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_unsafe(place)
    if shutil.disk_usage(place).free < _MIN_FREE_BYTES:
        raise OSError(f"{folder} has less than {_MIN_FREE_BYTES // 1_000_000} MB of free space.")
    _sweep_sessions(place)
    session = Path(tempfile.mkdtemp(prefix=_SESSION_PREFIX, dir=place))
    lock = _lock_session(session)
    assert lock is not None, f"{session} is new, and no other process can have locked it"
    return CompileCache(place, session, _warn=warn, _lock=lock)


def find_cache_folder(environment: Mapping[str, str]) -> Path:
    """Folder of the cache: in XDG_CACHE_HOME where that is an absolute path, else in ~/.cache."""
    given = Path(environment.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "myxtts" / "compiled"


def name_platform(gpus: tuple[Gpu, ...], environment: Mapping[str, str]) -> str:
    """Name of everything besides the graph that compiled code depends on."""
    version = metadata.version("tensorflow")
    flags = [environment.get(name, "") for name in (_FLAGS, _COMPILER_FLAGS)]
    cards = [(gpu.name, gpu.compute_capability, gpu.memory_bytes) for gpu in gpus]
    parts = (version, platform.machine(), _describe_processor(), count_cpus(), cards, flags)
    return f"tensorflow-{version}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


def _describe_processor() -> str:
    """Model and instruction sets of the processor, as far as the system tells them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    kinds = ("vendor_id", "model name", "cpu family", "model", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.partition(":")[0].strip() in kinds}))


def _refuse_unsafe(place: Path) -> None:
    """Raises OSError if another user could put a file into the folder: it would be run as part of the training."""
    for path in (place.resolve(), *place.resolve().parents):
        found = path.stat()
        is_ours = path.is_relative_to(place.resolve().parent)
        mine = (os.geteuid(),) if is_ours else (os.geteuid(), 0)
        is_shared = found.st_mode & (stat.S_IWOTH | stat.S_IWGRP) if is_ours else found.st_mode & stat.S_IWOTH
        if found.st_uid not in mine or (is_shared and (is_ours or not found.st_mode & stat.S_ISVTX)):
            raise OSError(
                f"another user may write in {path}, and code from there would be run. Make it your own (chmod go-w), "
                "or set XDG_CACHE_HOME to another folder."
            )


def _lock_session(session: Path) -> int | None:
    """Locks a private folder for as long as this process lives; None if its process is alive."""
    descriptor = open_unfollowed(session / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _sweep_sessions(place: Path) -> None:
    """Removes the private folders that killed processes have left."""
    for session in place.glob(f"{_SESSION_PREFIX}*"):
        if session.is_symlink():
            session.unlink(missing_ok=True)
            continue
        # Without a lock file its process is just making it.
        if (session / _LOCK_NAME).exists() and (lock := _lock_session(session)) is not None:
            _remove(session)
            os.close(lock)


def _remove_old(folder: Path, keep: Path) -> None:
    """Removes the groups that were not used for longest, until all of them are within `MAX_CACHE_BYTES`."""
    groups = [
        (group.stat().st_mtime, sum(path.stat().st_size for path in _list_files(group)), group)
        for group in folder.glob("*/*")
        if group.is_dir() and not group.name.startswith(_SESSION_PREFIX)
    ]
    total = sum(size for _, size, _ in groups)
    for _, size, group in sorted(groups):
        if total <= MAX_CACHE_BYTES:
            return
        if group != keep:
            _remove(group)
            total -= size


def _link(source: Path, target: Path) -> None:
    """Makes a hard link, or a copy where the file system has none; leaves a target that is there already."""
    if target.exists():
        return
    try:
        os.link(source, target)
    except FileExistsError:
        return
    except OSError:
        shutil.copyfile(source, target)


def _list_files(folder: Path) -> list[Path]:
    """The visible files of a folder by name, without links; none where there is no such folder."""
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in entries if path.is_file() and not path.is_symlink() and not path.name.startswith(".")]


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
