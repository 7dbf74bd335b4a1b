"""A folder of raw recordings can be named in every command that loads features."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_train import list_settings
from tests.training.trainer_programs import NUM_CLIPS, write_recordings

from myxtts.cli.main import app
from myxtts.errors import UsageError
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
    with pytest.raises(UsageError, match="No corpus is named"):
        app((command, "--cache-dir", str(tmp_path / "nowhere")), standalone_mode=False)
