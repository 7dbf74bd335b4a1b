"""Stages work in order, each in a thread of its own, hold back those before them, and end together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from myxtts.pipeline.stages import Passed, Stage, StageChain


def count_up(stop: int) -> Callable[[], Passed | None]:
    numbers = iter(range(stop))

    def take() -> Passed | None:
        number = next(numbers, None)
        return None if number is None else Passed(f"label {number}", number, {})

    return take


def run(*stages: Stage, stop: int = 20) -> list[Any]:
    conveyor = StageChain(count_up(stop), stages)
    conveyor.start()
    results = []
    while (passed := conveyor.take()) is not None:
        results.append(passed)
    conveyor.close()
    return results


@pytest.mark.parametrize("last", [0, 1, 3])
def test_results_pass_all_stages_in_order(last: int) -> None:
    passed = run(Stage("double", lambda value: value * 2, 2), Stage("add", lambda value: value + 1, last))
    assert [item.content for item in passed] == [2 * number + 1 for number in range(20)]
    assert [item.label for item in passed] == [f"label {number}" for number in range(20)]
    assert all(set(item.seconds) == {"double", "add"} for item in passed)


def test_each_stage_has_a_thread_and_one_without_queue_works_for_the_consumer() -> None:
    names: dict[str, set[str]] = {"first": set(), "second": set(), "inline": set()}

    def note(stage: str) -> Callable[[Any], Any]:
        def apply(value: Any) -> Any:
            names[stage].add(threading.current_thread().name)
            return value

        return apply

    run(Stage("first", note("first"), 1), Stage("second", note("second"), 1), Stage("inline", note("inline"), 0))
    assert names["inline"] == {threading.current_thread().name}
    assert len(names["first"]) == len(names["second"]) == 1
    assert names["first"] != names["second"]


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def test_full_queues_hold_the_source_back() -> None:
    taken: list[int] = []

    def take() -> Passed:
        taken.append(len(taken))
        return Passed(None, taken[-1], {})

    conveyor = StageChain(take, (Stage("a", lambda value: value, 2), Stage("b", lambda value: value, 3)))
    conveyor.start()
    wait_until(lambda: conveyor.num_ready == 5 and len(taken) == 2 + 3 + 2)
    time.sleep(0.2)
    # Two and three wait in the queues, one more is in the hand of each thread.
    assert len(taken) == 2 + 3 + 2
    assert conveyor.num_ready == 5
    conveyor.close()


@pytest.mark.parametrize("culprit", ["a", "b"])
def test_error_of_a_stage_reaches_the_consumer_behind_what_came_before(culprit: str) -> None:
    def fail_at_three(stage: str) -> Callable[[Any], Any]:
        def apply(value: int) -> int:
            if stage == culprit and value == 3:
                raise ValueError("three")
            return value

        return apply

    conveyor = StageChain(count_up(10), (Stage("a", fail_at_three("a"), 1), Stage("b", fail_at_three("b"), 1)))
    conveyor.start()
    seen = []
    with pytest.raises(ValueError, match="three"):
        while (passed := conveyor.take()) is not None:
            seen.append(passed.content)
    conveyor.close()
    assert seen == [0, 1, 2]
    assert conveyor.has_ended


def test_closing_ends_waiting_stages_at_once() -> None:
    before = set(threading.enumerate())
    conveyor = StageChain(count_up(100), tuple(Stage(name, lambda value: value, 1) for name in "abc"))
    conveyor.start()
    conveyor.take()
    conveyor.close()
    assert set(threading.enumerate()) <= before


# Several threads in one stage.


@pytest.mark.parametrize("num_threads", [2, 3])
def test_several_threads_work_at_the_same_time_and_their_results_stay_in_order(num_threads: int) -> None:
    # A thread that did not work beside the others would wait here until the barrier breaks.
    together = threading.Barrier(num_threads, timeout=60)

    def wait_for_the_others(value: int) -> int:
        together.wait()
        time.sleep(0.002 * (num_threads - value % num_threads))
        return value

    stages = (Stage("double", wait_for_the_others, 2, num_threads), Stage("add", lambda value: value + 1, 2))
    passed = run(*stages, stop=6 * num_threads)
    assert [item.content for item in passed] == list(range(1, 6 * num_threads + 1))


def test_full_queue_holds_several_threads_back() -> None:
    taken: list[int] = []
    is_full = threading.Event()

    def take() -> Passed:
        taken.append(len(taken))
        if len(taken) == 2 + 3:
            is_full.set()
        return Passed(None, taken[-1], {})

    conveyor = StageChain(take, (Stage("a", lambda value: value, 2, num_threads=3),))
    conveyor.start()
    assert is_full.wait(60)
    time.sleep(0.2)
    assert len(taken) == 2 + 3
    conveyor.close()


@pytest.mark.parametrize("culprit", ["source", "stage"])
def test_error_in_one_of_several_threads_comes_behind_what_came_before_and_nothing_comes_behind_it(
    culprit: str,
) -> None:
    source = count_up(100)
    is_failed = threading.Event()

    def take() -> Passed | None:
        passed = source()
        if passed is not None and culprit == "source" and passed.content == 5:
            raise ValueError("five")
        return passed

    def apply(value: int) -> int:
        if value == 5:
            is_failed.set()
            raise ValueError("five")
        if value == 4 and culprit == "stage":
            # The one behind it fails first.
            assert is_failed.wait(60)
        return value

    conveyor = StageChain(take, (Stage("a", apply, 1, num_threads=3), Stage("b", lambda value: value, 1, 2)))
    conveyor.start()
    seen = []
    with pytest.raises(ValueError, match="five"):
        while (passed := conveyor.take()) is not None:
            seen.append(passed.content)
    assert seen == [0, 1, 2, 3, 4]
    assert conveyor.has_ended
    with pytest.raises(ValueError, match="five"):
        conveyor.take()
    conveyor.close()


def test_consumer_is_told_of_an_error_while_another_thread_waits_for_its_source() -> None:
    go_on, is_waiting = threading.Event(), threading.Event()
    source = count_up(2)

    def take() -> Passed | None:
        passed = source()
        if passed is None:
            is_waiting.set()
            go_on.wait(60)
        return passed

    def fail_late(value: int) -> int:
        assert is_waiting.wait(60)
        raise ValueError(str(value))

    conveyor = StageChain(take, (Stage("a", fail_late, 1, num_threads=3),))
    conveyor.start()
    with pytest.raises(ValueError, match="0"):
        conveyor.take()
    go_on.set()
    conveyor.close()


def test_closing_ends_all_threads_of_a_stage() -> None:
    before = set(threading.enumerate())
    conveyor = StageChain(count_up(100), tuple(Stage(name, lambda value: value, 1, 3) for name in "ab"))
    conveyor.start()
    conveyor.take()
    conveyor.close()
    assert set(threading.enumerate()) <= before
