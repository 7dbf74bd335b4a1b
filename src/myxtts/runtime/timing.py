"""Fair timing: alternatives take turns, the shortest of several calls counts, and CPU time includes the run queue.

Other load on the machine can only lengthen a measurement, and it should lengthen all alternatives alike. Used for the
choice of a loader, by `myxtts bench`, `profile` and `diagnose`, and by the benchmarks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

_Result = TypeVar("_Result")
_PAUSE_S = 0.03
"""Longest pause between two timed calls."""


def run_in_turns(
    actions: Mapping[str, Callable[[], _Result]], num_rounds: int, before_round: Callable[[], None] = lambda: None
) -> dict[str, list[_Result]]:
    """Runs every action once per round, every other round in reverse order; returns the results by round.

    A machine that slows down then favours none of the actions. `before_round` may wait until the machine is quiet.
    """
    results: dict[str, list[_Result]] = {name: [] for name in actions}
    for number in range(num_rounds):
        before_round()
        for name in list(actions)[:: -1 if number % 2 else 1]:
            results[name].append(actions[name]())
    return results


def time_in_turns(
    actions: Mapping[str, Callable[[], object]],
    num_rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    before_round: Callable[[], None] = lambda: None,
) -> dict[str, list[float]]:
    """Returns the seconds of each action by round; one more round warms up (graphs, files) and is not counted."""
    timed = {name: partial(_time_call, action, clock) for name, action in actions.items()}
    seconds = run_in_turns(timed, num_rounds + 1, before_round)
    return {name: values[1:] for name, values in seconds.items()}


def _time_call(action: Callable[[], object], clock: Callable[[], float]) -> float:
    started = clock()
    action()
    return clock() - started


def time_calls(action: Callable[[], object], num_calls: int) -> float:
    """Returns the seconds of the shortest call."""
    times = []
    for _ in range(num_calls):
        times.append(_time_call(action, time.perf_counter))
        # The scheduler ranks a thread that never sleeps behind others; a training loop does sleep, so pause here too.
        time.sleep(min(times[-1], _PAUSE_S))
    return min(times)


def read_runnable_s() -> float:
    """Returns the seconds that threads of this process ran or were queued for a core, summed over threads."""
    return time.process_time() + sum(map(_read_delay_s, Path("/proc/self/task").glob("*/schedstat")))


def read_thread_runnable_s() -> float:
    """As `read_runnable_s`, of the calling thread alone."""
    return time.thread_time() + _read_delay_s(Path("/proc/thread-self/schedstat"))


def _read_delay_s(schedstat: Path) -> float:
    """Returns the run-queue delay of a thread: the second field of Linux's `schedstat`, in ns. Elsewhere it is 0."""
    # A thread may end between being listed and being read.
    with suppress(OSError, ValueError):
        return int(schedstat.read_text().split()[1]) / 1e9
    return 0.0
