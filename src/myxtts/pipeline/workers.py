"""Loader threads whose number can change while they work, and which make way for those that drive the devices."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Task:
    number: int
    future: Future[Any]
    run: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class ThreadPriority:
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


NO_MANNERS = ThreadPriority()


class WorkerPool:
    """Runs tasks in the order they come, at most `num_active` at a time out of `max_workers` threads."""

    def __init__(self, num_active: int, max_workers: int, manners: ThreadPriority = NO_MANNERS) -> None:
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._num_submitted = self._num_begun = self._num_running = 0
        self._num_active = max(1, num_active)
        self._changed = threading.Condition()
        self._manners = manners
        # Daemons, since a thread that a broken disk holds must not hold the process as well.
        self._threads = [
            threading.Thread(target=self._work, name=f"myxtts-load-{number}", daemon=True)
            for number in range(max(1, num_active, max_workers))
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, task: Callable[[], Result]) -> Future[Result]:
        future: Future[Result] = Future()
        with self._changed:
            self._tasks.put(_Task(self._num_submitted, future, task))
            self._num_submitted += 1
        return future

    def set_active(self, num_active: int) -> None:
        with self._changed:
            self._num_active = max(1, num_active)
            self._changed.notify_all()

    def shutdown(self, *, wait: bool) -> None:
        """Drops what has not begun; with `wait`, returns when what has begun is done."""
        for _ in self._threads:
            self._tasks.put(None)
        with self._changed:
            self._num_active = 0
            self._changed.notify_all()
        for thread in self._threads if wait else ():
            thread.join()

    def _work(self) -> None:
        self._manners.adopt()
        while (task := self._tasks.get()) is not None:
            if not self._await_turn(task.number):
                task.future.cancel()
                continue
            task.future.set_running_or_notify_cancel()
            with _deliver(task.future):
                task.future.set_result(task.run())
            with self._changed:
                self._num_running -= 1
                self._changed.notify_all()

    def _await_turn(self, number: int) -> bool:
        """Whether a task may begin: in its order, when few enough others run. Not when the pool is closing."""

        def is_over_or_mine() -> bool:
            is_mine = number == self._num_begun and self._num_running < self._num_active
            return is_mine or self._num_active == 0

        with self._changed:
            self._changed.wait_for(is_over_or_mine)
            if self._num_active == 0:
                return False
            self._num_begun += 1
            self._num_running += 1
            # The task behind this one may begin as well.
            self._changed.notify_all()
            return True


@contextmanager
def _deliver(future: Future[Any]) -> Iterator[None]:
    """Whatever is raised inside goes to whoever asks for the result, and nowhere else."""
    with ExitStack() as stack:

        def pass_on(_kind: Any, error: BaseException | None, _trace: Any) -> bool:
            if error is not None:
                future.set_exception(error)
            return True

        stack.push(pass_on)
        yield
