"""The watch as a whole: its times, its summary, and the run that it chooses."""

from __future__ import annotations

import json
import math
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.runtime.fake_nvml import FakeNvml
from tests.tools.fake_watch import FakeClock, add_lines, make_busy_gpus, make_steps, play_watch, take_run

from myxtts.tools.monitor.sample import Sampler
from myxtts.tools.monitor.screen import View
from myxtts.tools.monitor.watch import Monitor, Schedule


class Counter:
    """Looks that were shown, and how long drawing each takes."""

    def __init__(self, clock: FakeClock, drawing_s: float = 0.0) -> None:
        self.times: list[float] = []
        self._clock, self._drawing_s = clock, drawing_s

    def show(self, view: View) -> None:
        self.times.append(round(view.sample.elapsed_s, 6))
        self._clock.sleep(self._drawing_s)


def watch(schedule: Schedule, drawing_s: float = 0.0) -> list[float]:
    clock = FakeClock()
    with Sampler(Path("missing"), nvml=FakeNvml(), clock=clock) as sampler:
        counter = Counter(clock, drawing_s)
        with patch("myxtts.tools.monitor.watch.time.sleep", clock.sleep):
            Monitor(sampler, schedule, clock=clock).watch(counter.show)
    return counter.times


def test_looks_come_at_the_interval_until_the_time_is_up() -> None:
    assert watch(Schedule(interval_s=2.0, duration_s=7.0)) == pytest.approx([0.2, 2.2, 4.2, 6.2, 7.0])
    assert watch(Schedule(interval_s=2.0, duration_s=7.0), drawing_s=0.5) == pytest.approx([0.2, 2.2, 4.2, 6.2, 7.0])
    assert watch(Schedule(interval_s=0.1, duration_s=0.3)) == pytest.approx([0.1, 0.2, 0.3])


def test_a_look_that_takes_longer_than_the_interval_is_not_made_up_for() -> None:
    assert watch(Schedule(interval_s=1.0, duration_s=7.0), drawing_s=2.5) == pytest.approx([0.2, 2.7, 5.2])


def test_once_is_one_look() -> None:
    assert watch(Schedule(is_once=True)) == pytest.approx([0.2])


def test_ten_minutes_at_the_default_interval_are_301_looks() -> None:
    assert len(watch(Schedule(duration_s=600))) == 301


def test_summary_is_plain_json_with_means_extremes_and_the_last_state(tmp_path: Path) -> None:
    gpus = make_busy_gpus(2)

    def change(number: int) -> None:
        gpus[0].utilization_percent = 90 + number

    summary = play_watch(tmp_path / "voice", FakeNvml(gpus), 4, change=change).summarize()
    assert json.loads(json.dumps(summary, allow_nan=False)) == json.loads(json.dumps(summary))
    assert summary["num_samples"] == 4
    assert summary["seconds"] == 8
    assert summary["gpus"][0]["utilization_percent"] == {"mean": 91.5, "min": 90, "max": 93, "last": 93}
    assert summary["gpus"][1]["name"] == "NVIDIA GeForce RTX 4090"
    assert len(summary["gpus"][1]["processes"]) == 2
    assert summary["run"]["state"] == "running"
    assert summary["run"]["au"]["mean"] == pytest.approx(0.99, abs=0.001)
    assert summary["run"]["step"] == 80
    assert summary["warnings"] == []
    assert summary["host"]["num_cpus"] >= 1


def test_a_watch_without_a_single_look_has_a_summary() -> None:
    with Sampler(Path("missing"), nvml=FakeNvml()) as sampler:
        assert Monitor(sampler).summarize()["num_samples"] == 0


def test_without_a_name_the_newest_run_is_followed_to_its_end_and_then_the_next(tmp_path: Path) -> None:
    clock, runs = FakeClock(), tmp_path / "runs"
    with Sampler(nvml=FakeNvml(), runs_folder=runs, clock=clock) as sampler:
        assert sampler.take().run is None
        take_run(runs / "first")
        add_lines(runs / "first" / "telemetry.jsonl", make_steps(0, 20))
        clock.sleep(6)
        reading = sampler.take().run
        assert reading is not None
        assert (Path(reading.path).name, reading.state) == ("first", "running")
        # Another run begins meanwhile, but this one still goes on.
        take_run(runs / "second")
        add_lines(runs / "second" / "telemetry.jsonl", make_steps(0, 20))
        clock.sleep(6)
        reading = sampler.take().run
        assert reading is not None
        assert Path(reading.path).name == "first"
        take_run(runs / "first", pid=2**22 + 1)
        (runs / "second" / ".lock").touch()
        clock.sleep(40)
        sampler.take()
        clock.sleep(6)
        reading = sampler.take().run
        assert reading is not None
        assert Path(reading.path).name == "second"


def test_means_of_a_run_that_has_ended_are_shown_but_not_drawn_on(tmp_path: Path) -> None:
    take_run(tmp_path, pid=2**22 + 1)
    add_lines(tmp_path / "telemetry.jsonl", make_steps(0, 50))
    with Sampler(tmp_path, nvml=FakeNvml()) as sampler:
        sample = sampler.take()
        monitor = Monitor(sampler)
        monitor.look()
    assert sample.run is not None
    assert sample.run.state == "ended"
    assert sample.run.au is not None
    assert sample.to_row()["au"] is None
    assert math.isnan(monitor.history.get_recent("au", 1)[0])
    assert monitor.summarize()["run"]["last"]["au"] == pytest.approx(sample.run.au)
