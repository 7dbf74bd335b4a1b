"""Flags of every command, as a list that shows each change, and the look of --help.

After a wanted change write the list again: python -m tests.cli.test_flags
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from myxtts.cli.help import ADVANCED, OTHER, SPEED, WHAT, WHERE
from myxtts.cli.main import app
from myxtts.cli.settings import SETTING_FLAGS
from myxtts.config.catalogue import FIELDS, look_up
from myxtts.config.choices import list_presets
from myxtts.config.schema import XTTSConfig
from myxtts.config.values import format_scalar

LIST = Path(__file__).with_name("flags.txt")
GROUP: Any = typer.main.get_command(app)
WIDTH = 80
# Flags that people know from `train`, whatever else changes.
KNOWN = """--train-data --val-data --config --model-size --optimization-level --batch-size --num-workers --buffer-size
--prefetch-buffer-size --data-gpu --model-gpu --model-start-delay --multi-gpu --visible-gpus --preprocessing-mode
--disable-tf-native-loading --disable-gpu-prefetch --disable-cpu-gpu-overlap --epochs --steps --resume --set
--critics-from --discriminators-from --init-from --force --override --for --install-into --run-name --run-dir""".split()


def list_leaves(group: Any = GROUP, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from list_leaves(command, (*path, name))
        else:
            yield (*path, name), command


LEAVES = list(list_leaves())


def describe_flags() -> str:
    """A line for each flag of each command: its names, and its panel, or that help hides it.

    Setting flags that are hidden in a command are left out: all commands with settings accept all of them.
    """
    lines, settings = [], {flag.flag for flag in SETTING_FLAGS}
    for path, command in LEAVES:
        lines.append(f"myxtts {' '.join(path)}")
        for param in command.params:
            names = " ".join(sorted([*param.opts, *param.secondary_opts]))
            if getattr(param, "hidden", False) and param.opts[0] in settings and path != ("train",):
                continue
            place = "hidden" if getattr(param, "hidden", False) else getattr(param, "rich_help_panel", None) or ""
            lines.append(f"  {names}{f'  ({place.lower()})' if place else ''}")
    return "\n".join(lines) + "\n"


def read_help(path: tuple[str, ...]) -> str:
    done = CliRunner().invoke(
        app, [*path, "--help"], env={"COLUMNS": str(WIDTH), "NO_COLOR": "1"}, terminal_width=WIDTH
    )
    assert done.exit_code == 0, done.output
    return done.output


def test_the_flags_are_those_of_the_list() -> None:
    assert describe_flags() == LIST.read_text(encoding="utf-8"), "if this is wanted: python -m tests.cli.test_flags"


def test_train_keeps_the_flags_that_people_know() -> None:
    command = dict(LEAVES)[("train",)]
    assert set(KNOWN) <= {name for param in command.params for name in param.opts}


@pytest.mark.parametrize("path", [(), ("cache",), *(path for path, _ in LEAVES)], ids=" ".join)
def test_help_is_plain_and_fits_a_terminal(path: tuple[str, ...]) -> None:
    shown = read_help(path)
    assert not re.search(r"<\w|list\[|[<>]=x|x[<>]=| range\b|Usage:.*[{}]", shown)
    assert max(map(len, shown.splitlines())) <= WIDTH
    panels = [panel for panel in re.findall(r"─ (\w+) ─", shown) if panel in (WHAT, WHERE, SPEED, ADVANCED)]
    assert panels == [panel for panel in (WHAT, WHERE, SPEED, ADVANCED) if panel in panels] or not path
    if path and path != ("cache",):
        assert "Examples" in shown
        # An example that is broken over two lines cannot be copied.
        examples = [line for line in dict(LEAVES)[path].help.splitlines() if line.startswith("myxtts ")]
        assert examples
        assert max(map(len, examples)) <= WIDTH - 2


@pytest.mark.parametrize("path", [path for path, _ in LEAVES], ids=" ".join)
def test_a_command_with_many_options_shows_them_in_panels(path: tuple[str, ...]) -> None:
    options = [param for param in dict(LEAVES)[path].params if param.param_type_name == "option" and not param.hidden]
    assert len(options) <= 5 or {param.rich_help_panel for param in options} & {WHAT, WHERE}
    assert len([param for param in options if param.rich_help_panel == OTHER]) <= 2


def test_commands_are_in_groups_in_the_order_of_use() -> None:
    shown = read_help(())
    places = [shown.index(f"─ {panel} ─") for panel in ("Start", "Corpus", "Train", "Voice", "Performance", "Advanced")]
    assert places == sorted(places)


@pytest.mark.parametrize("flag", [flag for flag in SETTING_FLAGS if flag.value is None], ids=lambda flag: flag.flag)
def test_the_default_in_help_is_that_of_the_setting(flag: Any) -> None:
    key = flag.keys[0]
    default = FIELDS[key].default
    by_size = {size: look_up(XTTSConfig(model_size=size), key) for size in list_presets("model_size")}
    others = [f"{size} {value}" for size, value in by_size.items() if key != "model_size" and value != default]
    shown = f"{format_scalar(default)} ({', '.join(others)})" if others else format_scalar(default)
    assert flag.default == shown or default is None


def test_a_command_shows_only_the_flags_that_act_in_it() -> None:
    shown = read_help(("precompute",))
    for flag in ("--epochs", "--steps", "--model-size", "--multi-gpu", "--batch-size", "--disable-gpu-prefetch"):
        assert flag not in shown
    assert "--num-workers" in shown


def test_a_flag_without_effect_is_accepted_with_a_note(tmp_path: Path) -> None:
    arguments = ["precompute", "--epochs", "3", "--gpu-card", "a100", "--train-data", str(tmp_path / "nowhere")]
    done = CliRunner().invoke(app, arguments)
    assert "Note: --epochs: no effect in this command." in done.stderr
    assert "nothing at" in str(getattr(done.exception, "problem", ""))


if __name__ == "__main__":
    LIST.write_text(describe_flags(), encoding="utf-8")
