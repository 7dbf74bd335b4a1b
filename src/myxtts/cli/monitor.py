"""`myxtts monitor`: live view of GPUs (NVML), CPU, memory and the telemetry of a run, with warnings and a log."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from myxtts.cli.help import ADVANCED, WHAT, WHERE, PageAddress, PageKeyFile, option
from myxtts.cli.screen import Screen
from myxtts.errors import UsageError

if TYPE_CHECKING:
    from myxtts.tools.monitor.watch import Monitor


def run_monitor(
    run_folder: Annotated[
        Path | None, typer.Argument(help="Folder of the run.", metavar="RUN", show_default=False)
    ] = None,
    run: Annotated[Path | None, option("Folder of the run. \\[default: newest in runs/]", "RUN", WHAT)] = None,
    page: Annotated[
        bool, option("Show the run on a live web page instead; if it has ended, its report.", panel=WHAT, flag="--page")
    ] = False,
    page_at: PageAddress = None,
    api_key_file: PageKeyFile = None,
    wait: Annotated[bool, option("Wait until the run has started.", panel=WHAT, flag="--wait")] = False,
    interval: Annotated[float, option("Seconds between two samples.", "SECONDS", ADVANCED, min=0.1, max=3600)] = 2.0,
    duration: Annotated[
        float | None, option("Stop after this time. \\[default: until Ctrl-C]", "SECONDS", ADVANCED, min=0.1)
    ] = None,
    once: Annotated[bool, option("Take one sample and exit.", panel=WHAT, flag="--once")] = False,
    log_file: Annotated[Path | None, option("Append every sample to this file, .csv or .jsonl.", "FILE", WHERE)] = None,
    lang: Annotated[str, option("Language of the warnings and the page: en or fa.")] = "en",
    as_json: Annotated[bool, option("At the end print a summary as one JSON object.", flag="--json")] = False,
) -> None:
    """Watch a training run and the GPUs live, from another terminal.

    Warns when the GPU waits for data, throttles or is nearly out of memory. It only reads files and the driver, so
    it does not slow the run down.

    [bold]Examples[/bold]

    myxtts monitor

    myxtts monitor --run runs/anna --log-file anna.csv --duration 3600

    myxtts monitor --run runs/ben --wait

    myxtts monitor --once --json

    myxtts monitor --page runs/anna
    """
    from myxtts.tools.monitor.log import SampleLog
    from myxtts.tools.monitor.sample import Sampler
    from myxtts.tools.monitor.screen import print_view
    from myxtts.tools.monitor.watch import Monitor, Schedule
    from myxtts.tools.words import Translator

    screen, tr = Screen(as_json=as_json), Translator(lang)
    if run is not None and run_folder is not None:
        raise UsageError(f"Two runs are named: {run_folder} and {run}.", next_step="Name one of them.")
    run = run if run is not None else run_folder
    if run is not None:
        _require_run(run, wait)
    if page or page_at is not None:
        _serve_page(run, page_at, api_key_file, lang, screen)
        return
    log = SampleLog(log_file) if log_file is not None else None
    with ExitStack() as held:
        if log is not None:
            held.enter_context(log)
        sampler = held.enter_context(Sampler(run))
        monitor = Monitor(sampler, Schedule(interval, duration, once), log, tr)
        ended_by = _watch(monitor, screen, is_once=once)
    if log is not None and log.problem:
        screen.warn(f"Could not write to {log.path}: {log.problem}. It ends with sample {log.num_samples:,}.")
    if monitor.last_view is not None:
        print_view(screen.console, monitor.last_view)
    screen.finish(monitor.summarize())
    if ended_by is not None:
        raise ended_by


def _serve_page(run: Path | None, address: str | None, key_file: Path | None, lang: str, screen: Screen) -> None:
    """Serves the page of a run until Ctrl-C."""
    from myxtts.live.server import require_server, serve_page
    from myxtts.tools.monitor.run import find_newest_run

    require_server()
    run = run if run is not None else find_newest_run()
    if run is None:
        raise UsageError("There is no run in runs/.", next_step="Name the folder of a run: myxtts monitor --page RUN")

    def say(url: str) -> None:
        screen.console.print(f"The page of {run} is {url} (Ctrl-C stops).", markup=False, soft_wrap=True)

    serve_page(run, address, key_file, lang, say)


def _require_run(run: Path, may_start_later: bool) -> None:
    """Raises UsageError where there is no run in the folder, and none is waited for."""
    from myxtts.tools.monitor.run import is_run

    if run.exists() and not run.is_dir():
        raise UsageError(f"{run} is a file, not the folder of a run.", next_step="Name a folder such as runs/NAME.")
    if not may_start_later and not is_run(run):
        problem = f"There is no run in {run}." if run.is_dir() else f"The folder {run} does not exist."
        raise UsageError(
            problem, next_step="Name the folder of a run, such as runs/NAME, or add --wait for one that starts later."
        )


def _watch(monitor: Monitor, screen: Screen, *, is_once: bool) -> BaseException | None:
    """Watches to the end and returns the interrupt that ended it, so that the summary is still printed."""
    from myxtts.tools.monitor.screen import show_live, show_plain

    console = screen.console
    try:
        if console.is_terminal and not is_once:
            with show_live(console) as show:
                monitor.watch(show)
        else:
            # A single sample is printed at the end.
            monitor.watch((lambda _view: None) if is_once else show_plain(console))
    except (KeyboardInterrupt, SystemExit) as interrupt:
        return interrupt
    return None
