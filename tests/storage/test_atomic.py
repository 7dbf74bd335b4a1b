"""Files are whole or absent, whatever happens while they are written."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from myxtts.errors import BusyError, StorageError
from myxtts.storage.atomic import TEMPORARY_SUFFIX, lock_directory, sweep_temporary_files, write_atomically

POINTS = ("write", "fsync", "replace", "sync_directory")

WRITE_ONCE = """
import sys
from pathlib import Path
from myxtts.errors import StorageError
from myxtts.storage.atomic import write_atomically
try:
    with write_atomically(Path(sys.argv[1])) as file:
        file.write(b"new" * 100_000)
except StorageError as error:
    print(error)
    sys.exit(7)
"""

HOLD_LOCK = """
import sys, time
from pathlib import Path
from myxtts.storage.atomic import lock_directory
with lock_directory(Path(sys.argv[1]), "a long job"):
    print("locked", flush=True)
    time.sleep(60)
"""


def write_with_fault(path: Path, fault: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MYXTTS_FAULT": fault}
    command = [sys.executable, "-c", WRITE_ONCE, str(path)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("kind", ["kill", "EIO", "ENOSPC"])
@pytest.mark.parametrize("point", POINTS)
def test_fault_at_each_point_leaves_the_old_file_or_the_new(tmp_path: Path, point: str, kind: str) -> None:
    path = tmp_path / "state.bin"
    path.write_bytes(b"old" * 100_000)
    done = write_with_fault(path, f"{point}:1:{kind}")
    assert done.returncode == (-9 if kind == "kill" else 7), done.stderr
    after = path.read_bytes()
    # Once the name has changed the new file is there, whatever happens to its folder entry afterwards.
    assert after == (b"new" if point == "sync_directory" else b"old") * 100_000
    if kind != "kill":
        assert str(path) in done.stdout
        assert os.strerror(getattr(errno, kind)) in done.stdout
        assert not list(tmp_path.glob(f".*{TEMPORARY_SUFFIX}"))
    sweep_temporary_files(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.bin"]


def test_delay_only_delays(tmp_path: Path) -> None:
    assert write_with_fault(tmp_path / "a", "fsync:1:delay").returncode == 0
    assert (tmp_path / "a").stat().st_size == 300_000


def test_several_faults_happen_each_at_its_place(tmp_path: Path) -> None:
    program = WRITE_ONCE.replace("try:", "from myxtts.storage.atomic import pass_fault_point as reach\n"
    'print([reach("gradients") for _ in range(4)])\ntry:')  # fmt: skip
    faults = {**os.environ, "MYXTTS_FAULT": "gradients:2:nan,gradients:4:nan,replace:1:EIO"}
    command = [sys.executable, "-c", program, str(tmp_path / "a")]
    done = subprocess.run(command, env=faults, capture_output=True, text=True, timeout=60)
    assert done.returncode == 7, done.stderr
    assert "[False, True, False, True]" in done.stdout


@pytest.mark.parametrize("fault", ["write", "write:x:kill", "write:1:explode", "write:1:nan", "write:1:kill,fsync"])
def test_mistyped_fault_is_refused(tmp_path: Path, fault: str) -> None:
    done = write_with_fault(tmp_path / "a", fault)
    assert done.returncode == 1
    assert "MYXTTS_FAULT" in done.stderr


def test_error_in_the_block_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), write_atomically(tmp_path / "a") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_folder_that_is_a_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="Could not write"), write_atomically(tmp_path / "file" / "a"):
        pass


def test_failure_to_read_another_file_is_not_blamed_on_this_one(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "missing"
    with pytest.raises(FileNotFoundError, match="missing"), write_atomically(tmp_path / "here" / "a"):
        elsewhere.read_bytes()
    assert not list((tmp_path / "here").iterdir())


def test_full_disk_while_locking_is_explained(tmp_path: Path) -> None:
    program = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from myxtts.errors import StorageError; from myxtts.storage.atomic import lock_directory\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "try:\n    with lock_directory(Path(sys.argv[1]), 'x'): pass\n"
        "except StorageError as error: sys.exit(error.exit_code)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=60).returncode == 7


def test_lock_is_exclusive_and_freed_when_its_holder_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD_LOCK, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(BusyError, match=rf"process {holder.pid} \(a long job\)"), lock_directory(tmp_path, "mine"):
            pass
        holder.kill()
    with lock_directory(tmp_path, "mine"):
        pass


def test_sweeping_removes_files_and_folders_of_killed_writers_and_nothing_else(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    for folder in (run / f".bundle.new{TEMPORARY_SUFFIX}" / "inner", run / "bundle", elsewhere):
        folder.mkdir(parents=True)
        (folder / "weights").write_bytes(b"1")
    (run / f".state.12{TEMPORARY_SUFFIX}").write_bytes(b"half")
    (run / f".link{TEMPORARY_SUFFIX}").symlink_to(elsewhere, target_is_directory=True)
    assert sweep_temporary_files(run) == 3
    assert [path.name for path in run.iterdir()] == ["bundle"]
    assert (elsewhere / "weights").exists()


def test_a_leftover_that_cannot_be_removed_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    (tmp_path / f".state.12{TEMPORARY_SUFFIX}").touch()
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(StorageError, match="Could not remove"):
        sweep_temporary_files(tmp_path)
