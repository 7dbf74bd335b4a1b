"""Loader threads can be made fewer or more while they work, begin in order, and make way for others."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from myxtts.errors import DataError
from myxtts.pipeline import load_ahead
from myxtts.pipeline.batch import Arrays, BatchLayout, Loader, MemoryPool
from myxtts.pipeline.load_ahead import LoadAhead, ThreadPriority, Worker
from myxtts.pipeline.order import BatchOrder, BatchPlan
from myxtts.pipeline.splits import BatchRange


class WorkingLoader(Loader):
    """Does `work` instead of loading."""

    name = "working"

    def __init__(self, work: Callable[[BatchPlan], object]) -> None:
        self._work = work

    def fill(self, plan: BatchPlan, arrays: Arrays) -> Arrays:
        self._work(plan)
        return arrays

    def name_utterances(self, plan: BatchPlan) -> tuple[str, ...]:
        return tuple(f"utterance{row}" for row in plan.rows)


@contextmanager
def run(
    work: Callable[[BatchPlan], object], num_batches: int, num_active: int, max_workers: int, size: int = 8
) -> Iterator[LoadAhead]:
    rows = np.arange(12)
    order = BatchOrder(rows, rows + 20, rows % 4 + 5, rows % 3, seed=1, batch_size=4, num_shapes=1)
    layout = BatchLayout.of_features(order.shapes, 2, 10)
    batches = BatchRange(order, 0, num_batches, (0, 1))
    pool = MemoryPool(layout.num_bytes, 4)
    ahead = LoadAhead(batches, WorkingLoader(work), layout, pool, num_active, max_workers, size)
    ahead.start()
    yield ahead
    ahead.close()


def test_number_of_threads_can_change_while_they_work() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def work(_plan: BatchPlan) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1

    def measure_most_at_once(ahead: LoadAhead) -> int:
        nonlocal most
        for _ in range(6):
            ahead.take()
        most = 0
        for _ in range(12):
            ahead.take()
        return most

    def comes_to(num_at_once: int, ahead: LoadAhead) -> bool:
        # On a busy machine threads start late, and a batch that was begun earlier ends late.
        return any(measure_most_at_once(ahead) == num_at_once for _ in range(15))

    with run(work, 1000, num_active=1, max_workers=4) as ahead:
        assert measure_most_at_once(ahead) == 1
        ahead.set_active(3)
        assert comes_to(3, ahead)
        ahead.set_active(1)
        assert comes_to(1, ahead)


@pytest.mark.parametrize(("num_active", "max_workers"), [(1, 1), (1, 4), (2, 4)])
def test_no_batch_is_overtaken_by_later_ones(num_active: int, max_workers: int) -> None:
    begun: list[int] = []
    with run(lambda plan: begun.append(plan.position), 500, num_active, max_workers) as ahead:
        taken = [loaded.plan.position for loaded in iter(ahead.take, None)]
    assert taken == list(range(500))
    # Of threads that run at the same time one may be held up, but never by more than the buffer holds.
    most = 1 if num_active == 1 else 8
    assert all(abs(number - place) < most for place, number in enumerate(begun))


def test_thread_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_ahead, "_STALL_LIMIT_S", 1.0)
    release, attempts = threading.Event(), 0

    def hang_first(plan: BatchPlan) -> None:
        nonlocal attempts
        if plan.position == 2:
            attempts += 1
            if attempts == 1:
                release.wait(120)

    with run(hang_first, 10, num_active=1, max_workers=1) as ahead:
        started = time.monotonic()
        assert [loaded.plan.position for loaded in iter(ahead.take, None)] == list(range(10))
        # Only once: the batches behind it are loaded by a new thread.
        assert time.monotonic() - started < 6 * load_ahead._STALL_LIMIT_S
        release.set()


def test_what_a_loader_raises_is_raised_where_the_batch_is_taken() -> None:
    with (
        run(lambda plan: 1 // (1 - plan.position), 5, 1, 1) as ahead,
        pytest.raises(DataError, match=r"batch 1 .*ZeroDivisionError.*utterance\d+"),
    ):
        list(iter(ahead.take, None))


def test_closing_drops_what_has_not_begun() -> None:
    release, begun = threading.Event(), threading.Event()

    def work(_plan: BatchPlan) -> None:
        begun.set()
        release.wait(10)

    with run(work, 100, num_active=1, max_workers=2) as ahead:
        begun.wait(10)
        release.set()
    assert ahead.take() is None
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("myxtts-load")]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not tell threads apart")
def test_loader_threads_give_way_and_stay_off_reserved_processors() -> None:
    def look() -> tuple[int, set[int]]:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id()), os.sched_getaffinity(0)

    def adopt_and_look(priority: ThreadPriority) -> tuple[int, set[int]]:
        priority.adopt()
        return look()

    mine = look()
    niceness, cpus = Worker("test", lambda: adopt_and_look(ThreadPriority(3, num_reserved_cpus=1))).outcome.result()
    assert niceness == mine[0] + 3
    assert cpus == (set(sorted(mine[1])[1:]) or mine[1])
    assert look() == mine


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not tell threads apart")
def test_niceness_counts_from_that_of_the_process() -> None:
    def adopt_twice() -> list[int]:
        levels = []
        for increment in (10, 3, 30):
            ThreadPriority(increment).adopt()
            levels.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return levels

    own = os.getpriority(os.PRIO_PROCESS, 0)
    expected = [min(own + 10, 19), min(own + 13, 19), 19]
    assert Worker("test", adopt_twice).outcome.result() == expected
