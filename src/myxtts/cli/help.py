"""Layout of `--help`: panels, plain placeholders of values, and paragraphs that wrap at the width of the terminal."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

# Panels of options, in the order in which help shows them.
WHAT = "What"
WHERE = "Where"
SPEED = "Speed"
ADVANCED = "Advanced"
_PANELS = (WHAT, WHERE, SPEED, ADVANCED)


class PlainCommand(TyperCommand):
    """A command whose help shows no Python types: switches have no placeholder, other options their own name."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _simplify(self.get_params(ctx))
        super().format_help(ctx, formatter)


class PlainGroup(TyperGroup):
    """The same for a command with subcommands."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _simplify(self.get_params(ctx))
        super().format_help(ctx, formatter)


def _simplify(params: list[Any]) -> None:
    """Sets the placeholders; limits of numbers are named by the error for a wrong one and left out here."""
    from typer import rich_utils

    rich_utils.RANGE_STRING = ""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
        elif param.param_type_name == "argument":
            param.display_type_rich = _show_no_type
        elif param.metavar is None:
            param.metavar = param.name.upper().removeprefix("NUM_")


def _show_no_type(ctx: Any) -> None:
    """Stands for the type of an argument in help: its name says enough."""


def sort_by_panel(parameters: Iterable[inspect.Parameter]) -> list[inspect.Parameter]:
    """Sorts the options of a command so that help shows its panels in the usual order."""

    def find_place(parameter: inspect.Parameter) -> int:
        options = getattr(parameter.annotation, "__metadata__", ())
        panel = getattr(options[0], "rich_help_panel", None) if options else None
        return _PANELS.index(panel) if panel in _PANELS else -1

    return sorted(parameters, key=find_place)


def unwrap_help(function: Callable[..., None]) -> str:
    """Returns the docstring with one line for each paragraph, so that help is wrapped once, at the real width."""
    paragraphs = re.split(r"\n\s*\n", inspect.getdoc(function) or "")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
