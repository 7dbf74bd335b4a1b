"""A thread that does one job at a time while training goes on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self


class BackgroundThread:
    """Does jobs one after another. Use it as a context: leaving it waits for the last; what that raises is raised."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._running: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def wait(self) -> None:
        """Returns when nothing is being done."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.wait()
        finally:
            self._executor.shutdown()

    def _begin(self, job: Callable[[], None]) -> None:
        """Waits for the job before, and begins this one."""
        self.wait()
        self._running = self._executor.submit(job)
