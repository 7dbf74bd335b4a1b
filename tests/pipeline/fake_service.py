"""Stand-ins for a tf.data service: a port that greets like one, and streams that bring batches as a test wants."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from myxtts.pipeline.batch import Arrays, BatchLayout, Loader
from myxtts.pipeline.order import BatchPlan, Shape

SHAPE = Shape(2, 8, 4)
N_MELS, NUM_REFERENCE_FRAMES = 3, 5
SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
NO_PORT = "127.0.0.1:1"


@contextmanager
def greet(answer: bytes | None = SETTINGS) -> Iterator[str]:
    """The address of something that gives this answer to whoever connects; None: none at all."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                held.append(connection)
                if answer is not None:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in held:
                connection.close()


def plan_of(position: int) -> BatchPlan:
    rows = np.array([2 * position, 2 * position + 1])
    return BatchPlan(position, 0, rows, rows, SHAPE)


def make_buffer() -> Arrays:
    return BatchLayout.of_features([SHAPE], N_MELS, NUM_REFERENCE_FRAMES).view(SHAPE)


def make_arrays(position: int) -> dict[str, Any]:
    """A batch as the service sends it; its numbers tell where it came from."""
    return {name: np.full_like(values, position) for name, values in make_buffer().items()}


class LocalLoader(Loader):
    """Numbers of batches loaded here are negative, so that they cannot be taken for others."""

    name = "local"

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.is_closed = False

    def fill(self, plan: BatchPlan, arrays: Arrays) -> Arrays:
        self.positions.append(plan.position)
        for values in arrays.values():
            values[:] = -1 - plan.position
        return arrays

    def name_utterances(self, plan: BatchPlan) -> tuple[str, ...]:
        return tuple(str(row) for row in plan.rows)

    def close(self) -> None:
        self.is_closed = True


class FakeStream:
    """Brings the positions that `arrange` makes of the plans', raises what stands among them, and ends or hangs."""

    def __init__(
        self, plans: Sequence[BatchPlan], arrange: Callable[[list[int]], list[Any]], *, hangs_at_end: bool = False
    ) -> None:
        self._items = arrange([plan.position for plan in plans])
        self._hangs_at_end = hangs_at_end
        self.cancelled = threading.Event()
        self.num_brought = 0

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for item in self._items:
            if isinstance(item, Exception):
                raise item
            self.num_brought += 1
            yield item, make_arrays(item)
        if self._hangs_at_end:
            self.cancelled.wait()

    def cancel(self) -> None:
        self.cancelled.set()
