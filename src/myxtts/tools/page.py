"""Self-contained HTML pages: style sheet, charts, pictures and sound are embedded, and nothing comes from a network.

A page with line charts (`line_charts`) holds the scripts that draw them; its content security policy allows these
scripts by their hashes, and no others. Text is escaped here; `Html` is markup that functions of this package made. A
block with nothing to show is `NOTHING`, and a section, grid or panel of empty blocks is `NOTHING` too, so that callers
need not ask whether there is data.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NewType

from myxtts.storage.atomic import write_file
from myxtts.tools.words import Translator

Html = NewType("Html", str)
"""Markup that is safe to insert as it is. A plain `str` must pass through `escape` first."""
NOTHING = Html("")
_CHART_SCRIPTS = ("uplot/uPlot.iife.min.js", "charts.js")
_CHART_MARK = 'class="chart"'
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; media-src 'self' data: blob:; "
    "font-src data:; connect-src 'self'"
)


@dataclass(frozen=True, slots=True)
class Card:
    """One figure at the top of a page: its label, its value, and a remark such as a target or an earlier value."""

    label: str
    value: str
    remark: str = ""
    name: str = ""
    """Id of its element, for a page that changes."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page with a heading, a lead, a verdict, cards and sections, in this order; `scripts` are added as they are."""

    title: str
    lead: str
    cards: Sequence[Card]
    sections: Sequence[Html]
    footer: str = ""
    lang: str = "en"
    verdict: str = ""
    scripts: Sequence[str] = ()

    def render(self) -> str:
        """Returns the whole document; Persian pages are set from right to left."""
        direction = "rtl" if self.lang == "fa" else "ltr"
        content = join(self.sections)
        scripts, words, style = list(self.scripts), NOTHING, read_asset("page.css")
        if self.lang == "fa":
            style = _embed_font() + style
        if _CHART_MARK in content:
            scripts = [*map(read_asset, _CHART_SCRIPTS), *scripts]
            words, style = _embed_words(Translator(self.lang)), read_asset("uplot/uPlot.min.css") + style
        verdict = f'<p class="verdict">{mark_command(self.verdict)}</p>' if self.verdict else ""
        return (
            f'<!DOCTYPE html>\n<html lang="{escape(self.lang)}" dir="{direction}">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_allow(scripts)}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
            f"<title>{escape(self.title)}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
            f"<header><h1>{escape(self.title)}</h1><p>{escape(self.lead)}</p></header>\n{verdict}\n"
            f'<div class="cards">{join(_make_card(card) for card in self.cards)}</div>\n{content}\n'
            f"<footer>{escape(self.footer)}</footer>\n</main>\n{words}"
            f"{''.join(f'<script>{script}</script>' for script in scripts)}\n</body>\n</html>\n"
        )

    def write(self, path: Path) -> Path:
        """Writes the page atomically: a reader sees the old page or the whole new one. Raises StorageError."""
        write_file(path, self.render().encode())
        return path


@cache
def read_asset(name: str) -> str:
    """Reads a script or style sheet of this package."""
    return (files("myxtts.tools") / name).read_text(encoding="utf-8")


@cache
def _embed_font() -> str:
    """The style of the Persian font, which few machines have."""
    font = base64.b64encode((files("myxtts.tools") / "vazirmatn" / "vazirmatn.woff2").read_bytes()).decode()
    return f"@font-face{{font-family:Vazirmatn;src:url(data:font/woff2;base64,{font});font-weight:100 900}}"


def _allow(scripts: Iterable[str]) -> str:
    """Returns the policy of a page: its own scripts, by their hashes, and nothing from other places."""
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    return f"{_POLICY}; script-src {allowed}"


def _make_card(card: Card) -> Html:
    name = f' id="{escape(card.name)}"' if card.name else ""
    return Html(
        f'<div class="card"{name}><span class="label">{escape(card.label)}</span>'
        f'<strong>{escape(card.value)}</strong><span class="remark">{escape(card.remark)}</span></div>'
    )


def embed_json(content: object, element_id: str = "") -> Html:
    """Returns data for the scripts of a page, as an element that a browser does not run."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    name = f' id="{escape(element_id)}"' if element_id else ""
    return Html(f'<script type="application/json"{name}>{text}</script>')


def _embed_words(tr: Translator) -> Html:
    """The words of the charts in the language of the page."""
    words = {
        "linear": tr("linear"),
        "logarithmic": tr("logarithmic"),
        "scale": tr("Change the scale of the values"),
        "hint": tr("Drag to zoom in, double-click to see everything again."),
    }
    return embed_json(words, "chart-words")


def escape(text: str) -> Html:
    return Html(html.escape(text, quote=True))


def join(parts: Iterable[Html]) -> Html:
    return Html("".join(parts))


def make_section(heading: str, *blocks: Html, lead: str = "") -> Html:
    """Makes a heading with an optional lead and blocks; empty where all blocks are empty."""
    content = join(blocks)
    if not content:
        return NOTHING
    about = f'<p class="lead">{escape(lead)}</p>' if lead else ""
    return Html(f"<section>\n<h2>{escape(heading)}</h2>{about}\n{content}\n</section>\n")


def make_grid(*blocks: Html) -> Html:
    """Sets blocks side by side, as many as fit the width of the screen."""
    content = join(blocks)
    return Html(f'<div class="grid">{content}</div>') if content else NOTHING


def make_stack(*blocks: Html) -> Html:
    """Sets blocks one above the other, as one cell of a grid."""
    content = join(blocks)
    return Html(f"<div>{content}</div>") if content else NOTHING


def make_panel(heading: str, *blocks: Html, note: str = "") -> Html:
    """Makes a framed block with a small heading and an optional note below."""
    content = join(blocks)
    if not content:
        return NOTHING
    remark = f'<p class="note">{escape(note)}</p>' if note else ""
    return Html(f'<div class="panel"><h3>{escape(heading)}</h3>{content}{remark}</div>')


def make_paragraph(text: str, kind: str = "note") -> Html:
    """Makes a paragraph of a class of the style sheet; its own first letter decides on the direction of writing."""
    return Html(f'<p class="{escape(kind)}" dir="auto">{mark_command(text)}</p>') if text else NOTHING


def mark_command(text: str) -> Html:
    """Escapes a text; a command that it ends with is set as code, from left to right."""
    said, colon, command = text.partition(": myxtts ")
    if not colon or ". " in command:
        return escape(text)
    return Html(f'{escape(said)}: <code dir="ltr">myxtts {escape(command)}</code>')


def make_table(heading: Sequence[str], rows: Iterable[Sequence[str]], code_columns: Sequence[int] = ()) -> Html:
    """Makes a table; `code_columns` (indices) are set in a monospaced font and from left to right in any language."""
    body = "".join(
        "<tr>" + "".join(_make_cell(cell, place in code_columns) for place, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    if not body:
        return NOTHING
    top = "".join(f"<th>{escape(name)}</th>" for name in heading)
    head = f"<thead><tr>{top}</tr></thead>" if heading else ""
    return Html(f'<div class="scroll"><table>{head}<tbody>{body}</tbody></table></div>')


def make_machine_table(machine: Mapping[str, Any], tr: Translator, corpus: str = "") -> Html:
    """Makes a table of start, command, machine and versions from `describe_environment`; old files may lack keys."""
    gpus, versions, command = machine.get("gpus"), machine.get("versions"), machine.get("command")
    names = ", ".join(map(str, gpus)) if isinstance(gpus, list) and gpus else tr("no GPU")
    texts = [f"Python {machine.get('python', '?')}"]
    texts += [f"{name} {text}" for name, text in versions.items() if text] if isinstance(versions, dict) else []
    size = f"{machine.get('num_cpus', '?')} CPUs, {machine.get('ram_gb', '?')} GB"
    rows = [
        [tr("started"), str(machine.get("started", ""))],
        [tr("command"), " ".join(map(str, command)) if isinstance(command, list) else ""],
        [tr("machine"), f"{machine.get('system', '')}, {size}, {names}"],
        [tr("versions"), ", ".join(texts)],
    ]
    return make_table([], [[tr("Corpus"), corpus], *rows] if corpus else rows, code_columns=(1,))


def make_machine_section(machine: Mapping[str, Any], tr: Translator, corpus: str = "") -> Html:
    return make_section(tr("Environment"), make_panel(tr("machine"), make_machine_table(machine, tr, corpus)))


def make_au_card(device_busy: float | None, au: float | None, tr: Translator) -> Card:
    """AU with what it is: the busy time of the GPU where that was measured, else the time without data wait."""
    if device_busy is not None:
        return Card(tr("AU"), tr.share(device_busy), tr("time in which the GPU ran kernels"))
    return Card(tr("AU"), tr.share(au) if au is not None else tr("not known"), tr("share of time not waiting for data"))


def make_details(summary: str, *blocks: Html) -> Html:
    """Makes a block that is closed until the reader opens it (the HTML element `details`)."""
    content = join(blocks)
    return Html(f"<details><summary>{escape(summary)}</summary>{content}</details>") if content else NOTHING


def make_code(text: str) -> Html:
    return Html(f'<pre dir="ltr">{escape(text)}</pre>') if text else NOTHING


def embed_plot(png: bytes, caption: str, x: str, y: str) -> Html:
    """A picture with the titles of its axes, which the page writes: they follow its language and its colours."""
    return Html(
        f'<figure><div class="plot"><span class="y" dir="auto">{escape(y)}</span>'
        f'<img alt="{escape(caption)}" src="{_embed("image/png", png)}"><span class="x" dir="auto">{escape(x)}</span>'
        f"</div><figcaption>{escape(caption)}</figcaption></figure>"
    )


def embed_sound(flac: bytes, caption: str) -> Html:
    return Html(
        f'<div class="player"><span>{escape(caption)}</span>'
        f'<audio controls preload="none" src="{_embed("audio/flac", flac)}"></audio></div>'
    )


def _make_cell(text: str, is_code: bool) -> str:
    return f'<td class="code" dir="ltr">{escape(text)}</td>' if is_code else f"<td>{escape(text)}</td>"


def _embed(kind: str, content: bytes) -> str:
    """Returns a data URL, base64: a third larger than the file, but the page needs no files beside it."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
