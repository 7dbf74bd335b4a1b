"""A folder of raw recordings can be named in every command that loads features."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_train import list_settings
from tests.store.corpora import make_small_corpus
from tests.training.trainer_programs import NUM_CLIPS, write_recordings

from myxtts.cli.main import app
from myxtts.config.schema import XTTSConfig
from myxtts.errors import DataError, UsageError
from myxtts.pipeline.open import open_batches
from myxtts.store.reader import FeatureStore

COMMANDS: dict[str, tuple[str, ...]] = {
    "precompute": (),
    "train": ("--steps", "1"),
    "profile": ("--steps", "2"),
    "bench": ("--steps", "2", "--rounds", "1", "--step-ms", "1", "--contenders", "cached"),
    "diagnose": ("--num-batches", "8", "--step-ms", "2"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_features_of_raw_recordings_are_made_first(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    recordings = write_recordings(tmp_path / "recordings")
    settings = list_settings(corpus_format="manifest", val_share=0.2)
    arguments = (command, "--train-data", str(recordings), *COMMANDS[command], "--json", *settings)
    app(arguments, standalone_mode=False)
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert result
    assert len(FeatureStore.open(tmp_path / "cached_features")) == NUM_CLIPS


@pytest.mark.parametrize("command", ["train", "profile", "bench", "diagnose"])
def test_a_missing_store_without_a_corpus_is_a_usage_error(command: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No corpus is given"):
        app((command, "--cache-dir", str(tmp_path / "nowhere")), standalone_mode=False)


@pytest.fixture(scope="module")
def two_corpora(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The corpus A, and features of another corpus B."""
    folder = tmp_path_factory.mktemp("two")
    mine, other = make_small_corpus(folder / "mine"), make_small_corpus(folder / "other")
    for number, id in enumerate(list(other.lines)):
        other.add(id, seed=60 + number)
    other.prepare()
    other.precompute()
    return mine.folder / "corpus", other.store_folder


@pytest.mark.parametrize("command", COMMANDS)
def test_features_of_another_corpus_are_refused(
    command: str, two_corpora: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    corpus, store = two_corpora
    with pytest.raises(DataError, match="belong to another corpus"):
        app((command, "--train-data", str(corpus), "--cache-dir", str(store)), standalone_mode=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_corpus_that_is_not_there_is_an_error_beside_a_store(
    command: str, two_corpora: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="nothing at /no/such/folder"):
        app((command, "--train-data", "/no/such/folder", "--cache-dir", str(two_corpora[1])), standalone_mode=False)


def test_batches_of_another_corpus_are_refused(two_corpora: tuple[Path, Path]) -> None:
    corpus, store = two_corpora
    with pytest.raises(DataError, match="belong to another corpus"):
        open_batches(XTTSConfig(train_data=corpus, cache_dir=store))
