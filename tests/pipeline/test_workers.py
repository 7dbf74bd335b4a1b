"""Loader threads can be made fewer or more while they work, and make way for others."""

from __future__ import annotations

import os
import threading
import time

import pytest

from myxtts.pipeline.load_ahead import ThreadPriority, WorkerPool


def measure_most_at_once(pool: WorkerPool, num_tasks: int = 12) -> int:
    running, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1

    for future in [pool.submit(work) for _ in range(num_tasks)]:
        future.result()
    return most


def test_number_of_threads_can_change_while_they_work() -> None:
    pool = WorkerPool(1, 4)
    assert measure_most_at_once(pool) == 1
    pool.set_active(3)
    assert measure_most_at_once(pool) == 3
    pool.set_active(1)
    assert measure_most_at_once(pool) == 1
    pool.shutdown(wait=True)


@pytest.mark.parametrize(("num_active", "max_workers"), [(1, 1), (1, 4), (2, 4)])
def test_no_task_is_overtaken_by_later_ones(num_active: int, max_workers: int) -> None:
    pool = WorkerPool(num_active, max_workers)
    begun: list[int] = []
    futures = [pool.submit(lambda number=number: begun.append(number)) for number in range(500)]  # type: ignore[misc]
    for future in futures:
        future.result()
    pool.shutdown(wait=True)
    # Threads that run at the same time may note it in either order.
    assert all(abs(number - place) < num_active for place, number in enumerate(begun))


def test_what_a_task_raises_reaches_whoever_asks() -> None:
    pool = WorkerPool(1, 1)
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 / 0).result()
    assert pool.submit(lambda: 7).result() == 7
    pool.shutdown(wait=True)


def test_closing_drops_what_has_not_begun() -> None:
    pool = WorkerPool(1, 2)
    release = threading.Event()
    first, second = pool.submit(lambda: release.wait(10)), pool.submit(lambda: None)
    while not first.running():
        time.sleep(0.001)
    release.set()
    pool.shutdown(wait=True)
    assert first.result() is True
    assert second.cancelled() or second.done()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("myxtts-load")]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not tell threads apart")
def test_loader_threads_give_way_and_stay_off_reserved_processors() -> None:
    def look() -> tuple[int, set[int]]:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id()), os.sched_getaffinity(0)

    mine = look()
    pool = WorkerPool(1, 1, ThreadPriority(niceness=3, num_reserved_cpus=1))
    niceness, cpus = pool.submit(look).result()
    pool.shutdown(wait=True)
    assert niceness == mine[0] + 3
    assert cpus == (set(sorted(mine[1])[1:]) or mine[1])
    assert look() == mine
