"""`myxtts monitor`: GPUs, machine and a run's own telemetry, live in a terminal."""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from myxtts.cli.screen import Screen, print_paragraph
from myxtts.errors import UsageError
from myxtts.storage.atomic import explain_storage_errors
from myxtts.types import PAGE_LANGUAGES

if TYPE_CHECKING:
    from myxtts.tools.monitor.watch import Monitor


def run_monitor(
    run: Annotated[
        Path | None, typer.Option(help="Folder of the run to follow; by default the newest in runs/.", metavar="RUN")
    ] = None,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds from one look to the next.")] = 2.0,
    duration: Annotated[
        float | None,
        typer.Option(min=0.1, help="End after so many seconds; without it Ctrl-C ends.", metavar="SECONDS"),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    log_file: Annotated[
        Path | None, typer.Option(help="Add every look to this file, .csv or .jsonl.", metavar="FILE")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="At the end write a page with plots here.", metavar="FILE.html")
    ] = None,
    lang: Annotated[str, typer.Option(help="Language of the page: en or fa.")] = "en",
    as_json: Annotated[bool, typer.Option("--json", help="At the end print a summary as one JSON object.")] = False,
) -> None:
    """Watch GPUs, processor and a training, from another terminal than the one that trains.

    Warns of starvation, oscillation, throttling and memory that is nearly full. Without an NVIDIA GPU it shows the
    rest. It only reads: no run is slowed down or locked by it.

    [bold]Examples[/bold]

    myxtts monitor

    myxtts monitor --run runs/anna --log-file anna.csv --duration 3600 --report anna.html

    myxtts monitor --once --json
    """
    from myxtts.tools.monitor.log import SampleLog
    from myxtts.tools.monitor.sample import Sampler
    from myxtts.tools.monitor.watch import Monitor, Schedule

    screen = Screen(as_json=as_json)
    _refuse_what_cannot_be(run, report, lang)
    log = SampleLog(log_file) if log_file is not None else None
    with ExitStack() as held:
        if log is not None:
            held.enter_context(log)
        sampler = held.enter_context(Sampler(run))
        monitor = Monitor(sampler, Schedule(interval, duration, once), log)
        ended_by = _watch(monitor, screen, is_once=once)
    if log is not None and log.problem:
        screen.warn(f"Could not write to {log.path}: {log.problem}. It ends with sample {log.num_samples:,}.")
    _finish(monitor, screen, report, lang)
    if ended_by is not None:
        raise ended_by


def _refuse_what_cannot_be(run: Path | None, report: Path | None, lang: str) -> None:
    """Before hours of watching, not after them."""
    if lang not in PAGE_LANGUAGES:
        raise UsageError(f"There is no page in the language {lang!r}.", next_step="Choose --lang en or --lang fa.")
    if run is not None and run.exists() and not run.is_dir():
        raise UsageError(f"{run} is a file, not the folder of a run.", next_step="Name a folder such as runs/NAME.")
    if report is None:
        return
    if report.is_dir():
        raise UsageError(f"{report} is a folder, not a page.", next_step="Name a file such as monitor.html.")
    with explain_storage_errors(report, "write"):
        report.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(report.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _watch(monitor: Monitor, screen: Screen, *, is_once: bool) -> BaseException | None:
    """Watches to the end; gives the interrupt that ended it, so that what was measured can still be kept."""
    from myxtts.tools.monitor.screen import LiveView, PlainView, SilentView

    console = screen.console
    try:
        if console.is_terminal and not is_once:
            with LiveView(console) as view:
                monitor.watch(view)
        else:
            monitor.watch(SilentView() if is_once else PlainView(console))
    except (KeyboardInterrupt, SystemExit) as interrupt:
        return interrupt
    return None


def _finish(monitor: Monitor, screen: Screen, report: Path | None, lang: str) -> None:
    from myxtts.tools.monitor.screen import print_view

    result: dict[str, Any] = {**monitor.summarize(), "report": None}
    if monitor.last_view is not None:
        print_view(screen.console, monitor.last_view)
        if report is not None:
            from myxtts.tools.monitor.page import write_monitor_report

            write_monitor_report(monitor, report, lang="fa" if lang == "fa" else "en")
            result["report"] = str(report)
            print_paragraph(screen.console, Text(f"Page written to {report}."))
    screen.finish(result)
