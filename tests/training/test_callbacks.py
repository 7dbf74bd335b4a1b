"""What a person sees of a training, on a terminal and without one, and the rates of a line of metrics."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest

from myxtts.training import callbacks as progress
from myxtts.training.callbacks import ProgressDisplay, StepWindow, format_duration
from myxtts.training.step import StepNumbers


def make_record(seconds: float) -> dict[str, Any]:
    rates = {"utterances_per_s": 8 / seconds, "au": 0.99, "data_wait_s": 0.002, "wall_share": 0.9}
    return {"loss": 1.5, **rates, "seconds": seconds}


def show(monkeypatch: pytest.MonkeyPatch, records: list[tuple[int, float]], total_steps: int | None) -> list[str]:
    """The lines of a session with records at these steps."""
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.0)
    stream = StringIO()
    seconds = dict(records)
    with ProgressDisplay(stream) as display:
        for step in range(1, records[-1][0] + 1):
            view: Any = SimpleNamespace(step=step, total_steps=total_steps)
            display.on_step(view, make_record(seconds[step]) if step in seconds else None)
    return stream.getvalue().splitlines()


def test_slow_first_steps_promise_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = show(monkeypatch, [(10, 3.0), (20, 0.5)], 1220)
    detail = "AU 99 % (no data wait), data wait 2 ms, 90 % of the wall clock"
    assert first == f"Step 10 of 1,220: loss 1.500, 2.7 utterances/s, {detail}"
    assert second.endswith(f"{detail}, 10:00 min left")


def test_busy_time_of_a_gpu_is_called_so() -> None:
    stream = StringIO()
    display = ProgressDisplay(stream)
    display._last_line_s = -1e9
    view: Any = SimpleNamespace(step=10, total_steps=100)
    display.on_step(view, {**make_record(0.5), "au": 0.42, "device_busy": 0.42})
    assert "AU 42 % (GPU busy)," in stream.getvalue()


def test_a_run_without_an_end_says_how_long_a_step_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert show(monkeypatch, [(100, 0.25)], None)[-1].endswith("0.25 s/step")


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0:00 min"), (59.6, "1:00 min"), (3599, "59:59 min"), (3660, "1 h 01 min")]
)
def test_durations_are_readable(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


SHOW_BAR = """
import threading, time
from types import SimpleNamespace
from rich.console import Console
from myxtts.training.callbacks import ProgressDisplay
notices = Console(stderr=True, highlight=False)
record = {"loss": 1.5, "utterances_per_s": 8.0, "au": 0.99, "data_wait_s": 0.002, "seconds": 0.1, "wall_share": 0.9}
with ProgressDisplay(say=lambda line: notices.print(line, markup=False, soft_wrap=True)) as display:
    display.say("Message before the bar.")
    for step in range(1, 31):
        display.on_step(SimpleNamespace(step=step, total_steps=30), record)
        if step % 5 == 0:
            display.say(f"Message of step {step} [with brackets], {'long ' * 30}end.")
        if step % 7 == 0:
            threading.Thread(target=display.say, args=(f"Message of a thread at {step}.",)).start()
        time.sleep(0.05)
display.say("Message after the bar.")
"""


def read_terminal(command: list[str]) -> bytes:
    """What a program writes to a terminal of 80 columns."""
    primary, secondary = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    with subprocess.Popen(command, stdin=secondary, stdout=secondary, stderr=secondary, env=environment) as program:
        os.close(secondary)
        output = b""
        try:
            while chunk := os.read(primary, 4096):
                output += chunk
        except OSError:
            pass  # Linux: the other side is closed.
        assert program.wait() == 0
    os.close(primary)
    return output


def draw_terminal(output: str) -> list[str]:
    """The lines of an endless screen after carriage returns, line feeds, cursor movements and erasures."""
    lines, row, column = [""], 0, 0
    for escape, letter in re.findall(r"(\x1b\[[0-9;?]*[A-Za-z])|([\s\S])", output):
        if escape.endswith("A"):
            row -= int(escape[2:-1] or 1)
        elif escape.endswith("K"):
            lines[row] = ""
        elif letter == "\r":
            column = 0
        elif letter == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif letter:
            lines[row] = lines[row].ljust(column)[:column] + letter + lines[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


def test_bar_and_messages_do_not_collide_on_a_terminal() -> None:
    shown = draw_terminal(read_terminal([sys.executable, "-c", SHOW_BAR]).decode())
    assert shown[0] == "Message before the bar."
    for step in range(5, 31, 5):
        assert f"Message of step {step} [with brackets], {'long ' * 30}end." in shown
    for step in range(7, 31, 7):
        assert f"Message of a thread at {step}." in shown
    (bar,) = [line for line in shown if "Training" in line]
    assert "30/30" in bar
    assert bar.endswith("left")
    assert shown[shown.index(bar) + 1] == "Message after the bar."


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
