"""The frame around every page and the look of the site: light and dark, both directions, narrow screens and paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from documentation.markdown import Heading
from documentation.words import WORDS, Language

STYLE_FILE_NAME = "style.css"
_MIN_HEADINGS_LISTED = 3

STYLE = """
:root{--ground:#f6f7f9;--sheet:#fff;--ink:#1c2230;--soft:#5c6475;--line:#e2e5ea;--accent:#2f5fd0;--code:#eef1f6}
@media (prefers-color-scheme:dark){:root{--ground:#12151b;--sheet:#1b1f28;--ink:#e7eaf0;--soft:#9aa3b5;
--line:#2d333f;--accent:#8fb0ff;--code:#262c38}}
*{box-sizing:border-box}
html{scroll-padding-top:1rem}
body{margin:0;background:var(--ground);color:var(--ink);font-size:1.0625rem;line-height:1.65;
font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","DejaVu Sans",sans-serif}
[dir=rtl] body{line-height:1.95;
font-family:Vazirmatn,Vazir,IRANSansX,"Segoe UI","Noto Naskh Arabic","Noto Sans Arabic",Tahoma,"DejaVu Sans",sans-serif}
a{color:var(--accent);text-decoration-thickness:1px;text-underline-offset:.2em}
.skip{position:absolute;inset-inline-start:-200vw}
.skip:focus{inset-inline-start:1rem;top:1rem;background:var(--sheet);padding:.5rem 1rem}
.top{display:flex;gap:1.5rem;align-items:baseline;justify-content:space-between;padding:.9rem 1.5rem;
border-bottom:1px solid var(--line);background:var(--sheet)}
.top a{text-decoration:none}
.top .brand{font-weight:700;color:var(--ink)}
.whole{display:grid;grid-template-columns:15rem minmax(0,50rem) 13rem;gap:2.5rem;max-width:84rem;margin:0 auto;
padding:2rem 1.5rem 4rem}
.pages,.here{font-size:.92rem;line-height:1.5}
.pages ol,.here ol{list-style:none;margin:0;padding:0}
.pages h2,.here h2{font-size:.78rem;margin:0 0 .6rem;color:var(--soft);font-weight:600;border:0;padding:0}
.pages a,.here a{display:block;padding:.25rem .6rem;color:var(--soft);text-decoration:none;border-radius:6px}
.pages a:hover,.here a:hover{color:var(--ink);background:var(--code)}
.pages a[aria-current]{color:var(--ink);font-weight:600;background:var(--code);
border-inline-start:3px solid var(--accent)}
.here{position:sticky;top:1.5rem;align-self:start;max-height:90vh;overflow:auto}
main{min-width:0;background:var(--sheet);border:1px solid var(--line);border-radius:12px;padding:2.2rem 2.5rem}
h1{font-size:2.05rem;line-height:1.25;margin:0 0 1rem;letter-spacing:-.015em}
h2{font-size:1.4rem;line-height:1.35;margin:2.6rem 0 .7rem;padding-bottom:.3rem;border-bottom:1px solid var(--line)}
h3{font-size:1.1rem;margin:1.9rem 0 .5rem}
[dir=rtl] h1,[dir=rtl] h2,[dir=rtl] h3{letter-spacing:0;line-height:1.6}
p,ul,ol,blockquote{margin:0 0 1rem}
ul,ol{padding-inline-start:1.5rem}
li{margin:.25rem 0}
li>p{margin:.25rem 0}
code,pre{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.84em}
code{background:var(--code);border-radius:4px;padding:.1em .3em;unicode-bidi:isolate;overflow-wrap:anywhere}
pre{background:var(--code);border-radius:8px;padding:.9rem 1.1rem;overflow-x:auto;line-height:1.55;margin:0 0 1.1rem;
text-align:left;direction:ltr}
pre code{background:none;padding:0;font-size:1em;overflow-wrap:normal}
.comment{color:var(--soft)}
blockquote{border-inline-start:3px solid var(--accent);padding:.1rem 1rem;color:var(--soft)}
.scroll{overflow-x:auto;margin:0 0 1.2rem}
table{border-collapse:collapse;width:100%;font-size:.92rem;line-height:1.5}
th,td{text-align:start;vertical-align:top;padding:.5rem .8rem .5rem 0;border-bottom:1px solid var(--line)}
[dir=rtl] th,[dir=rtl] td{padding:.5rem 0 .5rem .8rem}
th{color:var(--soft);font-weight:600}
td code{overflow-wrap:break-word}
img{max-width:100%;height:auto;display:block;margin:1.2rem auto}
.turn{display:flex;justify-content:space-between;gap:1rem;margin-top:3rem;padding-top:1.2rem;
border-top:1px solid var(--line)}
.turn a{text-decoration:none}
.turn span{display:block;font-size:.8rem;color:var(--soft)}
.turn .after{text-align:end;margin-inline-start:auto}
footer{max-width:84rem;margin:0 auto;padding:0 1.5rem 2rem;color:var(--soft);font-size:.85rem}
.choice{display:flex;gap:1rem;flex-wrap:wrap}
.choice a{flex:1 1 14rem;padding:1.4rem;border:1px solid var(--line);border-radius:12px;text-decoration:none;
font-size:1.2rem;font-weight:600;background:var(--ground)}
@media (max-width:75rem){.whole{grid-template-columns:14rem minmax(0,1fr);gap:2rem}.here{display:none}}
@media (max-width:50rem){.whole{grid-template-columns:minmax(0,1fr);padding:1rem .8rem 3rem;gap:1rem}
main{padding:1.4rem 1.1rem}.pages{order:2}h1{font-size:1.7rem}}
@media print{.top,.pages,.here,.turn,footer{display:none}.whole{display:block;padding:0}
main{border:0;padding:0}body{background:#fff;font-size:11pt}h2,h3{break-after:avoid}pre,tr{break-inside:avoid}}
"""


@dataclass(frozen=True, slots=True)
class Link:
    """A page of the site, by its address as seen from the page that shows the link."""

    address: str
    title: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What stands around a page: the list of all pages, the same page in other languages, its neighbours."""

    pages: Sequence[Link]
    here: str
    others: Sequence[tuple[Language, str]]
    before: Link | None
    after: Link | None
    root: str
    """The way to the site's first folder, such as "../"."""


def make_html(title: str, body: str, headings: Sequence[Heading], language: Language, around: Surroundings) -> str:
    words = WORDS[language]
    listed = [heading for heading in headings if heading.level == 2]
    here = _list_headings(listed, words.on_this_page) if len(listed) >= _MIN_HEADINGS_LISTED else "<div></div>"
    return (
        f'{_open_page(title, language, around.root)}<a class="skip" href="#main-text">{words.skip}</a>\n'
        f'<header class="top"><a class="brand" href="{escape(around.pages[0].address)}">MyXTTS</a>'
        f"<nav>{_offer_languages(around)}</nav></header>\n"
        f'<div class="whole"><nav class="pages" aria-label="{words.contents}"><h2>{words.contents}</h2>'
        f"<ol>{_list_pages(around)}</ol></nav>\n"
        f'<main id="main-text">\n{body}{_turn(around, words.before, words.after)}</main>\n{here}</div>\n'
        f"<footer>{words.footer}</footer>\n</body>\n</html>\n"
    )


def make_choice(addresses: Sequence[tuple[Language, str]]) -> str:
    """The first page of the site, which only asks for the language."""
    links = "".join(
        f'<a href="{escape(address)}" lang="{language}" dir="{WORDS[language].direction}">{WORDS[language].name}</a>'
        for language, address in addresses
    )
    return (
        f'{_open_page("MyXTTS", "en", "")}<div class="whole"><div></div><main><h1>MyXTTS</h1>'
        f'<div class="choice">{links}</div></main></div>\n</body>\n</html>\n'
    )


def _open_page(title: str, language: Language, root: str) -> str:
    return (
        f'<!doctype html>\n<html lang="{language}" dir="{WORDS[language].direction}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">\n<title>{escape(title)}</title>\n'
        f'<link rel="stylesheet" href="{root}{STYLE_FILE_NAME}">\n</head>\n<body>\n'
    )


def _offer_languages(around: Surroundings) -> str:
    return " ".join(
        f'<a href="{escape(address)}" lang="{language}" hreflang="{language}">{WORDS[language].name}</a>'
        for language, address in around.others
    )


def _list_pages(around: Surroundings) -> str:
    marks = [' aria-current="page"' if page.address == around.here else "" for page in around.pages]
    return "".join(
        f'<li><a href="{escape(page.address)}"{mark}>{escape(page.title)}</a></li>'
        for page, mark in zip(around.pages, marks, strict=True)
    )


def _list_headings(headings: Sequence[Heading], title: str) -> str:
    items = "".join(f'<li><a href="#{heading.anchor}">{escape(heading.text)}</a></li>' for heading in headings)
    return f'<nav class="here" aria-label="{title}"><h2>{title}</h2><ol>{items}</ol></nav>\n'


def _turn(around: Surroundings, before: str, after: str) -> str:
    neighbours = (("before", around.before, before), ("after", around.after, after))
    links = "".join(
        f'<a class="{side}" href="{escape(page.address)}"><span>{word}</span>{escape(page.title)}</a>'
        for side, page, word in neighbours
        if page is not None
    )
    return f'<nav class="turn">{links}</nav>\n'
