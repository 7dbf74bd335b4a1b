"""Self-contained HTML reports: style sheet, charts, pictures and audio are embedded, without JavaScript or network.

All tools write their reports with it. Text is escaped here; `Html` is markup that functions of this package made. A
block with nothing to show is `NOTHING`, and a section, grid or panel of empty blocks is `NOTHING` too, so that callers
need not ask whether there is data.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NewType

from myxtts.storage.atomic import write_atomically
from myxtts.tools.words import Translator

# Light and dark by the reader's system, left to right and right to left, screen and print. Spectrograms, charts and
# audio players stay left to right in any language, because time runs to the right in them.
STYLE = """
:root{--ground:#f6f7f9;--sheet:#fff;--ink:#1c2230;--soft:#5c6475;--line:#e2e5ea;--accent:#2f5fd0;
--c0:#2f5fd0;--c1:#d9632b;--c2:#1f9d78;--c3:#a14bc4;--c4:#c2a012;--c5:#6d7687}
@media (prefers-color-scheme:dark){:root{--ground:#12151b;--sheet:#1b1f28;--ink:#e7eaf0;--soft:#9aa3b5;
--line:#2d333f;--accent:#7ea2ff;--c0:#7ea2ff;--c1:#ff9a66;--c2:#4fd1a5;--c3:#d290f0;--c4:#e3c54a;--c5:#98a1b3}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);line-height:1.55;font-size:16px;
font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","DejaVu Sans",sans-serif}
[dir=rtl] body{font-family:Vazirmatn,Vazir,"IRANSansX","Segoe UI","Noto Sans Arabic","Noto Naskh Arabic",Tahoma,
"DejaVu Sans",sans-serif;line-height:1.8}
main{max-width:1080px;margin:0 auto;padding:2.5rem 1.25rem 3rem}
header{margin-bottom:1.5rem}
h1{font-size:1.9rem;line-height:1.25;margin:0 0 .35rem;letter-spacing:-.01em}
[dir=rtl] h1{letter-spacing:0}
header p,.lead{color:var(--soft);margin:0;max-width:46rem}
h2{font-size:1.25rem;margin:2.75rem 0 .25rem}
h3{font-size:.95rem;margin:0 0 .5rem;font-weight:600}
.lead{margin-bottom:.9rem}
.note{color:var(--soft);font-size:.85rem;margin:.5rem 0 0}
.quote{font-size:1.02rem;margin:0 0 .7rem}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:.75rem}
.card,.panel{background:var(--sheet);border:1px solid var(--line);border-radius:10px}
.card{padding:.85rem 1rem;display:flex;flex-direction:column;gap:.1rem;border-top:3px solid var(--accent)}
.card .label{font-size:.8rem;color:var(--soft)}
.card strong{font-size:1.55rem;font-weight:650;line-height:1.3;font-variant-numeric:tabular-nums}
.card .remark{font-size:.8rem;color:var(--soft)}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,430px),1fr));gap:1rem;margin-top:.75rem}
.panel{padding:1rem 1.1rem;min-width:0;margin-top:.75rem}
.grid>.panel,.grid>div>.panel:first-child{margin-top:0}
svg{display:block;width:100%;height:auto;direction:ltr}
svg text{fill:var(--soft);font-size:11px;font-family:inherit;font-variant-numeric:tabular-nums}
svg .rule{stroke:var(--line);stroke-width:1}
svg path{fill:none;stroke-width:1.9;stroke-linejoin:round;stroke-linecap:round}
svg .faint{opacity:.28;stroke-width:1}
.c0{stroke:var(--c0);fill:var(--c0);--own:var(--c0)}.c1{stroke:var(--c1);fill:var(--c1);--own:var(--c1)}
.c2{stroke:var(--c2);fill:var(--c2);--own:var(--c2)}.c3{stroke:var(--c3);fill:var(--c3);--own:var(--c3)}
.c4{stroke:var(--c4);fill:var(--c4);--own:var(--c4)}.c5{stroke:var(--c5);fill:var(--c5);--own:var(--c5)}
.legend{display:flex;flex-wrap:wrap;gap:.25rem 1.1rem;margin:.5rem 0 0;padding:0;list-style:none;font-size:.83rem;
color:var(--soft)}
.legend i{display:inline-block;width:.75rem;height:.75rem;border-radius:3px;background:var(--own);
margin-inline-end:.4rem;vertical-align:-.08rem}
.share{display:flex;height:26px;border-radius:6px;overflow:hidden;background:var(--line)}
.share span{background:var(--own);min-width:1px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.88rem}
th,td{text-align:start;padding:.38rem .7rem .38rem 0;border-bottom:1px solid var(--line);vertical-align:top}
[dir=rtl] th,[dir=rtl] td{padding:.38rem 0 .38rem .7rem}
th{color:var(--soft);font-weight:600}
th::first-letter{text-transform:uppercase}
td{font-variant-numeric:tabular-nums}
.code,pre{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.82rem}
.code{text-align:left;overflow-wrap:anywhere}
[dir=rtl] .code{text-align:right}
pre{overflow-x:auto;margin:.5rem 0 0;padding:.8rem 1rem;background:var(--ground);border-radius:8px;text-align:left}
figure{margin:.75rem 0 0}
figure img{width:100%;height:auto;display:block;direction:ltr}
figcaption{font-size:.8rem;color:var(--soft)}
.player{display:flex;align-items:center;gap:.8rem;margin-top:.4rem}
.player span{flex:0 0 7.5rem;font-size:.85rem;color:var(--soft)}
.player audio{flex:1;min-width:0;height:34px;direction:ltr}
details{margin-top:.75rem}
summary{cursor:pointer;color:var(--accent);font-size:.9rem}
footer{margin-top:3rem;padding-top:1rem;border-top:1px solid var(--line);color:var(--soft);font-size:.82rem}
@media print{:root{--ground:#fff;--sheet:#fff;--ink:#000;--soft:#444;--line:#ccc;--accent:#2f5fd0;--c0:#2f5fd0;
--c1:#d9632b;--c2:#1f9d78;--c3:#a14bc4;--c4:#c2a012;--c5:#6d7687}
main{max-width:none;padding:0}.panel,.card,tr{break-inside:avoid}h2{break-after:avoid}.player{display:none}
@page{margin:16mm}}
"""


Html = NewType("Html", str)
"""Markup that is safe to insert as it is. A plain `str` must pass through `escape` first."""
NOTHING = Html("")


@dataclass(frozen=True, slots=True)
class Card:
    """One figure at the top of a page: its label, its value, and a remark such as a target or an earlier value."""

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
        """Returns the whole document; Persian pages are set from right to left."""
        direction = "rtl" if self.lang == "fa" else "ltr"
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
        """Writes the page atomically: a reader sees the old page or the whole new one. Raises StorageError."""
        with write_atomically(path) as file:
            file.write(self.render().encode())
        return path


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
    return Html(f'<p class="{escape(kind)}" dir="auto">{escape(text)}</p>') if text else NOTHING


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


def make_details(summary: str, *blocks: Html) -> Html:
    """Makes a block that is closed until the reader opens it (the HTML element `details`)."""
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
    """Returns a data URL, base64: a third larger than the file, but the page needs no files beside it."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
