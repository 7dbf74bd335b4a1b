"""Buffers keep to the memory there is, and say so when they are cut."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from myxtts.pipeline.tune import BufferSizes, FeedSettings, Tuner, fit_buffers, fit_on_device, measure_ram_budget

MB, GB = 2**20, 2**30


def test_what_fits_is_kept_without_a_word() -> None:
    sizes = fit_buffers(50, 2, 10 * MB, measure_ram_budget(16 * GB, None), 8 * GB)
    assert (sizes.in_memory, sizes.on_device, sizes.messages) == (50, 2, ())


def test_memory_budget_cuts_the_buffer_and_says_so() -> None:
    sizes = fit_buffers(50, 2, 100 * MB, measure_ram_budget(4 * GB, None), None)
    # One more is being copied.
    assert sizes.in_memory == 9
    (message,) = sizes.messages
    assert "buffer_size is 50" in message
    assert "9 are held" in message
    assert "ram_budget_gb" in message


def test_budget_of_the_configuration_replaces_the_share_of_memory() -> None:
    assert fit_buffers(50, 0, 100 * MB, measure_ram_budget(4 * GB, 8.0), None).in_memory == 50
    assert fit_buffers(50, 0, 100 * MB, measure_ram_budget(64 * GB, 0.5), None).in_memory == 4


def test_device_memory_cuts_the_prefetch() -> None:
    sizes = fit_buffers(4, 8, 100 * MB, measure_ram_budget(64 * GB, None), 4 * GB)
    assert (sizes.on_device, sizes.num_copies) == (3, 1)
    assert "prefetch_buffer_size is 8" in sizes.messages[0]
    assert "holds 4, with those that are being copied: 3 wait" in sizes.messages[0]


def test_batches_that_are_being_copied_count_in_both_memories() -> None:
    roomy = measure_ram_budget(64 * GB, None)
    assert fit_buffers(4, 2, 100 * MB, roomy, 8 * GB, 3) == BufferSizes(4, 2, 3, ())
    # The device has room for four: copies are reduced before the batches that wait.
    assert fit_buffers(4, 2, 100 * MB, roomy, 4 * GB, 3) == BufferSizes(4, 2, 2, ())
    least = fit_buffers(4, 2, 100 * MB, roomy, 1 * GB, 3)
    assert (least.on_device, least.num_copies) == (1, 1)
    # Without prefetch the consumer copies one batch at a time.
    assert fit_buffers(4, 0, 100 * MB, roomy, 8 * GB, 3) == BufferSizes(4, 0, 1, ())
    # The host has room for ten.
    assert fit_buffers(50, 2, 100 * MB, 1000 * MB, None, 3).in_memory == 7


def test_something_is_always_held() -> None:
    sizes = fit_buffers(50, 2, 10 * GB, measure_ram_budget(1 * GB, None), 1 * GB)
    assert (sizes.in_memory, sizes.on_device) == (2, 1)
    assert fit_buffers(1, 0, 10 * GB, measure_ram_budget(1 * GB, None), None).in_memory == 1


def test_batches_on_their_way_from_a_data_device_count_there() -> None:
    assert fit_on_device(50, 100 * MB, None, 5) == 50
    assert fit_on_device(50, 100 * MB, 20 * GB, 5) == 15
    assert fit_on_device(8, 100 * MB, 20 * GB, 5) == 8
    assert fit_on_device(8, 100 * MB, 1 * GB, 5) == 1


START = FeedSettings(num_workers=1, buffer_size=8)
LIMITS = FeedSettings(num_workers=4, buffer_size=64)


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
        assert 1 <= tuner.settings.num_workers <= LIMITS.num_workers
        assert 8 <= tuner.settings.buffer_size <= LIMITS.buffer_size
    assert tuner.is_held
