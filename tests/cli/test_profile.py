"""`myxtts profile` as a user meets it: real steps on their configuration, and nothing left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.tools.profile.test_measure import make_profile
from tests.training.trainer_programs import COARSE, make_data

from myxtts.cli.main import app
from myxtts.errors import DataError, UsageError

ROOT = Path(__file__).parents[2]
STAGES = {"data_wait", "forward", "backward", "optimizer", "rest", "checkpoint", "logging"}


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profile")
    config = make_data(folder, **COARSE)
    (folder / "config.yaml").write_text(config.to_yaml(), encoding="utf-8")
    return folder / "config.yaml"


def run_profile(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    app(["profile", *map(str, arguments), "--json"], standalone_mode=False)
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def list_settings(**settings: object) -> list[str]:
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in settings.items()}
    return [part for key, text in texts.items() for part in ("--set", f"{key}={text}")]


def test_real_steps_are_profiled_stage_by_stage(
    config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # Eager steps go through an utterance frame by frame, so there are only short ones.
    settings = list_settings(num_shapes=1, enable_graph_mode=False, max_mel_frames=50)
    options = ("--steps", "2", "--report", tmp_path / "page.html", "--lang", "fa")
    result = run_profile(capsys, "--config", config_file, *settings, *options)
    assert result["mode"] == "eager"
    assert set(result["stages_ms"]) == STAGES
    assert len(result["steps"]) == 2
    assert result["parts"]["forward_s"] > 0
    assert result["parts"]["whole_s"] > 0
    assert result["saving"]["checkpoint_held_s"] > 0
    assert result["data_loading"]["loader"] == "cached"
    assert result["no_ops_reason"] == "no_ops_stored"
    assert result["compilations"] == []
    assert 'dir="rtl"' in (tmp_path / "page.html").read_text(encoding="utf-8")
    # The run, its checkpoints and its logs are gone.
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.soak
def test_graphs_operations_and_a_trace_are_shown(
    config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = list_settings(
        num_shapes=1, preprocessing_mode="on_the_fly", auto_tune_performance=False, gradient_accumulation_steps=2
    )
    result = run_profile(capsys, "--config", config_file, *settings, "--steps", "3", "--trace", tmp_path / "traces")
    assert result["mode"] == "graph"
    (made,) = result["compilations"]
    assert made["step"] is None
    assert made["seconds"] > 0
    assert result["num_retraces"] == 0
    assert result["data_loading"]["loader"] == "native"
    slowest = max(result["tf_data_ops"], key=lambda op: op["own_ms"])
    assert "Map" in slowest["name"]
    assert list((tmp_path / "traces").rglob("*.xplane.pb"))


def test_the_hint_names_the_program_that_shows_a_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("myxtts.store.provide.ensure_features", lambda config, _report: config)
    monkeypatch.setattr(
        "myxtts.tools.profile.measure.profile_training", lambda *_, **__: make_profile(trace_dir="traces")
    )
    app(["profile", "--train-data", str(tmp_path), "--trace", "traces"], standalone_mode=False)
    assert "Look at the trace with: xprof --logdir traces (pip install xprof)" in capsys.readouterr().out


def test_what_is_wrong_is_said_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--train-data"):
        app(["profile"], standalone_mode=False)
    with pytest.raises(UsageError, match="en, fa"):
        app(["profile", "--train-data", "corpus", "--lang", "de"], standalone_mode=False)
    with pytest.raises(DataError):
        app(["profile", "--train-data", str(tmp_path / "nowhere")], standalone_mode=False)


def test_the_launcher_is_the_same_command() -> None:
    command = [sys.executable, str(ROOT / "utilities" / "gpu_profiler.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "--trace" in done.stdout
