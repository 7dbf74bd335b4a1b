"""The frame around every page: search, menu, theme and language at the top, the list of pages, the headings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import myxtts.tools
from documentation.markdown import Heading
from documentation.words import WORDS, Language

LOOK_FOLDERS = (Path(__file__).with_name("look"), Path(myxtts.tools.__file__).with_name("vazirmatn"))
"""Files that every page uses: style and script; the Persian font, which reports use too, and its licence."""
_MIN_HEADINGS_LISTED = 3
# Runs before the page is drawn, so that a dark page does not flash white.
_EARLY = (
    "(d=>{let t;try{t=localStorage.getItem('myxtts-theme')}catch{}"
    "d.dataset.theme=t||(matchMedia('(prefers-color-scheme:dark)').matches?'dark':'light');d.classList.add('js')})"
    "(document.documentElement)"
)


@dataclass(frozen=True, slots=True)
class Link:
    """A page of the site, by its address as seen from the page that shows the link."""

    address: str
    title: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What stands around a page: the groups of all pages, the same page in other languages, its neighbours."""

    groups: Sequence[tuple[str, Sequence[Link]]]
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
    home = around.groups[0][1][0].address
    return (
        f'{_open_page(title, language, around.root)}<a class="skip" href="#main-text">{words.skip}</a>\n'
        f'<header class="top"><button id="menu" type="button" aria-expanded="false">☰ {words.contents}</button>'
        f'<a class="brand" href="{escape(home)}">MyXTTS</a>'
        f'<div class="find"><input id="find" type="search" placeholder="{words.search}" aria-label="{words.search}"'
        f' autocomplete="off" data-index="{around.root}search.{language}.js"><ol id="found" hidden></ol></div>'
        f'<button id="theme" type="button" title="{words.theme}" aria-label="{words.theme}">◐</button>'
        f"{_offer_languages(around)}</header>\n"
        f'<div class="whole"><nav class="pages" aria-label="{words.contents}">{_list_pages(around)}</nav>\n'
        f'<main id="main-text">\n{body}{_turn(around, words.before, words.after)}</main>\n{here}</div>\n'
        f'<footer>{words.footer}</footer>\n<script src="{around.root}site.js"></script>\n</body>\n</html>\n'
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
    words = WORDS[language]
    said = f'data-copy="{words.copy}" data-copied="{words.copied}" data-nothing="{words.nothing}"'
    return (
        f'<!doctype html>\n<html lang="{language}" dir="{words.direction}" {said}>\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">\n<title>{escape(title)}</title>\n'
        f'<link rel="stylesheet" href="{root}style.css">\n<script>{_EARLY}</script>\n</head>\n<body>\n'
    )


def _offer_languages(around: Surroundings) -> str:
    return " ".join(
        f'<a class="tongue" href="{escape(address)}" lang="{language}" hreflang="{language}">{WORDS[language].name}</a>'
        for language, address in around.others
    )


def _list_pages(around: Surroundings) -> str:
    return "".join(
        f"<h2>{title}</h2><ol>{''.join(_make_item(page, around.here) for page in pages)}</ol>"
        for title, pages in around.groups
        if pages
    )


def _make_item(page: Link, here: str) -> str:
    mark = ' aria-current="page"' if page.address == here else ""
    return f'<li><a href="{escape(page.address)}"{mark}>{escape(page.title)}</a></li>'


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
