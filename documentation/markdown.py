"""One Markdown page as HTML: anchors as GitHub gives them, code that stays left to right, and its links."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

_KEPT = "_- \u200c"
_COMMENT = re.compile(r"(^|\s)(#.*)$", re.MULTILINE)
_SHELLS = ("bash", "yaml")

Locate = Callable[[str], str]
"""From an address as the page writes it to the one on the site."""


@dataclass(frozen=True, slots=True)
class Heading:
    level: int
    text: str
    anchor: str


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A fenced block: its language, the words behind it, its text, and the line of the page it begins at."""

    language: str
    marks: tuple[str, ...]
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class MarkdownPage:
    """A page that was read but not yet drawn."""

    path: Path
    tokens: tuple[Token, ...]
    headings: tuple[Heading, ...]

    @classmethod
    def read(cls, path: Path) -> MarkdownPage:
        return cls.parse(path, path.read_text(encoding="utf-8"))

    @classmethod
    def parse(cls, path: Path, text: str) -> MarkdownPage:
        tokens = _make_parser().parse(text)
        return cls(path, tuple(tokens), tuple(_name_headings(tokens)))

    @property
    def title(self) -> str:
        return next((heading.text for heading in self.headings if heading.level == 1), self.path.stem)

    @property
    def links(self) -> list[str]:
        """All addresses that the page refers to, pictures among them."""
        found = []
        for token in _walk(self.tokens):
            address = token.attrGet("href") if token.type == "link_open" else None
            address = token.attrGet("src") if token.type == "image" else address
            if address is not None:
                found.append(str(address))
        return found

    @property
    def code_blocks(self) -> list[CodeBlock]:
        blocks = []
        for token in self.tokens:
            if token.type == "fence":
                language, *marks = token.info.split() or [""]
                blocks.append(CodeBlock(language, tuple(marks), token.content, token.map[0] + 1 if token.map else 0))
        return blocks

    def to_html(self, locate: Locate) -> str:
        parser, anchors = _make_parser(), iter(self.headings)
        for token in _walk(self.tokens):
            if token.type == "heading_open":
                token.attrSet("id", next(anchors).anchor)
            for name in ("href", "src"):
                address = token.attrGet(name)
                if address is not None:
                    token.attrSet(name, locate(str(address)))
        return str(parser.renderer.render(self.tokens, parser.options, {}))


def make_anchor(text: str) -> str:
    """What GitHub makes of a heading, so that links work on both: letters with their marks, digits, - and _ stay."""
    kept = (char for char in text.strip().lower() if char in _KEPT or unicodedata.category(char)[0] in "LMN")
    return "".join(kept).replace(" ", "-")


def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
    parser.add_render_rule("fence", _render_fence)
    parser.add_render_rule("code_block", _render_fence)
    parser.add_render_rule("code_inline", _render_inline_code)
    parser.add_render_rule("table_open", lambda *_: '<div class="scroll"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


def _render_fence(_renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    token = tokens[index]
    text = escape(token.content.rstrip("\n"), quote=False)
    if token.info.split()[:1] and token.info.split()[0] in _SHELLS:
        text = _COMMENT.sub(r'\1<span class="comment">\2</span>', text)
    return f'<pre dir="ltr"><code>{text}</code></pre>\n'


def _render_inline_code(_renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    return f'<code dir="ltr">{escape(tokens[index].content, quote=False)}</code>'


def _name_headings(tokens: Sequence[Token]) -> Iterator[Heading]:
    seen: Counter[str] = Counter()
    for token, inline in pairwise(tokens):
        if token.type != "heading_open":
            continue
        text = "".join(child.content for child in inline.children or ())
        anchor = make_anchor(text)
        number = seen[anchor]
        seen[anchor] += 1
        yield Heading(int(token.tag[1]), text, f"{anchor}-{number}" if number else anchor)


def _walk(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _walk(token.children or ())
