"""`precompute` killed at any moment and run again: the store ends as if nothing had happened."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.store.corpora import SmallCorpus, change_alphabet, make_small_corpus
from tests.store.runner import KILLED, Runner

from myxtts.storage.atomic import TEMPORARY_SUFFIX
from myxtts.store.verify import verify_store

POINTS = ("write", "fsync", "replace", "sync_directory", "segment_write", "segment_fsync", "segment_replace")


def keep(_: SmallCorpus) -> None:
    pass


def grow_and_shrink(corpus: SmallCorpus) -> None:
    for number in range(6):
        corpus.add(f"fresh{number}", seed=100 + number)
    for number in range(3, 8):
        corpus.add(f"clip{number:02}", seed=200 + number)
    corpus.change("clip10", speaker="zoe")
    corpus.change("clip11", text="Of words.")
    for number in range(12, 17):
        corpus.remove(f"clip{number}")
    corpus.prepare()


STAGES: tuple[tuple[str, Callable[[SmallCorpus], None], str, dict[str, Any]], ...] = (
    ("first", keep, "precompute", {}),
    ("update", grow_and_shrink, "precompute", {}),
    ("tokens", change_alphabet, "precompute", {}),
    ("align", keep, "align", {}),
    ("compact", keep, "compact", {}),
    ("audio settings", keep, "precompute", {"n_mels": 40, "auto_rebuild_mel_cache": True}),
)


class Campaign:
    """A store goes through its stages again and again, under kills, until there were enough of them."""

    def __init__(self, folder: Path, runner: Runner, seed: int) -> None:
        self._runner, self._generator = runner, random.Random(seed)
        self._corpus = make_small_corpus(folder / "corpus", num_utterances=24)
        self._pristine = self._corpus.copy(folder / "pristine")
        self.num_kills, self.num_inside_writes = 0, 0
        self.by_stage: Counter[str] = Counter()
        self._expected: dict[str, Any] = {}
        self._seconds: dict[str, float] = {}
        for stage in STAGES:
            self._run_undisturbed(stage)

    def _run_undisturbed(self, stage: tuple[str, Callable[[SmallCorpus], None], str, dict[str, Any]]) -> None:
        name, change, action, settings = stage
        change(self._corpus)
        outcome = self._runner.run(self._corpus.folder, action, settings=settings)
        assert outcome.status == 0, outcome
        self._expected[name] = self._corpus.take_snapshot()
        self._seconds[name] = outcome.seconds

    def run(self, num_kills: int) -> None:
        while self.num_kills < num_kills:
            shutil.rmtree(self._corpus.folder)
            self._corpus = self._pristine.copy(self._corpus.folder)
            before = None
            for name, change, action, settings in STAGES:
                change(self._corpus)
                self._kill_until_done(name, action, settings, before, num_kills)
                before = self._corpus.take_snapshot()
                assert before == self._expected[name]
                assert verify_store(self._corpus.store_folder).is_whole
                assert self._find_temporary_files() == set()

    def _kill_until_done(self, name: str, action: str, settings: dict[str, Any], before: Any, num_kills: int) -> None:
        """The first runs of a stage are killed; the last may end in peace."""
        for _ in range(self._generator.randint(1, 4)):
            if self.num_kills == num_kills:
                break
            at_point = self._generator.random() < 0.5
            fault = f"{self._generator.choice(POINTS)}:{self._generator.randint(1, 8)}:kill" if at_point else ""
            delay = None if at_point else self._generator.uniform(0, self._seconds[name])
            left_before = self._find_temporary_files()
            outcome = self._runner.run(self._corpus.folder, action, fault=fault, kill_after_s=delay, settings=settings)
            if outcome.status == 0:
                return
            assert outcome.status == KILLED, outcome
            self.num_kills += 1
            self.by_stage[name] += 1
            self.num_inside_writes += bool(at_point or self._find_temporary_files() - left_before)
            self._check_old_or_new(name, before)
        assert self._runner.run(self._corpus.folder, action, settings=settings).status == 0

    def _check_old_or_new(self, name: str, before: Any) -> None:
        if (self._corpus.store_folder / "store.json").exists():
            assert self._corpus.take_snapshot() in (before, self._expected[name])
        else:
            assert before is None

    def _find_temporary_files(self) -> set[str]:
        return {str(path) for path in self._corpus.store_folder.rglob(f".*{TEMPORARY_SUFFIX}")}


def test_few_kills_leave_the_store_as_if_nothing_had_happened(tmp_path: Path) -> None:
    with Runner() as runner:
        campaign = Campaign(tmp_path, runner, seed=1)
        campaign.run(num_kills=16)
    assert campaign.num_inside_writes >= 5


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_two_hundred_kills_leave_the_store_as_if_nothing_had_happened(tmp_path: Path, seed: int) -> None:
    with Runner() as runner:
        campaign = Campaign(tmp_path, runner, seed=10 + seed)
        campaign.run(num_kills=200)
    print(f"{campaign.num_kills} kills, {campaign.num_inside_writes} inside a write, {dict(campaign.by_stage)}")
    assert campaign.num_inside_writes >= 50
    assert set(campaign.by_stage) == {stage[0] for stage in STAGES}
