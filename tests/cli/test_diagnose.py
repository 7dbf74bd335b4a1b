"""`myxtts diagnose` as a user meets it: real processes on a dataset of their own and on a configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.myxtts_process import run_myxtts
from tests.training.trainer_programs import make_data

from myxtts.config.schema import XTTSConfig

LAUNCHER = Path(__file__).parents[2] / "utilities" / "diagnose_gpu_bottleneck.py"
PIPELINE = """
import time
import numpy as np
import tensorflow as tf

def load(number):
    time.sleep(0.004)
    return np.full((20, 4), number, np.float32)

def make():
    numbers = tf.data.Dataset.range(1000)
    loaded = numbers.map(lambda n: tf.ensure_shape(tf.numpy_function(load, [n], tf.float32), [20, 4]))
    return loaded.batch(8).prefetch(2)

def make_nothing():
    return [1, 2]
"""


def run_diagnose(*arguments: str | Path, cwd: Path, launcher: bool = False) -> subprocess.CompletedProcess[str]:
    if not launcher:
        return run_myxtts("diagnose", *arguments, cwd=cwd, env={"COLUMNS": "140"}, tensorflow=True)
    command, environment = [sys.executable, str(LAUNCHER), *map(str, arguments)], {**os.environ, "COLUMNS": "140"}
    return subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment, cwd=cwd)


def test_a_dataset_of_ones_own_is_diagnosed_by_the_launcher(tmp_path: Path) -> None:
    (tmp_path / "old_pipeline.py").write_text(PIPELINE)
    done = run_diagnose(
        *("--dataset", "old_pipeline:make", "--step-ms", "5", "--num-batches", "8", "--batch-size", "16"),
        *("--report", "page.html", "--json"),
        cwd=tmp_path,
        launcher=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["cause"] == "python_functions"
    assert result["python_functions"] == [{"operation": "PyFunc", "name": "load", "file": "old_pipeline.py", "line": 6}]
    assert result["findings"][0]["recommendations"][0]["predicted_gain"]["factor"] > 2
    assert "old_pipeline.py:6" in done.stderr
    assert (tmp_path / "page.html").stat().st_size > 5_000


def test_a_configuration_is_diagnosed_applied_and_verified(tmp_path: Path) -> None:
    config = make_data(tmp_path)
    (tmp_path / "mine.yaml").write_text(config.model_copy(update={"num_shapes": 1}).to_yaml(), encoding="utf-8")
    done = run_diagnose(
        *("--config", "mine.yaml", "--step-ms", "4", "--num-batches", "10", "--lang", "fa", "--json"),
        *("--apply", "better.yaml", "--verify"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert [stage["name"] for stage in result["stages"]] == ["read", "batch", "transfer", "step"]
    better = XTTSConfig.load(tmp_path / "better.yaml")
    expected = config.model_copy(update={"data.num_shapes": 1, **result["changes"]})
    assert better == expected
    assert (result["verified"] is not None) == bool(result["changes"])


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (("--help",), 0, "--verify"),
        ((), 2, "--train-data"),
        (("--lang", "xx"), 2, "xx"),
        (("--dataset", "nowhere"), 2, "module:function"),
        (("--dataset", "nowhere:make"), 2, "nowhere"),
        (("--dataset", "json:make"), 2, "make"),
        (("--dataset", "json:dumps", "--apply", "x.yaml"), 2, "--apply"),
        (("--train-data", "nowhere"), 3, "nowhere"),
        (("--train-data", "nowhere", "--batch-size", "0"), 4, "--batch-size"),
    ],
)
def test_what_is_wrong_is_said_without_loading_tensorflow(
    tmp_path: Path, arguments: tuple[str, ...], exit_code: int, words: str
) -> None:
    done = run_myxtts("diagnose", *arguments, cwd=tmp_path)
    assert done.returncode == exit_code, done.stderr
    assert words in done.stdout + done.stderr


def test_a_function_that_returns_no_dataset_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old_pipeline.py").write_text(PIPELINE)
    done = run_diagnose("--dataset", "old_pipeline:make_nothing", "--step-ms", "5", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "list" in done.stderr
