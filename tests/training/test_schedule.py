"""Minutes as steps, with a clock that a test can turn."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from myxtts.training import schedule as time_budget
from myxtts.training.run import state
from myxtts.training.run.cluster_sync import ClusterSync
from myxtts.training.schedule import FIRST_STEPS, LearningRate, TimeBudget, guess_total_steps


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time_budget, "time", clock)
    return clock


def open_budget(minutes: float | None, known: state.Clock | None = None) -> TimeBudget:
    return TimeBudget(minutes, known, ClusterSync(strategy=None, cluster=None))


def train(budget: TimeBudget, clock: Clock, first: int, num_steps: int, step_s: float) -> int:
    """Steps of one length; the number of the last."""
    for step in range(first + 1, first + num_steps + 1):
        clock.now_s += step_s
        budget.note_step(step)
        if budget.total_steps is not None and step >= budget.total_steps:
            return step
    return first + num_steps


@pytest.mark.parametrize("step_s", [0.1, 0.4, 2.0])
def test_the_last_step_comes_when_the_minutes_are_over(clock: Clock, step_s: float) -> None:
    budget = open_budget(20)
    begun_s = clock.now_s
    clock.now_s += 60  # compiling
    train(budget, clock, 0, 100_000, step_s)
    assert clock.now_s - begun_s == pytest.approx(1200, abs=2 * step_s)


def test_the_end_is_known_early_and_follows_the_speed(clock: Clock) -> None:
    budget = open_budget(60)
    begun_s = clock.now_s
    assert budget.total_steps is None
    step = train(budget, clock, 0, FIRST_STEPS + 4, 0.4)
    assert budget.total_steps == pytest.approx(9000, abs=2)
    train(budget, clock, step, 100_000, 0.6)
    assert clock.now_s - begun_s == pytest.approx(3600, rel=0.02)


def test_what_took_long_once_does_not_move_the_end_for_long(clock: Clock) -> None:
    budget = open_budget(60)
    step = train(budget, clock, 0, 1000, 0.2)
    clock.now_s += 60  # the first validation makes its graphs
    step = train(budget, clock, step, 64, 0.2)
    right = step + (3600 - budget.spent_s) / 0.2
    assert budget.total_steps is not None
    assert budget.total_steps < 0.9 * right
    step = train(budget, clock, step, 1200, 0.2)
    assert budget.total_steps == pytest.approx(right, abs=70)


def test_a_resumed_run_spends_what_is_left(clock: Clock) -> None:
    budget = open_budget(10)
    step = train(budget, clock, 0, 500, 0.5)
    again = open_budget(10, budget.read_clock())
    assert again.total_steps == budget.total_steps
    assert train(again, clock, step, 100_000, 0.5) == pytest.approx(1200, abs=2)


def test_without_minutes_nothing_is_measured_or_kept(clock: Clock) -> None:
    budget = open_budget(None, state.Clock(spent_s=5.0, total_steps=7))
    train(budget, clock, 0, 500, 0.5)
    assert budget.total_steps is None
    assert budget.read_clock() is None


def test_a_run_that_nobody_measured_yet_is_guessed_at_a_second_a_step() -> None:
    assert guess_total_steps(None, None) is None
    assert guess_total_steps(500, None) == 500
    assert guess_total_steps(None, 60) == 3600
    assert guess_total_steps(500, 60) == 500


@given(st.integers(0, 3000), st.integers(0, 500), st.one_of(st.none(), st.integers(1, 2000)))
def test_the_rate_on_the_device_is_the_rate_on_the_host(step: int, num_rising: int, num_steps: int | None) -> None:
    rate = LearningRate(3e-4, num_rising, num_steps)
    on_device = rate.at_tensor(tf.constant(step, tf.int64), tf.constant(-1 if num_steps is None else num_steps))
    assert on_device.dtype == tf.float32
    np.testing.assert_allclose(on_device.numpy(), np.float32(rate.at(step)), rtol=2e-7)
