"""A real training, killed again and again: it always goes on from a whole checkpoint, and ends where it would have."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.fork_process import KILLED, ForkProcess, Outcome
from tests.training.trainer_programs import make_data

from myxtts.models.bundle import read_bundle
from myxtts.training.checkpoint import CheckpointFolder

SETTINGS: dict[str, Any] = {"steps": 100_000, "checkpoint_steps": 1, "num_shapes": 1, "enable_graph_mode": False}
"""Eager, because a process that is killed after seconds must not spend them on tracing."""
POINTS = {"write": 9, "tensor_write": 1, "fsync": 9, "replace": 9, "sync_directory": 9, "bundle_rename": 1}
"""Where a kill falls, and how often the place is passed before the first checkpoint is written."""


class KilledTraining:
    """One run directory and the processes that train in it."""

    def __init__(self, folder: Path, process: ForkProcess, seed: int) -> None:
        self._process, self._run, self._generator = process, folder / "run", random.Random(seed)
        self._config_file = folder / "config.yaml"
        self._config_file.write_text(make_data(folder / "data").to_yaml(), encoding="utf-8")
        self.num_kills, self.num_inside_writes = 0, 0

    def train(self, fault: str = "", kill_after_s: float | None = None, **settings: Any) -> Outcome:
        return self._process.run(
            "train_watched",
            fault=fault,
            kill_after_s=kill_after_s,
            config_file=str(self._config_file),
            settings={**SETTINGS, "run_dir": str(self._run), **settings},
            resume=True,
        )

    def kill_once(self) -> int:
        """Trains until a kill inside a write or at a random moment; gives the newest step."""
        before = self._load_newest()
        if self._generator.random() < 0.6:
            # Some files are written before the first step; a fault behind them falls into the saving of checkpoints.
            point, number = self._generator.choice(list(POINTS.items()))
            outcome = self.train(f"{point}:{number + self._generator.randint(0, 6)}:kill")
            self.num_inside_writes += outcome.status == KILLED
        else:
            outcome = self.train(kill_after_s=self._generator.uniform(0.5, 6.0))
        assert outcome.status == KILLED, outcome.error
        self.num_kills += 1
        newest = self._load_newest()
        assert newest >= before
        return newest

    def _load_newest(self) -> int:
        newest = CheckpointFolder(self._run / "checkpoints").load_newest()
        return newest.step if newest is not None else 0


def survive_kills(folder: Path, num_kills: int, seed: int) -> KilledTraining:
    with ForkProcess("tests.training.trainer_forks") as process:
        training = KilledTraining(folder, process, seed)
        last = max(training.kill_once() for _ in range(num_kills))
        done = training.train(steps=last + 2)
    assert done.status == 0, done.error
    assert done.result["step"] == last + 2
    assert read_bundle(folder / "run" / "bundle").notes["step"] == last + 2
    return training


def test_five_kills_and_the_run_goes_on(tmp_path: Path) -> None:
    assert survive_kills(tmp_path, num_kills=5, seed=3).num_inside_writes >= 2


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_two_hundred_kills_and_the_run_goes_on(tmp_path: Path) -> None:
    assert survive_kills(tmp_path, num_kills=200, seed=4).num_inside_writes >= 50
