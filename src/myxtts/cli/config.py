"""`myxtts config`: prints the resolved settings with their origins, and with --plan the device placement."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from myxtts.cli.screen import Screen
from myxtts.cli.settings import takes_settings

if TYPE_CHECKING:
    from myxtts.config.catalogue import Setting
    from myxtts.config.schema import XTTSConfig


@takes_settings
def show_config(
    config: XTTSConfig,
    keys: Annotated[
        list[str] | None, typer.Argument(help="Only these settings, explained.", metavar="[KEY]...")
    ] = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what differs from the defaults.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Also show the devices and buffers this machine leads to.")
    ] = False,
    write: Annotated[
        Path | None, typer.Option("--write", help="Write config.yaml into this folder.", metavar="DIR")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print settings as one JSON object.")] = False,
) -> None:
    """Show the resolved configuration and where each value came from.

    Defaults come first, then presets, then the YAML file, then flags: the later wins.

    [bold]Examples[/bold]

    myxtts config --config my.yaml --gpu-card rtx3060 --changed

    myxtts config batch_size buffer_size

    myxtts config --data-gpu 0 --model-gpu 1 --plan
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
        result["plan"] = _show_plan(config, screen)
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


def _show_plan(config: XTTSConfig, screen: Screen) -> dict[str, Any]:
    """Prints the device placement with its reasons; returns it for JSON."""
    from dataclasses import asdict

    from myxtts.runtime.hardware import detect_hardware
    from myxtts.runtime.plan import choose_plan

    chosen = choose_plan(config, detect_hardware())
    screen.console.print("\n".join(chosen.describe()), markup=False)
    for reason in chosen.reasons:
        screen.console.print(f"  - {reason}", markup=False)
    for warning in chosen.warnings:
        screen.warn(warning)
    return asdict(chosen)
