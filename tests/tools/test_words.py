"""Translations: every text of the code is in the catalogue and no other, and both languages write numbers their way."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from myxtts.errors import UsageError
from myxtts.studio.app import TEXTS as STUDIO_TEXTS
from myxtts.tools.words import Translator, mark, read_catalogue
from myxtts.training.terms import VOCODER, VOICE
from myxtts.types import PAGE_LANGUAGES

SOURCE = Path(__file__).parents[2] / "src" / "myxtts"
PLACEHOLDER = re.compile(r"\{\w+\}")


def list_texts(tree: ast.AST) -> Iterator[str]:
    """Literals that are given to a translator (`tr`, in its own class `self`) or marked for one."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = ast.unparse(node.func)
        if function in ("tr", "self", "mark") or function.endswith("tr.row"):
            for argument in node.args:
                yield from list_literals(argument)


def list_literals(node: ast.AST) -> Iterator[str]:
    assert not isinstance(node, ast.JoinedStr), f"line {node.lineno}: a text with its values in it cannot be looked up"
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from (*list_literals(node.body), *list_literals(node.orelse))
    elif isinstance(node, ast.Dict):
        for value in node.values:
            yield from list_literals(value)


def collect_texts() -> set[str]:
    files = [
        *SOURCE.glob("tools/**/*.py"),
        *SOURCE.glob("live/*.py"),
        *SOURCE.glob("studio/*.py"),
        *SOURCE.glob("cli/*.py"),
    ]
    texts = {text for file in files for text in list_texts(ast.parse(file.read_text(encoding="utf-8")))}
    texts |= set(STUDIO_TEXTS.values())
    for model in (VOICE, VOCODER):
        texts |= {*model.labels.values(), *model.charts, model.about_validation, model.about_samples}
        texts |= {term.label for term in model.terms}
    return texts


def test_every_text_of_the_code_is_in_the_catalogue_and_no_other() -> None:
    texts, catalogue = collect_texts(), set(read_catalogue())
    assert len(texts) > 200
    assert sorted(texts - catalogue) == []
    assert sorted(catalogue - texts) == []


def test_both_languages_have_the_same_placeholders() -> None:
    for english, persian in (read_catalogue() | read_catalogue("fa_errors.json")).items():
        assert sorted(PLACEHOLDER.findall(english)) == sorted(PLACEHOLDER.findall(persian)), english


def test_persian_is_written_with_persian_letters_and_digits() -> None:
    for english, persian in (read_catalogue() | read_catalogue("fa_errors.json")).items():
        assert not re.search("[يك٠-٩]", persian), english
        # Not those of a Latin term, such as bfloat16.
        assert not re.search("(?<![A-Za-z0-9])[0-9]", PLACEHOLDER.sub("", persian)), english


def test_a_text_in_a_format_string_is_refused() -> None:
    with pytest.raises(AssertionError, match="cannot be looked up"):
        list(list_texts(ast.parse('tr(f"Step {step}")')))


def test_a_text_is_translated_and_filled() -> None:
    english, persian = Translator("en"), Translator("fa")
    assert english("Step {step}", step=english.count(1234)) == "Step 1,234"
    assert persian("Step {step}", step=persian.count(1234)) == "گام ۱٬۲۳۴"
    assert persian.row("Setting", "Value") == [persian("Setting"), persian("Value")]
    assert persian.join(["a", "b"]) == "a، b"
    assert persian("runs/anna") == "runs/anna"
    assert mark({"a": "text"}) == {"a": "text"}


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(UsageError, match="no language 'de'"):
        Translator("de")
    assert PAGE_LANGUAGES == ("en", "fa")


def test_numbers_are_written_as_people_read_them() -> None:
    english, persian = Translator("en"), Translator("fa")
    assert [english.number(value) for value in (0.00012, 0.5, 12.345, 1234.5, float("nan"))] == [
        "1.2e-4",
        "0.500",
        "12.3",
        "1,234",
        "–",
    ]
    assert persian.number(12.345) == "۱۲٫۳"
    assert persian.share(0.5) == "۵۰٫۰٪"
    assert english.share(0.256, digits=0) == "26 %"
    assert english.time(30) == "30 s"
    assert english.time(7200) == "2.0 h"
