"""What a watch warns of, and what it stays silent about."""

from __future__ import annotations

import math
from pathlib import Path

import pynvml
import pytest
from tests.runtime.fake_nvml import FakeNvml
from tests.tools.fake_watch import make_busy_gpus, play_watch

from myxtts.tools.monitor.alerts import Alert, describe_alert
from myxtts.tools.monitor.watch import Monitor
from myxtts.tools.words import Translator


def list_found(monitor: Monitor) -> set[tuple[str, int | None]]:
    return {(record.alert.key, record.alert.gpu) for record in monitor.book.records}


def test_a_healthy_training_is_not_warned_of(tmp_path: Path) -> None:
    gpus = make_busy_gpus(2)
    for gpu in gpus:
        # What a busy card always does.
        gpu.throttle_reasons = pynvml.nvmlClocksEventReasonSwPowerCap
    assert list_found(play_watch(tmp_path, FakeNvml(gpus), 40)) == set()


def test_a_run_that_waits_for_data_is_starved(tmp_path: Path) -> None:
    monitor = play_watch(tmp_path, FakeNvml(), 5, wait_s=lambda _step: 0.1)
    assert list_found(monitor) == {("run_starved", None)}
    (record,) = monitor.book.records
    assert record.alert.numbers["wait_share"] == pytest.approx(0.5, abs=0.01)
    assert (record.num_samples, record.first_s, record.last_s) == (5, 2.0, 10.0)


def test_a_gpu_that_is_idle_between_kernels_is_not_blamed_on_the_data(tmp_path: Path) -> None:
    monitor = play_watch(tmp_path, FakeNvml(), 5, device_busy=0.3, wall_share=0.95)
    assert list_found(monitor) == {("gpu_gaps", None)}
    assert "30 %" in describe_alert(monitor.book.records[0].alert, Translator())


def test_checkpoints_that_take_most_of_the_time_are_warned_of(tmp_path: Path) -> None:
    assert list_found(play_watch(tmp_path, FakeNvml(), 5, wall_share=0.4)) == {("run_pauses", None)}


def test_full_utilisation_at_little_power_is_no_full_use(tmp_path: Path) -> None:
    gpus = make_busy_gpus(2)
    gpus[1].power_w = 0.25 * gpus[1].power_limit_w
    monitor = play_watch(tmp_path, FakeNvml(gpus), 20)
    assert list_found(monitor) == {("gpu_hollow", 1)}
    assert monitor.book.records[0].alert.numbers["power_share"] == pytest.approx(0.25)


def test_bursts_are_oscillation_with_their_period(tmp_path: Path) -> None:
    monitor = play_watch(tmp_path, FakeNvml(), 20, wait_s=lambda step: 0.15 if step % 16 == 0 else 0.0)
    assert ("run_swings", None) in list_found(monitor)
    found = [record.alert for record in monitor.book.records if record.alert.key == "run_swings"]
    assert found[0].numbers["period_count"] == 16
    assert ("run_starved", None) not in list_found(monitor)


def test_steps_that_differ_without_waiting_are_not_blamed_on_the_data(tmp_path: Path) -> None:
    monitor = play_watch(tmp_path, FakeNvml(), 20, step_s=lambda step: 0.3 if step % 4 == 0 else 0.1)
    assert list_found(monitor) == {("run_steps_differ", None)}


def test_two_batch_shapes_of_different_length_are_no_oscillation(tmp_path: Path) -> None:
    """A healthy run: long and short batches alternate, and each shape takes its own time."""
    monitor = play_watch(
        tmp_path,
        FakeNvml(),
        20,
        wait_s=lambda step: 0.004 if step % 2 else 0.002,
        step_s=lambda step: (0.3 if step % 2 else 0.1) + 0.002 * math.sin(step),
        shape=lambda step: ("16x900x180", 14400) if step % 2 else ("16x300x60", 4800),
    )
    assert list_found(monitor) == set()
    run = monitor.summarize()["run"]
    assert run["last"]["variation"] < 0.1


def test_bursts_are_seen_beside_two_shapes(tmp_path: Path) -> None:
    monitor = play_watch(
        tmp_path,
        FakeNvml(),
        20,
        wait_s=lambda step: 0.3 if step % 16 == 0 else 0.0,
        step_s=lambda step: 0.3 if step % 2 else 0.1,
        shape=lambda step: ("16x900x180", 14400) if step % 2 else ("16x300x60", 4800),
    )
    assert ("run_swings", None) in list_found(monitor)


def test_gradient_accumulation_is_no_oscillation(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("training:\n  gradient_accumulation_steps: 4\n")
    monitor = play_watch(tmp_path, FakeNvml(), 20, step_s=lambda step: 0.4 if step % 4 == 3 else 0.0001)
    assert list_found(monitor) == set()


def test_a_gpu_between_2_and_40_percent_swings(tmp_path: Path) -> None:
    gpus = make_busy_gpus(2)

    def swing(number: int) -> None:
        gpus[0].utilization_percent = 2 if number % 4 < 2 else 40

    assert list_found(play_watch(tmp_path, FakeNvml(gpus), 12, change=swing)) == {("gpu_swings", 0)}


@pytest.mark.parametrize(("wait_s", "key"), [(0.0, "gpu_underused"), (0.5, "gpu_idle")])
def test_a_gpu_at_10_percent_is_starved_or_has_too_little_to_do(tmp_path: Path, wait_s: float, key: str) -> None:
    gpus = make_busy_gpus(1)
    gpus[0].utilization_percent = 10
    monitor = play_watch(tmp_path, FakeNvml(gpus), 12, wait_s=lambda _step: wait_s)
    assert (key, 0) in list_found(monitor)


def test_a_gpu_that_nobody_uses_may_idle(tmp_path: Path) -> None:
    gpus = make_busy_gpus(1)
    gpus[0].utilization_percent, gpus[0].processes = 0, ()
    assert list_found(play_watch(tmp_path, FakeNvml(gpus), 12)) == set()


def test_throttling_is_named_in_words(tmp_path: Path) -> None:
    gpus = make_busy_gpus(1)
    gpus[0].throttle_reasons = (
        pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown | 1
    )
    gpus[0].sm_clock_mhz = 900
    (record,) = play_watch(tmp_path, FakeNvml(gpus), 1).book.records
    sentence = describe_alert(record.alert, Translator())
    assert sentence == ("GPU 0 is throttled: its power limit is reached, the power supply limits it (power brake).")


def test_nearly_full_memory_is_told_of_in_time(tmp_path: Path) -> None:
    gpus = make_busy_gpus(1)

    def fill(number: int) -> None:
        gpus[0].used_memory_bytes = round(gpus[0].memory_bytes * (0.94 if number == 0 else 0.96))

    monitor = play_watch(tmp_path, FakeNvml(gpus), 2, change=fill)
    assert list_found(monitor) == {("gpu_memory_full", 0)}
    assert monitor.book.records[0].num_samples == 1


def test_a_gpu_that_is_lost_on_the_way_is_told_of(tmp_path: Path) -> None:
    gpus = make_busy_gpus(8)

    def lose(number: int) -> None:
        gpus[5].lost = number >= 2

    monitor = play_watch(tmp_path, FakeNvml(gpus), 4, change=lose)
    assert list_found(monitor) == {("gpu_lost", 5)}
    summary = monitor.summarize()
    assert summary["gpus"][5]["problem"] == "lost"
    assert summary["gpus"][5]["utilization_percent"]["mean"] == 92
    assert summary["warnings"][0]["kind"] == "lost"


def test_an_alert_is_told_in_both_languages() -> None:
    alert = Alert("starvation", "run_starved", numbers={"wait_share": 0.256, "wait_ms": 12.34, "depth": 0.5})
    assert "26 %" in describe_alert(alert, Translator("en"))
    assert "۲۶٪" in describe_alert(alert, Translator("fa"))
