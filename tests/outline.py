"""What a page shows and refers to, for tests of pages."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser

VOID = {"meta", "img", "link", "br", "hr", "input"}


class Outline(HTMLParser):
    """Complains about tags that do not pair up, and collects what a page shows and refers to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.attributes: dict[str, dict[str, str | None]] = {}
        self.count: Counter[str] = Counter()
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] += 1
        self.attributes.setdefault(tag, dict(attrs))
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "title"} & set(self.open):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)
