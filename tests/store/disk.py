"""A model of a disk that loses power: what was not fsynced may be lost, all of it or any part.

`record_disk` notes every operation a program does below a folder. `Disk.lose_power` then builds what could be found
after a power loss behind any of them: file contents only as far as they were fsynced, names of a folder only as far as
the folder was fsynced, and of the later operations on a folder an arbitrary selection.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_IGNORED = ".lock"
_FOLDER = -1


@dataclass(frozen=True)
class Event:
    """One operation; `content` is what a file held when it was fsynced."""

    kind: str
    path: str
    other: str = ""
    content: bytes = b""


@dataclass
class _Folder:
    """The names that are safe, and what happened to names since: (name, what it now is or None if it is gone)."""

    safe: dict[str, int] = field(default_factory=dict)
    pending: list[list[tuple[str, int | None]]] = field(default_factory=list)


class Disk:
    """The folder as it was, and the events since."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.events: list[Event] = []
        self._start: dict[str, bytes | None] = {self.root: None}
        for path in root.rglob("*"):
            if path.name != _IGNORED:
                self._start[str(path)] = None if path.is_dir() else path.read_bytes()

    def lose_power(self, num_events: int, generator: random.Random) -> list[str]:
        """Leaves in the folder what a power loss after so many events might; gives the files with unsafe content."""
        state = _Replay(self.root, self._start)
        for event in self.events[:num_events]:
            state.apply(event)
        share_kept = generator.choice((0.0, 0.3, 0.7, 1.0))
        shutil.rmtree(self.root, ignore_errors=True)
        return state.build(self.root, generator, share_kept)


class _Replay:
    def __init__(self, root: str, start: dict[str, bytes | None]) -> None:
        self._folders: dict[str, _Folder] = {}
        self._visible: dict[str, int] = {}
        self._contents: dict[int, bytes] = {}
        self._num_files = 0
        for path, content in start.items():
            self._visible[path] = _FOLDER if content is None else self._make_file()
            if content is None:
                self._folders[path] = _Folder()
            else:
                self._contents[self._visible[path]] = content
            if path != root:
                parent, name = os.path.split(path)
                self._folders[parent].safe[name] = self._visible[path]

    def _make_file(self) -> int:
        self._num_files += 1
        return self._num_files

    def apply(self, event: Event) -> None:
        if event.kind == "fsync":
            if event.path in self._folders:
                self._sync_folder(event.path)
            else:
                self._contents[self._know(event.path)] = event.content
        elif event.kind == "rename":
            file = self._know(event.path)
            del self._visible[event.path]
            self._visible[event.other] = file
            self._note((event.path, None), (event.other, file))
        elif event.kind == "link":
            self._visible[event.other] = self._know(event.path)
            self._note((event.other, self._visible[event.other]))
        elif event.kind == "mkdir":
            self._visible[event.path] = _FOLDER
            self._folders[event.path] = _Folder()
            self._note((event.path, _FOLDER))
        else:
            self._visible.pop(event.path, None)
            self._note((event.path, None))

    def _know(self, path: str) -> int:
        """The file under a name; one not met before was created there, with content that is not safe."""
        if path not in self._visible:
            self._visible[path] = self._make_file()
            self._note((path, self._visible[path]))
        return self._visible[path]

    def _note(self, *changes: tuple[str, int | None]) -> None:
        """Changes that happen together or not at all, as the two names of a rename do."""
        folder = os.path.dirname(changes[0][0])  # noqa: PTH120
        self._folders[folder].pending.append([(os.path.basename(path), file) for path, file in changes])  # noqa: PTH119

    def _sync_folder(self, path: str) -> None:
        folder = self._folders[path]
        for changes in folder.pending:
            _change_names(folder.safe, changes)
        folder.pending = []

    def build(self, path: str, generator: random.Random, share_kept: float) -> list[str]:
        """Writes the folder at `path` and what lies in it."""
        names = dict(self._folders[path].safe)
        for changes in self._folders[path].pending:
            if generator.random() < share_kept:
                _change_names(names, changes)
        Path(path).mkdir()
        unsafe = []
        for name, file in names.items():
            place = Path(path) / name
            if file == _FOLDER:
                unsafe += self.build(str(place), generator, share_kept)
            elif file in self._contents:
                place.write_bytes(self._contents[file])
            else:
                place.write_bytes(generator.randbytes(generator.choice((0, 0, 100))))
                unsafe.append(name)
        return unsafe


def _change_names(names: dict[str, int], changes: list[tuple[str, int | None]]) -> None:
    for name, file in changes:
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file


@contextmanager
def record_disk(root: Path) -> Iterator[Disk]:
    """Notes what the block does to files below `root`."""
    disk = Disk(root)
    saved: dict[str, Any] = {}

    def replace_function(name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        saved[name] = getattr(os, name)
        setattr(os, name, make(saved[name]))

    def note(kind: str, path: str, other: str = "", content: bytes = b"") -> None:
        if path.startswith(disk.root) and not path.endswith(_IGNORED):
            disk.events.append(Event(kind, path, other, content))

    def note_paths(kind: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*paths: Any, **options: Any) -> Any:
                result = original(*paths, **options)
                # Behind the paths of mkdir comes a mode.
                named = [_resolve(path, options.get("dir_fd")) for path in paths if not isinstance(path, int)]
                note(kind, named[0], named[1] if len(named) > 1 else "")
                return result

            return call

        return make

    def make_fsync(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(descriptor: int) -> None:
            original(descriptor)
            path = _name_descriptor(descriptor)
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            note("fsync", path, content=Path(path).read_bytes() if is_file else b"")

        return call

    for name, kind in (("replace", "rename"), ("rename", "rename"), ("link", "link"), ("mkdir", "mkdir")):
        replace_function(name, note_paths(kind))
    for name in ("unlink", "remove", "rmdir"):
        replace_function(name, note_paths("unlink"))
    replace_function("fsync", make_fsync)
    try:
        yield disk
    finally:
        for name, original in saved.items():
            setattr(os, name, original)


def _resolve(path: Any, folder: int | None) -> str:
    text = os.fspath(path)
    return text if folder is None else f"{_name_descriptor(folder)}/{text}"


def _name_descriptor(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())
