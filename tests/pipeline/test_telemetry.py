"""Waits, steps, padding and retraces are summed up as they were, and written line by line."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from myxtts.pipeline import telemetry
from myxtts.pipeline.telemetry import StepRecord, Telemetry
from myxtts.storage.atomic import plan_faults


class Clock:
    """Time that passes when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def run(self, watched: Telemetry, waits: list[float], steps: list[float], **changes: Any) -> None:
        """A consumer that waits and works for so long, batch by batch."""
        for position, (wait_s, step_s) in enumerate(zip(waits, steps, strict=True)):
            asked_at = self.now
            self.now += wait_s
            watched.record(make_step(position, wait_s, **changes), asked_at, self.now)
            self.now += step_s


def make_step(position: int, wait_s: float, **changes: Any) -> StepRecord:
    fields: dict[str, Any] = {
        "load_s": 0.5,
        "stages": {"transfer": 0.25},
        "depth": 4,
        "num_frames": 60,
        "num_padded_frames": 80,
        "num_utterances": 2,
        "shape": "2x40x8",
    }
    return StepRecord(position=position, wait_s=wait_s, **{**fields, **changes})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_utilisation_is_the_share_of_time_without_waiting_and_leaves_the_first_step_out(clock: Clock) -> None:
    watched = Telemetry()
    clock.run(watched, waits=[9.0, 1.0, 0.0, 1.0], steps=[50.0, 3.0, 3.0, 2.0])
    watched.close()
    stats = watched.summarize()
    assert stats.num_batches == 3
    assert stats.au == pytest.approx(1 - 2 / 10)
    assert stats.effective_au == pytest.approx(0.8 * 0.75)
    assert stats.padding == pytest.approx(0.25)
    assert stats.mean_wait_s == pytest.approx(2 / 3)
    assert stats.max_wait_s == 1.0
    assert stats.mean_step_s == pytest.approx(8 / 3)
    assert stats.utterances_per_s == pytest.approx(6 / 10)
    assert stats.mean_stage_s == {"transfer": pytest.approx(0.25)}
    assert stats.step_variation == pytest.approx(statistics.pstdev([4, 3, 3]) / statistics.fmean([4, 3, 3]))


def test_waiting_for_a_busy_device_is_no_copying(clock: Clock) -> None:
    watched = Telemetry(is_copied=True)
    for position, (seconds, num_padded_frames) in enumerate([(0.002, 100), (0.050, 100), (0.104, 200)]):
        step = make_step(position, 0.0, stages={"transfer": seconds}, num_padded_frames=num_padded_frames)
        watched.record(step, clock.now, clock.now)
        clock.now += 1
    watched.close()
    stages = watched.summarize().mean_stage_s
    # The first copy found an idle device; the others would have taken 2 and 4 ms.
    assert stages == {"transfer": pytest.approx(0.003), "transfer_wait": pytest.approx((0.048 + 0.1) / 2)}


def test_interval_runs_from_batch_to_batch(clock: Clock) -> None:
    watched = Telemetry()
    intervals = []
    for _ in range(3):
        asked_at = clock.now
        clock.now += 0.5
        intervals.append(watched.record(make_step(0, 0.5), asked_at, clock.now))
        clock.now += 2.0
    assert intervals == [0.0, 2.5, 2.5]


def test_retraces_and_shapes_are_counted(clock: Clock) -> None:
    watched = Telemetry()
    clock.run(watched, [0.0], [1.0])
    watched.record(make_step(1, 0.0, shape="2x80x8"), clock.now, clock.now, is_retraced_before=True)
    clock.run(watched, [0.0], [1.0], shape="2x80x8")
    watched.close()
    assert (watched.summarize().num_retraces, watched.summarize().num_shapes) == (1, 2)


def test_every_step_is_a_line_that_can_be_read_while_the_run_goes_on(clock: Clock, tmp_path: Path) -> None:
    path = tmp_path / "telemetry.jsonl"
    watched = Telemetry(path)
    clock.run(watched, [0.0, 0.25, 0.0], [1.0, 2.0, 3.0])
    seen = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(line["position"], line["wait_s"], line["step_s"]) for line in seen] == [(0, 0.0, 1.0), (1, 0.25, 2.0)]
    watched.close()
    last = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    assert (last["position"], last["step_s"], last["shape"], last["is_retraced"]) == (2, 3.0, "2x40x8", False)


def test_nothing_recorded_is_no_error() -> None:
    assert Telemetry().summarize().au == 0.0


def test_full_disk_is_said_once_and_stops_nothing(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no device that is always full")
    said: list[str] = []
    monkeypatch.setattr(telemetry, "open_output", lambda _path, append: open("/dev/full", "ab"))  # noqa: PTH123, SIM115
    watched = Telemetry(tmp_path / "lines.jsonl", say=said.append)
    clock.run(watched, [0.0] * 5, [1.0] * 5)
    watched.close()
    assert watched.summarize().num_batches == 4
    assert len(said) == 1
    assert "lines.jsonl" in said[0]


def write_lines(path: Path, *lines: str) -> bytes:
    path.write_text("".join(lines), encoding="utf-8")
    return path.read_bytes()


def test_lines_of_batches_that_are_loaded_again_leave_the_file(clock: Clock, tmp_path: Path) -> None:
    path = tmp_path / "telemetry.jsonl"
    # Positions 2 and 3 were done twice before, and a kill cut the last line short.
    written = [f'{{"position": {position}, "wait_s": 0.5}}\n' for position in (0, 1, 2, 3, 2, 3, 4)]
    write_lines(path, *written, '{"position": 1, "wa')
    watched = Telemetry(path, start=2)
    assert path.read_text(encoding="utf-8") == "".join(written[:2])
    watched.record(make_step(2, 0.25), 0.0, 0.25)
    watched.close()
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(line["position"], line["wait_s"]) for line in lines] == [(0, 0.5), (1, 0.5), (2, 0.25)]


def test_a_file_with_nothing_to_drop_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.jsonl"
    before = write_lines(path, '{"position": 0}\n', '{"position": 1}\n')
    number = path.stat().st_ino
    Telemetry(path, start=2).close()
    assert (path.read_bytes(), path.stat().st_ino) == (before, number)


def test_a_last_line_without_its_end_is_dropped_so_that_the_next_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.jsonl"
    write_lines(path, '{"position": 0}\n', '{"position": 1}')
    Telemetry(path, start=2).close()
    assert path.read_text(encoding="utf-8") == '{"position": 0}\n'


def test_a_disk_that_refuses_keeps_the_lines_and_is_said(tmp_path: Path) -> None:
    path, said = tmp_path / "telemetry.jsonl", list[str]()
    before = write_lines(path, '{"position": 7}\n')
    plan_faults("fsync:1:ENOSPC")
    try:
        Telemetry(path, say=said.append, start=3).close()
    finally:
        plan_faults("")
    assert path.read_bytes() == before
    assert len(said) == 1
    assert "keeps lines" in said[0]
