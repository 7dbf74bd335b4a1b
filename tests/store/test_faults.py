"""A failing disk, a full one, a read-only one, a kill, a second writer: a clear error, and nothing is lost."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.store.corpora import SmallCorpus, change_alphabet
from tests.store.flips import flip_bit
from tests.store.runner import KILLED, Runner

from myxtts.errors import BusyError, StorageError
from myxtts.storage.atomic import TEMPORARY_SUFFIX, lock_directory
from myxtts.store.verify import verify_store

POINTS = ("write", "fsync", "replace", "sync_directory", "segment_write", "segment_fsync", "segment_replace")
STORAGE_EXIT_CODE = StorageError.exit_code


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with Runner() as runner:
        yield runner


def find_temporary_files(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(f".*{TEMPORARY_SUFFIX}")]


class Stages:
    """A store before and after a change, to tell the one from the other and both from a mixture."""

    def __init__(self, corpus: SmallCorpus, runner: Runner, action: str) -> None:
        self._corpus, self._runner, self.action = corpus, runner, action
        self._saved = corpus.folder / "saved"
        self.before = None
        if corpus.store_folder.exists():
            self.before = corpus.take_snapshot()
            shutil.copytree(corpus.store_folder, self._saved)
        assert runner.run(corpus.folder, action).status == 0
        self.after = corpus.take_snapshot()

    def start_over(self) -> None:
        shutil.rmtree(self._corpus.store_folder)
        if self.before is not None:
            shutil.copytree(self._saved, self._corpus.store_folder)

    def check(self) -> None:
        """The store is as before or as after; run again, it is as after, and nothing is left over."""
        if (self._corpus.store_folder / "store.json").exists():
            assert self._corpus.take_snapshot() in (self.before, self.after)
        else:
            assert self.before is None
        assert self._runner.run(self._corpus.folder, self.action).status == 0
        assert self._corpus.take_snapshot() == self.after
        assert find_temporary_files(self._corpus.store_folder) == []
        assert verify_store(self._corpus.store_folder).is_whole


def change_corpus(corpus: SmallCorpus) -> None:
    """Something to add, to replace, to relabel and to remove."""
    corpus.add("fresh", seed=100)
    corpus.add("clip03", seed=101)
    corpus.change("clip06", speaker="zoe")
    corpus.remove("clip08")
    corpus.prepare()


def set_up(corpus: SmallCorpus, change: str) -> str:
    """Brings a corpus and its store to where a change begins; gives the action that makes the change."""
    if change == "first":
        return "precompute"
    corpus.precompute()
    if change == "update":
        change_corpus(corpus)
    elif change == "tokens":
        change_alphabet(corpus)
    return {"update": "precompute", "tokens": "precompute"}.get(change, change)


def try_faults(corpus: SmallCorpus, runner: Runner, change: str, kind: str, counts: tuple[int, ...]) -> int:
    """Every point of a change fails once; gives how many were reached."""
    stages = Stages(corpus, runner, set_up(corpus, change))
    num_reached = 0
    for point in POINTS:
        for count in counts:
            stages.start_over()
            outcome = runner.run(corpus.folder, stages.action, fault=f"{point}:{count}:{kind}")
            if outcome.status == 0:
                continue
            num_reached += 1
            if kind == "kill":
                assert outcome.status == KILLED
            else:
                assert outcome.status == STORAGE_EXIT_CODE, (point, count, outcome)
                assert os.strerror(getattr(errno, kind)) in outcome.error
                assert find_temporary_files(corpus.store_folder) == [], (point, count)
            stages.check()
    return num_reached


@pytest.mark.parametrize("change", ["first", "update", "tokens", "rebuild", "compact", "align"])
@pytest.mark.parametrize("kind", ["kill", "ENOSPC", "EIO"])
def test_a_fault_at_every_point_leaves_the_old_store_or_the_new(
    corpus: SmallCorpus, runner: Runner, change: str, kind: str
) -> None:
    counts = {"kill": (1, 4), "ENOSPC": (1,), "EIO": (2,)}[kind]
    assert try_faults(corpus, runner, change, kind, counts) >= 4, "the faults missed the work"


@pytest.mark.soak
@pytest.mark.parametrize("change", ["first", "update", "tokens", "rebuild", "compact", "align"])
@pytest.mark.parametrize("kind", ["kill", "ENOSPC", "EIO"])
def test_a_fault_at_every_count_of_every_point(corpus: SmallCorpus, runner: Runner, change: str, kind: str) -> None:
    assert try_faults(corpus, runner, change, kind, tuple(range(1, 17))) > 2 * len(POINTS)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", ["kill", "ENOSPC"])
def test_a_repair_that_fails_can_be_repeated(corpus: SmallCorpus, runner: Runner, point: str, kind: str) -> None:
    corpus.precompute()
    expected = {row[0]: row for row in corpus.take_snapshot()}
    folder = corpus.store_folder
    flip_bit(folder / "generation-0001" / "000000.mel", 8 * 100)
    flip_bit(folder / "generation-0001" / "000001.index", 8 * 100)
    flip_bit(folder / "generation-0001" / "000002.tokens", 3)
    flip_bit(folder / "store.json", 8 * 100)
    outcome = runner.run(corpus.folder, "fix", fault=f"{point}:2:{kind}")
    assert outcome.status in (KILLED, STORAGE_EXIT_CODE)
    assert runner.run(corpus.folder, "fix").status == 0
    assert {row[0]: row for row in corpus.take_snapshot()} == expected
    assert verify_store(folder).is_whole


@pytest.mark.parametrize("max_file_bytes", [100, 5000, 20_000, 50_000])
def test_a_file_size_limit_ends_clearly(corpus: SmallCorpus, runner: Runner, max_file_bytes: int) -> None:
    outcome = runner.run(corpus.folder, max_file_bytes=max_file_bytes)
    assert outcome.status == STORAGE_EXIT_CODE, outcome
    assert os.strerror(errno.EFBIG) in outcome.error
    assert find_temporary_files(corpus.store_folder) == []
    assert runner.run(corpus.folder).status == 0
    assert len(corpus.open_store()) == 10


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    """A small disk in memory, mounted at `folder`; skips the test where that is not allowed."""
    folder.mkdir(exist_ok=True)
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", *options, "tmpfs", str(folder)]
    if mount is None or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("this process may not mount a disk")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)  # noqa: S607


def test_a_full_disk_ends_clearly_and_the_next_run_goes_on(corpus: SmallCorpus, runner: Runner) -> None:
    folder = corpus.store_folder
    with mounted(folder, "-o", "size=220k"):
        ballast = folder / "ballast"
        ballast.write_bytes(bytes(120_000))
        outcome = runner.run(corpus.folder)
        assert outcome.status == STORAGE_EXIT_CODE, outcome
        assert os.strerror(errno.ENOSPC) in outcome.error
        assert "Free some space" in outcome.error
        assert find_temporary_files(folder) == []
        ballast.unlink()
        assert runner.run(corpus.folder).status == 0
        before = corpus.take_snapshot()
        # There is no room for a second copy: compaction gives up and leaves the disk as it was.
        outcome = runner.run(corpus.folder, "compact")
        assert outcome.status == STORAGE_EXIT_CODE, outcome
        assert [path.name for path in folder.glob("generation-*")] == ["generation-0001"]
        assert corpus.take_snapshot() == before


def test_a_read_only_disk_is_named_and_can_still_be_read_and_checked(corpus: SmallCorpus, runner: Runner) -> None:
    folder = corpus.store_folder
    with mounted(folder, "-o", "size=4m"):
        corpus.precompute()
        before = corpus.take_snapshot()
        change_corpus(corpus)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)  # noqa: S607
        for action in ("precompute", "compact", "align", "fix"):
            outcome = runner.run(corpus.folder, action)
            assert outcome.status == STORAGE_EXIT_CODE, (action, outcome)
            assert "read-only" in outcome.error.lower()
        assert corpus.take_snapshot() == before
        assert verify_store(folder).is_whole


def test_a_file_in_the_place_of_the_store_is_named(corpus: SmallCorpus, runner: Runner) -> None:
    corpus.store_folder.write_text("not a folder", encoding="utf-8")
    outcome = runner.run(corpus.folder)
    assert outcome.status == STORAGE_EXIT_CODE
    assert str(corpus.store_folder) in outcome.error
    assert corpus.store_folder.read_text(encoding="utf-8") == "not a folder"


@pytest.mark.parametrize("action", ["precompute", "rebuild", "compact", "fix", "align"])
def test_a_second_writer_is_refused_and_changes_nothing(stored: SmallCorpus, runner: Runner, action: str) -> None:
    before = stored.take_snapshot()
    with lock_directory(stored.store_folder, "the first writer"):
        outcome = runner.run(stored.folder, action)
    assert outcome.status == BusyError.exit_code, outcome
    assert "the first writer" in outcome.error
    assert stored.take_snapshot() == before
    assert runner.run(stored.folder, action).status == 0
