"""A shard is cut under a running `myxtts train`: an error with its name, and a run that goes on after a repair."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fork_process import ForkProcess
from tests.training.trainer_programs import COARSE, make_data

from myxtts.config.schema import XTTSConfig
from myxtts.errors import DataError
from myxtts.training.run.checkpoint import CheckpointFolder

SETTINGS: dict[str, Any] = {
    "checkpoint_steps": 6,
    "num_shapes": 1,
    "buffer_size": 2,
    "enable_graph_mode": False,
    "sample_steps": 0,
    "text_freeze_patience_steps": 0,
    **COARSE,
}
MANY_STEPS = 100_000


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> XTTSConfig:
    return make_data(tmp_path_factory.mktemp("harmed"), **SETTINGS)


@pytest.fixture(scope="module")
def process() -> Iterator[ForkProcess]:
    with ForkProcess("tests.training.damaged_store_programs") as started:
        yield started


class Scene:
    """A copy of the store, a run that trains on it, and the commands that a user would give."""

    def __init__(self, process: ForkProcess, config: XTTSConfig, folder: Path) -> None:
        self._process, self._folder = process, folder
        self.store, self._run_dir = folder / "store", folder / "run"
        shutil.copytree(str(config.data.cache_dir), self.store)
        changed = config.model_copy(update={"cache_dir": str(self.store), "run_dir": str(self._run_dir)})
        self._config_file = folder / "config.yaml"
        self._config_file.write_text(changed.to_yaml(), encoding="utf-8")
        self.shown = ""

    def run(self, *arguments: str, harm: str = "") -> int:
        shard = next(self.store.glob("generation-*/*.mel"), None)
        shown = self._folder / "shown.txt"
        outcome = self._process.run(
            "run_command",
            arguments=list(arguments),
            shown=str(shown),
            harm=harm,
            shard=str(shard),
            run_dir=str(self._run_dir),
        )
        self.shown = " ".join(shown.read_text(encoding="utf-8").split())
        assert outcome.status == 0, f"{outcome.status} {outcome.error} {self.shown}"
        return int(outcome.result)

    def train(self, steps: int, *more: str, harm: str = "") -> int:
        return self.run("train", "--config", str(self._config_file), "--steps", str(steps), *more, harm=harm)

    def read_step(self) -> int:
        newest = CheckpointFolder(self._run_dir / "checkpoints").load_newest()
        assert newest is not None
        return newest.step

    def repair(self) -> int:
        return self.run("cache", "repair", "--config", str(self._config_file))


@pytest.fixture
def scene(process: ForkProcess, config: XTTSConfig, tmp_path: Path) -> Scene:
    return Scene(process, config, tmp_path)


def test_shard_that_is_cut_ends_the_training_by_name_and_the_run_goes_on_after_a_repair(scene: Scene) -> None:
    assert scene.train(MANY_STEPS, harm="cut") == DataError.exit_code, scene.shown
    assert "000000.mel is damaged: its data file was cut short" in scene.shown
    assert "utterance clip" in scene.shown
    assert "cache repair" in scene.shown
    assert scene.train(MANY_STEPS, "--resume") == DataError.exit_code, "a damaged store must not be trained on"
    assert scene.repair() == 0, scene.shown
    assert scene.train(scene.read_step() + 2, "--resume") == 0, scene.shown
