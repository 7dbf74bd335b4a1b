"""Synchronises the processes of a multi-worker run: broadcast from the chief, turns, and the loss of a process.

Implemented as all-reduce sums of the strategy itself. Processes train in lockstep: every one must call the same methods
in the same order, or the others hang. During training they exchange flags with the gradients (`TrainStep`).

A process that ends or cannot be reached is noticed by TensorFlow's coordination service, whose heartbeats stop, or by a
broken connection: every collective operation of the others then fails, after ten seconds and a little more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.errors import DataError, HardwareError
from myxtts.runtime.cluster import Cluster
from myxtts.training.run.folder import RunFolder

_Outcome = TypeVar("_Outcome")
_TASK = re.compile(r"/job:(chief|worker)/(?:replica:0/)?task:(\d+)")
_LOST = ("collective", "nccl", "heartbeat", "grpc error", "connection")
"""Words, in lower case, of the errors that a collective operation fails with when another process is gone."""


class ClusterSync:
    """Collective operations between the processes of a cluster; without a cluster they return their arguments."""

    def __init__(self, strategy: Any, cluster: Cluster | None) -> None:
        self._strategy, self._cluster = strategy, cluster
        self.is_alone = cluster is None
        self._exchange: Any = tf.function(self._reduce, autograph=False)

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes the run directory."""
        return self._cluster is None or self._cluster.is_chief

    def gather(self, number: int) -> list[int]:
        """The number of each process, by worker (an all-gather, as a sum of one-hot rows)."""
        if self._cluster is None:
            return [number]
        # As two numbers, split at 2**20: float32 holds integers exactly only up to 2**24.
        mine = np.zeros((self._cluster.num_workers, 2), np.float32)
        mine[self._cluster.worker] = divmod(number, 1 << 20)
        return [(int(high) << 20) + int(low) for high, low in self._add_up(mine)]

    def share(self, content: dict[str, Any]) -> dict[str, Any]:
        """Broadcasts plain JSON from the chief; the content of other processes is ignored.

        The bytes travel as float32 numbers, which hold them exactly.
        """
        if self._cluster is None:
            return content
        raw = json.dumps(content).encode() if self.is_chief else b""
        room = np.zeros(max(self.gather(len(raw))), np.float32)
        room[: len(raw)] = np.frombuffer(raw, np.uint8)
        shared: dict[str, Any] = json.loads(self._add_up(room).astype(np.uint8).tobytes())
        return shared

    def require_same_step(self, step: int, run_path: Path) -> None:
        """Raises DataError unless all processes resume from the same step, as they do if they see the same files."""
        steps = self.gather(step)
        if len(set(steps)) > 1:
            found = ", ".join(f"worker {worker} step {step}" for worker, step in enumerate(steps))
            raise DataError(
                f"The processes of this cluster would resume from different steps of {run_path}: {found}.",
                next_step="Set training.run_dir to a folder that all hosts share.",
            )

    def take_turns(self, work: Callable[[], _Outcome]) -> _Outcome:
        """Calls `work` in every process: first in the chief, and when that is done in the others (a barrier)."""
        if not self.is_chief:
            self._wait_for_all()
        outcome = work()
        if self.is_chief:
            self._wait_for_all()
        return outcome

    def _wait_for_all(self) -> None:
        if not self.is_alone:
            self._add_up(np.zeros(1, np.float32))

    def _add_up(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        with self._strategy.scope():
            per_replica = self._exchange(tf.constant(values))
        local: Sequence[Any] = self._strategy.experimental_local_results(per_replica)
        total: NDArray[np.float32] = local[0].numpy()
        return total

    def _reduce(self, values: Any) -> Any:
        """All-reduce sum over processes. A process with several replicas contributes once."""
        num_local = len(self._strategy.extended.worker_devices)

        def add_up(values: Any) -> Any:
            replica = tf.distribute.get_replica_context()
            # All replicas of a process hold the same values: only the first contributes.
            is_first = replica.replica_id_in_sync_group % num_local == 0
            return replica.all_reduce(tf.distribute.ReduceOp.SUM, tf.where(is_first, values, tf.zeros_like(values)))

        return self._strategy.run(add_up, args=(values,))


@contextmanager
def explain_lost_worker(cluster: Cluster | None, run: RunFolder) -> Iterator[None]:
    """Within the block, the loss of another process of the cluster is a HardwareError that says what is saved."""
    try:
        yield
    except tf.errors.OpError as error:
        if cluster is None or not any(word in str(error).lower() for word in _LOST):
            raise
        steps = run.checkpoints.list_steps()
        saved = f"Step {steps[-1]:,} is saved" if steps else "No step is saved yet"
        raise HardwareError(
            f"{_name_lost(str(error), cluster)} ended or cannot be reached, and the {cluster.num_workers} processes of "
            f"this run can only train together. {saved} in {run.path}.",
            next_step="Look at the end of its output for the cause. Then start all processes again with --resume "
            f"{run.path}.",
        ) from error


def _name_lost(message: str, cluster: Cluster) -> str:
    """The likely worker: TensorFlow names tasks whose heartbeats stopped or whose connections broke."""
    tasks = _TASK.findall(message.partition("Collective ops is aborted")[2])
    found = {int(number) + (cluster.has_chief and job == "worker") for job, number in tasks}
    others = sorted(found - {cluster.worker}) or [one for one in range(cluster.num_workers) if one != cluster.worker]
    if len(others) == 1:
        return f"Worker {others[0]} of {cluster.num_workers}"
    return f"One of the workers {', '.join(map(str, others))}"
