"""Two processes that train one model over the loopback leave one run, go on from it, and stop together."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_multi_worker import ROOT, describe_by_tf_config
from tests.training.trainer_programs import COARSE, make_data

from myxtts.models.bundle import read_bundle
from myxtts.storage.json_file import JsonLines
from myxtts.training.run.checkpoint import CheckpointFolder

TIME_LIMIT_S = 600.0
STATED_TIME_S = 30.0
"""The documentation says that the other processes end within this time."""
EAGER = {"enable_graph_mode": False, "num_shapes": 1, "checkpoint_steps": 2}
"""A few steps cost less than a graph."""
CALM = {"TF_CPP_MIN_LOG_LEVEL": "3", "GRPC_VERBOSITY": "NONE"}


class Pair:
    """Starts two workers on one run; whatever happens, no process is left behind."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run_path = folder, folder / "run"
        self._config_file = folder / "config.yaml"
        self._config_file.write_text(make_data(folder / "data", **COARSE).to_yaml(), encoding="utf-8")
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, freeze_at: int | None = None, **settings: Any) -> None:
        settings = {**EAGER, "run_dir": str(self.run_path), **settings}
        options = {"resume": self.run_path.exists(), "freeze_at": freeze_at}
        for number, environment in enumerate(describe_by_tf_config()):
            command = [sys.executable, "-m", "tests.training.trainer_programs"]
            command += [str(self._config_file), json.dumps(settings), json.dumps(options)]
            with (self.folder / f"worker{number}.log").open("w") as log:
                self.processes.append(
                    subprocess.Popen(
                        command,
                        cwd=ROOT,
                        env={**os.environ, **CALM, **environment},
                        stdout=subprocess.PIPE,
                        stderr=log,
                        text=True,
                    )
                )

    def await_end(self) -> list[tuple[int, dict[str, Any]]]:
        """Exit code and result of each worker."""
        deadline = time.monotonic() + TIME_LIMIT_S
        answers = [process.communicate(timeout=max(0.1, deadline - time.monotonic()))[0] for process in self.processes]
        codes = [process.returncode for process in self.processes]
        self.processes = []
        return [(code, json.loads(answer) if answer else {}) for code, answer in zip(codes, answers, strict=True)]

    def read_logs(self) -> list[str]:
        return [path.read_text()[-3000:] for path in sorted(self.folder.glob("worker*.log"))]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()

    def list_steps(self) -> list[int]:
        return CheckpointFolder(self.run_path / "checkpoints").list_steps()

    def read_records(self) -> list[dict[str, Any]]:
        return [line for line in JsonLines(self.run_path / "metrics.jsonl").read() if "loss" in line]

    def await_step(self, step: int) -> None:
        deadline = time.monotonic() + TIME_LIMIT_S
        while not any(record["step"] >= step for record in self.read_records()):
            assert all(process.poll() is None for process in self.processes), self.read_logs()
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.fixture
def pair(tmp_path: Path) -> Any:
    made = Pair(tmp_path)
    yield made
    made.close()


@pytest.mark.timeout(1500)
def test_two_workers_leave_one_run_notice_a_killed_one_go_on_and_stop_together(pair: Pair) -> None:
    pair.start(steps=100_000)
    pair.await_step(3)
    pair.processes[1].kill()
    killed = time.monotonic()
    (chief_code, _), (other_code, _) = pair.await_end()
    assert time.monotonic() - killed < STATED_TIME_S
    assert (chief_code, other_code) == (1, -signal.SIGKILL), pair.read_logs()
    error = re.findall(r"HardwareError: Worker 1 of 2 ended or cannot be reached.*", pair.read_logs()[0])[-1]
    (step,) = re.findall(rf"Step (\d+) is saved in {pair.run_path}", error)
    assert int(step) == pair.list_steps()[-1] >= 2
    assert f"--resume {pair.run_path}" in pair.read_logs()[0]
    assert read_bundle(pair.run_path / "bundle").notes["step"] == int(step)
    # Written by one of them: two would have left every line twice.
    recorded = [record["step"] for record in pair.read_records()]
    assert recorded == list(range(1, len(recorded) + 1))
    (session,) = json.loads((pair.run_path / "environment.json").read_text())["sessions"]
    assert session["from_step"] == 0

    # Only the first of them decides that the text side rests; were the other not told, their steps would not meet.
    pair.start(freeze_at=int(step) + 2, steps=100_000)
    pair.await_step(int(step) + 6)
    pair.processes[1].send_signal(signal.SIGTERM)
    (chief_code, chief), (other_code, _) = pair.await_end()
    assert (chief_code, other_code) == (0, 143), pair.read_logs()
    assert "Another process of the cluster has stopped" in chief["reason"]
    assert any(f"Resuming from step {step}" in line for line in chief["lines"])
    assert any("It is frozen from now on" in line for line in chief["lines"])
    assert pair.list_steps()[-1] == chief["step"] >= int(step) + 6
    assert [record["step"] for record in pair.read_records()] == list(range(1, chief["step"] + 1))
