"""What a person sees of a training where there is no terminal."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest

from myxtts.training import callbacks as progress
from myxtts.training.callbacks import ProgressDisplay, format_duration


def make_record(seconds: float) -> dict[str, Any]:
    return {"loss": 1.5, "utterances_per_s": 8 / seconds, "au": 0.99, "data_wait_s": 0.002, "seconds": seconds}


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
    assert first == "Step 10 of 1,220: loss 1.500, 2.7 utterances/s, AU 99 %, data wait 2 ms"
    assert second.endswith("data wait 2 ms, 10:00 min left")


def test_a_run_without_an_end_says_how_long_a_step_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert show(monkeypatch, [(100, 0.25)], None)[-1].endswith("0.25 s/step")


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0:00 min"), (59.6, "1:00 min"), (3599, "59:59 min"), (3660, "1 h 01 min")]
)
def test_durations_are_readable(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
