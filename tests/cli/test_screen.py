"""Progress where no terminal is: plain lines, not too many of them."""

from __future__ import annotations

import pytest

from myxtts.cli.screen import ProgressView, make_console, show_progress


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


def test_a_bar_shows_the_number_of_items_as_soon_as_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    console = make_console(stderr=True)
    with console.capture() as captured, show_progress("Clips", None, "clips", console) as view:
        view.update(1)
        view.update(1200, total=5000)
    assert "1,200/5,000 clips" in captured.get()
