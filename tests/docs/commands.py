"""The commands that pages show: found in their blocks, cut into words as a shell does, parsed as by the program."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from documentation.markdown import MarkdownPage
from myxtts.cli.main import app
from myxtts.cli.settings import SETTING_FLAGS, load_config
from myxtts.config.schema import XTTSConfig

ROOT = Path(__file__).parents[2]
RUN_MARK = "run"
GROUP: Any = typer.main.get_command(app)
GROUP_FLAGS = frozenset({"--debug", "--version", "--help"})
_OPERATORS = frozenset({"|", "||", "&&", "&", ";"})
_REDIRECTIONS = frozenset({"<", ">", ">>"})
_ASSIGNMENT = re.compile(r"[A-Z_]+=")


@dataclass(frozen=True, slots=True)
class Command:
    """One program with its arguments, and where it stands."""

    place: str
    words: tuple[str, ...]
    is_run: bool = False

    @property
    def program(self) -> str:
        return self.words[0]

    @property
    def myxtts_words(self) -> tuple[str, ...] | None:
        """The arguments of `myxtts`, also where another program starts it; None where it is not in the command."""
        return self.words[self.words.index("myxtts") + 1 :] if "myxtts" in self.words else None

    def __str__(self) -> str:
        return f"{self.place}: {shlex.join(self.words)}"


def list_pages() -> list[Path]:
    """Everything that people read: the pages of both languages and the files at the root."""
    return [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*/*.md")), *sorted(ROOT.glob("examples/*.md"))]


def list_commands(path: Path) -> list[Command]:
    page = MarkdownPage.read(path)
    commands = []
    for block in page.code_blocks:
        if block.language == "bash":
            place = f"{path.relative_to(ROOT)}:{block.line}"
            commands += [Command(place, words, RUN_MARK in block.marks) for words in split_commands(block.text)]
    return commands


def split_commands(text: str) -> Iterator[tuple[str, ...]]:
    """Each simple command of a shell script without control structures."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words: list[str] = []
        is_target = False
        for word in lexer:
            if word in _OPERATORS:
                yield from _finish(words)
                words = []
            elif word in _REDIRECTIONS:
                is_target = True
            elif is_target:
                is_target = False
            else:
                words.append(word)
        yield from _finish(words)


def list_inline_code(path: Path) -> list[str]:
    """What stands between backticks in sentences and tables."""
    page = MarkdownPage.read(path)
    children = [child for token in page.tokens for child in token.children or ()]
    return [child.content for child in children if child.type == "code_inline"]


def _finish(words: list[str]) -> Iterator[tuple[str, ...]]:
    while words and _ASSIGNMENT.match(words[0]):
        words = words[1:]
    if words:
        yield tuple(words)


def parse_myxtts(words: tuple[str, ...]) -> XTTSConfig | None:
    """Parses as the program would and does nothing else; gives the configuration where the command takes one.

    Raises what a user would be told. A configuration file that the project does not have is taken to be empty.
    """
    if not words or words[0].startswith("-"):
        assert set(words) <= GROUP_FLAGS, words
        return None
    assert words[0] in GROUP.commands, f"there is no command {words[0]}"
    command = GROUP.commands[words[0]]
    if words[1:2] and words[1] in getattr(command, "commands", ()):
        command, words = command.commands[words[1]], words[1:]
    values = command.make_context(words[0], list(words[1:])).params
    if "assignments" not in values:
        return None
    given = [(key, values.get(flag.parameter), flag) for flag in SETTING_FLAGS for key in flag.keys]
    flags = [
        (key, value if flag.value is None else flag.value, flag.flag)
        for key, value, flag in given
        if value is not None and value is not False
    ]
    file = values.get("config_file")
    path = str(ROOT / file) if file and (ROOT / file).is_file() else None
    return load_config(path, values["assignments"] or (), flags)
