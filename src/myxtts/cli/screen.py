"""Console output of commands: results on stdout, progress, notices and errors on stderr.

With --json the result is exactly one JSON object and the words for people go to standard error. Colour and live
progress follow the terminal and NO_COLOR; where there is no terminal, progress is a plain line every few seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from myxtts.errors import MyXTTSError

_PLAIN_WIDTH = 120
"""Columns of tables in files and pipes; without it rich assumes 80."""
_PLAIN_PROGRESS_EVERY_S = 5.0
"""Between two progress lines where there is no terminal to redraw."""


class Screen:
    """The two streams of a command: `console` for its result, `notices` for the rest. With --json both are stderr."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self.notices = make_console(stderr=True)
        self.console = self.notices if as_json else make_console(stderr=False)

    def finish(self, result: dict[str, Any]) -> None:
        """Prints the result as JSON on stdout, if --json was given."""
        if self._as_json:
            print_json(result)

    def warn(self, message: str) -> None:
        print_paragraph(self.notices, Text.assemble(("Warning: ", "bold yellow"), message))


def format_length(seconds: float) -> str:
    minutes = seconds / 60
    return f"{minutes / 60:.1f} hours" if minutes >= 90 else f"{minutes:.1f} minutes"


def make_console(*, stderr: bool) -> Console:
    """Makes a rich console that follows the terminal, NO_COLOR and COLUMNS."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _PLAIN_WIDTH
    return _PipeConsole(stderr=stderr, highlight=False, width=width)


class _PipeConsole(Console):
    """A console whose reader may stop reading, as with `| head`: that is no error."""

    def on_broken_pipe(self) -> None:
        discard_output(self.file)
        raise SystemExit(0)


def discard_output(stream: IO[Any]) -> None:
    """Sends what is still buffered to /dev/null: Python flushes at exit, which would raise again in a closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_paragraph(console: Console, text: Text) -> None:
    """Wraps between words on a terminal; one line in a file or pipe, so that it can be searched."""
    console.print(text, soft_wrap=not console.is_terminal)


def print_note(text: str) -> None:
    """Prints one line about how the command was called on stderr, such as an old name of a flag."""
    print_paragraph(make_console(stderr=True), Text.assemble(("Note: ", "bold"), text))


def print_json(result: dict[str, Any]) -> None:
    # Names of files may hold bytes that are not UTF-8; an escaped surrogate is valid JSON.
    text = json.dumps(result, ensure_ascii=False, indent=1).encode("utf-8", "backslashreplace").decode()
    sys.stdout.write(text + "\n")


def print_error(error: MyXTTSError, *, as_json: bool) -> None:
    """Prints an error as one paragraph on stderr, and with --json as an object on stdout."""
    if as_json:
        fields = {"kind": error.kind, "exit_code": error.exit_code, "problem": error.problem}
        print_json({"error": {**fields, "next_step": error.next_step, **error.details}})
    text = Text.assemble(("Error", "bold red"), f" ({error.kind}): {error.problem}")
    if error.next_step:
        text.append(str(error).removeprefix(error.problem), "bold")
    print_paragraph(make_console(stderr=True), text)


class _CountColumn(ProgressColumn):
    """Items that are done, and of how many where that is known."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Any) -> Text:
        of_total = f"/{task.total:,.0f}" if task.total else ""
        return Text(f"{task.completed:,.0f}{of_total} {self._unit}")


class _RateColumn(ProgressColumn):
    """Items per second."""

    def render(self, task: Any) -> Text:
        return Text(f"{task.speed or 0:,.0f}/s", "cyan")


class ProgressView:
    """Progress as a rich bar on a terminal, or as a line every few seconds elsewhere."""

    def __init__(self, progress: Progress | None, task: TaskID | None, label: str, total: int | None) -> None:
        self._progress, self._task, self._label, self._total = progress, task, label, total
        self._started = self._last_line = time.monotonic()

    def update(self, done: int, detail: str = "", total: int | None = None) -> None:
        """Redraws the bar, or prints a line if the last is old enough. `detail` is shown behind the counts.

        `total` is given where it was not known when the block began.
        """
        self._total = total or self._total
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=self._total, detail=detail)
            return
        now = time.monotonic()
        if now - self._last_line >= _PLAIN_PROGRESS_EVERY_S:
            self._last_line = now
            of_total = f" of {self._total:,}" if self._total else ""
            rate = done / (now - self._started)
            shown = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
            sys.stderr.write(f"{self._label}: {done:,}{of_total} ({shown}/s) {detail}".rstrip() + "\n")


@contextmanager
def show_progress(label: str, total: int | None, unit: str, console: Console | None = None) -> Iterator[ProgressView]:
    """Shows progress on stderr while the block runs; the bar is removed at its end.

    Lines that are printed meanwhile stand above the bar if they go through the same `console`.
    """
    console = console or make_console(stderr=True)
    if not console.is_terminal:
        yield ProgressView(None, None, label, total)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        _CountColumn(unit),
        _RateColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[detail]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield ProgressView(progress, progress.add_task(label, total=total, detail=""), label, total)


@contextmanager
def mute_decoders() -> Iterator[None]:
    """Redirects file descriptor 2 to /dev/null; `sys.stderr` keeps writing to the terminal.

    The MP3 decoder writes a line for every damaged frame, which would break a progress bar. Damage is reported by us.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    python_stderr = sys.stderr
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    sys.stderr = os.fdopen(os.dup(saved), "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    try:
        yield
    finally:
        sys.stderr.close()
        sys.stderr = python_stderr
        os.dup2(saved, 2)
        os.close(saved)
