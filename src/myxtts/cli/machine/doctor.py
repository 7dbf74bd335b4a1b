"""`myxtts doctor`: checks Python, TensorFlow, GPUs and everything else that training needs on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from myxtts.cli.help import option
from myxtts.cli.screen import Screen

if TYPE_CHECKING:
    from myxtts.tools.doctor import Check

_STYLES = {"ok": "green", "warning": "yellow", "error": "bold red", "optional": "dim"}


def run_doctor(
    folder: Annotated[
        Path, option("Folder in which you want to work; its disk is checked.", "DIR", flag="--folder")
    ] = Path(),
    as_json: Annotated[bool, option("Print all checks as one JSON object.", flag="--json")] = False,
) -> None:
    """Check this machine: Python, TensorFlow, CUDA, driver, GPUs, espeak-ng, extras, memory and disk.

    Says what would go wrong and what to do about it. The exit code is 1 if training could not start, else 0.

    [bold]Examples[/bold]

    myxtts doctor

    myxtts doctor --folder /data --json
    """
    from myxtts.errors import UsageError
    from myxtts.tools.doctor import examine_machine

    screen = Screen(as_json=as_json)
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}.", next_step="Give an existing one with --folder.")
    examined = examine_machine(folder)
    _show(examined.checks, screen)
    problems = [check for check in examined.checks if check.status == "error"]
    if problems:
        screen.console.print(f"\nNot ready. First fix: {problems[0].name}. {problems[0].next_step}", markup=False)
    else:
        screen.console.print("\nReady. Next: myxtts demo, or myxtts plan to see what training would use here.")
    screen.finish(examined.to_json())
    if not examined.is_ready:
        raise typer.Exit(1)


def _show(checks: list[Check], screen: Screen) -> None:
    """Prints a table of the checks; what to do stands below what it is about."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        found = Text(check.found)
        if check.next_step:
            found.append(f"\n-> {check.next_step}", "bold" if check.status != "optional" else "dim")
        table.add_row(Text(check.status, _STYLES[check.status]), Text(check.name), found)
    screen.console.print(table)
