"""A training that saves all the time, killed at any moment or cut off from power: what loads is whole, always."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.fork_process import KILLED, ForkProcess
from tests.store.disk import record_disk
from tests.training.savers import is_of_one_step, load_best, make_arrays, make_state, save_one

from myxtts.storage.atomic import TEMPORARY_SUFFIX
from myxtts.training.run.checkpoint import CheckpointFolder

POINTS = ("write", "tensor_write", "fsync", "replace", "sync_directory")


class Campaign:
    """One run, killed and resumed again and again."""

    def __init__(self, folder: Path, process: ForkProcess, seed: int) -> None:
        self._folder, self._process, self._generator = folder, process, random.Random(seed)
        self.num_kills, self.num_inside_writes, self.num_steps = 0, 0, 0

    def run(self, num_kills: int) -> None:
        last_step = 0
        while self.num_kills < num_kills:
            at_point = self._generator.random() < 0.3
            point, number = self._generator.choice(POINTS), self._generator.randint(1, 40)
            outcome = self._process.run(
                "save_until_killed",
                fault=f"{point}:{number}:kill" if at_point else "",
                kill_after_s=None if at_point else self._generator.uniform(0.005, 0.2),
                folder=str(self._folder),
            )
            assert outcome.status == KILLED, outcome
            self.num_kills += 1
            leftovers = list(self._folder.glob(f".*{TEMPORARY_SUFFIX}"))
            assert len(leftovers) <= 1, "what the last one left was not swept"
            self.num_inside_writes += bool(leftovers) or (at_point and point == "sync_directory")
            last_step = self._check(last_step)
        self.num_steps = last_step

    def _check(self, last_step: int) -> int:
        """Every checkpoint under a final name is whole, and none that was there is lost to an older one."""
        checkpoints = CheckpointFolder(self._folder)
        steps = checkpoints.list_steps()
        assert all(is_of_one_step(checkpoints.load(step)) for step in steps)
        best = load_best(checkpoints)
        assert best is None or (is_of_one_step(best) and best.step % 3 == 0)
        newest = steps[-1] if steps else 0
        assert newest >= last_step
        # The last three, the best, and one more where the kill fell before the oldest was removed.
        assert len(steps) <= 5
        return newest


def run_campaign(folder: Path, num_kills: int, seed: int) -> Campaign:
    with ForkProcess("tests.training.savers") as process:
        campaign = Campaign(folder, process, seed)
        campaign.run(num_kills)
    print(f"{campaign.num_kills} kills, {campaign.num_inside_writes} inside a write, {campaign.num_steps} steps")
    return campaign


def test_few_kills_leave_nothing_mixed(tmp_path: Path) -> None:
    campaign = run_campaign(tmp_path, num_kills=15, seed=1)
    assert campaign.num_inside_writes >= 4
    assert campaign.num_steps > 5


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_two_hundred_kills_leave_nothing_mixed(tmp_path: Path, seed: int) -> None:
    campaign = run_campaign(tmp_path, num_kills=200, seed=10 + seed)
    assert campaign.num_inside_writes >= 50


def lose_power_often(folder: Path, num_losses: int, seed: int) -> None:
    checkpoints = CheckpointFolder(folder, keep_last=2)
    for step in (1, 2, 3):
        save_one(str(folder), step)
    with record_disk(folder) as disk:
        for step in (4, 5, 6):
            checkpoints.save(step, make_arrays(step), make_state(step))
        checkpoints.mark_best(5, 0.1)
    assert len(disk.events) > 12
    generator = random.Random(seed)
    for _ in range(num_losses):
        unsafe = disk.lose_power(generator.randint(0, len(disk.events)), generator)
        assert [name for name in unsafe if not name.endswith(TEMPORARY_SUFFIX)] == []
        newest, best = checkpoints.load_newest(), load_best(checkpoints)
        assert newest is not None
        assert best is not None
        assert newest.step >= 3
        assert best.step in (3, 5)
        assert is_of_one_step(newest)
        assert is_of_one_step(best)


def test_power_loss_leaves_whole_checkpoints(tmp_path: Path) -> None:
    lose_power_often(tmp_path / "checkpoints", num_losses=60, seed=1)


@pytest.mark.soak
def test_five_hundred_power_losses_leave_whole_checkpoints(tmp_path: Path) -> None:
    lose_power_often(tmp_path / "checkpoints", num_losses=500, seed=2)
