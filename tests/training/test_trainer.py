"""Whole trainings of a very small model: exact resume, and everything that may happen on the way."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fork_process import KILLED, ForkProcess, Outcome
from tests.training.trainer_programs import COARSE, make_data

from myxtts.config.schema import XTTSConfig
from myxtts.errors import ConfigError
from myxtts.models.bundle import Bundle, read_bundle
from myxtts.storage.json_file import JsonLines
from myxtts.tools.report.verdict import Progress, judge
from myxtts.tools.run_files import read_run
from myxtts.tools.words import Translator
from myxtts.training.run.checkpoint import Checkpoint, CheckpointFolder
from myxtts.training.voice.fine_tuning import follow_bundle

EAGER: dict[str, Any] = {"enable_graph_mode": False, "num_shapes": 1, "checkpoint_steps": 2, "steps": 4}


class Trainings:
    """A corpus, and processes that train on it."""

    def __init__(self, folder: Path, process: ForkProcess) -> None:
        self.folder, self._process = folder, process
        self.config: XTTSConfig = make_data(folder / "data", **COARSE)
        self._config_file = folder / "config.yaml"
        self._config_file.write_text(self.config.to_yaml(), encoding="utf-8")

    def run(
        self, name: str, settings: dict[str, Any], fault: str = "", program: str = "train_watched", **options: Any
    ) -> Outcome:
        return self._process.run(
            program,
            fault=fault,
            config_file=str(self._config_file),
            settings={**EAGER, **settings, "run_dir": str(self.path(name))},
            **options,
        )

    def say(self, name: str, *voices: str | None) -> Outcome:
        return self._process.run("say", model=str(self.path(name)), voices=voices)

    def read_bundle(self, name: str) -> Bundle:
        return read_bundle(self.path(name) / "bundle")

    def path(self, name: str) -> Path:
        return self.folder / name

    def read_checkpoint(self, name: str, step: int) -> bytes:
        return CheckpointFolder(self.path(name) / "checkpoints").name_file(step).read_bytes()

    def load_checkpoint(self, name: str, step: int) -> Checkpoint:
        return CheckpointFolder(self.path(name) / "checkpoints").load(step)

    def list_steps(self, name: str) -> list[int]:
        return CheckpointFolder(self.path(name) / "checkpoints").list_steps()

    def read_ids(self, name: str) -> dict[int, list[str]]:
        """The utterances of each step; a step that was done twice counts as it was done last."""
        lines = (self.folder / f"{name}.ids").read_text(encoding="utf-8").splitlines()
        return dict(json.loads(line) for line in lines)

    def read_lines(self, name: str, file: str) -> list[dict[str, Any]]:
        return list(JsonLines(self.path(name) / file).read())


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainings]:
    with ForkProcess("tests.training.trainer_forks") as process:
        yield Trainings(tmp_path_factory.mktemp("trainings"), process)


@pytest.fixture(scope="module")
def short(trainings: Trainings) -> Outcome:
    """The run "short" of one step, which several tests look at and none changes."""
    outcome = trainings.run("short", {"steps": 1})
    assert outcome.status == 0, outcome.error
    return outcome


@pytest.fixture(scope="module")
def frozen(trainings: Trainings) -> Outcome:
    """The run "frozen" of six steps, whose text side is frozen behind the second."""
    outcome = trainings.run("frozen", {"steps": 6}, freeze_at=2)
    assert outcome.status == 0, outcome.error
    return outcome


def spoil_gradients(*calls: int) -> str:
    """A plan of faults in which these calls of the step, counted from 1, have gradients that are not finite."""
    return ",".join(f"gradients:{call}:nan" for call in calls)


def interrupt_and_compare(
    trainings: Trainings, name: str, settings: dict[str, Any], threads: list[int], num_steps: int = 4
) -> None:
    """One run without an interruption, others killed behind the middle and resumed, each with a number of threads."""
    middle = num_steps // 2
    settings = {**settings, "steps": num_steps, "checkpoint_steps": middle, "optimize_cpu_gpu_overlap": False}
    whole = trainings.run(name, settings, ids_file=str(trainings.folder / f"{name}.ids"))
    assert whole.status == 0, whole.error
    for num_workers in threads:
        part = f"{name}-{num_workers}"
        changed = {**settings, "num_workers": num_workers}
        ids_file = str(trainings.folder / f"{part}.ids")
        assert trainings.run(part, changed, ids_file=ids_file, kill_after=middle + 1).status == KILLED
        assert trainings.list_steps(part)[-1] == middle
        outcome = trainings.run(part, changed, ids_file=ids_file, resume=True)
        assert outcome.status == 0, outcome.error
        assert any("Resuming from step" in line for line in outcome.result["lines"])
        assert trainings.read_ids(part) == trainings.read_ids(name)
        assert trainings.read_checkpoint(part, num_steps) == trainings.read_checkpoint(name, num_steps)
        metrics = [record["loss"] for record in trainings.read_lines(part, "metrics.jsonl")]
        assert metrics == [record["loss"] for record in trainings.read_lines(name, "metrics.jsonl")]
        expected = [line["position"] for line in trainings.read_lines(name, "telemetry.jsonl")]
        positions = [line["position"] for line in trainings.read_lines(part, "telemetry.jsonl")]
        # A kill may take the lines of the last few batches with it, but none is there twice.
        assert positions == sorted(set(positions) & set(expected))
        assert positions[-len(expected) // 2 :] == expected[-len(expected) // 2 :]


def test_a_killed_training_ends_bit_by_bit_where_it_would_have(trainings: Trainings) -> None:
    interrupt_and_compare(trainings, "graph", {"enable_graph_mode": True, "num_shapes": "auto"}, [4])
    # What was chosen is a setting of the run.
    assert XTTSConfig.load(trainings.path("graph") / "config.yaml").data.num_shapes == 1


def rewrite_as_before(folder: Path, step: int) -> None:
    """The checkpoint of a step with the state that version 0.1 wrote beside the same variables."""
    checkpoints = CheckpointFolder(folder)
    checkpoint = checkpoints.load(step)
    state = checkpoint.state
    names = ("step", "feed_position")
    unused = {"micro_batch_size": 4, "accumulation": 1, "num_skipped": 0, "num_rollbacks": 0}
    best = {"best_step": None, "best_score": None}
    tuning = {"loader_name": state["loader_name"], "text_rest_step": state["text_frozen_step"]}
    guard = {**state["guard"], "num_spikes": 0}
    old = {**{name: state[name] for name in names}, **unused, **best, "tuning": tuning, "guard": guard}
    # The learning rate was a variable of the optimizer.
    checkpoints.save(step, {**checkpoint.arrays, "optimizer/00001": np.array(1e-4, np.float32)}, old)


@pytest.mark.usefixtures("frozen")
def test_a_checkpoint_of_an_older_version_is_gone_on_from_bit_by_bit(trainings: Trainings) -> None:
    assert trainings.run("old", {"steps": 6}, freeze_at=2, kill_after=5).status == KILLED
    rewrite_as_before(trainings.path("old") / "checkpoints", 4)
    outcome = trainings.run("old", {"steps": 6}, resume=True)
    assert outcome.status == 0, outcome.error
    assert trainings.read_checkpoint("old", 6) == trainings.read_checkpoint("frozen", 6)


@pytest.mark.soak
def test_forty_steps_are_twenty_a_kill_and_twenty(trainings: Trainings) -> None:
    interrupt_and_compare(trainings, "forty", {"enable_graph_mode": True, "num_shapes": 2}, [1, 2, 4], num_steps=40)


@pytest.mark.soak
@pytest.mark.parametrize("settings", [{}, {"preprocessing_mode": "on_the_fly"}, {"gradient_accumulation_steps": 2}])
def test_neither_threads_nor_accumulation_change_that(trainings: Trainings, settings: dict[str, Any]) -> None:
    name = "-".join(["threads", *settings])
    interrupt_and_compare(trainings, name, settings, [1, 2, 4])


def test_a_run_leaves_a_bundle_and_what_happened(trainings: Trainings) -> None:
    outcome = trainings.run("whole", {"keep_checkpoints": 1})
    assert outcome.status == 0, outcome.error
    assert trainings.list_steps("whole") == [4]
    bundle = read_bundle(trainings.path("whole") / "bundle")
    assert bundle.notes["step"] == 4
    assert bundle.model_spec["speakers"] == ["anna", "ben"]
    assert 0.5 <= float(bundle.weights["length_factor"]) <= 2
    checkpoint = trainings.load_checkpoint("whole", 4)
    name = "text_encoder.languages"
    assert bundle.weights[name].tobytes() == checkpoint.arrays[f"average/{name}"].tobytes()
    assert bundle.weights[name].tobytes() != checkpoint.arrays[f"model/{name}"].tobytes()
    record = trainings.read_lines("whole", "metrics.jsonl")[-1]
    assert record["step"] == 4
    assert {"flow", "prior", "duration", "learning_rate", "au", "data_wait_s", "utterances_per_s"} <= set(record)
    telemetry = trainings.read_lines("whole", "telemetry.jsonl")
    assert [line["position"] for line in telemetry] == list(range(4))


def test_training_from_python_validates_stops_and_writes_all_that_the_command_does(trainings: Trainings) -> None:
    settings = {"steps": 10, "checkpoint_steps": 1, "early_stopping": 2, "text_freeze_patience_steps": 1}
    outcome = trainings.run("documented", settings, program="train_as_documented")
    assert outcome.status == 0, outcome.error
    assert (outcome.result["step"], outcome.result["best_step"]) == (3, 1)
    assert "has not improved since step 1" in outcome.result["reason"]
    run = trainings.path("documented")
    lines = trainings.read_lines("documented", "metrics.jsonl")
    assert [line["step"] for line in lines if "validation" in line] == [1, 2, 3]
    assert [line["step"] for line in lines if line.get("samples")] == [1, 2, 3]
    assert [line["step"] for line in lines if "text_rests" in line] == [2]
    assert json.loads((run / "checkpoints" / "best.json").read_text(encoding="utf-8")) == {"step": 1, "score": 1.0}
    assert trainings.read_bundle("documented").notes["is_best"]
    card = (run / "bundle" / "CARD.md").read_text(encoding="utf-8")
    assert "2 speakers." in card
    assert "- Mel distance: " in card
    assert {path.parent.name for path in (run / "samples").rglob("*.wav")} >= {"real", "step-000003"}
    assert list((run / "tensorboard").iterdir())


def test_minutes_end_a_run_and_let_the_learning_rate_fall_towards_it(trainings: Trainings) -> None:
    settings = {"steps": None, "minutes": 0.25, "checkpoint_steps": 100_000}
    outcome = trainings.run("timed", settings, clock_step_s=1.0)
    assert outcome.status == 0, outcome.error
    assert any(line.startswith("The 0.25 minutes are over.") for line in outcome.result["lines"])
    rates = [record["learning_rate"] for record in trainings.read_lines("timed", "metrics.jsonl")]
    assert len(rates) == 15
    assert rates[-1] < 0.05 * max(rates)


@pytest.mark.usefixtures("short")
def test_the_speakers_of_the_corpus_can_be_called_by_name(trainings: Trainings) -> None:
    voices = trainings.read_bundle("short").notes["voices"]
    assert set(voices) == {"anna", "ben"}
    assert voices["anna"] != voices["ben"]
    spoken = trainings.say("short", "anna", "ben")
    assert spoken.status == 0, spoken.error
    assert min(spoken.result) > 0
    assert "No voice is given" in trainings.say("short", None).error


def test_the_bundle_holds_the_best_weights_where_they_are_asked_for(trainings: Trainings) -> None:
    scores, settings = {"2": 1.0, "4": 2.0}, {"bundle_weights": "best"}
    outcome = trainings.run("best", settings, scores=scores)
    assert outcome.status == 0, outcome.error
    bundle = trainings.read_bundle("best")
    assert (bundle.notes["step"], bundle.notes["is_best"]) == (2, True)
    best = trainings.load_checkpoint("best", 2).arrays["average/text_encoder.languages"]
    assert bundle.weights["text_encoder.languages"].tobytes() == best.tobytes()

    latest = trainings.run("best", {"bundle_weights": "latest", "steps": 6}, scores=scores, resume=True)
    assert latest.status == 0, latest.error
    assert trainings.read_bundle("best").notes["step"] == 6
    saved = trainings.read_checkpoint("best", 6)
    # The weights of a step that is long past come back, with the voices that belong to them, and nothing else changes.
    assert trainings.run("best", {**settings, "steps": 6}, scores=scores, resume=True).status == 0
    assert trainings.read_bundle("best").notes == bundle.notes
    assert trainings.read_checkpoint("best", 6) == saved


def test_a_bundle_that_a_kill_kept_from_being_written_is_there_after_a_resume(trainings: Trainings) -> None:
    assert trainings.run("late", {"steps": 2}, fault="bundle_rename:1:kill").status == KILLED
    assert trainings.list_steps("late") == [2]
    assert trainings.run("late", {"steps": 2}, resume=True).status == 0
    assert trainings.read_bundle("late").notes["step"] == 2


def test_a_frozen_text_side_stays_at_its_average_and_the_decoder_learns_on(
    trainings: Trainings, frozen: Outcome
) -> None:
    assert len([line for line in frozen.result["lines"] if "The test says so. It is frozen" in line]) == 1
    before, after = (trainings.load_checkpoint("frozen", step).arrays for step in (2, 6))
    trained = [name.partition("/")[2] for name in before if name.startswith("average/")]
    changed = {name for name in trained if after[f"model/{name}"].tobytes() != before[f"average/{name}"].tobytes()}
    assert {name.partition(".")[0] for name in changed} == {"decoder", "reference_encoder", "speaker_classifier"}
    assert all(
        after[f"average/{name}"].tobytes() == after[f"model/{name}"].tobytes() for name in set(trained) - changed
    )


def test_nothing_is_frozen_at_the_end_but_is_when_there_is_more_to_come(trainings: Trainings) -> None:
    first = trainings.run("late-freeze", {"steps": 2}, freeze_at=2)
    second = trainings.run("late-freeze", {"steps": 6}, freeze_at=2, resume=True)
    assert (first.status, second.status) == (0, 0), first.error + second.error
    assert [any("It is frozen" in line for line in run.result["lines"]) for run in (first, second)] == [False, True]


@pytest.mark.usefixtures("frozen")
def test_a_killed_training_freezes_again(trainings: Trainings) -> None:
    # At the step at which it was frozen, and behind it.
    for kill_after in (3, 5):
        name = f"frozen-{kill_after}"
        assert trainings.run(name, {"steps": 6}, freeze_at=2, kill_after=kill_after).status == KILLED
        outcome = trainings.run(name, {"steps": 6}, resume=True)
        assert outcome.status == 0, outcome.error
        assert trainings.read_checkpoint(name, 6) == trainings.read_checkpoint("frozen", 6)


def test_a_step_that_is_not_finite_is_skipped_and_its_ids_are_kept(trainings: Trainings) -> None:
    outcome = trainings.run("skip", {}, spoil_gradients(3), ids_file=str(trainings.folder / "skip.ids"))
    assert outcome.status == 0, outcome.error
    (line,) = trainings.read_lines("skip", "skipped.jsonl")
    assert (line["step"], line["kind"]) == (3, "skipped")
    assert set(line["ids"]) == set(filter(None, trainings.read_ids("skip")[2]))
    assert trainings.read_lines("skip", "metrics.jsonl")[-1]["skipped"] == 1
    assert any("Step 3 was skipped" in text for text in outcome.result["lines"])


def test_repeated_bad_steps_go_back_to_the_checkpoint_and_on_in_the_corpus(trainings: Trainings) -> None:
    settings = {"steps": 7, "checkpoint_steps": 1}
    outcome = trainings.run("back", settings, spoil_gradients(2, 3, 4, 5, 6))
    assert outcome.status == 0, outcome.error
    assert outcome.result["step"] == 7
    # Not to one of the steps that were skipped, although a checkpoint was due after each of them.
    assert any("Restored the weights of step 1" in line for line in outcome.result["lines"])
    saved = [trainings.load_checkpoint("back", step) for step in trainings.list_steps("back")]
    state = saved[-1].state
    assert (state["guard"]["num_rollbacks"], state["guard"]["num_skipped"]) == (1, 5)
    assert (state["step"], state["feed_position"]) == (7, 12)
    weights = [*(one.arrays for one in saved), trainings.read_bundle("back").weights]
    assert all(np.isfinite(array).all() for arrays in weights for array in arrays.values())
    lines = trainings.read_lines("back", "skipped.jsonl")
    assert [line["kind"] for line in lines] == ["skipped"] * 5 + ["rolled back"]
    assert all(line["gradient_norm"] == "nan" and line["ids"] for line in lines[:-1])


def test_exhausted_memory_makes_smaller_micro_batches_which_are_remembered(trainings: Trainings) -> None:
    outcome = trainings.run("small", {"steps": 2}, exhaust=[2])
    assert outcome.status == 0, outcome.error
    assert any("2 micro-batches of 2 utterances" in line for line in outcome.result["lines"])
    outcome = trainings.run("small", {"steps": 3}, resume=True)
    assert any("which fitted into memory before" in line for line in outcome.result["lines"])


@pytest.mark.parametrize(
    ("number", "ending"), [(signal.SIGTERM, "SystemExit: 143"), (signal.SIGINT, "KeyboardInterrupt")]
)
def test_a_signal_saves_the_step_and_goes_on_its_way(trainings: Trainings, number: int, ending: str) -> None:
    name = f"signal-{number}"
    settings = {"steps": 100, "checkpoint_steps": 100}
    heard = str(trainings.folder / "said.txt")
    outcome = trainings.run(name, settings, signal_at=3, signal_number=number, scores={}, heard_file=heard)
    assert outcome.error.rstrip().endswith(ending)
    assert trainings.list_steps(name) in ([3], [4])
    said = (trainings.folder / "said.txt").read_text(encoding="utf-8").splitlines()
    assert f"{signal.Signals(number).name}: training stops after this step, and is saved. A second signal" in said[-3]
    assert said[-1].endswith(f"Continue with: myxtts train --resume {trainings.path(name)}")
    assert not [line for line in trainings.read_lines(name, "metrics.jsonl") if "validation" in line]


def test_a_full_disk_does_not_stop_training(trainings: Trainings) -> None:
    outcome = trainings.run("full", {"checkpoint_steps": 3}, max_file_bytes=30_000)
    assert outcome.status == 0, outcome.error
    assert trainings.list_steps("full") == []
    assert any("Training continues" in line for line in outcome.result["lines"])


@pytest.mark.usefixtures("short")
def test_fine_tuning_takes_what_fits_and_says_so(trainings: Trainings) -> None:
    origin = str(trainings.path("short"))
    outcome = trainings.run("tuned", {"steps": 1, "decoder_width": 24}, init_from=origin)
    assert outcome.status == 0, outcome.error
    said = " ".join(outcome.result["lines"])
    assert "Different from --init-from, as asked: model.decoder_width 24 instead of 16." in said
    assert "% of the parameters" in said
    assert "Speakers: 2 known. " in said
    assert "Trained from scratch, because they are new or have another shape: decoder." in said
    verdict = judge(Progress.of_run(read_run(trainings.path("tuned"))), Translator())
    assert "do not expect clear words yet" not in verdict, verdict
    assert "do not expect clear words yet" in judge(Progress.of_run(read_run(trainings.path("short"))), Translator())
    widths = {"text_width": 64, "decoder_width": 64, "reference_width": 32}
    outcome = trainings.run("foreign", {"steps": 1, **widths}, init_from=origin)
    assert outcome.status != 0
    assert "of the parameters can be initialised" in outcome.error
    assert "model.text_width is 64, there 16" in outcome.error
    assert "Leave out the model settings" in outcome.error


@pytest.mark.usefixtures("short")
def test_fine_tuning_has_the_shape_of_the_bundle_unless_another_is_asked_for(trainings: Trainings) -> None:
    bundle = trainings.read_bundle("short")
    config, lines = follow_bundle(XTTSConfig(train_data="more"), bundle)
    assert config.model == bundle.model_config == trainings.config.model
    assert (config.data.n_mels, config.data.text_frontend) == (8, "characters")
    assert lines == ["Model size: as in --init-from."]
    config, lines = follow_bundle(XTTSConfig(decoder_width=768, dropout=0.3), bundle)
    assert (config.model.decoder_width, config.model.dropout) == (768, 0.3)
    assert "model.decoder_width 768 instead of 16" in lines[1]
    tiny = replace(bundle, model_config=XTTSConfig(model_size="tiny").model)
    config, lines = follow_bundle(XTTSConfig(), tiny)
    assert (config.model_size, config.model, config.data.batch_size) == ("tiny", tiny.model_config, 8)
    assert lines == ["Model size: as in --init-from (model size tiny)."]


@pytest.mark.usefixtures("short")
def test_a_model_size_does_not_change_the_model_that_is_fine_tuned(trainings: Trainings) -> None:
    tiny = XTTSConfig(model_size="tiny").model
    deep = replace(trainings.read_bundle("short"), model_config=tiny.model_copy(update={"decoder_layers": 10}))
    config, (line,) = follow_bundle(XTTSConfig(model_size="tiny"), deep)
    assert config.model == deep.model_config
    assert line.startswith("Kept as in --init-from: model.decoder_layers 10 (model_size tiny has 6).")
    assert "--set model.decoder_layers=" in line
    config, lines = follow_bundle(XTTSConfig(model_size="tiny", decoder_layers=6), deep)
    assert config.model == tiny
    assert "as asked: model.decoder_layers 6 instead of 10." in lines[-1]
    assert follow_bundle(XTTSConfig(), deep)[0].model_size == "tiny"
    with pytest.raises(ConfigError, match=r"model\.decoder_width is 256, not 512") as caught:
        follow_bundle(XTTSConfig(model_size="small"), deep)
    assert "--model-size tiny" in caught.value.next_step
    other = replace(deep, model_config=tiny.model_copy(update={"decoder_width": 280}))
    with pytest.raises(ConfigError, match=r"model\.decoder_width is 280, not 256") as caught:
        follow_bundle(XTTSConfig(model_size="tiny"), other)
    assert "leave out the model size" in caught.value.next_step


def test_settings_that_do_not_fit_leave_the_run_as_it_was(trainings: Trainings) -> None:
    assert trainings.run("unfit", {"steps": 2}).status == 0
    before = {
        path: path.read_bytes() for path in trainings.path("unfit").rglob("*") if path.suffix in (".yaml", ".json")
    }
    for change in ({"decoder_width": 24}, {"ema_decay": 0.0}, {"n_mels": 9}):
        outcome = trainings.run("unfit", {"steps": 3, "seed": 4, **change}, resume=True, override=True)
        assert outcome.status != 0
        assert "--force cannot help" in outcome.error
    assert all(path.read_bytes() == content for path, content in before.items())
    assert trainings.run("unfit", {"steps": 3}, resume=True).status == 0
    assert trainings.list_steps("unfit") == [2, 3]


def test_training_says_what_it_trains_on(trainings: Trainings, short: Outcome) -> None:
    (line,) = [line for line in short.result["lines"] if line.startswith("Training on")]
    words = r"Training on 21 utterances \(0\.\d minutes\) of 2 speakers in en, from the feature cache "
    assert re.fullmatch(rf"{words}{trainings.folder / 'data' / 'store'}\.", line)


def test_steps_are_started_before_the_results_of_the_two_before_them_are_there(trainings: Trainings) -> None:
    settings = {"steps": 6, "log_steps": 100, "checkpoint_steps": 100}
    outcome = trainings.run("slow", settings, program="train_on_slow_device", num_ahead=2)
    assert outcome.status == 0, outcome.error
    assert outcome.result["is_ahead"] == [True] * 6
    # Two that wait, and the one that was just started.
    assert outcome.result["most_unread"] == 3
