"""A real training, killed again and again: it always goes on from a whole checkpoint, and ends where it would have."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.training.trainer_programs import make_data

from myxtts.training.checkpoint import CheckpointFolder

ROOT = Path(__file__).parents[2]
NUM_STEPS = 60
SETTINGS: dict[str, Any] = {"steps": NUM_STEPS, "checkpoint_steps": 1, "num_shapes": 1, "enable_graph_mode": False}
"""Eager, because a process that is killed after seconds must not spend them on tracing."""
POINTS = ("write", "tensor_write", "fsync", "replace", "sync_directory", "bundle_rename")


class KilledTraining:
    """One run directory and the processes that train in it."""

    def __init__(self, config_file: Path, run: Path, seed: int) -> None:
        self._config_file, self._run, self._generator = config_file, run, random.Random(seed)
        self.num_inside_writes = 0

    def train(self, fault: str = "", **settings: Any) -> subprocess.Popen[str]:
        values = json.dumps({**SETTINGS, "run_dir": str(self._run), **settings})
        return subprocess.Popen(
            [sys.executable, "-m", "tests.training.trainer_programs", self._config_file, values, '{"resume": true}'],
            cwd=ROOT,
            env={**os.environ, "MYXTTS_FAULT": fault, "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill_once(self) -> int:
        """Trains until a kill inside a write or at a random moment behind the first save; gives the newest step."""
        before = self._find_newest()
        at_point = self._generator.random() < 0.6
        # Some files are written before the first step; a fault behind them falls into the saving of checkpoints.
        fault = f"{self._generator.choice(POINTS)}:{self._generator.randint(8, 20)}:kill" if at_point else ""
        process = self.train(fault)
        while process.poll() is None and not at_point and self._find_newest() < before + 2:
            time.sleep(0.02)
        if not at_point:
            time.sleep(self._generator.uniform(0, 0.3))
            process.kill()
        _, errors = process.communicate(timeout=280)
        assert process.returncode in (-9, 0), errors[-2000:]
        self.num_inside_writes += at_point and process.returncode == -9
        newest = CheckpointFolder(self._run / "checkpoints").load_newest()
        assert newest is None or newest.step >= before
        return newest.step if newest else 0

    def _find_newest(self) -> int:
        return (CheckpointFolder(self._run / "checkpoints").list_steps() or [0])[-1]


def survive_kills(folder: Path, num_kills: int, seed: int) -> KilledTraining:
    config = make_data(folder / "data")
    config_file = folder / "config.yaml"
    config_file.write_text(config.to_yaml(), encoding="utf-8")
    training = KilledTraining(config_file, folder / "run", seed)
    for _ in range(num_kills):
        last = training.kill_once()
    done = training.train(steps=last + 2)
    output, errors = done.communicate(timeout=280)
    assert done.returncode == 0, errors[-2000:]
    assert json.loads(output.splitlines()[-1])["step"] == last + 2
    return training


def test_five_kills_and_the_run_goes_on(tmp_path: Path) -> None:
    assert survive_kills(tmp_path, num_kills=5, seed=3).num_inside_writes >= 2


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_two_hundred_kills_and_the_run_goes_on(tmp_path: Path) -> None:
    assert survive_kills(tmp_path, num_kills=200, seed=4).num_inside_writes >= 50
