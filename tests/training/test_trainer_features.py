"""When `Trainer` makes or updates the features, before TensorFlow is loaded; making them is replaced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.training.trainer_programs import TINY

from myxtts.config.schema import XTTSConfig
from myxtts.errors import BusyError, DataError
from myxtts.training import trainer


@pytest.fixture
def config(tmp_path: Path) -> XTTSConfig:
    return XTTSConfig(**{**TINY, "train_data": tmp_path / "corpus", "run_dir": tmp_path / "run"})


def test_a_process_of_a_cluster_waits_for_the_one_that_makes_the_features(
    config: XTTSConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = BusyError("The store is in use.")
    answers: list[Exception] = [busy, busy, DataError("Over.")]

    def ensure(*_: object, **__: object) -> XTTSConfig:
        raise answers.pop(0)

    monkeypatch.setattr(trainer, "ensure_features", ensure)
    monkeypatch.setattr(trainer, "_WAIT_S", 0.0)
    said: list[str] = []
    with pytest.raises(BusyError):
        trainer.Trainer(config, say=said.append).fit()
    workers = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(workers))
    answers.insert(0, busy)
    with pytest.raises(DataError, match="Over"):
        trainer.Trainer(config, say=said.append).fit()
    assert said == ["The store is in use. This process waits until it is done."]


def test_a_corpus_that_has_grown_is_refused_before_the_store_is_brought_up_to_date(
    config: XTTSConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[bool] = []

    def ensure(*_: object, may_update: bool, **__: object) -> XTTSConfig:
        asked.append(may_update)
        raise DataError("Over.")

    monkeypatch.setattr(trainer, "ensure_features", ensure)
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    for name in ("", "step-000000002.safetensors"):
        if name:
            (tmp_path / "run" / "checkpoints" / name).touch()
        for resume, override in ((False, False), (True, False), (True, True)):
            with pytest.raises(DataError, match="Over"):
                trainer.Trainer(config, say=print, resume=resume, override=override).fit()
    assert asked == [True, True, True, True, False, True]
