"""Batches that arrive in any order reach whoever waits for them, each once, and never too many are kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myxtts.errors import DataError
from myxtts.pipeline.service.reorder import Missing, ReorderBuffer

SOON_S, LATER_S, NEVER_S = 0.2, 60.0, 1e9


def make_arrivals(num: int = 100, *, num_ahead: int = 4, patience_s: float = NEVER_S) -> ReorderBuffer:
    arrivals = ReorderBuffer(0, num, num_ahead=num_ahead, patience_s=patience_s)
    arrivals.expect(range(num), announced_up_to=num)
    return arrivals


def start(task: Callable[..., Any], *arguments: Any) -> Future[Any]:
    pool = ThreadPoolExecutor(1)
    future = pool.submit(task, *arguments)
    pool.shutdown(wait=False)
    return future


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LATER_S
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def is_waiting(future: Future[Any]) -> bool:
    time.sleep(SOON_S)
    return not future.done()


@given(order=st.permutations(range(12)), num_ahead=st.integers(1, 6), lost=st.sets(st.integers(0, 11)))
@settings(max_examples=40)
def test_whatever_the_order_every_position_is_answered_once(order: list[int], num_ahead: int, lost: set[int]) -> None:
    arrivals = make_arrivals(12, num_ahead=num_ahead)

    def bring_all() -> None:
        for position in order:
            if position not in lost:
                arrivals.put(position, f"batch {position}")
        arrivals.give_up(range(12))

    bringing = start(bring_all)
    taken = [arrivals.take(position) for position in range(12)]
    bringing.result(LATER_S)
    for position, batch in enumerate(taken):
        assert batch in (f"batch {position}", Missing.LOST, Missing.CROWDED_OUT)
        assert isinstance(batch, Missing) or position not in lost
        assert batch is not Missing.LOST or position in lost
    assert [arrivals.take(position) for position in range(12)] == [Missing.NOT_SENT] * 12


def test_whoever_brings_waits_until_there_is_room() -> None:
    arrivals = make_arrivals(num_ahead=2)
    assert arrivals.put(0, "a")
    assert arrivals.put(1, "b")
    third = start(arrivals.put, 2, "c")
    assert is_waiting(third)
    assert arrivals.take(0) == "a"
    assert third.result(LATER_S)


def test_more_is_kept_while_an_earlier_batch_is_waited_for_but_not_without_end() -> None:
    arrivals = make_arrivals(num_ahead=2)
    first = start(arrivals.take, 0)
    wait_until(lambda: arrivals.measure_silence_s() > 0)
    assert is_waiting(first)
    for position in (1, 2, 3):
        assert start(arrivals.put, position, "later").result(LATER_S)
    assert not first.done()
    assert arrivals.put(4, "later")
    assert first.result(LATER_S) is Missing.CROWDED_OUT
    fifth = start(arrivals.put, 5, "later")
    assert is_waiting(fifth)
    arrivals.fail(DataError("end"))
    assert not fifth.result(LATER_S)


def test_batch_that_comes_when_the_patience_has_run_out_is_dropped() -> None:
    arrivals = make_arrivals(patience_s=SOON_S)
    arrivals.put(3, "later")
    assert arrivals.take(1) is Missing.LOST
    assert arrivals.put(1, "too late")
    assert arrivals.take(1) is Missing.NOT_SENT
    assert arrivals.take(3) == "later"


def test_patience_for_all_overtaken_batches_runs_out_at_once() -> None:
    arrivals = make_arrivals(patience_s=SOON_S)
    arrivals.put(50, "later")
    started = time.monotonic()
    assert [arrivals.take(position) for position in range(50)] == [Missing.LOST] * 50
    assert time.monotonic() - started < 50 * SOON_S / 2


def test_batch_that_was_not_overtaken_is_waited_for() -> None:
    arrivals = make_arrivals(patience_s=0.01)
    for position in range(5):
        arrivals.put(position, position)
        assert arrivals.take(position) == position
    sixth = start(arrivals.take, 5)
    assert is_waiting(sixth)
    arrivals.put(5, "slow")
    assert sixth.result(LATER_S) == "slow"


def test_last_ones_are_lost_when_nothing_moves_any_more() -> None:
    arrivals = make_arrivals(6, num_ahead=3, patience_s=SOON_S)
    for position in range(3):
        arrivals.put(position, position)
        arrivals.take(position)
    started = time.monotonic()
    assert [arrivals.take(position) for position in (3, 4, 5)] == [Missing.LOST] * 3
    assert time.monotonic() - started > SOON_S / 2


def test_first_ones_are_waited_for_however_few_there_are() -> None:
    arrivals = make_arrivals(2, num_ahead=3, patience_s=0.01)
    first = start(arrivals.take, 0)
    assert is_waiting(first)
    arrivals.put(0, "slow")
    assert first.result(LATER_S) == "slow"


def test_positions_that_are_not_announced_yet_are_waited_for_and_others_are_not() -> None:
    arrivals = ReorderBuffer(10, 30, num_ahead=4, patience_s=NEVER_S)
    assert arrivals.take(9) is Missing.NOT_SENT
    assert arrivals.take(30) is Missing.NOT_SENT
    waiting = start(arrivals.take, 12)
    assert is_waiting(waiting)
    arrivals.expect([10, 11], announced_up_to=20)
    assert waiting.result(LATER_S) is Missing.NOT_SENT


def test_asking_far_ahead_ends_although_nobody_takes_what_lies_before() -> None:
    arrivals = ReorderBuffer(0, 100, num_ahead=2, patience_s=NEVER_S)
    arrivals.expect(range(10), announced_up_to=10)
    far = start(arrivals.take, 50)
    assert is_waiting(far)
    bringing = [start(arrivals.put, position, "b") for position in range(6)]
    assert far.result(LATER_S) is Missing.CROWDED_OUT
    arrivals.expect([50], announced_up_to=100)
    assert not arrivals.is_expecting([50])
    arrivals.fail(DataError("end"))
    for future in bringing:
        future.result(LATER_S)


def test_failure_reaches_everybody_who_waits_and_who_comes_later() -> None:
    arrivals = make_arrivals(patience_s=NEVER_S)
    waiting = [start(arrivals.take, position) for position in range(3)]
    arrivals.fail(DataError("the first"))
    arrivals.fail(DataError("the second"))
    for future in (*waiting, start(arrivals.take, 7)):
        with pytest.raises(DataError, match="the first"):
            future.result(LATER_S)
    assert not arrivals.put(0, "a")
    assert not arrivals.wait_for_demand()


def test_demand_is_there_when_few_are_still_to_come() -> None:
    arrivals = make_arrivals(6, num_ahead=2)
    demand = start(arrivals.wait_for_demand)
    for position in range(3):
        arrivals.put(position, "b")
        arrivals.take(position)
    assert is_waiting(demand)
    arrivals.put(3, "b")
    assert demand.result(LATER_S)


def test_demand_is_there_when_so_many_got_lost_that_nothing_moves() -> None:
    arrivals = ReorderBuffer(0, 100, num_ahead=2, patience_s=SOON_S)
    arrivals.expect(range(20), announced_up_to=20)
    demand = start(arrivals.wait_for_demand)
    assert is_waiting(demand)
    waiting = start(arrivals.take, 0)
    assert demand.result(LATER_S)
    arrivals.expect([20], announced_up_to=100)
    arrivals.put(20, "b")
    assert waiting.result(LATER_S) is Missing.LOST


def test_silence_is_measured_while_somebody_waits() -> None:
    arrivals = make_arrivals()
    time.sleep(SOON_S)
    assert arrivals.measure_silence_s() == 0.0
    waiting = start(arrivals.take, 5)
    wait_until(lambda: arrivals.measure_silence_s() >= SOON_S)
    put_at = time.monotonic()
    arrivals.put(0, "b")
    assert arrivals.measure_silence_s() <= time.monotonic() - put_at
    arrivals.put(5, "b")
    waiting.result(LATER_S)
    assert arrivals.measure_silence_s() == 0.0


def test_batch_at_the_door_is_taken_although_there_is_no_room_for_it() -> None:
    arrivals = make_arrivals(num_ahead=1)
    bringing = [start(arrivals.put, position, position) for position in (5, 6, 7, 0)]
    # One is in the buffer, the others at the door.
    wait_until(lambda: len(arrivals._blocked) == 3)
    assert [arrivals.take(position) for position in (0, 7, 6, 5)] == [0, 7, 6, 5]
    assert all(future.result(LATER_S) for future in bringing)


def test_memory_of_arrivals_does_not_grow() -> None:
    arrivals = ReorderBuffer(0, 5000, num_ahead=4, patience_s=NEVER_S)
    for position in range(5000):
        if position % 50 == 0:
            arrivals.expect(range(position, position + 50), announced_up_to=position + 50)
        arrivals.put(position, None)
        arrivals.take(position)
    held = {name: len(value) for name, value in vars(arrivals).items() if hasattr(value, "__len__")}
    assert max(held.values()) <= 100, held
