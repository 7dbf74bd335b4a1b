"""`myxtts bench` as a user meets it: on a corpus of their own, swept, and against other settings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.training.trainer_programs import make_data

from myxtts.cli.main import app
from myxtts.config.schema import XTTSConfig
from myxtts.errors import UsageError

ROOT = Path(__file__).parents[2]
QUICK = ("--steps", "4", "--rounds", "2", "--step-ms", "2")


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    config = make_data(folder, auto_tune_performance=False)
    (folder / "config.yaml").write_text(config.to_yaml(), encoding="utf-8")
    return folder / "config.yaml"


def run_bench(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    app(["bench", *map(str, arguments), "--json"], standalone_mode=False)
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_candidates_are_compared_on_the_users_corpus(
    config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--contenders", "cached,python", "--out", tmp_path / "out", "--lang", "fa")
    result = run_bench(capsys, "--config", config_file, *QUICK, *options)
    assert [one["name"] for one in result["contenders"]] == ["cached", "python"]
    for one in result["contenders"]:
        assert 0 < one["au"] <= 1
        assert one["effective_au"] < one["au"]
        assert one["utterances_per_s"] > 0
        assert len(one["rounds"]) == 2
    assert [one["other"] for one in result["comparisons"]] == ["python"]
    assert result["corpus"]["num_utterances"] == 24
    assert result["machine"]["num_cpus"] >= 1
    (saved,) = (tmp_path / "out").glob("bench-*.json")
    assert json.loads(saved.read_text(encoding="utf-8")) == result
    assert 'dir="rtl"' in saved.with_suffix(".html").read_text(encoding="utf-8")


def test_sweeps_and_other_settings_replace_the_candidates(
    config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(XTTSConfig.load(config_file, batch_size=2).to_yaml(), encoding="utf-8")
    report = tmp_path / "page.html"
    options = ("--sweep", "batch_size=2,4", "--against", other, "--report", report)
    result = run_bench(capsys, "--config", config_file, "--steps", "3", "--rounds", "1", "--step-ms", "1", *options)
    names = [one["name"] for one in result["contenders"]]
    assert names == ["settings", "against", "batch_size=2", "batch_size=4"]
    assert result["contenders"][2]["settings"] == {"data.batch_size": 2}
    assert "batch_size=4" in report.read_text(encoding="utf-8")


def test_a_candidate_that_is_left_out_is_named(
    config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    arguments = ["--config", str(config_file), "--steps", "2", "--rounds", "1", "--contenders", "cached,python"]
    app(["bench", *arguments, "--set", f"data.cache_dir={tmp_path / 'none'}"], standalone_mode=False)
    shown = capsys.readouterr()
    assert "No feature cache in" in shown.err
    assert "python" in shown.out
    assert "upper bound" in shown.out


def test_what_cannot_be_measured_is_explained(config_file: Path, tmp_path: Path) -> None:
    def run(*arguments: str | Path) -> None:
        app(["bench", "--config", str(config_file), *map(str, arguments)], standalone_mode=False)

    with pytest.raises(UsageError, match="en, fa"):
        run("--lang", "de")
    with pytest.raises(UsageError, match="no loader 'fast'"):
        run("--contenders", "fast")
    with pytest.raises(UsageError, match="No corpus is given"):
        run("--set", "data.train_data=null", "--set", f"data.cache_dir={tmp_path / 'none'}")


def test_the_launcher_is_the_same_command() -> None:
    command = [sys.executable, str(ROOT / "utilities" / "benchmark_gpu_utilization.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "--step-ms" in done.stdout
    assert "--sweep" in done.stdout


@pytest.mark.soak
def test_a_demo_corpus_is_made_where_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_bench(capsys, *QUICK, "--demo-minutes", "1", "--batch-size", "4")
    assert {one["name"] for one in result["contenders"]} == {"cached", "native", "python"}
    rates = {one["name"]: one["utterances_per_s"] for one in result["contenders"]}
    assert rates["cached"] > rates["python"]
