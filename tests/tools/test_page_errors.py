"""Errors of the servers of pages: each has a Persian text, with the values of the English one in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from myxtts.tools.words import Translator, choose_translator, translate_error

SOURCE = Path(__file__).parents[2] / "src" / "myxtts"
SERVERS = (
    "studio/app.py",
    "studio/editor.py",
    "studio/recording.py",
    "studio/sound.py",
    "live/app.py",
    "live/speaker.py",
)
AT_THE_START = {"is a link, and nothing", "There is nothing at", ", line ", " sentences; 1 to "}
"""Words of errors that end the program on the screen before there is a page."""


def list_messages(tree: ast.AST) -> Iterator[str]:
    """Problems and next steps of all errors that a module raises, or answers with; values are written as «7»."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Error"):
            yield from (write(one) for one in node.args)
            yield from (write(keyword.value) for keyword in node.keywords if keyword.arg == "next_step")
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            yield from (write(value) for key, value in pairs if key is not None and ast.unparse(key) == "'problem'")


def write(node: ast.AST) -> str:
    """A text as it may be shown; empty where it is a value itself."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "7" for part in node.values)
    return ""


@pytest.mark.parametrize("name", SERVERS)
def test_every_message_of_a_page_has_a_persian_text(name: str) -> None:
    messages = set(list_messages(ast.parse((SOURCE / name).read_text(encoding="utf-8")))) - {"", "7 7"}
    messages = {one for one in messages if not any(words in one for words in AT_THE_START)}
    assert len(messages) >= 3
    persian = Translator("fa")
    at_the_start = {"Remove the link.", "Name a corpus, or a new folder to record into.", "Write one sentence a line."}
    at_the_start.add("Write one sentence a line, as UTF-8.")
    assert sorted(one for one in messages - at_the_start if translate_error(one, persian) == one) == []


def test_values_are_taken_over_and_numbers_get_persian_digits() -> None:
    persian = Translator("fa")
    assert translate_error("There is no clip 'a1'.", persian) == "کلیپ 'a1' وجود ندارد."
    long = translate_error("The merged clip would have 31.5 s, and clips have at most 20 s.", persian)
    assert "۳۱٫۵" in long
    assert "۲۰" in long
    assert translate_error("x.wav cannot be played: it is damaged.", persian).startswith("x.wav ")
    assert translate_error("There is no clip 'a1'.", Translator()) == "There is no clip 'a1'."
    assert translate_error("Nobody knows this one.", persian) == "Nobody knows this one."


@pytest.mark.parametrize(
    ("asked", "usual", "lang"), [("fa", "en", "fa"), ("fa-IR,en;q=0.5", "en", "fa"), ("de", "fa", "fa"), ("", "", "en")]
)
def test_the_language_of_the_page_is_chosen(asked: str, usual: str, lang: str) -> None:
    assert choose_translator(asked, usual).lang == lang
