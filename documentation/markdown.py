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
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

_KEPT = "_- \u200c"
_SHORT_CODE = 40
_WRAPPED = ("bash", "text")
_FLAG = re.compile(r"(?<=[\s>])--[\w-]+")
_WORD = re.compile(rf"(?<!\S)\S{{1,{_SHORT_CODE}}}(?!\S)")
_UNBROKEN = r'<span class="short">\g<0></span>'
_PERSIAN = re.compile(r"[\u0600-\u06ff](?:[\u0600-\u06ff\u200c .!]*[\u0600-\u06ff.!])?")
_SOUND = ".mp3"
_MARKS = "\u200e\u200f"

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

    @property
    def sections(self) -> Iterator[tuple[Heading, str]]:
        """Each heading with the text below it, without marks, for searching."""
        headings, is_heading = iter(self.headings), False
        heading: Heading | None = None
        words: list[str] = []
        for token in self.tokens:
            if token.type == "heading_open":
                if heading is not None:
                    yield heading, " ".join(words)
                heading, words, is_heading = next(headings), [], True
            elif token.type == "heading_close":
                is_heading = False
            elif token.type in ("fence", "code_block"):
                words.append(" ".join(token.content.split()))
            elif token.type == "inline" and not is_heading:
                kinds = {"text", "code_inline", "softbreak"}
                kept = [child.content or " " for child in token.children or () if child.type in kinds]
                words.append(" ".join("".join(kept).split()))
        if heading is not None:
            yield heading, " ".join(words)

    def to_html(self, locate: Locate) -> str:
        parser, anchors = _make_parser(), iter(self.headings)
        anchor = ""
        for token in _walk(self.tokens):
            if token.type == "heading_open":
                anchor = next(anchors).anchor
                token.attrSet("id", anchor)
            if token.type == "heading_close":
                token.meta["anchor"] = anchor
            if token.type == "inline":
                _drop_marks(token.children or [])
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
    parser.add_render_rule("heading_close", _render_heading_end)
    parser.add_render_rule("link_close", _render_link_end)
    parser.add_render_rule("table_open", lambda *_: '<div class="scroll" tabindex="0"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


def _render_fence(_renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    token = tokens[index]
    language = (token.info.split() or ["text"])[0]
    try:
        lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        lexer = get_lexer_by_name("text", stripnl=False)
    text = highlight(token.content.rstrip("\n"), lexer, HtmlFormatter(nowrap=True)).rstrip("\n")
    # Otherwise the full stop of a Persian sentence would be shown before its first word.
    text = _PERSIAN.sub(r"<bdi>\g<0></bdi>", text)
    lines = text.splitlines(keepends=True)
    if language in _WRAPPED and all(line.count("<span") == line.count("</span>") for line in lines):
        text = "".join(map(_render_line, lines))
    return f'<div class="block"><pre dir="ltr" tabindex="0"><code>{text}</code></pre></div>\n'


def _render_line(line: str) -> str:
    """Makes a line of code wrap where it is too long, but not inside a flag; what continues it is indented."""
    return f'<span class="line">{_FLAG.sub(_UNBROKEN, line)}</span>'


def _render_inline_code(_renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    content = escape(tokens[index].content, quote=False)
    # A flag must not be torn at its dashes; long commands wrap between words.
    if len(content) <= _SHORT_CODE:
        return f'<code dir="ltr" class="short">{content}</code>'
    return f'<code dir="ltr">{_WORD.sub(_UNBROKEN, content)}</code>'


def _render_link_end(_renderer: Any, tokens: Sequence[Token], _index: int, _options: Any, _env: Any) -> str:
    """Behind a link to a sound that stands alone, as in a cell of a table, comes a player."""
    address = str(tokens[0].attrGet("href")) if len(tokens) == 3 else ""
    player = f' <audio controls preload="none" src="{escape(address)}"></audio>' if address.endswith(_SOUND) else ""
    return f"</a>{player}"


def _render_heading_end(_renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    token = tokens[index]
    anchor = escape(str(token.meta.get("anchor", "")))
    return f' <a class="anchor" href="#{anchor}" aria-label="#">#</a></{token.tag}>\n'


def _drop_marks(tokens: Sequence[Token]) -> None:
    """Code has its own direction on the site, so the marks beside it, which GitHub needs, would only move commas."""
    for before, code, after in zip(tokens, tokens[1:], [*tokens[2:], None], strict=False):
        if code.type == "code_inline":
            before.content = before.content.rstrip(_MARKS)
            if after is not None:
                after.content = after.content.lstrip(_MARKS)
    if tokens and tokens[0].type == "code_inline" and len(tokens) > 1:
        tokens[1].content = tokens[1].content.lstrip(_MARKS)


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
