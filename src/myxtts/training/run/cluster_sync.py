"""Synchronises the processes of a multi-worker run: any-of flags (stop, freeze), broadcast from the chief, turns.

Implemented as all-reduce sums of the strategy itself. Processes train in lockstep: every one must call the same methods
in the same order, or the others hang.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.errors import DataError
from myxtts.runtime.cluster import Cluster

_Outcome = TypeVar("_Outcome")


class ClusterSync:
    """Collective operations between the processes of a cluster; without a cluster they return their arguments."""

    def __init__(self, strategy: Any, cluster: Cluster | None) -> None:
        self._strategy, self._cluster = strategy, cluster
        self._exchange: Any = tf.function(self._reduce, autograph=False)

    @property
    def is_alone(self) -> bool:
        return self._cluster is None

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes the run directory."""
        return self._cluster is None or self._cluster.is_chief

    def find_any(self, *flags: bool) -> tuple[bool, ...]:
        """For each flag: whether any process has set it (all-reduce of sums)."""
        return tuple((self._add_up(np.array(flags, np.float32)) > 0).tolist()) if self._cluster else flags

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
                f"The processes that train together would go on from different steps of {run_path}: {found}.",
                next_step="Set training.run_dir to a folder that all hosts share.",
            )

    def take_turns(self, work: Callable[[], _Outcome]) -> _Outcome:
        """Calls `work` in every process: first in the chief, and when that is done in the others (a barrier)."""
        if not self.is_chief:
            self.find_any(False)
        outcome = work()
        if self.is_chief:
            self.find_any(False)
        return outcome

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
