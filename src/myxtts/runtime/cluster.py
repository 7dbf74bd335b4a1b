"""Detects multi-worker training from TF_CONFIG or Slurm variables: number of workers and rank. No TensorFlow.

TF_CONFIG is TensorFlow's own JSON description of a cluster; a Slurm step (`srun`) sets SLURM_* variables instead.
TF_CONFIG wins when both are set. Only rank and size are read here; `runtime.strategy` resolves hosts and ports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from myxtts.errors import ConfigError

TF_CONFIG = "TF_CONFIG"
_EXAMPLE = '{"cluster": {"worker": ["a:9000", "b:9000"]}, "task": {"type": "worker", "index": 0}}'


@dataclass(frozen=True, slots=True)
class Cluster:
    """A multi-worker run: its size and the rank of this process. Rank 0 is the chief, which writes shared files."""

    source: Literal["TF_CONFIG", "Slurm"]
    num_workers: int
    worker: int
    has_chief: bool = field(default=False, compare=False)
    """Whether TF_CONFIG lists a chief beside the workers; it then has rank 0."""

    @property
    def is_chief(self) -> bool:
        return self.worker == 0


def read_cluster(environment: Mapping[str, str]) -> Cluster | None:
    """Returns the cluster of this process; None when it trains alone. Raises ConfigError for a malformed one."""
    if environment.get(TF_CONFIG, "").strip():
        cluster = _read_tf_config(environment[TF_CONFIG])
    else:
        cluster = _read_slurm(environment)
    return cluster if cluster is not None and cluster.num_workers > 1 else None


def choose_slurm_port(environment: Mapping[str, str]) -> int:
    """Returns the base port of a Slurm step, derived from job and step id so that all hosts agree without a message.

    Steps are 32 ports apart, from 20000 to 31999: below 32768, where Linux by default begins to hand out ports to
    outgoing connections. Every 375th step gets the same port.
    """
    number = _read_number(environment, "SLURM_JOB_ID", default=0) + _read_number(
        environment, "SLURM_STEP_ID", default=0
    )
    return 20_000 + number * 32 % 12_000


def _read_tf_config(text: str) -> Cluster | None:
    """Parses TF_CONFIG; a cluster of one is none, and parameter servers are refused."""
    try:
        description = json.loads(text)
    except json.JSONDecodeError as error:
        raise _refuse_tf_config(f"is no JSON ({error})") from error
    if not isinstance(description, dict):
        raise _refuse_tf_config(f"is {text!r}, not a JSON object")
    hosts = description.get("cluster", {})
    if not isinstance(hosts, dict) or not all(isinstance(addresses, list) for addresses in hosts.values()):
        raise _refuse_tf_config("has a cluster that does not list addresses per kind of task")
    num_chiefs, num_workers = len(hosts.get("chief", [])), len(hosts.get("worker", []))
    if num_chiefs + num_workers <= 1 and "ps" not in hosts:
        return None
    if "ps" in hosts:
        raise _refuse_tf_config("names parameter servers (ps), which are not used here")
    rank = _read_task(description.get("task"), num_chiefs, num_workers)
    return Cluster("TF_CONFIG", num_chiefs + num_workers, rank, has_chief=num_chiefs > 0)


def _read_task(task: Any, num_chiefs: int, num_workers: int) -> int:
    """Returns the rank of this process; a chief comes before the workers."""
    kind, index = (task.get("type"), task.get("index")) if isinstance(task, dict) else (None, None)
    counts = {"chief": num_chiefs, "worker": num_workers}
    if kind not in counts:
        raise _refuse_tf_config(f"gives this process the task type {kind!r}; expected chief or worker")
    if type(index) is not int or not 0 <= index < counts[kind]:
        raise _refuse_tf_config(f"gives this process the index {index!r}, but there are {counts[kind]} of type {kind}")
    return index if kind == "chief" else num_chiefs + index


def _read_slurm(environment: Mapping[str, str]) -> Cluster | None:
    """Returns the Slurm step of this process, None outside a step of several tasks."""
    # Only srun sets the variables of a step: without it one process runs, however many tasks the job has.
    num_tasks = _read_number(environment, "SLURM_STEP_NUM_TASKS", default=1)
    if num_tasks <= 1:
        return None
    worker = _read_number(environment, "SLURM_PROCID", default=None)
    if worker >= num_tasks:
        raise ConfigError(
            f"SLURM_PROCID is {worker}, but SLURM_STEP_NUM_TASKS is {num_tasks}.",
            next_step="Start the run with srun, which sets both.",
        )
    return Cluster("Slurm", num_tasks, worker)


def _read_number(environment: Mapping[str, str], name: str, *, default: int | None) -> int:
    """Reads a decimal variable; a missing one is an error unless there is a default."""
    value = environment.get(name)
    if value is None and default is not None:
        return default
    if value is None or not (value.isascii() and value.isdigit()):
        raise ConfigError(
            f"{name} is {value!r}, but a number was expected.", next_step="Start the run with srun, which sets it."
        )
    return int(value)


def _refuse_tf_config(problem: str) -> ConfigError:
    return ConfigError(
        f"{TF_CONFIG} {problem}.", next_step=f"Write it like {_EXAMPLE}, or unset it to train in one process."
    )
