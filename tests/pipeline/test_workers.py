"""Loader threads can be made fewer or more while they work, and make way for others."""

from __future__ import annotations

import os
import threading
import time

import pytest

from myxtts.pipeline.workers import ThreadManners, WorkerPool


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


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not tell threads apart")
def test_loader_threads_give_way_and_stay_off_reserved_processors() -> None:
    def look() -> tuple[int, set[int]]:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id()), os.sched_getaffinity(0)

    mine = look()
    pool = WorkerPool(1, 1, ThreadManners(niceness=3, num_reserved_cpus=1))
    niceness, cpus = pool.submit(look).result()
    pool.shutdown(wait=True)
    assert niceness == mine[0] + 3
    assert cpus == (set(sorted(mine[1])[1:]) or mine[1])
    assert look() == mine
