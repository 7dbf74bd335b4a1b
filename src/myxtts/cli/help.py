"""Options that several commands share, and the layout of `--help`.

The layout: panels, plain placeholders of values, and paragraphs that wrap at the width of the terminal.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

# Panels of options, in the order in which help shows them.
WHAT = "What"
WHERE = "Where"
SPEED = "Speed"
ADVANCED = "Advanced"
OTHER = "Other"
_PANELS = (WHAT, WHERE, SPEED, ADVANCED, OTHER)
_EXAMPLES = "[bold]Examples[/bold]"


def option(
    help: str, metavar: str | None = None, panel: str | None = None, *, flag: str | None = None, **more: Any
) -> Any:
    """An option of a command; `flag` is for one that is not called like its parameter, or that is a switch."""
    flags = () if flag is None else (flag,)
    return typer.Option(*flags, help=help, metavar=metavar, rich_help_panel=panel, **more)


Host = Annotated[str, option("Address to listen on. Other machines can connect only with --api-key-file.", panel=WHERE)]
PageAddress = Annotated[
    str | None,
    option("Like --page, at this address. Without --api-key-file only this machine can connect.", "[HOST:]PORT", WHERE),
]
PageKeyFile = Annotated[
    Path | None, option("File with one key per line; the page asks for one of them.", "FILE", WHERE)
]
PageLanguage = Annotated[str, option("Language of the page: en or fa.")]
HtmlReport = Annotated[Path | None, option("Write an HTML report.", "FILE.html", WHERE)]
Recogniser = Annotated[
    str | None,
    option("Speech recogniser that prints the text of a WAV file; {wav} and {language} are replaced.", "COMMAND", WHAT),
]
DecoderSteps = Annotated[int, option("Decoder steps: more is better and slower.", "N", SPEED)]
Seed = Annotated[int, option("Another seed gives another rendering.", "N", ADVANCED)]
VocoderName = Annotated[
    str,
    option(
        "auto (the model's own, else the base model's, else Griffin-Lim), griffin_lim, neural, or a run of a vocoder.",
        "VOCODER",
        ADVANCED,
    ),
]


class PlainCommand(TyperCommand):
    """A command whose help has panels in the usual order and shows no Python types.

    Switches have no placeholder, other options their own name. Options without a panel, such as --json and --help,
    are in the last panel, unless no option of the command has one.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._has_panels = any(getattr(param, "rich_help_panel", None) for param in self.params)
        if self._has_panels:
            for param in self.params:
                _choose_panel(param)
            self.params.sort(key=_find_place)

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)
        if option is not None and self._has_panels:
            _choose_panel(option)
        return option

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [_name_argument(piece) for piece in super().collect_usage_pieces(ctx)]

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


def _choose_panel(param: Any) -> None:
    """Puts an option that names no panel into the last one."""
    if param.param_type_name == "option" and not param.rich_help_panel:
        param.rich_help_panel = OTHER


def _find_place(param: Any) -> int:
    """Place of a parameter in help; arguments come first."""
    return _PANELS.index(param.rich_help_panel) if param.rich_help_panel in _PANELS else -1


def _name_argument(piece: str) -> str:
    """The name of an argument in the line of usage: `RUN` or, if it can be left out, `[RUN]`, instead of `{RUN}`."""
    return re.sub(r"^\{(.*)\}", r"\1", piece)


def unwrap_help(function: Callable[..., None]) -> str:
    """Returns the docstring with one line for each paragraph, so that help is wrapped once, at the real width.

    The paragraphs behind the heading of the examples become the lines of one block, which typer does not wrap.
    """
    paragraphs = re.split(r"\n\s*\n", inspect.getdoc(function) or "")
    lines = [" ".join(paragraph.split()) for paragraph in paragraphs]
    if _EXAMPLES in lines:
        start = lines.index(_EXAMPLES)
        lines[start:] = ["\b\n" + "\n".join(lines[start:])]
    return "\n\n".join(lines)
