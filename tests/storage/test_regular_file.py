"""Only regular files of bounded size are read, and nothing is written through a link."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from myxtts.errors import StorageError
from myxtts.pipeline.telemetry import Telemetry
from myxtts.storage.atomic import lock_directory, write_atomically
from myxtts.storage.json_file import JsonLines, try_read_json
from myxtts.storage.regular_file import FileRefusedError, open_output, open_regular, read_regular
from myxtts.tools.monitor.log import SampleLog

VICTIM = b"the content of somebody else's file"


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path.name)


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_folder(path: Path) -> None:
    path.mkdir()


NO_FILES = [make_fifo, make_socket, make_device, make_folder]


@pytest.mark.parametrize("make", NO_FILES)
def test_what_is_no_file_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "thing")
    with pytest.raises(FileRefusedError, match="thing is not a file"):
        read_regular(tmp_path / "thing", 10)
    assert try_read_json(tmp_path / "thing", dict) is None


def test_the_size_is_looked_at_before_reading(tmp_path: Path) -> None:
    path = tmp_path / "giant"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FileRefusedError, match="giant has 1,099,511,627,776 bytes, more than 1,000"):
        read_regular(path, 1000)
    with open_regular(path) as file:
        assert file.read(3) == bytes(3)


def test_links_are_followed_to_read_only_where_that_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_regular(tmp_path / "link", 10) == b"content"
    with pytest.raises(OSError, match="symbolic"), open_regular(tmp_path / "link", follow_links=False):
        pass


def write_lock(path: Path) -> None:
    with lock_directory(path.parent, "a test"):
        pass


def write_output(path: Path) -> None:
    with open_output(path) as file:
        file.write(b"more")


def append_line(path: Path) -> None:
    said: list[str] = []
    assert not JsonLines(path, said.append).append({"step": 1})
    raise OSError(said[0])


def append_sample(path: Path) -> None:
    with SampleLog(path):
        pass


def append_telemetry(path: Path) -> None:
    Telemetry(path).close()


WRITERS = [write_lock, write_output, append_line, append_sample, append_telemetry]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("is_dangling", [False, True])
def test_nothing_is_written_through_a_link(tmp_path: Path, write: Callable[[Path], None], is_dangling: bool) -> None:
    victim = tmp_path / "victim"
    if not is_dangling:
        victim.write_bytes(VICTIM)
    path = tmp_path / "folder" / (".lock" if write is write_lock else "output.jsonl")
    path.parent.mkdir()
    path.symlink_to(victim)
    with pytest.raises((OSError, StorageError), match="symbolic link"):
        write(path)
    assert victim.exists() is not is_dangling
    assert is_dangling or victim.read_bytes() == VICTIM


@pytest.mark.parametrize("write", [write_lock, write_output, append_sample])
def test_a_pipe_in_the_place_of_an_output_is_refused(tmp_path: Path, write: Callable[[Path], None]) -> None:
    path = tmp_path / (".lock" if write is write_lock else "output.jsonl")
    os.mkfifo(path)
    with pytest.raises((OSError, StorageError)):
        write(path)


def test_an_atomic_write_replaces_a_link_and_leaves_its_target(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(VICTIM)
    (tmp_path / "file").symlink_to(victim)
    (tmp_path / f".file.{os.getpid()}.myxtts-tmp").symlink_to(victim)
    with write_atomically(tmp_path / "file") as file:
        file.write(b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert not (tmp_path / "file").is_symlink()
    assert victim.read_bytes() == VICTIM
