"""Where a watch is shown: on the whole screen of a terminal, as a plain line now and then, or not until its end."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live

from myxtts.tools.monitor_screen import View, describe_in_a_line, draw_view

_PLAIN_EVERY_S = 10.0


class SilentView:
    """Shows nothing; for a single look, which is printed at the end."""

    def show(self, view: View) -> None:
        pass


class PlainView:
    """A line now and then, where there is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed_at: float | None = None

    def show(self, view: View) -> None:
        now = time.monotonic()
        if self._printed_at is None or now - self._printed_at >= _PLAIN_EVERY_S:
            self._printed_at = now
            self._console.print(describe_in_a_line(view), markup=False, soft_wrap=True)


class LiveView:
    """The whole screen, redrawn at each look and at no other time. Use it as a context."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, view: View) -> None:
        width, height = self._console.size
        text = draw_view(view, width, height, is_ascii=self._console.options.ascii_only)
        self._live.update(text, refresh=True)


def print_view(console: Console, view: View) -> None:
    """All of one look, as long as it is; it stays on the screen when a live view is gone."""
    text = draw_view(view, console.width, sys.maxsize, is_live=False, is_ascii=console.options.ascii_only)
    console.print(text, soft_wrap=True)
