"""Loader threads whose number can change while they work, and which make way for those that drive the devices."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ThreadManners:
    """How a thread behaves towards others: its niceness, and the number of processors it stays away from."""

    niceness: int = 0
    num_reserved_cpus: int = 0

    def adopt(self) -> None:
        """For the thread that calls, and where the system can tell threads apart."""
        if not hasattr(os, "sched_setaffinity"):
            return
        cpus = sorted(os.sched_getaffinity(0))
        if 0 < self.num_reserved_cpus < len(cpus):
            os.sched_setaffinity(0, cpus[self.num_reserved_cpus :])
        if self.niceness:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self.niceness)


NO_MANNERS = ThreadManners()


class WorkerPool:
    """Runs tasks in the order they come, at most `num_active` at a time out of `max_workers` threads."""

    def __init__(self, num_active: int, max_workers: int, manners: ThreadManners = NO_MANNERS) -> None:
        self._executor = ThreadPoolExecutor(max(1, num_active, max_workers), "myxtts-load", manners.adopt)
        self._changed = threading.Condition()
        self._num_active, self._num_running = max(1, num_active), 0

    def submit(self, task: Callable[[], Result]) -> Future[Result]:
        return self._executor.submit(self._run, task)

    def set_active(self, num_active: int) -> None:
        with self._changed:
            self._num_active = max(1, num_active)
            self._changed.notify_all()

    def shutdown(self, *, wait: bool) -> None:
        # Threads that wait for their turn must not outlive the pool.
        self.set_active(1 << 30)
        self._executor.shutdown(wait=wait, cancel_futures=True)

    def _run(self, task: Callable[[], Result]) -> Result:
        with self._take_turn():
            return task()

    @contextmanager
    def _take_turn(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._num_running < self._num_active)
            self._num_running += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_running -= 1
                self._changed.notify()
