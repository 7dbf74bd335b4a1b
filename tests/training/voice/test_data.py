"""Durations written to the store by a trained model, and trainings that use them instead of searching."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fork_process import KILLED, ForkProcess, Outcome
from tests.pipeline.aligned import align_evenly
from tests.training.trainer_programs import make_data

from myxtts.config.schema import XTTSConfig
from myxtts.errors import ConfigError, DataError
from myxtts.pipeline.open import open_batches
from myxtts.runtime.hardware import Hardware
from myxtts.runtime.plan import choose_plan
from myxtts.storage.json_file import JsonLines
from myxtts.store.durations import DurationsOrigin, begin_durations, read_durations_origin
from myxtts.store.reader import FeatureStore
from myxtts.training.run.checkpoint import CheckpointFolder
from myxtts.training.voice.data import TrainingData, is_alignable, open_training_data

MACHINE = Hardware(num_cpus=2, ram_bytes=8 << 30, available_ram_bytes=8 << 30)


class Workshop:
    """A corpus, a run on it, and processes that align and train."""

    def __init__(self, folder: Path, process: ForkProcess) -> None:
        self.folder, self.run_path, self.process = folder, folder / "run", process
        self.config: XTTSConfig = make_data(folder / "data")
        self.store_folder = folder / "data" / "store"
        self._config_file = folder / "config.yaml"
        self._config_file.write_text(self.config.to_yaml(), encoding="utf-8")

    def train(self, steps: int, program: str = "train_watched", **options: Any) -> Outcome:
        settings = {"steps": steps, "checkpoint_steps": 2, "num_shapes": 1, "run_dir": str(self.run_path)}
        settings |= options.pop("settings", {})
        return self.process.run(program, config_file=str(self._config_file), settings=settings, **options)

    def align(self, **options: Any) -> Outcome:
        return self.process.run("align", run=str(self.run_path), **options)

    def read_durations(self) -> dict[str, list[int]]:
        store = FeatureStore.open(self.store_folder)
        return {store.id_of(row): store.read_part(row, "durations").tolist() for row in range(len(store))}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with ForkProcess("tests.training.trainer_forks") as process:
        yield Workshop(tmp_path_factory.mktemp("durations"), process)


def test_a_store_is_aligned_by_its_model_once_and_then_trained_on_without_a_search(workshop: Workshop) -> None:
    """One life of durations, in one test because every training costs seconds."""
    assert workshop.train(2, settings={"enable_graph_mode": False}).status == 0
    # A kill loses what was not made safe, and what was is not made again.
    assert workshop.align(chunk_utterances=6, fault="segment_replace:2:kill").status == KILLED
    num_safe = sum(map(bool, workshop.read_durations().values()))
    assert 0 < num_safe < 24
    refused = workshop.train(4, resume=True, settings={"durations": "stored"})
    assert refused.status != 0
    assert "have no durations" in refused.error
    outcome = workshop.align()
    assert outcome.status == 0, outcome.error
    assert (outcome.result["num_kept"], outcome.result["num_aligned"]) == (num_safe, 24 - num_safe)
    found = workshop.process.run("search_durations", run=str(workshop.run_path), num_utterances=4).result
    stored = workshop.read_durations()
    assert all(stored.values())
    assert found == {id: stored[id] for id in found}
    assert len(found) == 4

    outcome = workshop.train(4, resume=True, settings={"durations": "stored"}, is_search_forbidden=True)
    assert outcome.status == 0, outcome.error
    assert any("run at step 2. Alignments are not searched" in line for line in outcome.result["lines"])
    record = list(JsonLines(workshop.run_path / "metrics.jsonl").read())[-1]
    assert (record["step"], record["unaligned"]) == (4, 0)
    assert np.isfinite(record["loss"])
    searching = workshop.train(5, resume=True, settings={"enable_graph_mode": False}, is_search_forbidden=True)
    assert "an alignment was searched for" in searching.error


def test_a_run_switches_to_its_own_durations_by_itself_and_alike_when_it_is_killed_and_resumed(
    workshop: Workshop,
) -> None:
    """One whole training, and one that is killed while it aligns, stopped after the switch, and resumed both times."""
    before = workshop.read_durations()

    def train(name: str, **options: Any) -> Outcome:
        settings = {"run_dir": str(workshop.folder / name), "checkpoint_steps": 1, "enable_graph_mode": False}
        return workshop.train(5, "train_switching", settings=settings, **options)

    whole = train("whole")
    assert whole.status == 0, whole.error
    told = "\n".join(whole.result["lines"])
    assert "searched in every step; once alignments are stable" in told
    assert "Alignments are stable at step 2" in told
    assert "The durations of 21 utterances were found" in told
    lines = list(JsonLines(workshop.folder / "whole" / "metrics.jsonl").read())
    assert [line["step"] for line in lines if line.get("durations_written") is True] == [2]
    # The logs of the steps after the looks have their results, for TensorBoard.
    assert [line["step"] for line in lines if "changed_durations" in line and "loss" in line] == [3]
    assert all(line["unaligned"] == 0 for line in lines if "loss" in line)

    assert train("broken", kill_in_alignment=True).status == KILLED
    assert not (workshop.folder / "broken" / "durations.safetensors").exists()
    stopped = train("broken", resume=True, signal_at=2)
    assert stopped.error.rstrip().endswith("SystemExit: 143")
    rest = train("broken", resume=True, is_search_forbidden=True)
    assert rest.status == 0, rest.error
    assert any("as the run wrote them at step 2" in line for line in rest.result["lines"])
    assert rest.result["losses"] == whole.result["losses"]
    one, other = (CheckpointFolder(workshop.folder / name / "checkpoints").load(5) for name in ("whole", "broken"))
    assert one.state["durations"] == other.state["durations"]
    assert {name: array.tobytes() for name, array in one.arrays.items()} == {
        name: array.tobytes() for name, array in other.arrays.items()
    }
    files = [(workshop.folder / name / "durations.safetensors").read_bytes() for name in ("whole", "broken")]
    assert files[0] == files[1]
    assert workshop.read_durations() == before, "the store is another run's too"


def open_data(config: XTTSConfig) -> TrainingData:
    return open_training_data(config, choose_plan(config, MACHINE))


@pytest.fixture
def config(tmp_path: Path) -> XTTSConfig:
    return make_data(tmp_path).model_copy(update={"training.durations": "stored"})


def test_batches_carry_the_durations_of_their_utterances(config: XTTSConfig) -> None:
    expected = align_evenly(Path(str(config.data.cache_dir)))
    with open_batches(config, epochs=1, framework="numpy", hardware=MACHINE) as batches:
        for batch in batches:
            assert batch.durations.shape == batch.tokens.shape
            np.testing.assert_array_equal(batch.durations.sum(axis=1), batch.mel_lengths)
            for id, row, length in zip(batch.ids, batch.durations, batch.token_lengths, strict=True):
                assert row[:length].tolist() == (expected[id].tolist() if id else [])
    with open_batches(config, split="val", epochs=1, framework="numpy", hardware=MACHINE) as batches:
        assert all(batch.durations is None for batch in batches)


def test_missing_durations_are_refused_with_the_way_to_make_them(config: XTTSConfig) -> None:
    with pytest.raises(DataError, match=r"21 of 21 utterances .* have no durations, such as clip") as refusal:
        open_data(config)
    assert "--durations-from RUN" in refusal.value.next_step


def test_what_nothing_can_align_may_lack_durations(config: XTTSConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    data = open_data(config.model_copy(update={"training.durations": "search"}))
    store = data.utterances
    assert isinstance(store, FeatureStore)
    assert is_alignable(store, 0, (50,), 10)
    assert not is_alignable(store, 0, (50,), 0) or store.entry(0, "mel").length >= 2 * store.entry(0, "tokens").length
    monkeypatch.setattr("myxtts.training.voice.data.is_alignable", lambda *_: False)
    assert open_data(config).durations


def test_other_durations_are_noticed_when_a_run_goes_on(config: XTTSConfig) -> None:
    folder = Path(str(config.data.cache_dir))
    align_evenly(folder)
    before = open_data(config).fingerprint()
    assert set(before) == {"corpus", "front end", "tokens", "durations"}
    assert open_data(config).fingerprint() == before
    begin_durations(folder, DurationsOrigin("another", "runs/other", 7))
    assert read_durations_origin(folder) == DurationsOrigin("another", "runs/other", 7)
    with pytest.raises(DataError, match="21 of 21"):
        open_data(config)


@pytest.mark.parametrize("mode", ["precompute", "on_the_fly"])
def test_val_data_that_the_corpus_was_not_prepared_with_are_refused(tmp_path: Path, mode: str) -> None:
    config = make_data(tmp_path)
    (tmp_path / "other").mkdir()
    changed = {"data.val_data": str(tmp_path / "other"), "data.preprocessing_mode": mode}
    with pytest.raises(DataError, match="val_data") as refusal:
        open_data(config.model_copy(update=changed))
    assert "myxtts prepare TRAIN --val-data" in refusal.value.next_step


def test_durations_cannot_be_stored_on_the_fly(config: XTTSConfig) -> None:
    with pytest.raises(ConfigError, match="on_the_fly"):
        open_data(config.model_copy(update={"data.preprocessing_mode": "on_the_fly"}))
