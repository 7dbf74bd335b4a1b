"""When a run leaves the alignment search: only once alignments are stable, alike after a resume, never at any price."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.training.trainer_programs import make_data

from myxtts.config.schema import XTTSConfig
from myxtts.errors import StorageError
from myxtts.pipeline.splits import make_order
from myxtts.runtime.cluster import Cluster
from myxtts.runtime.hardware import Hardware
from myxtts.runtime.plan import Plan, choose_plan
from myxtts.store.reader import FeatureStore
from myxtts.training.run.folder import RunFolder
from myxtts.training.run.state import RunState
from myxtts.training.voice import align
from myxtts.training.voice.align import LOOK_STEPS, DurationsSwitch, StoreAligner, make_switch
from myxtts.training.voice.data import TrainingData, open_training_data

MACHINE = Hardware(num_cpus=2, ram_bytes=8 << 30, available_ram_bytes=8 << 30)
FRAMES = [5] * 1000


class Scene:
    """A switch over a small store, with alignments that the test gives instead of a model's."""

    def __init__(self, folder: Path, config: XTTSConfig, data: TrainingData, plan: Plan) -> None:
        self.config, self.data, self.plan = config, data, plan
        (folder / "run").mkdir()
        self.run, self.state, self.lines = RunFolder(folder / "run"), RunState(step=0, feed_position=0), list[str]()
        self.learner: Any = SimpleNamespace(model=None, num_switches=0)
        self.learner.use_durations = lambda: setattr(self.learner, "num_switches", self.learner.num_switches + 1)

    def make(self, **changes: Any) -> DurationsSwitch | None:
        plan = replace(self.plan, **{"model_devices": ("/GPU:0",), **changes})
        return make_switch(self.config, plan, self.data, self.learner, self.run, self.state, self.lines.append)

    def look(self, switch: DurationsSwitch, step: int, num_changed: int, num_frames: int = 2) -> bool:
        """A look at a step at which so many of the tokens differ by so many frames from `FRAMES`."""
        self.state.step = step
        frames = [5 + num_frames * (place < num_changed) for place in range(len(FRAMES))]
        switch._align_sample = lambda: frames
        assert switch.is_due(None)
        return switch.look(lambda: False)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[XTTSConfig, TrainingData, Plan]:
    config = make_data(tmp_path_factory.mktemp("data"))
    plan = choose_plan(config, MACHINE)
    return config, open_training_data(config, plan), plan


@pytest.fixture
def scene(tmp_path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch) -> Scene:
    def align_evenly(aligner: StoreAligner, position: int) -> align.Durations:
        rows = aligner.order.batch(position).rows[: aligner.count(position)].tolist()
        sizes = {row: (store.entry(row, "tokens").length, store.entry(row, "mel").length) for row in rows}
        return {
            store.id_of(row): np.diff(np.linspace(0, frames, tokens + 1).astype(np.int32)).astype(np.int32)
            for row, (tokens, frames) in sizes.items()
            if store.id_of(row) != "clip02"
        }

    config, data, plan = opened
    store = data.utterances
    assert isinstance(store, FeatureStore)
    monkeypatch.setattr(StoreAligner, "align", align_evenly)
    monkeypatch.setattr("myxtts.training.voice.align.StoreAligner.__init__", _open_without_model)
    return Scene(tmp_path, config, data, plan)


def _open_without_model(aligner: Any, store: FeatureStore, _model: Any, config: XTTSConfig, rows: Any) -> None:
    aligner.order = make_order(store.columns, rows, config.model_copy(update={"data.num_shapes": 1}), shuffle=False)


def make(scene: Scene) -> DurationsSwitch:
    switch = scene.make()
    assert switch is not None
    return switch


def test_two_stable_looks_in_a_row_are_needed(scene: Scene) -> None:
    """A change by one frame is none; a look with more changes begins the count anew."""
    switch = make(scene)
    assert not scene.look(switch, LOOK_STEPS, 0)
    assert not scene.look(switch, 2 * LOOK_STEPS, 20)
    assert not scene.look(switch, 3 * LOOK_STEPS, 41 + 20)
    assert not scene.look(switch, 4 * LOOK_STEPS, 41 + 20 + 20)
    assert scene.look(switch, 5 * LOOK_STEPS, 1000, num_frames=1)
    assert scene.state.durations is not None
    assert scene.state.durations.step == 5 * LOOK_STEPS
    assert scene.learner.num_switches == 0, "not while the model has its EMA weights"
    switch.begin()
    assert scene.learner.num_switches == 1
    assert any("20 utterances" in line and "1 have more states than frames" in line for line in scene.lines)
    lines = list(scene.run.metrics.read())
    assert [line.get("changed_durations") for line in lines[:3]] == [None, 0.02, 0.041]
    assert lines[-1]["durations_written"] is True
    assert not switch.is_due(None)


def test_looks_come_at_the_same_steps_after_a_resume(scene: Scene) -> None:
    switch = make(scene)
    scene.look(switch, LOOK_STEPS, 0)
    assert not switch.is_due(None), "it has just looked"
    scene.state.step = LOOK_STEPS + 1
    assert not switch.is_due(None)
    scene.state.step = 2 * LOOK_STEPS
    scene.state = RunState.from_json(scene.state.to_json())
    resumed = make(scene)
    assert resumed.is_due(None)
    assert resumed.is_due(4 * LOOK_STEPS)
    assert not resumed.is_due(3 * LOOK_STEPS), "it would be too late in the run to gain anything"
    scene.look(resumed, 2 * LOOK_STEPS, 0)
    assert scene.look(resumed, 3 * LOOK_STEPS, 0)


def test_an_alignment_that_is_stopped_is_due_again(scene: Scene) -> None:
    switch = make(scene)
    for step in (1, 2):
        scene.look(switch, step * LOOK_STEPS, 0)
    scene.state.step = 3 * LOOK_STEPS
    assert switch.look(lambda: True) is False
    assert scene.state.durations is None
    assert make(scene).is_due(None)


@pytest.mark.parametrize(
    "error",
    [StorageError("Could not write it: no space left.", next_step="Free some."), tf.errors.ResourceExhaustedError],
)
def test_a_full_disk_or_memory_leaves_the_run_as_it_is(scene: Scene, error: Any, monkeypatch: Any) -> None:
    def fail(*_: Any) -> None:
        raise error if isinstance(error, StorageError) else error(None, None, "no memory left, says the test")

    switch = make(scene)
    for step in (1, 2):
        scene.look(switch, step * LOOK_STEPS, 0)
    monkeypatch.setattr(align, "save_durations", fail)
    assert not scene.look(switch, 3 * LOOK_STEPS, 0)
    assert scene.lines[-1].endswith("Alignments are searched in every step as before.")
    assert scene.state.durations is None
    scene.state.step = 4 * LOOK_STEPS
    assert not switch.is_due(None)


def test_only_gpus_of_one_process_with_a_store_switch(scene: Scene) -> None:
    plan = scene.plan
    assert (
        make_switch(scene.config, plan, scene.data, scene.learner, scene.run, scene.state, scene.lines.append) is None
    )
    assert scene.lines == [], "on a CPU nothing changes"
    assert scene.make(cluster=Cluster("Slurm", 2, 0)) is None
    assert "because several processes train together" in scene.lines[-1]
    scene.data = replace(scene.data, utterances=SimpleNamespace())  # type: ignore[arg-type]
    assert scene.make() is None
    assert "because features are computed on the fly" in scene.lines[-1]
    scene.config = scene.config.model_copy(update={"training.durations": "search"})
    assert scene.make() is None
