"""A training whose gradients go bad, as a user meets it: a real process, its words, and what it leaves on the disk."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from tests.training.trainer_programs import make_data

from myxtts.models.bundle import read_bundle
from myxtts.storage.json_file import JsonLines
from myxtts.training.run.checkpoint import CheckpointFolder

SETTINGS = {
    "num_shapes": 1,
    "enable_graph_mode": "false",
    "checkpoint_steps": 1,
    "keep_checkpoints": 20,
    "sample_steps": 0,
}


def train_with_faults(folder: Path, num_steps: int, faults: str) -> subprocess.CompletedProcess[str]:
    config_file = folder / "config.yaml"
    config_file.write_text(make_data(folder, val_share=0.0).to_yaml(), encoding="utf-8")
    settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    arguments = ["--config", str(config_file), "--steps", str(num_steps), "--json", *settings]
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(
        [sys.executable, "-m", "myxtts", "train", *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        env={**environment, "COLUMNS": "160", "MYXTTS_FAULT": faults},
        cwd=folder,
    )


def test_gradients_that_are_not_numbers_are_skipped_recorded_and_gone_back_from(tmp_path: Path) -> None:
    # Five in a row are too many; the run must be longer than that.
    faults = ",".join(f"gradients:{call}:nan" for call in range(2, 7))
    done = train_with_faults(tmp_path, 7, faults)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert (result["step"], result["num_skipped"], result["num_rollbacks"]) == (7, 5, 1)
    assert "Step 2 was skipped" in done.stderr
    assert "Went back to the weights of step 1" in done.stderr
    run = tmp_path / result["run_dir"]
    lines = list(JsonLines(run / "skipped.jsonl").read())
    assert [line["kind"] for line in lines] == ["skipped"] * 5 + ["rolled back"]
    assert all(line["gradient_norm"] == "nan" and len(line["ids"]) == 4 for line in lines[:-1])
    checkpoints = CheckpointFolder(run / "checkpoints")
    assert checkpoints.list_steps() == [1, 2, 3, 4, 5, 6, 7]
    saved = [*(checkpoints.load(step).arrays for step in checkpoints.list_steps()), read_bundle(run / "bundle").weights]
    assert all(np.isfinite(array).all() for arrays in saved for array in arrays.values())
    # TensorFlow has nothing to say of its build, of processors and of a GPU that is not there.
    assert not [line for line in done.stderr.splitlines() if re.match(r"[IWEF]\d{4} |WARNING: All log", line)]
