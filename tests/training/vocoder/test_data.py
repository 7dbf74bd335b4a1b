"""Settings as a vocoder takes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fork_process import KILLED, ForkProcess, Outcome
from tests.training.trainer_programs import TINY, make_data

from myxtts.config.schema import XTTSConfig
from myxtts.errors import BusyError, ConfigError
from myxtts.models.bundle import read_bundle
from myxtts.models.vocoder_bundle import find_vocoder
from myxtts.storage.atomic import lock_directory
from myxtts.storage.json_file import JsonLines
from myxtts.training.run.checkpoint import CheckpointFolder
from myxtts.training.run.resume import compare
from myxtts.training.trainer import find_part
from myxtts.training.vocoder.attach import attach_vocoder, check_receiver
from myxtts.training.vocoder.data import resolve_vocoder_settings


def test_what_only_the_voice_knows_does_not_keep_a_vocoder_from_going_on() -> None:
    heard: list[str] = []
    old = resolve_vocoder_settings(XTTSConfig(model_size="tiny"), heard.append)
    assert not heard
    new = resolve_vocoder_settings(
        XTTSConfig(model_size="tiny", text_width=96, dropout=0.3, crop_frames=64, durations="stored"), heard.append
    )
    assert compare(old, new) == []
    (line,) = heard
    assert "model.text_width, model.dropout, training.durations, training.crop_frames" in line


def test_what_the_user_chose_stays_and_the_rest_is_for_a_vocoder() -> None:
    config = resolve_vocoder_settings(XTTSConfig(model_size="tiny", learning_rate=3e-3), print)
    assert config.training.learning_rate == 3e-3
    assert (config.training.clip_norm, config.data.batch_size, config.training.run_name) == (10.0, 8, "vocoder")


SOUND = {"n_fft": 256, "hop_length": 64, "win_length": 256}
SETTINGS: dict[str, Any] = {
    **TINY,
    **SOUND,
    "model_size": "tiny",
    "dropout": 0.1,
    "batch_size": 2,
    "checkpoint_steps": 2,
    "steps": 4,
    "enable_graph_mode": False,
}


class Trainings:
    """A corpus, and processes that train on it."""

    def __init__(self, folder: Path, process: ForkProcess) -> None:
        self.folder, self._process = folder, process
        self.config: XTTSConfig = make_data(folder / "data", **SOUND)
        self._data = {name: str(getattr(self.config.data, name)) for name in ("train_data", "cache_dir")}

    def run(self, name: str, settings: dict[str, Any] | None = None, fault: str = "", **options: Any) -> Outcome:
        settings = {**SETTINGS, **self._data, **(settings or {}), "run_dir": str(self.folder / name)}
        return self._process.run("train", fault=fault, settings=settings, **options)

    def say(self, model: str, vocoder: str) -> dict[str, Any]:
        outcome = self._process.run("say", model=str(self.folder / model), vocoder=vocoder)
        assert outcome.status == 0, outcome.error
        result: dict[str, Any] = outcome.result
        return result

    def read_checkpoint(self, name: str, step: int) -> bytes:
        return CheckpointFolder(self.folder / name / "checkpoints").name_file(step).read_bytes()

    def read_metrics(self, name: str) -> list[dict[str, Any]]:
        return list(JsonLines(self.folder / name / "metrics.jsonl").read())


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainings]:
    with ForkProcess("tests.training.vocoder_forks") as process:
        yield Trainings(tmp_path_factory.mktemp("trainings"), process)


@pytest.fixture(scope="module")
def trained(trainings: Trainings) -> Path:
    """A run of a vocoder that saw its discriminators in the end."""
    settings = {"steps": 10, "checkpoint_steps": 10, "learning_rate": 3e-3}
    outcome = trainings.run("vocoder", settings, discriminators_from=9, is_watched=True)
    assert outcome.status == 0, outcome.error
    return trainings.folder / "vocoder"


@pytest.fixture(scope="module")
def voice(trainings: Trainings) -> Path:
    """A run of the voice."""
    outcome = trainings.run("voice", {"steps": 1}, part="voice")
    assert outcome.status == 0, outcome.error
    return trainings.folder / "voice"


def test_a_vocoder_learns_and_leaves_what_every_run_leaves(trainings: Trainings, trained: Path) -> None:
    records = [line for line in trainings.read_metrics("vocoder") if "loss" in line]
    warm = [line["mel"] for line in records if line["step"] <= 9]
    assert np.mean(warm[-3:]) < 0.8 * np.mean(warm[:3])
    assert "discriminator_loss" not in records[0]
    assert {"discriminator_loss", "adversarial", "features", "mel", "stft", "learning_rate", "au"} <= set(records[-1])
    config = XTTSConfig.load(trained / "config.yaml")
    assert (config.training.clip_norm, config.training.learning_rate) == (10.0, 3e-3)
    vocoder = find_vocoder(trained)
    assert vocoder.notes["step"] == 10
    checkpoint = CheckpointFolder(trained / "checkpoints").load(10)
    assert vocoder.weights["head.kernel"].tobytes() == checkpoint.arrays["average/head.kernel"].tobytes()
    assert vocoder.weights["head.kernel"].tobytes() != checkpoint.arrays["model/head.kernel"].tobytes()
    assert any(name.startswith("critics/") for name in checkpoint.arrays)


def test_it_is_validated_against_griffin_lim_and_heard(trainings: Trainings, trained: Path) -> None:
    (numbers,) = [line["validation"] for line in trainings.read_metrics("vocoder") if "validation" in line]
    assert numbers["score"] == numbers["mel_distance"]
    assert 0 < numbers["griffin_lim_mel_distance"] < numbers["mel_distance"]
    assert CheckpointFolder(trained / "checkpoints").read_best() is not None
    for folder in ("real", "griffin_lim", "step-000010"):
        samples = json.loads((trained / "samples" / folder / "samples.json").read_bytes())["samples"]
        assert len(samples) == 3
        assert (trained / "samples" / folder / samples[0]["sound"]).stat().st_size > 1000
        assert (trained / "samples" / folder / samples[0]["mel"]).is_file()


def test_segments_are_on_the_device_before_they_are_asked_for_and_it_is_measured(
    trainings: Trainings, trained: Path
) -> None:
    steps = list(JsonLines(trained / "telemetry.jsonl").read())
    assert [step["position"] for step in steps] == list(range(10))
    assert {name for step in steps for name in step["stages"]} == {"transfer"}
    assert {step["num_utterances"] for step in steps} == {SETTINGS["batch_size"]}


def interrupt_and_compare(trainings: Trainings, name: str, settings: dict[str, Any]) -> None:
    """One run without an interruption, another killed after step 3 of 4 and taken up with other threads."""
    whole = trainings.run(name, settings, discriminators_from=3)
    assert whole.status == 0, whole.error
    part = f"{name}-part"
    assert trainings.run(part, settings, discriminators_from=3, kill_after=3).status == KILLED
    # The size is that of the run, whatever is asked for later.
    outcome = trainings.run(part, {**settings, "num_workers": 4, "model_size": "small"}, resume=True)
    assert outcome.status == 0, outcome.error
    assert any("Resuming from step 2" in line for line in outcome.result["lines"])
    assert trainings.read_checkpoint(part, 4) == trainings.read_checkpoint(name, 4)
    first, second = ([line["loss"] for line in trainings.read_metrics(one)] for one in (part, name))
    assert first == second


def test_a_killed_training_ends_bit_by_bit_where_it_would_have(trainings: Trainings) -> None:
    interrupt_and_compare(trainings, "whole", {})


@pytest.mark.soak
@pytest.mark.parametrize("settings", [{"enable_graph_mode": True}, {"gradient_accumulation_steps": 2}])
def test_neither_graphs_nor_accumulation_change_that(trainings: Trainings, settings: dict[str, Any]) -> None:
    interrupt_and_compare(trainings, "-".join(["whole", *settings]), settings)


def test_a_changed_setting_that_would_spoil_the_run_is_refused(trainings: Trainings, trained: Path) -> None:
    outcome = trainings.run("vocoder", {"batch_size": 3}, resume=True)
    assert outcome.status > 0
    assert "data.batch_size" in outcome.error


def test_a_step_that_is_not_finite_is_skipped(trainings: Trainings) -> None:
    outcome = trainings.run("skip", fault="gradients:2:nan")
    assert outcome.status == 0, outcome.error
    (line,) = JsonLines(trainings.folder / "skip" / "skipped.jsonl").read()
    assert (line["step"], line["kind"]) == (2, "skipped")
    assert len(line["ids"]) == 2
    assert outcome.result["num_skipped"] == 1


def test_a_run_of_one_part_is_refused_by_the_other(trainings: Trainings, trained: Path, voice: Path) -> None:
    assert (find_part(trained), find_part(voice), find_part(trained / "nothing")) == ("vocoder", "voice", None)
    for name, part, found in (("vocoder", "voice", "vocoder"), ("voice", "vocoder", "voice")):
        outcome = trainings.run(name, part=part, resume=True)
        assert outcome.status > 0
        assert f"contains a {found}" in outcome.error


def test_fine_tuning_begins_with_the_weights_and_the_shape_of_another(trainings: Trainings, trained: Path) -> None:
    settings = {"steps": 1, "model_size": "small", "learning_rate": 1e-12}
    outcome = trainings.run("tuned", settings, init_from=str(trained))
    assert outcome.status == 0, outcome.error
    before, after = find_vocoder(trained), find_vocoder(trainings.folder / "tuned")
    assert after.config == before.config
    for name, array in before.weights.items():
        np.testing.assert_allclose(after.weights[name], array, atol=1e-6)
    outcome = trainings.run("foreign", {"fmax": 7000.0}, init_from=str(trained))
    assert outcome.status > 0


def test_a_voice_speaks_through_the_vocoder_and_takes_it_in(trainings: Trainings, trained: Path, voice: Path) -> None:
    said = trainings.say("voice", str(trained))
    assert said["num_samples"] == said["expected"]
    assert 0 < said["peak"] < np.inf
    check_receiver(voice, trainings.config)
    with lock_directory(voice, "training"), pytest.raises(BusyError):
        attach_vocoder(trained, voice)
    assert attach_vocoder(trained, voice) == voice / "bundle"
    assert trainings.say("voice", "auto")["is_neural"]
    # Training on replaces the bundle, and must not lose what was put into it.
    outcome = trainings.run("voice", {"steps": 2}, part="voice", resume=True)
    assert outcome.status == 0, outcome.error
    bundle = read_bundle(voice / "bundle")
    assert bundle.notes["step"] == 2
    weights = find_vocoder(trained).weights
    assert {name: array.tobytes() for name, array in bundle.vocoder_weights.items()} == {
        name: array.tobytes() for name, array in weights.items()
    }


def test_a_voice_of_other_spectrograms_is_refused_before_training(trainings: Trainings, voice: Path) -> None:
    with pytest.raises(ConfigError, match="fmax"):
        check_receiver(voice, trainings.config.model_copy(update={"fmax": 7000.0}))
