"""Tuning helps a starved feed, leaves a fed one alone, and never ends on settings that were worse."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from myxtts.pipeline.tune import FeedSettings, Limits, Tuner

START = FeedSettings(num_workers=1, buffer_size=8)
LIMITS = Limits(max_workers=4, max_buffer_size=64)


def run_tuner(wait_of: Callable[[FeedSettings, int], float], num_steps: int = 500, depth: int = 0) -> Tuner:
    tuner = Tuner(START, LIMITS)
    for step in range(num_steps):
        tuner.observe(wait_of(tuner.settings, step), 0.02, depth)
    return tuner


def test_slow_producer_gets_threads_until_nobody_waits() -> None:
    tuner = run_tuner(lambda settings, _step: max(0.0, 0.018 - 0.006 * settings.num_workers))
    assert tuner.settings == FeedSettings(3, 8)
    assert tuner.is_held
    assert "1 → 3" in tuner.describe()


def test_bursts_get_a_deeper_buffer() -> None:
    def wait(settings: FeedSettings, step: int) -> float:
        return 0.05 * 8 / settings.buffer_size**1.5 if step % 19 == 0 else 0.0

    assert run_tuner(wait, depth=20).settings.buffer_size > 8
    # With a buffer that is empty anyway a deeper one would not help.
    assert run_tuner(wait, depth=0).history[1][0].num_workers == 2


def test_well_fed_run_is_left_alone() -> None:
    tuner = run_tuner(lambda _settings, _step: 0.00001)
    assert tuner.settings == START
    assert "kept" in tuner.describe()


def test_change_that_does_not_help_is_taken_back() -> None:
    tuner = run_tuner(lambda _settings, _step: 0.01)
    assert tuner.settings == START
    assert tuner.is_held


def test_consumer_that_only_waits_gets_threads_as_long_as_they_shorten_the_wait() -> None:
    tuner = Tuner(START, LIMITS)
    for _ in range(500):
        wait_s = 0.02 / min(tuner.settings.num_workers, 2)
        tuner.observe(wait_s, wait_s, 0)
    assert tuner.settings.num_workers == 2


def test_nothing_changes_once_held() -> None:
    tuner = run_tuner(lambda _settings, _step: 0.01)
    assert all(tuner.observe(0.02, 0.02, 0) is None for _ in range(200))


@given(waits=st.lists(st.floats(0, 0.02), min_size=300, max_size=300))
def test_limits_are_kept_and_tuning_ends(waits: list[float]) -> None:
    tuner = Tuner(START, LIMITS)
    for wait in waits:
        tuner.observe(wait, 0.02, 3)
        assert 1 <= tuner.settings.num_workers <= LIMITS.max_workers
        assert 8 <= tuner.settings.buffer_size <= LIMITS.max_buffer_size
    assert tuner.is_held
