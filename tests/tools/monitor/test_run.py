"""Following a run from outside: what is measured, what state it is in, and files that are treated badly."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tools.fake_watch import FakeClock, add_lines, make_steps, take_run

from myxtts.config.load import write_resolved
from myxtts.config.schema import XTTSConfig
from myxtts.pipeline.telemetry import StepRecord, Telemetry
from myxtts.storage.atomic import lock_directory
from myxtts.storage.json_file import JsonTail
from myxtts.tools.monitor.run import RunFollower, find_newest_run
from myxtts.tools.rhythm import Oscillation, find_recent_oscillation

Follow = Callable[..., RunFollower]
TailOf = Callable[[Path], JsonTail]


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def follow(opened: ExitStack) -> Follow:
    def open_follower(path: Path, clock: Callable[[], float] = time.monotonic) -> RunFollower:
        return opened.enter_context(closing(RunFollower(path, clock)))

    return open_follower


@pytest.fixture
def tail_of(opened: ExitStack) -> TailOf:
    return lambda path: opened.enter_context(closing(JsonTail(path)))


def find_dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_tail_gives_each_line_once_and_waits_for_the_rest_of_a_line(tmp_path: Path, tail_of: TailOf) -> None:
    path = tmp_path / "lines.jsonl"
    tail = tail_of(path)
    assert tail.read() == []
    path.write_text('{"a": 1}\n{"a": 2}\n{"a"')
    assert tail.read() == [{"a": 1}, {"a": 2}]
    assert tail.read() == []
    with path.open("a") as file:
        file.write(': 3}\nnonsense\n[4]\n{"a": 5}\n')
    assert tail.read() == [{"a": 3}, {"a": 5}]


@given(st.lists(st.integers(1, 30), max_size=40), st.randoms())
def test_tail_gives_all_lines_however_they_are_cut(cuts: list[int], source: random.Random) -> None:
    lines = [{"position": number, "text": "é" * source.randrange(5)} for number in range(20)]
    content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines.jsonl"
        tail, found = JsonTail(path), []
        with path.open("ab", buffering=0) as file:
            for length in [*cuts, len(content)]:
                file.write(content[:length])
                content = content[length:]
                found += tail.read()
        tail.close()
    assert found == lines


def test_tail_starts_anew_where_a_file_is_cut_or_replaced(tmp_path: Path, tail_of: TailOf) -> None:
    path = tmp_path / "lines.jsonl"
    tail = tail_of(path)
    path.write_text('{"a": 1}\n' * 5)
    assert (len(tail.read()), tail.was_replaced) == (5, False)
    path.write_text('{"a": 2}\n')
    assert (tail.read(), tail.was_replaced) == ([{"a": 2}], True)
    other = tmp_path / "other"
    other.write_text('{"a": 3}\n' * 9)
    other.replace(path)
    assert (tail.read(), tail.was_replaced) == ([{"a": 3}] * 9, True)
    path.unlink()
    assert tail.read() == []
    path.write_text('{"a": 4}\n')
    assert tail.read() == [{"a": 4}]


def test_tail_of_a_long_file_is_its_end(tmp_path: Path, tail_of: TailOf) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps({"number": number}) + "\n" for number in range(40_000)))
    numbers = [line["number"] for line in tail_of(path).read()]
    assert 10_000 < len(numbers) < 30_000
    assert numbers == list(range(40_000 - len(numbers), 40_000))


def test_tail_does_not_collect_a_line_without_an_end(tmp_path: Path, tail_of: TailOf) -> None:
    path = tmp_path / "lines.jsonl"
    tail = tail_of(path)
    with path.open("a") as file:
        for _ in range(20):
            file.write("x" * 200_000)
            file.flush()
            assert tail.read() == []
        assert len(tail._rest) <= 1_300_000
        file.write('\n{"a": 1}\n')
    assert tail.read() == [{"a": 1}]


def test_means_are_those_of_the_last_ten_seconds(tmp_path: Path, follow: Follow) -> None:
    take_run(tmp_path)
    add_lines(tmp_path / "telemetry.jsonl", make_steps(0, 1, step_s=30.0))
    add_lines(tmp_path / "telemetry.jsonl", make_steps(1, 100, wait_s=0.9, step_s=0.1))
    add_lines(tmp_path / "telemetry.jsonl", make_steps(101, 100, wait_s=0.05, step_s=0.15, depth=12))
    add_lines(tmp_path / "metrics.jsonl", [{"step": 200, "loss": 1.25, "epoch": 2.5}, {"step": 201, "samples": 3}])
    reading = follow(tmp_path).read()
    assert reading.state == "running"
    assert (reading.position, reading.step, reading.loss, reading.epoch) == (200, 200, 1.25, 2.5)
    assert reading.num_new_steps == 201
    assert reading.au == pytest.approx(0.75)
    assert reading.wait_s == pytest.approx(0.05)
    assert reading.step_s == pytest.approx(0.15)
    assert reading.depth == pytest.approx(12)
    assert reading.utterances_per_s == pytest.approx(80)
    assert reading.batches_per_s == pytest.approx(5)
    assert reading.padding == pytest.approx(1 - 7000 / 7600)


def test_a_run_is_followed_from_before_it_starts_to_its_end(tmp_path: Path, follow: Follow) -> None:
    clock, run = FakeClock(), tmp_path / "runs" / "late"
    follower = follow(run, clock)
    assert follower.read().state == "absent"
    training = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        take_run(run, training.pid)
        assert follower.read().state == "starting"
        add_lines(run / "telemetry.jsonl", make_steps(0, 10))
        assert follower.read().state == "running"
        clock.sleep(20)
        assert follower.read().state == "running"
        clock.sleep(40)
        stalled = follower.read()
        assert stalled.state == "stalled"
        assert stalled.idle_s == pytest.approx(60, abs=1)
        add_lines(run / "telemetry.jsonl", make_steps(10, 1))
        assert follower.read().state == "running"
    finally:
        training.communicate(b"\n")
    ended = follower.read()
    assert ended.state == "ended"
    assert ended.au is not None


def test_what_a_training_itself_writes_is_understood(tmp_path: Path, follow: Follow) -> None:
    """The lock and the telemetry by the very code that trains."""
    follower = follow(tmp_path)
    with lock_directory(tmp_path, "training"):
        assert follower.read().state == "starting"
        telemetry = Telemetry(tmp_path / "telemetry.jsonl")
        for position in range(11):
            step = StepRecord(position, 0.25, 0.01, {"transfer": 0.001}, 7, 900, 1000, 16, "16x1x1")
            telemetry.record(step, asked_at=position, handed_at=position + 0.25)
        reading = follower.read()
        assert (reading.state, reading.num_new_steps, reading.position) == ("running", 10, 9)
        assert (reading.au, reading.depth, reading.utterances_per_s) == pytest.approx((0.75, 7, 16))
        assert reading.padding == pytest.approx(0.1)
        telemetry.close()


def test_a_run_that_ended_before_is_seen_as_ended_at_the_first_look(tmp_path: Path, follow: Follow) -> None:
    take_run(tmp_path, find_dead_pid())
    assert follow(tmp_path).read().state == "ended"
    add_lines(tmp_path / "telemetry.jsonl", make_steps(0, 50))
    assert follow(tmp_path).read().state == "ended"


def test_a_run_of_another_machine_is_running_while_its_file_grows(tmp_path: Path, follow: Follow) -> None:
    clock = FakeClock()
    take_run(tmp_path, find_dead_pid())
    add_lines(tmp_path / "telemetry.jsonl", make_steps(0, 50))
    follower = follow(tmp_path, clock)
    assert follower.read().state == "ended"
    add_lines(tmp_path / "telemetry.jsonl", make_steps(50, 1))
    assert follower.read().state == "running"
    clock.sleep(31)
    assert follower.read().state == "ended"


def test_a_process_with_the_number_of_an_old_training_is_not_that_training(tmp_path: Path, follow: Follow) -> None:
    take_run(tmp_path)
    os.utime(tmp_path / ".lock", (1e9, 1e9))
    add_lines(tmp_path / "telemetry.jsonl", make_steps(0, 50))
    assert follow(tmp_path).read().state == "ended"


def test_a_resumed_session_starts_its_means_anew(tmp_path: Path, follow: Follow) -> None:
    """It takes the lock, rewrites the telemetry without the steps that it does again, and goes on."""
    take_run(tmp_path, find_dead_pid())
    path = tmp_path / "telemetry.jsonl"
    add_lines(path, make_steps(0, 100, wait_s=0.1, step_s=0.1))
    follower = follow(tmp_path)
    assert follower.read().au == pytest.approx(0.5)
    take_run(tmp_path)
    add_lines(tmp_path / "kept", make_steps(0, 60, wait_s=0.1, step_s=0.1))
    (tmp_path / "kept").replace(path)
    reading = follower.read()
    assert (reading.num_new_steps, reading.position, reading.au) == (0, 59, None)
    add_lines(path, make_steps(60, 1, wait_s=5.0, step_s=30.0))
    add_lines(path, make_steps(61, 20, wait_s=0.0, step_s=0.1))
    reading = follower.read()
    assert (reading.num_new_steps, reading.position) == (21, 80)
    assert reading.au == 1.0


@pytest.mark.parametrize(
    "line", [{"position": "x"}, {"position": 5, "wait_s": None, "step_s": 1.0}, {"position": 5, "wait_s": float("nan")}]
)
def test_lines_that_are_no_steps_are_left_out(tmp_path: Path, follow: Follow, line: dict[str, Any]) -> None:
    add_lines(tmp_path / "telemetry.jsonl", [*make_steps(0, 3), line])
    assert follow(tmp_path).read().num_new_steps == 3


def test_the_newest_run_is_the_one_written_to_last(tmp_path: Path) -> None:
    assert find_newest_run(tmp_path / "missing") is None
    for number, name in enumerate(("old", "new", "middle")):
        add_lines(tmp_path / name / "telemetry.jsonl", make_steps(0, 1))
        when = 1e9 + (100 if name == "new" else number)
        os.utime(tmp_path / name / "telemetry.jsonl", (when, when))
    (tmp_path / "no run").mkdir()
    (tmp_path / "file").write_text("")
    assert find_newest_run(tmp_path) == tmp_path / "new"


def find(steps: list[tuple[float, float]]) -> Oscillation:
    found = find_recent_oscillation([(*step, 7600) for step in steps])
    assert found is not None
    return found


def test_even_steps_have_no_period_and_bursts_have_theirs() -> None:
    generator = random.Random(0)
    even = [(0.001, 0.1 + generator.gauss(0, 0.005)) for _ in range(300)]
    assert find(even).variation == pytest.approx(0.05, abs=0.02)
    assert find(even).period_steps is None
    for period in (4, 10, 50):
        bursts = [(0.4 if number % period == 0 else 0.001, step_s) for number, (_, step_s) in enumerate(even)]
        assert find(bursts).period_steps == period
    noise = [(generator.expovariate(10), 0.05) for _ in range(300)]
    assert find(noise).period_steps is None
    assert find_recent_oscillation([(*step, 7600) for step in even[:10]]) is None


def test_a_pause_for_validation_is_no_oscillation() -> None:
    steps = [(0.001, 60.0 if number % 100 == 99 else 0.1) for number in range(500)]
    assert find(steps).variation < 0.2


def test_with_gradient_accumulation_times_are_of_steps(tmp_path: Path) -> None:
    write_resolved(XTTSConfig(train_data="corpus", gradient_accumulation_steps=4), tmp_path)
    lines = [step | {"step_s": 0.4 if step["position"] % 4 == 3 else 0.0} for step in make_steps(0, 81, wait_s=0.01)]
    add_lines(tmp_path / "telemetry.jsonl", lines)
    take_run(tmp_path)
    follower = RunFollower(tmp_path)
    reading = follower.read()
    follower.close()
    assert reading.step_s == pytest.approx(0.4)
    assert reading.wait_s == pytest.approx(0.04)
    assert reading.utterances_per_s == pytest.approx(4 * 16 / 0.44)


def test_the_speed_of_an_ended_run_is_that_of_its_steps_and_not_of_its_last_validation(
    tmp_path: Path, follow: Follow
) -> None:
    steps = [{"position": place, "wait_s": 0.0, "step_s": 0.2, "num_utterances": 8} for place in range(41)]
    steps[-1]["step_s"] = 9.0
    add_lines(tmp_path / "telemetry.jsonl", steps)
    add_lines(tmp_path / "metrics.jsonl", [{"step": 41, "loss": 1.0}, {"step": 41, "watch_seconds": 8.8}])
    (tmp_path / ".lock").write_text(f"process {find_dead_pid()} (training)")
    reading = follow(tmp_path).read()
    assert reading.state == "ended"
    assert reading.step_s == pytest.approx(0.2)
    assert reading.utterances_per_s == pytest.approx(40.0)
