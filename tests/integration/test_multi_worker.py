"""Two processes that train together over the loopback end with the weights of one that trains alone."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.multi_worker_program import NUM_STEPS, NUM_UTTERANCES, RUNS

from myxtts.pipeline.order import NO_ROW
from myxtts.runtime.cluster import choose_slurm_port

ROOT = Path(__file__).parents[2]
TIME_LIMIT_S = 120.0
KEYS = ("weights", "losses", "rows", "num_updates")
Results = dict[str, Any]


def find_free_ports(num_ports: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(num_ports)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def describe_by_tf_config() -> list[dict[str, str]]:
    addresses = [f"127.0.0.1:{port}" for port in find_free_ports(2)]
    return [
        {"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})}
        for index in range(2)
    ]


def describe_by_slurm() -> list[dict[str, str]]:
    """What srun sets for two tasks on one host."""
    jobs = ({"SLURM_JOB_ID": str(number), "SLURM_STEP_ID": "0"} for number in range(os.getpid() % 300, 600))
    job = next(job for job in jobs if all(is_free(choose_slurm_port(job) + task) for task in range(2)))
    step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_TASKS_PER_NODE": "2"}
    return [
        {**job, **step, "SLURMD_NODENAME": "localhost", "SLURM_PROCID": str(task), "SLURM_LOCALID": str(task)}
        for task in range(2)
    ]


def run_workers(folder: Path, environments: list[dict[str, str]]) -> list[Results]:
    """What each worker found; whatever happens, no process is left behind."""
    files = [folder / f"worker{number}.npz" for number in range(len(environments))]
    calm = {"TF_CPP_MIN_LOG_LEVEL": "3", "GRPC_VERBOSITY": "NONE"}
    processes = []
    try:
        for file, environment in zip(files, environments, strict=True):
            command = [sys.executable, "-m", "tests.integration.multi_worker_program", str(file)]
            log = file.with_suffix(".log").open("w")
            processes.append(
                subprocess.Popen(command, cwd=ROOT, env={**os.environ, **calm, **environment}, stdout=log, stderr=log)
            )
            log.close()
        deadline = time.monotonic() + TIME_LIMIT_S
        codes = [process.wait(max(0.1, deadline - time.monotonic())) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert codes == [0] * len(files), [file.with_suffix(".log").read_text()[-3000:] for file in files]
    return [dict(np.load(file)) for file in files]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Results:
    (results,) = run_workers(tmp_path_factory.mktemp("alone"), [{}])
    return results


@pytest.mark.parametrize("describe", [describe_by_tf_config, describe_by_slurm])
def test_two_workers_train_as_one(describe: Any, alone: Results, tmp_path: Path) -> None:
    first, second = run_workers(tmp_path, describe())
    for worker in (first, second):
        assert str(worker["kind"]) == "CollectiveAllReduceStrategy"
        assert int(worker["num_replicas"]) == 2
    for run in RUNS:
        check_run(*({key: worker[f"{run} {key}"] for key in KEYS} for worker in (first, second, alone)))


def check_run(first: Results, second: Results, alone: Results) -> None:
    assert first["num_updates"] == second["num_updates"] == alone["num_updates"] == NUM_STEPS
    np.testing.assert_array_equal(first["weights"], second["weights"])
    np.testing.assert_allclose(first["weights"], alone["weights"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(first["losses"], alone["losses"], rtol=0, atol=1e-5)
    for rows, other_rows, all_rows in zip(first["rows"], second["rows"], alone["rows"], strict=True):
        seen, seen_by_other = set(rows) - {NO_ROW}, set(other_rows) - {NO_ROW}
        assert not seen & seen_by_other
        assert seen | seen_by_other == set(all_rows) - {NO_ROW}


def test_training_alone_learns_from_every_utterance(alone: Results) -> None:
    """Equal weights would prove little if none had changed, or if no batch had rows to spare."""
    assert str(alone["kind"]) != "CollectiveAllReduceStrategy"
    for run in RUNS:
        assert alone[f"{run} losses"][-1] < alone[f"{run} losses"][0]
        assert set(alone[f"{run} rows"].ravel()) == {NO_ROW, *range(NUM_UTTERANCES)}
