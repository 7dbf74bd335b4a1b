"""Progress where no terminal is: plain lines, not too many of them."""

from __future__ import annotations

import pytest

from myxtts.cli.screen import ProgressView


@pytest.mark.parametrize(
    ("done", "seconds", "expected"),
    [(1, 5.0, "Working: 1 of 5,000 (0.2/s)"), (4000, 8.0, "Working: 4,000 of 5,000 (500/s)")],
)
def test_a_line_says_how_fast_it_goes(
    done: int, seconds: float, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr("myxtts.cli.screen.time.monotonic", lambda: now)
    view = ProgressView(None, None, "Working", 5000)
    view.update(done)
    assert capsys.readouterr().err == ""
    now += seconds
    view.update(done)
    assert capsys.readouterr().err.strip() == expected
