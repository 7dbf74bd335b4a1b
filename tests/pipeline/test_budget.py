"""Buffers keep to the memory there is, and say so when they are cut."""

from __future__ import annotations

from myxtts.pipeline.budget import fit_buffers

MB, GB = 2**20, 2**30


def test_what_fits_is_kept_without_a_word() -> None:
    sizes = fit_buffers(50, 2, 10 * MB, 16 * GB, None, 8 * GB)
    assert (sizes.in_memory, sizes.on_device, sizes.messages) == (50, 2, ())


def test_memory_budget_cuts_the_buffer_and_says_so() -> None:
    sizes = fit_buffers(50, 2, 100 * MB, 4 * GB, None, None)
    assert sizes.in_memory == 10
    (message,) = sizes.messages
    assert "buffer_size is 50" in message
    assert "10 are held" in message
    assert "ram_budget_gb" in message


def test_budget_of_the_configuration_replaces_the_share_of_memory() -> None:
    assert fit_buffers(50, 0, 100 * MB, 4 * GB, 8.0, None).in_memory == 50
    assert fit_buffers(50, 0, 100 * MB, 64 * GB, 0.5, None).in_memory == 5


def test_device_memory_cuts_the_prefetch() -> None:
    sizes = fit_buffers(4, 8, 100 * MB, 64 * GB, None, 4 * GB)
    assert sizes.on_device == 4
    assert "prefetch_buffer_size is 8" in sizes.messages[0]


def test_something_is_always_held() -> None:
    sizes = fit_buffers(50, 2, 10 * GB, 1 * GB, None, 1 * GB)
    assert (sizes.in_memory, sizes.on_device) == (2, 1)
    assert fit_buffers(1, 0, 10 * GB, 1 * GB, None, None).in_memory == 1
