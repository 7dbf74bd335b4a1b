"""Builds the site: every page of docs/ in both languages, the README as the first one, and the files they refer to."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from urllib.parse import unquote, urlsplit

from documentation.frame import LOOK_FOLDERS, Link, Surroundings, make_choice, make_html
from documentation.markdown import MarkdownPage
from documentation.words import LANGUAGES, PAGE_GROUPS, PAGE_NAMES, READMES, WORDS, Language

ROOT = Path(__file__).parents[1]
_FILES_FOLDER = "files"
_LATER_GROUPS = {name: pages for name, pages in PAGE_GROUPS.items() if name != "start"}


class BrokenLinkError(Exception):
    """A page refers to something that is not there."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page is written, relative to the site, and what it is made of."""

    language: Language
    source: Path
    target: Path


@dataclass(slots=True)
class Site:
    """The pages of a tree, by the file they are made of. `copied` are other files that pages refer to."""

    root: Path
    places: dict[Path, Place] = field(default_factory=dict)
    copied: dict[Path, Path] = field(default_factory=dict)

    @classmethod
    def find(cls, root: Path = ROOT) -> Site:
        site = cls(root)
        for place in _find_places(root):
            site.places[place.source] = place
        return site

    @property
    def languages(self) -> list[Language]:
        return [language for language in LANGUAGES if self.list_places(language)]

    def list_places(self, language: Language) -> list[Place]:
        return [place for place in self.places.values() if place.language == language]

    def write(self, out: Path) -> list[Path]:
        """Writes everything anew; gives the pages."""
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        pages = {place.source: MarkdownPage.read(place.source) for place in self.places.values()}
        written = []
        for place in self.places.values():
            path = out / place.target
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._render(place, pages), encoding="utf-8")
            written.append(path)
        for source, target in self.copied.items():
            (out / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, out / target)
        for language in self.languages:
            (out / f"search.{language}.js").write_text(self._index(language, pages), encoding="utf-8")
        for path in chain.from_iterable(folder.iterdir() for folder in LOOK_FOLDERS):
            shutil.copyfile(path, out / path.name)
        first = [(language, f"{language}/index.html") for language in self.languages]
        (out / "index.html").write_text(make_choice(first), encoding="utf-8")
        return written

    def locate(self, place: Place, address: str) -> str:
        """An address of a page as it is on the site; files of the tree that are no pages come along."""
        parts = urlsplit(address)
        if parts.scheme or not parts.path:
            return address
        source = (place.source.parent / unquote(parts.path)).resolve()
        anchor = f"#{parts.fragment}" if parts.fragment else ""
        if source in self.places:
            return _relate(place.target, self.places[source].target) + anchor
        if not source.is_relative_to(self.root) or not source.is_file():
            raise BrokenLinkError(f"{place.source.relative_to(self.root)} refers to {address}, which is no file here")
        self.copied[source] = Path(_FILES_FOLDER) / source.relative_to(self.root)
        return _relate(place.target, self.copied[source]) + anchor

    def _index(self, language: Language, pages: dict[Path, MarkdownPage]) -> str:
        """Address, page, heading and text of each section, as a script: scripts load from files too, JSON does not."""
        rows = [
            (f"{place.target.name}#{heading.anchor}", page.title, heading.text, text)
            for place in self.list_places(language)
            for page in (pages[place.source],)
            for heading, text in page.sections
        ]
        return f"window.searchIndex={json.dumps(rows, ensure_ascii=False, separators=(',', ':'))};\n"

    def _render(self, place: Place, pages: dict[Path, MarkdownPage]) -> str:
        page = pages[place.source]
        body = page.to_html(lambda address: self.locate(place, address))
        siblings = self.list_places(place.language)
        links = {
            other.target.stem: Link(_relate(place.target, other.target), pages[other.source].title)
            for other in siblings
        }
        row, number = list(links.values()), siblings.index(place)
        groups = [
            (WORDS[place.language].groups[group], [links[name] for name in names if name in links])
            for group, names in ({"start": ("index", *PAGE_GROUPS["start"])} | _LATER_GROUPS).items()
        ]
        others = [
            (other.language, _relate(place.target, other.target))
            for other in self.places.values()
            if other.language != place.language and other.target.name == place.target.name
        ]
        around = Surroundings(
            groups=groups,
            here=row[number].address,
            others=others,
            before=row[number - 1] if number else None,
            after=row[number + 1] if number + 1 < len(row) else None,
            root="../" * (len(place.target.parts) - 1),
        )
        return make_html(page.title, body, page.headings, place.language, around)


def _find_places(root: Path) -> Iterator[Place]:
    for language in LANGUAGES:
        folder = root / "docs" / language
        sources = {"index": root / READMES[language]} | {name: folder / f"{name}.md" for name in PAGE_NAMES}
        for name, source in sources.items():
            if source.is_file():
                yield Place(language, source.resolve(), Path(language) / f"{name}.html")


def _relate(page: Path, target: Path) -> str:
    return Path(os.path.relpath(target, page.parent)).as_posix()
