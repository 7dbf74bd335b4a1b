"""Which cluster the environment describes, in TensorFlow's words or in Slurm's."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from myxtts.errors import ConfigError
from myxtts.runtime.cluster import Cluster, choose_slurm_port, read_cluster

TWO = ["a:9000", "b:9000"]
SLURM = {"SLURM_JOB_ID": "71", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3"}


def describe(cluster: Any, kind: Any = "worker", index: Any = 0) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"TF_CONFIG": ""},
        {"TF_CONFIG": "{}"},
        describe({"worker": ["a:9000"]}),
        {"SLURM_JOB_ID": "71", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"},  # in a batch script, without srun
        {**SLURM, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
    ],
)
def test_one_process_is_no_cluster(environment: dict[str, str]) -> None:
    assert read_cluster(environment) is None


@pytest.mark.parametrize(
    ("environment", "num_workers", "worker"),
    [
        (describe({"worker": TWO}), 2, 0),
        (describe({"worker": TWO}, index=1), 2, 1),
        (describe({"chief": ["c:1"], "worker": TWO}, kind="chief"), 3, 0),
        (describe({"chief": ["c:1"], "worker": TWO}, index=1), 3, 2),
        ({**SLURM, **describe({"worker": TWO})}, 2, 0),
    ],
)
def test_tf_config_describes_a_cluster(environment: dict[str, str], num_workers: int, worker: int) -> None:
    assert read_cluster(environment) == Cluster("TF_CONFIG", num_workers, worker)


def test_a_slurm_step_describes_a_cluster() -> None:
    assert read_cluster(SLURM) == Cluster("Slurm", 4, 3)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"TF_CONFIG": "{cluster"}, "no JSON"),
        ({"TF_CONFIG": "[1]"}, "not a JSON object"),
        (describe({"worker": "a:9000"}), "does not list addresses"),
        (describe(["a:9000", "b:9000"]), "does not list addresses"),
        (describe({"worker": TWO, "ps": ["c:1"]}), "parameter servers"),
        (describe({"worker": TWO}, kind="evaluator"), "'evaluator'"),
        (describe({"worker": TWO}, index=2), "index 2"),
        (describe({"worker": TWO}, index=-1), "index -1"),
        (describe({"worker": TWO}, index="1"), "index '1'"),
        (describe({"worker": TWO}, index=True), "index True"),
        ({"TF_CONFIG": json.dumps({"cluster": {"worker": TWO}})}, "task type None"),
        ({**SLURM, "SLURM_PROCID": "4"}, "SLURM_PROCID is 4"),
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "four"}, "SLURM_STEP_NUM_TASKS is 'four'"),
        ({"SLURM_STEP_NUM_TASKS": "4"}, "SLURM_PROCID is None"),
    ],
)
def test_a_wrong_description_is_refused_with_what_is_wrong(environment: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        read_cluster(environment)
    assert caught.value.next_step


def test_tasks_of_a_step_agree_on_a_port_and_neighbouring_jobs_differ() -> None:
    ports = [choose_slurm_port({**SLURM, "SLURM_JOB_ID": str(job)}) for job in range(1000, 1100)]
    assert len(set(ports)) == 100
    assert min(abs(port - following) for port, following in pairwise(ports)) >= 32
    assert all(20_000 <= port < 32_768 - 32 for port in ports)
    assert choose_slurm_port(SLURM) == choose_slurm_port({**SLURM, "SLURM_PROCID": "0"})
