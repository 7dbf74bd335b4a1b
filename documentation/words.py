"""The words of the site itself, around the pages, in both languages, and the order of the pages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Language = Literal["en", "fa"]
LANGUAGES: tuple[Language, ...] = ("en", "fa")

READMES: dict[Language, str] = {"en": "README.md", "fa": "README.fa.md"}

PAGE_GROUPS: dict[str, tuple[str, ...]] = {
    "start": ("quickstart", "hardware"),
    "voice": (
        "getting-data",
        "studio",
        "your-data",
        "good-enough",
        "training",
        "watch-a-run",
        "quality",
        "compare",
        "synthesis",
    ),
    "gpu": ("pipeline", "multi-gpu", "tools"),
    "reference": ("configuration", "api", "troubleshooting", "faq", "glossary", "architecture"),
}
"""All pages in their order, in groups of the menu; one that is not written yet is left out."""

_ENGLISH = Path(__file__).parents[1] / "docs" / "en"
PAGE_NAMES = tuple(name for names in PAGE_GROUPS.values() for name in names if (_ENGLISH / f"{name}.md").is_file())


@dataclass(frozen=True, slots=True)
class SiteWords:
    """`direction` is that of the script; `name` is what the language calls itself."""

    name: str
    direction: Literal["ltr", "rtl"]
    groups: dict[str, str]
    contents: str
    on_this_page: str
    search: str
    nothing: str
    theme: str
    copy: str
    copied: str
    before: str
    after: str
    skip: str
    footer: str


WORDS: dict[Language, SiteWords] = {
    "en": SiteWords(
        name="English",
        direction="ltr",
        groups={
            "start": "Start here",
            "voice": "Make a voice",
            "gpu": "Keep the GPU busy",
            "reference": "Reference",
        },
        contents="Menu",
        on_this_page="On this page",
        search="Search",
        nothing="Nothing found",
        theme="Light or dark",
        copy="Copy",
        copied="Copied",
        before="Previous",
        after="Next",
        skip="Skip to the text",
        footer="MyXTTS, Apache License 2.0. The font Vazirmatn is under the SIL Open Font License 1.1. "
        "This site needs no network.",
    ),
    "fa": SiteWords(
        name="فارسی",
        direction="rtl",
        groups={
            "start": "از اینجا شروع کنید",
            "voice": "ساختن یک صدا",
            "gpu": "بیکار نماندن GPU",
            "reference": "مرجع",
        },
        contents="منو",
        on_this_page="در این صفحه",
        search="جست‌وجو",
        nothing="چیزی پیدا نشد",
        theme="روشن یا تیره",
        copy="کپی",
        copied="کپی شد",
        before="قبلی",
        after="بعدی",
        skip="رفتن به متن",
        footer="MyXTTS با مجوز Apache License 2.0. فونت وزیرمتن با مجوز SIL Open Font License 1.1 است. "
        "این سایت به اینترنت نیاز ندارد.",
    ),
}
