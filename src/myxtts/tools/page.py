"""One HTML page without anything outside of it: style, plots, pictures and sounds are inside. All tools write these.

Everything that is given as text is escaped; what is given as `Html` was made by functions of this package.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NewType

from myxtts.files import write_atomically
from myxtts.tools.page_style import STYLE

Html = NewType("Html", str)
NOTHING = Html("")
RIGHT_TO_LEFT = ("fa", "ar", "he", "ur")


@dataclass(frozen=True, slots=True)
class Card:
    """One number at the top of a page: what it is, the number, and what to compare it with."""

    label: str
    value: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A page with a heading, a lead, cards and sections, in this order."""

    title: str
    lead: str
    cards: Sequence[Card]
    sections: Sequence[Html]
    footer: str = ""
    lang: str = "en"

    def render(self) -> str:
        direction = find_direction(self.lang)
        cards = join(
            Html(
                f'<div class="card"><span class="label">{escape(card.label)}</span>'
                f'<strong>{escape(card.value)}</strong><span class="remark">{escape(card.remark)}</span></div>'
            )
            for card in self.cards
        )
        return (
            f'<!DOCTYPE html>\n<html lang="{escape(self.lang)}" dir="{direction}">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n'
            f"<title>{escape(self.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
            f"<header><h1>{escape(self.title)}</h1><p>{escape(self.lead)}</p></header>\n"
            f'<div class="cards">{cards}</div>\n{join(self.sections)}\n'
            f"<footer>{escape(self.footer)}</footer>\n</main>\n</body>\n</html>\n"
        )

    def write(self, path: Path) -> Path:
        """Writes the page whole or not at all."""
        with write_atomically(path) as file:
            file.write(self.render().encode())
        return path


def find_direction(lang: str) -> str:
    return "rtl" if lang in RIGHT_TO_LEFT else "ltr"


def escape(text: str) -> Html:
    return Html(html.escape(text, quote=True))


def join(parts: Iterable[Html]) -> Html:
    return Html("".join(parts))


def make_section(heading: str, *blocks: Html, lead: str = "") -> Html:
    """Nothing where there is nothing to show."""
    content = join(blocks)
    if not content:
        return NOTHING
    about = f'<p class="lead">{escape(lead)}</p>' if lead else ""
    return Html(f"<section>\n<h2>{escape(heading)}</h2>{about}\n{content}\n</section>\n")


def make_grid(blocks: Iterable[Html]) -> Html:
    """Blocks side by side, as many as fit."""
    content = join(blocks)
    return Html(f'<div class="grid">{content}</div>') if content else NOTHING


def make_stack(*blocks: Html) -> Html:
    """Blocks one above the other, as one place of a grid."""
    content = join(blocks)
    return Html(f"<div>{content}</div>") if content else NOTHING


def make_panel(heading: str, *blocks: Html, note: str = "") -> Html:
    """A block with a small heading."""
    content = join(blocks)
    if not content:
        return NOTHING
    remark = f'<p class="note">{escape(note)}</p>' if note else ""
    return Html(f'<div class="panel"><h3>{escape(heading)}</h3>{content}{remark}</div>')


def make_paragraph(text: str, kind: str = "note") -> Html:
    return Html(f'<p class="{escape(kind)}" dir="auto">{escape(text)}</p>') if text else NOTHING


def make_table(heading: Sequence[str], rows: Iterable[Sequence[str]], code_columns: Sequence[int] = ()) -> Html:
    """A table; columns of code are set in a fixed width and read from left to right in any language."""
    body = "".join(
        "<tr>" + "".join(_make_cell(cell, place in code_columns) for place, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    if not body:
        return NOTHING
    top = "".join(f"<th>{escape(name)}</th>" for name in heading)
    head = f"<thead><tr>{top}</tr></thead>" if heading else ""
    return Html(f'<div class="scroll"><table>{head}<tbody>{body}</tbody></table></div>')


def make_details(summary: str, *blocks: Html) -> Html:
    """Blocks that are folded away until they are asked for."""
    content = join(blocks)
    return Html(f"<details><summary>{escape(summary)}</summary>{content}</details>") if content else NOTHING


def make_code(text: str) -> Html:
    return Html(f'<pre dir="ltr">{escape(text)}</pre>') if text else NOTHING


def embed_picture(png: bytes, caption: str) -> Html:
    return Html(
        f'<figure><img alt="{escape(caption)}" src="{_embed("image/png", png)}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def embed_sound(wav: bytes, caption: str) -> Html:
    return Html(
        f'<div class="player"><span>{escape(caption)}</span>'
        f'<audio controls preload="none" src="{_embed("audio/wav", wav)}"></audio></div>'
    )


def _make_cell(text: str, is_code: bool) -> str:
    return f'<td class="code" dir="ltr">{escape(text)}</td>' if is_code else f"<td>{escape(text)}</td>"


def _embed(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
