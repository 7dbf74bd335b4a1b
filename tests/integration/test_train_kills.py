"""A real training, killed again and again: it always goes on from a whole checkpoint, and ends where it would have."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.fork_process import KILLED, ForkProcess, Outcome
from tests.training.trainer_programs import COARSE, make_data

from myxtts.models.bundle import read_bundle
from myxtts.training.run.checkpoint import CheckpointFolder

SETTINGS: dict[str, Any] = {"steps": 100_000, "checkpoint_steps": 1, "num_shapes": 1, "enable_graph_mode": False}
"""Eager, because a process that is killed after seconds must not spend them on tracing."""
POINTS = {"write": 9, "tensor_write": 1, "fsync": 9, "replace": 9, "sync_directory": 9, "bundle_rename": 1}
"""Where a kill falls, and how often the place is passed before the first checkpoint is written."""
INSIDE_SHARE = 0.6
GOING_ON, NO_CHECKPOINT = "Resuming from step", "There is no checkpoint"


class KilledTraining:
    """One run directory and the processes that train in it."""

    def __init__(self, folder: Path, process: ForkProcess, seed: int) -> None:
        self._process, self._folder, self._generator = process, folder, random.Random(seed)
        self._config_file = folder / "config.yaml"
        self._config_file.write_text(make_data(folder / "data", **COARSE).to_yaml(), encoding="utf-8")
        self._said_file = folder / "said.txt"
        self.newest = 0
        self.num_kills, self.num_inside_writes, self.num_resumed = 0, 0, 0

    def train(self, name: str = "run", steps: int = SETTINGS["steps"], fault: str = "", **options: Any) -> Outcome:
        return self._process.run(
            "train_until_killed",
            fault=fault,
            said_file=str(self._said_file),
            config_file=str(self._config_file),
            settings={**SETTINGS, "steps": steps, "run_dir": str(self._folder / name)},
            **options,
        )

    def kill_once(self) -> None:
        """Goes on until a kill inside a write or at a random moment behind the opening of the run."""
        self._said_file.write_text("", encoding="utf-8")
        is_inside = self._generator.random() < INSIDE_SHARE
        options: dict[str, Any] = {"resume": True}
        if is_inside:
            # Some files are written before the first step; a fault behind them falls into the saving of checkpoints.
            point, number = self._generator.choice(list(POINTS.items()))
            options["fault"] = f"{point}:{number + self._generator.randint(0, 6)}:kill"
        else:
            options["kill_after_opening_s"] = self._generator.uniform(0.0, 4.0)
        outcome = self.train(**options)
        assert outcome.status == KILLED, outcome.error
        self.num_kills += 1
        self.num_inside_writes += is_inside
        self._check_resumed()
        before, self.newest = self.newest, self._load_newest()
        assert self.newest >= before

    def finish(self) -> None:
        """Goes on to an end, and to a bundle of it."""
        done = self.train(steps=self.newest + 2, resume=True)
        assert done.status == 0, done.error
        assert done.result["step"] == self.newest + 2
        assert read_bundle(self._folder / "run" / "bundle").notes["step"] == self.newest + 2

    def read_newest(self, name: str = "run") -> bytes:
        return CheckpointFolder(self._folder / name / "checkpoints").name_file(self.newest).read_bytes()

    def _check_resumed(self) -> None:
        """The process that was killed just now had gone on from where the one before it was killed."""
        expected = f"{GOING_ON} {self.newest} " if self.newest else NO_CHECKPOINT
        said = self._said_file.read_text(encoding="utf-8")
        assert expected in said, f"step {self.newest} was not resumed:\n{said}"
        self.num_resumed += 1

    def _load_newest(self) -> int:
        newest = CheckpointFolder(self._folder / "run" / "checkpoints").load_newest()
        return newest.step if newest is not None else 0


def survive_kills(folder: Path, num_kills: int, seed: int) -> KilledTraining:
    with ForkProcess("tests.training.killed_programs") as process:
        training = KilledTraining(folder, process, seed)
        while training.num_kills < num_kills:
            training.kill_once()
        killed = training.read_newest()
        training.finish()
        # The same training without a kill before the step that the other one had reached with all of them.
        assert training.train("whole", kill_after=training.newest + 2).status == KILLED
        assert training.read_newest("whole") == killed
    assert training.num_resumed == num_kills
    return training


def test_three_kills_and_the_run_goes_on(tmp_path: Path) -> None:
    assert survive_kills(tmp_path, num_kills=3, seed=3).num_inside_writes >= 1


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_two_hundred_kills_and_the_run_goes_on(tmp_path: Path) -> None:
    assert survive_kills(tmp_path, num_kills=200, seed=4).num_inside_writes >= 50
