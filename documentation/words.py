"""The words of the site itself, around the pages, in both languages, and the order of the pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Language = Literal["en", "fa"]
LANGUAGES: tuple[Language, ...] = ("en", "fa")

READMES: dict[Language, str] = {"en": "README.md", "fa": "README.fa.md"}

PAGE_NAMES = (
    "quickstart",
    "your-data",
    "pipeline",
    "training",
    "multi-gpu",
    "synthesis",
    "tools",
    "configuration",
    "troubleshooting",
    "architecture",
    "faq",
)


@dataclass(frozen=True, slots=True)
class SiteWords:
    """`direction` is that of the script; `name` is what the language calls itself."""

    name: str
    direction: Literal["ltr", "rtl"]
    contents: str
    on_this_page: str
    before: str
    after: str
    skip: str
    footer: str


WORDS: dict[Language, SiteWords] = {
    "en": SiteWords(
        name="English",
        direction="ltr",
        contents="Contents",
        on_this_page="On this page",
        before="Previous",
        after="Next",
        skip="Skip to the text",
        footer="MyXTTS, Apache License 2.0. This site needs no network and no JavaScript.",
    ),
    "fa": SiteWords(
        name="فارسی",
        direction="rtl",
        contents="فهرست",
        on_this_page="در این صفحه",
        before="قبلی",
        after="بعدی",
        skip="رفتن به متن",
        footer="MyXTTS، با پروانهٔ Apache نسخهٔ ۲. این سایت نه شبکه می‌خواهد و نه جاوااسکریپت.",
    ),
}
