"""`myxtts config`: prints all settings with their values and origins, explains some, or writes them to a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from myxtts.cli.help import WHAT, WHERE, option
from myxtts.cli.machine.plan import show_plan
from myxtts.cli.screen import Screen
from myxtts.cli.settings import ALL_FLAGS, takes_settings

if TYPE_CHECKING:
    from myxtts.config.catalogue import Setting
    from myxtts.config.schema import XTTSConfig


@takes_settings(*ALL_FLAGS)
def show_config(
    config: XTTSConfig,
    keys: Annotated[list[str] | None, typer.Argument(help="Explain these settings only.", metavar="KEY")] = None,
    changed: Annotated[bool, option("Show only what differs from the defaults.", panel=WHAT, flag="--changed")] = False,
    plan: Annotated[bool, option("Also show what myxtts plan shows.", panel=WHAT, flag="--plan")] = False,
    write: Annotated[Path | None, option("Write config.yaml into this folder.", "DIR", WHERE, flag="--write")] = None,
    as_json: Annotated[bool, option("Print settings as one JSON object.", flag="--json")] = False,
) -> None:
    """Show all settings with their values and where each value comes from.

    Flags override the YAML file, which overrides presets, which override defaults.

    [bold]Examples[/bold]

    myxtts config --config my.yaml --gpu-card rtx3060 --changed

    myxtts config batch_size buffer_size

    myxtts config --batch-size 16 --write .
    """
    from myxtts.config.advice import find_slow_settings
    from myxtts.config.catalogue import list_settings
    from myxtts.config.load import write_resolved

    screen = Screen(as_json=as_json)
    settings = _choose_settings(list_settings(config), keys or [], changed=changed)
    if keys:
        _explain_settings(settings, screen)
    else:
        _show_settings(settings, screen)
    advice = find_slow_settings(config)
    for sentence in advice:
        screen.warn(sentence)
    result: dict[str, Any] = {
        "settings": {setting.key: {"value": setting.value, "origin": setting.origin} for setting in settings},
        "warnings": advice,
    }
    if plan:
        screen.console.print()
        result["plan"] = show_plan(config, screen)
        screen.notices.print("Shorter: myxtts plan shows this part alone.")
    if write:
        result["written"] = str(write_resolved(config, write))
        screen.notices.print(f"Written to {result['written']}", markup=False)
    screen.finish(result)


def _choose_settings(settings: list[Setting], names: list[str], *, changed: bool) -> list[Setting]:
    """Filters by key, given with or without section, and by difference from the default."""
    from myxtts.config.catalogue import find_key

    wanted = {find_key(name, "command line") for name in names}
    chosen = [setting for setting in settings if not wanted or setting.key in wanted]
    return [setting for setting in chosen if setting.value != setting.default] if changed else chosen


def _show_settings(settings: list[Setting], screen: Screen) -> None:
    """Prints a table; values that are not defaults stand out."""
    from rich.table import Table
    from rich.text import Text

    from myxtts.config.values import format_scalar

    table = Table(box=None, pad_edge=False)
    for column in ("setting", "value", "from"):
        table.add_column(column, overflow="fold", no_wrap=column == "setting")
    for setting in settings:
        style = "" if setting.origin == "default" else "bold green"
        table.add_row(
            Text(setting.key), Text(format_scalar(setting.value), style), Text(setting.origin, style or "dim")
        )
    screen.console.print(table)


def _explain_settings(settings: list[Setting], screen: Screen) -> None:
    """Prints description, allowed values, default and origin of each setting."""
    from myxtts.config.values import format_scalar

    for setting in settings:
        value, default = format_scalar(setting.value), format_scalar(setting.default)
        screen.console.print(f"{setting.key} = {value}", style="bold", markup=False)
        screen.console.print(f"  {setting.description}", markup=False)
        screen.console.print(f"  allowed: {setting.allowed}", markup=False)
        screen.console.print(f"  default: {default}; now from: {setting.origin}", markup=False)
