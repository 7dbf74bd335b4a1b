"""`myxtts report`: makes the HTML report of a run again, or one page for several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from myxtts.cli.help import PageLanguage, option
from myxtts.cli.screen import Screen
from myxtts.errors import UsageError


def run_report(
    runs: Annotated[list[Path], typer.Argument(help="Folder of a run, or of several runs to compare.", metavar="RUN")],
    lang: PageLanguage = "en",
    out: Annotated[
        Path | None, option("File to write. \\[default: report.html in the folder of the first run]", "FILE")
    ] = None,
    as_json: Annotated[bool, option("Print the result as one JSON object.", flag="--json")] = False,
) -> None:
    """Make the report of a run, at any time: how good the voice is, curves, samples, GPU and memory, settings.

    The page is one file that needs no network. Of several runs, one page shows all
    curves together; it is called comparison.html. A run may still be training.

    [bold]Examples[/bold]

    myxtts report runs/anna

    myxtts report runs/anna runs/ben --lang fa --out both.html
    """
    from myxtts.tools.report.side_by_side import make_comparison_page, name_runs
    from myxtts.tools.report.verdict import Progress, judge
    from myxtts.tools.run_files import count_steps, read_run
    from myxtts.tools.run_report import make_run_page, name_report
    from myxtts.tools.words import Translator

    screen, tr = Screen(as_json=as_json), Translator(lang)
    if len({run.resolve() for run in runs}) < len(runs):
        raise UsageError("A run is named twice.", next_step="Name each run once.")
    found = [read_run(run) for run in runs]
    is_alone = len(found) == 1
    page = make_run_page(found[0], tr) if is_alone else make_comparison_page(found, tr)
    path = page.write(out if out is not None else runs[0] / name_report(lang, is_comparison=not is_alone))
    of_runs = [
        {"name": name, "run_dir": str(run.path), "step": count_steps(run), "verdict": judge(Progress.of_run(run), tr)}
        for name, run in name_runs(found).items()
    ]
    _show(of_runs, path, screen)
    screen.finish({"report": str(path), "bytes": path.stat().st_size, "runs": of_runs})


def _show(of_runs: list[dict[str, Any]], path: Path, screen: Screen) -> None:
    """Prints the verdicts, and where the page is."""
    for run in of_runs:
        verdict = run["verdict"] if len(of_runs) == 1 else f"{run['name']}: {run['verdict']}"
        screen.console.print(verdict, markup=False, soft_wrap=True)
    screen.console.print(f"The report is {path}", markup=False, soft_wrap=True)
