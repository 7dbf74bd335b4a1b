"""Messages that the pages quote are messages of the program: people search for what they see."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.commands import ROOT, list_inline_code

from documentation.markdown import MarkdownPage

PAGES = sorted(path for path in ROOT.glob("docs/*/*.md") if path.stem not in ("configuration", "api"))
COMMANDS = ("myxtts ", "make ", "python ", "pip ", "iconv ", "--", "from ")
NOT_OURS = {"tomato\ttəˈmɑːtəʊ"}
MIN_WORDS, MIN_FRAGMENT = 5, 8


def collect_fragments() -> list[str]:
    """The constant parts of all strings in the source, as they are when a message is put together."""
    fragments = set()
    for path in (ROOT / "src" / "myxtts").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                fragments.add(node.value.strip(" ,.;:"))
    return sorted(fragment for fragment in fragments if len(fragment) >= MIN_FRAGMENT)


FRAGMENTS = collect_fragments()


# Words of earlier messages that nobody could search for, with what is said instead.
AVOIDED = {
    r"\bfeature store\b|\bthe store\b|\ba store\b|stale cache": "feature cache",
    r"\banew\b": "again",
    r"\bcritics?\b": "discriminators",
    r"\b(go|goes|going) on (with|from|without)\b": "continue, resume",
    r"\bbegun\b": "started",
    r"\b(whoever|somebody|nobody)\b": "anyone, another process",
    r"\b(is|are) not there\b": "does not exist",
    r"is not said|torn apart|leans on": "the name of the option",
}


def iterate_messages() -> Iterator[tuple[str, str]]:
    """Strings of the source that may be shown, with their places: of four words and more, without docstrings."""
    for path in sorted((ROOT / "src" / "myxtts").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                text = child.value if isinstance(child, ast.Constant) and not isinstance(node, ast.Expr) else None
                if isinstance(text, str) and len(text.split()) >= 4:
                    yield f"{path.relative_to(ROOT)}:{node.lineno if hasattr(node, 'lineno') else 0}", text


def test_messages_use_the_words_of_the_field() -> None:
    found = [
        f"{place}: {text[:80]!r}: say {instead}"
        for place, text in iterate_messages()
        for pattern, instead in AVOIDED.items()
        if re.search(pattern, text)
    ]
    assert not found, "\n".join(found)


def list_quotes(path: Path) -> list[str]:
    blocks = [block.text for block in MarkdownPage.read(path).code_blocks if block.language == "text"]
    lines = [line.strip() for block in blocks for line in block.splitlines() if "→" not in line or "…" in line]
    sentences = [code for code in list_inline_code(path) if not code.startswith(COMMANDS)]
    return [quote for quote in (*lines, *sentences) if len(quote.split()) >= MIN_WORDS and quote not in NOT_OURS]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_a_page_quotes_is_said_by_the_program(path: Path) -> None:
    unknown = [quote for quote in list_quotes(path) if not any(fragment in quote for fragment in FRAGMENTS)]
    assert not unknown


def test_an_invented_message_is_found() -> None:
    assert not any(fragment in "Everything went wrong for reasons of weather." for fragment in FRAGMENTS)
    assert len(list_quotes(ROOT / "docs" / "en" / "troubleshooting.md")) >= 15
