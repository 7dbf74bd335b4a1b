"""Rates of a line of metrics: by the time of steps, by the wall clock, and by the busy time of a GPU."""

from __future__ import annotations

import time

import pytest

from myxtts.training.loop import StepWindow
from myxtts.training.step import StepNumbers


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> StepWindow:
    """Four steps of one second, half a second of it waiting, and four seconds of validation and checkpoints."""
    window = StepWindow(started_at=100.0)
    for _ in range(4):
        window.add_time(1.0, 0.5)
        window.add_numbers(StepNumbers(2.0, {}, 1.0, 8.0, True))
    monkeypatch.setattr(time, "perf_counter", lambda: 108.0)
    return window


def test_checkpoints_count_by_the_wall_clock_only(window: StepWindow) -> None:
    rates = window.measure_rates()
    assert (rates["seconds"], rates["wall_seconds"]) == (1.0, 2.0)
    assert (rates["utterances_per_s"], rates["wall_utterances_per_s"]) == (8.0, 4.0)
    assert (rates["au"], rates["wall_share"], rates["wall_au"]) == (0.5, 0.5, 0.25)
    assert "device_busy" not in rates


def test_the_busy_time_of_a_gpu_is_its_utilisation(window: StepWindow) -> None:
    rates = window.measure_rates(device_busy=0.2)
    assert rates["au"] == rates["device_busy"] == 0.2
    assert rates["not_waiting"] == 0.5
    assert rates["wall_au"] == pytest.approx(0.1)
