"""Checkpoints come back whole, the right ones are kept, and a disk that fails stops nothing."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fork_process import KILLED, ForkProcess
from tests.store.flips import flip_bit
from tests.store.test_faults import mounted
from tests.training.savers import is_of_one_step, load_best, make_arrays, make_state, save_one

from myxtts.errors import DataError, StorageError
from myxtts.storage.atomic import TEMPORARY_SUFFIX
from myxtts.storage.tensor_file import Array
from myxtts.training.run.checkpoint import CheckpointFolder
from myxtts.training.run.saver import BackgroundSaver

POINTS = (
    "write:1",
    "tensor_write:1",
    "tensor_write:4",
    "fsync:1",
    "replace:1",
    "sync_directory:1",
    "write:2",
    "fsync:2",
)


@pytest.fixture(scope="module")
def process() -> Iterator[ForkProcess]:
    with ForkProcess("tests.training.savers") as process:
        yield process


def refuse_warnings(message: str) -> None:
    raise AssertionError(message)


def make_folder(path: Path, **options: Any) -> CheckpointFolder:
    return CheckpointFolder(path / "checkpoints", **{"warn": refuse_warnings, **options})


def save_steps(checkpoints: CheckpointFolder, *steps: int) -> None:
    for step in steps:
        checkpoints.save(step, make_arrays(step), make_state(step))


def test_a_checkpoint_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    checkpoints = make_folder(tmp_path)
    save_steps(checkpoints, 7)
    newest = checkpoints.load_newest()
    assert newest is not None
    assert newest.step == 7
    assert is_of_one_step(newest)


def test_numbers_of_the_state_come_back_exactly(tmp_path: Path) -> None:
    checkpoints = make_folder(tmp_path)
    state = {"third": 1 / 3, "tiny": 5e-324, "many": 2**63, "none": None, "text": "سلام", "list": [True, 0.1 + 0.2]}
    checkpoints.save(1, {}, state)
    assert checkpoints.load(1).state == state


def test_a_folder_without_checkpoints_has_none(tmp_path: Path) -> None:
    checkpoints = make_folder(tmp_path)
    assert checkpoints.list_steps() == []
    assert checkpoints.load_newest() is None
    assert load_best(checkpoints) is None


def test_the_last_and_the_best_are_kept(tmp_path: Path) -> None:
    checkpoints = make_folder(tmp_path, keep_last=3)
    save_steps(checkpoints, 10)
    checkpoints.mark_best(10, 0.5)
    save_steps(checkpoints, 20, 30, 40, 50)
    assert checkpoints.list_steps() == [10, 30, 40, 50]
    checkpoints.mark_best(40, 0.4)
    assert checkpoints.list_steps() == [30, 40, 50]
    best = load_best(checkpoints)
    assert best is not None
    assert best.step == 40
    assert is_of_one_step(best)


def test_a_best_that_cannot_be_read_removes_nothing(tmp_path: Path) -> None:
    warnings: list[str] = []
    checkpoints = make_folder(tmp_path, warn=warnings.append)
    save_steps(checkpoints, 10)
    checkpoints.mark_best(10, 0.5)
    (checkpoints.folder / "best.json").write_text("{", encoding="utf-8")
    save_steps(checkpoints, 20, 30, 40, 50)
    assert checkpoints.list_steps() == [10, 20, 30, 40, 50]
    assert "No old checkpoint is removed" in warnings[0]
    checkpoints.mark_best(50, 0.3)
    assert checkpoints.list_steps() == [30, 40, 50]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_by_name_and_never_written(tmp_path: Path, value: float) -> None:
    checkpoints = make_folder(tmp_path)
    save_steps(checkpoints, 1)
    named = make_arrays(2)
    named["average/kernel"][3, 4] = value
    with pytest.raises(DataError, match=r"step 2 .* average/kernel is NaN or infinite"):
        checkpoints.save(2, named, make_state(2))
    assert [path.name for path in checkpoints.folder.iterdir()] == ["step-000000001.safetensors"]


def test_a_damaged_checkpoint_is_skipped_with_a_message(tmp_path: Path) -> None:
    warnings: list[str] = []
    checkpoints = make_folder(tmp_path, warn=warnings.append)
    save_steps(checkpoints, 1, 2, 3)
    flip_bit(checkpoints.name_file(3), 8 * 2000)
    checkpoints.name_file(2).write_bytes(checkpoints.name_file(2).read_bytes()[:-10])
    newest = checkpoints.load_newest()
    assert newest is not None
    assert newest.step == 1
    assert ["step-000000003" in warnings[0], "step-000000002" in warnings[1]] == [True, True]
    assert "checksum" in warnings[0]
    checkpoints.drop_after(1)
    assert checkpoints.list_steps() == [1]


def test_when_all_are_damaged_nothing_is_begun_anew_in_silence(tmp_path: Path) -> None:
    checkpoints = make_folder(tmp_path, warn=[].append)
    save_steps(checkpoints, 1, 2)
    for step in (1, 2):
        checkpoints.name_file(step).write_bytes(b"")
    with pytest.raises(DataError, match="None of the 2 checkpoints"):
        checkpoints.load_newest()


def test_a_checkpoint_under_the_name_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    warnings: list[str] = []
    checkpoints = make_folder(tmp_path, warn=warnings.append)
    save_steps(checkpoints, 1)
    shutil.copy(checkpoints.name_file(1), checkpoints.name_file(2))
    newest = checkpoints.load_newest()
    assert newest is not None
    assert newest.step == 1
    assert "no checkpoint of step 2" in warnings[0]


def test_going_back_removes_what_came_later_and_its_mark(tmp_path: Path) -> None:
    checkpoints = make_folder(tmp_path)
    save_steps(checkpoints, 1, 2, 3)
    checkpoints.mark_best(3, 0.1)
    checkpoints.drop_after(2)
    assert checkpoints.list_steps() == [1, 2]
    assert checkpoints.read_best() is None


@pytest.mark.parametrize(
    ("point", "kind"), [*product(POINTS, ("kill", "EIO", "ENOSPC")), ("fsync:1", "delay"), ("replace:1", "delay")]
)
def test_a_fault_at_any_point_leaves_the_old_checkpoint_or_the_new(
    tmp_path: Path, process: ForkProcess, point: str, kind: str
) -> None:
    save_one(str(tmp_path), 1)
    outcome = process.run("save_one", fault=f"{point}:{kind}", folder=str(tmp_path), step=2)
    assert outcome.status == {"kill": KILLED, "delay": 0}.get(kind, StorageError.exit_code), outcome
    checkpoints = CheckpointFolder(tmp_path, warn=refuse_warnings)
    newest, best = checkpoints.load_newest(), load_best(checkpoints)
    assert newest is not None
    assert best is not None
    assert is_of_one_step(newest)
    assert is_of_one_step(best)
    if kind in ("EIO", "ENOSPC"):
        assert os.strerror(getattr(errno, kind)) in outcome.error
        assert not list(tmp_path.glob(f".*{TEMPORARY_SUFFIX}"))
    assert process.run("save_one", folder=str(tmp_path), step=3).status == 0
    assert not list(tmp_path.glob(f".*{TEMPORARY_SUFFIX}"))
    newest, best = checkpoints.load_newest(), load_best(checkpoints)
    assert newest is not None
    assert best is not None
    assert (newest.step, best.step) == (3, 3)


def test_saving_goes_on_in_the_background_with_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = make_folder(tmp_path)
    may_write, is_writing = threading.Event(), threading.Event()
    original = checkpoints.save

    def save_late(step: int, arrays: dict[str, Array], state: dict[str, Any]) -> Path:
        is_writing.set()
        assert may_write.wait(60)
        return original(step, arrays, state)

    monkeypatch.setattr(checkpoints, "save", save_late)
    arrays, state = make_arrays(1), make_state(1)
    with BackgroundSaver(checkpoints, refuse_warnings) as saver:
        saver.save(1, arrays, state)
        assert is_writing.wait(60)
        # Training changes both while the checkpoint waits for the disk.
        for array in arrays.values():
            array[...] = 0
        state["nested"]["score"] = -1
        assert checkpoints.list_steps() == []
        may_write.set()
        saver.wait()
        assert is_of_one_step(checkpoints.load(1))


def test_every_save_is_done_in_order_and_the_best_is_marked(tmp_path: Path) -> None:
    checkpoints = make_folder(tmp_path, keep_last=2)
    with BackgroundSaver(checkpoints, refuse_warnings) as saver:
        for step in range(1, 9):
            saver.save(step, make_arrays(step), make_state(step), best_score=0.1 if step == 4 else None)
    assert checkpoints.list_steps() == [4, 7, 8]
    best = checkpoints.read_best()
    assert best is not None
    assert (best.step, best.score) == (4, 0.1)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("checkpoint")]


def test_nan_in_the_background_becomes_a_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    with BackgroundSaver(make_folder(tmp_path), warnings.append) as saver:
        saver.save(1, make_arrays(1), make_state(1))
        saver.save(2, {"model/bias": np.array([np.nan], np.float32)}, make_state(2))
        saver.save(3, make_arrays(3), make_state(3))
    assert make_folder(tmp_path).list_steps() == [1, 3]
    assert len(warnings) == 1
    assert "model/bias" in warnings[0]
    assert "last checkpoint is that of step 1" in warnings[0]


def test_a_mistake_of_ours_in_the_background_is_not_hidden(tmp_path: Path) -> None:
    saver = BackgroundSaver(make_folder(tmp_path), refuse_warnings)
    saver.save(1, {"complex": np.zeros(1, np.complex64)}, {})
    with pytest.raises(AssertionError, match="complex"), saver:
        pass


@pytest.mark.parametrize("fault", ["write:3:ENOSPC", "tensor_write:8:EIO", "fsync:3:ENOSPC", "replace:2:EIO"])
def test_a_disk_that_fails_once_costs_one_checkpoint(tmp_path: Path, process: ForkProcess, fault: str) -> None:
    outcome = process.run("save_in_background", fault=fault, folder=str(tmp_path), num_steps=6)
    assert outcome.status == 0, outcome
    assert len(outcome.result["warnings"]) == 1
    assert "Training continues" in outcome.result["warnings"][0]
    newest = CheckpointFolder(tmp_path, warn=refuse_warnings).load_newest()
    assert newest is not None
    assert newest.step == 6


def test_a_file_size_limit_costs_checkpoints_but_not_the_training(tmp_path: Path, process: ForkProcess) -> None:
    assert process.run("save_in_background", folder=str(tmp_path), num_steps=2).result["warnings"] == []
    outcome = process.run("save_in_background", max_file_bytes=9000, folder=str(tmp_path), num_steps=3)
    assert outcome.status == 0, outcome
    assert len(outcome.result["warnings"]) == 3
    assert all(os.strerror(errno.EFBIG) in warning for warning in outcome.result["warnings"])
    assert CheckpointFolder(tmp_path).list_steps() == [1, 2]
    assert not list(tmp_path.glob(f".*{TEMPORARY_SUFFIX}"))


def test_a_full_disk_keeps_the_old_checkpoint_and_training_goes_on(tmp_path: Path, process: ForkProcess) -> None:
    folder = tmp_path / "disk"
    with mounted(folder, "-o", "size=200k"):
        assert process.run("save_in_background", folder=str(folder), num_steps=2).result["warnings"] == []
        (folder / "ballast").write_bytes(bytes(135_000))
        outcome = process.run("save_in_background", folder=str(folder), num_steps=3)
        assert outcome.status == 0, outcome
        assert len(outcome.result["warnings"]) == 3
        assert all(os.strerror(errno.ENOSPC) in warning for warning in outcome.result["warnings"])
        checkpoints = CheckpointFolder(folder, warn=refuse_warnings)
        assert is_of_one_step(checkpoints.load(2))
        (folder / "ballast").unlink()
        assert process.run("save_in_background", folder=str(folder), num_steps=2).result["warnings"] == []


def test_a_disk_that_turns_read_only_keeps_what_is_there(tmp_path: Path, process: ForkProcess) -> None:
    folder = tmp_path / "disk"
    with mounted(folder, "-o", "size=1m"):
        process.run("save_in_background", folder=str(folder), num_steps=2)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)  # noqa: S607
        outcome = process.run("save_in_background", folder=str(folder), num_steps=2)
        assert outcome.status == 0, outcome
        assert len(outcome.result["warnings"]) == 2
        assert all("read-only" in warning.lower() for warning in outcome.result["warnings"])
        newest = CheckpointFolder(folder, warn=refuse_warnings).load_newest()
        assert newest is not None
        assert is_of_one_step(newest)
