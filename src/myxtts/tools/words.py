"""Translation (i18n) of reports and messages in the manner of gettext: English in the code, Persian in `fa.json`.

`tr = Translator("fa")` translates a text where it is shown, as in `tr("Step {step}", step=tr.count(3))`, and writes
numbers with the digits and signs of the language. A text that is shown elsewhere, such as a value of a table, is marked
with `mark`. A test collects the literals of all these calls and compares them with the catalogue. Errors of the servers
of pages are raised in English by code that knows no page: `translate_error` finds the text in `fa_errors.json` that an
error was made of, takes the values out of it, and fills them into the Persian text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from myxtts.errors import UsageError
from myxtts.types import PAGE_LANGUAGES

_Texts = TypeVar("_Texts", str, Mapping[Any, str])
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_PERSIAN_DIGITS = str.maketrans("0123456789.,", "۰۱۲۳۴۵۶۷۸۹٫٬")


def mark(texts: _Texts) -> _Texts:
    """Marks a text, or all values of a table, for the catalogue; it is translated where shown (`N_` of gettext)."""
    return texts


@cache
def read_catalogue(name: str = "fa.json") -> dict[str, str]:
    """Reads a catalogue from English to Persian, once per process."""
    catalogue: dict[str, str] = json.loads((files("myxtts.tools") / name).read_text(encoding="utf-8"))
    return catalogue


class Translator:
    """Texts and numbers in one language. Texts outside of the catalogue, such as names of files, stay as they are."""

    def __init__(self, lang: str = "en") -> None:
        if lang not in PAGE_LANGUAGES:
            raise UsageError(f"There is no language {lang!r}.", next_step=f"Choose one of {', '.join(PAGE_LANGUAGES)}.")
        self.lang = lang

    def __call__(self, english: str, **values: str) -> str:
        """The text with its placeholders filled. Values are inserted as they are: translate and format them before."""
        text = read_catalogue().get(english, english) if self.lang == "fa" else english
        return text.format(**values) if values else text

    def row(self, *texts: str) -> list[str]:
        """Translates several texts, such as the heading of a table."""
        return [self(text) for text in texts]

    def join(self, texts: Iterable[str]) -> str:
        """Joins texts with the comma of the language."""
        return ("، " if self.lang == "fa" else ", ").join(texts)

    def count(self, number: float) -> str:
        return self._localize(f"{round(number):,}")

    def number(self, value: float) -> str:
        """Three or four significant digits."""
        if not math.isfinite(value):
            return "–"
        size = abs(value)
        if value == 0 or size >= 1000:
            return self._localize(f"{value:,.0f}")
        if size < 0.001:
            return self._localize(f"{value:.1e}".replace("e-0", "e-"))
        return self._localize(f"{value:.{max(0, 3 - max(0, math.floor(math.log10(size)) + 1))}f}")

    def tick(self, value: float) -> str:
        """A label of an axis: as short as possible."""
        return self._localize(f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}".replace("e-0", "e-"))

    def share(self, value: float, digits: int = 1) -> str:
        """A share from 0 to 1 as per cent."""
        return self._localize(f"{100 * value:.{digits}f}") + ("٪" if self.lang == "fa" else " %")

    def figure(self, text: str) -> str:
        """A number that is written in English, such as "1,234.5", with the digits of the language."""
        return self._localize(text) if text.replace(",", "").replace(".", "", 1).isdecimal() else text

    def milliseconds(self, value: float) -> str:
        return self("{value} ms", value=self.number(value))

    def time(self, seconds: float) -> str:
        if seconds >= 5400:
            return self("{value} h", value=self._localize(f"{seconds / 3600:.1f}"))
        if seconds >= 90:
            return self("{value} min", value=self._localize(f"{seconds / 60:.1f}"))
        return self("{value} s", value=self._localize(f"{seconds:.0f}"))

    def _localize(self, digits: str) -> str:
        return digits.translate(_PERSIAN_DIGITS) if self.lang == "fa" else digits


def choose_translator(accept_language: str, usual: str = "en") -> Translator:
    """The translator for the `Accept-Language` that a page sends: its own language, not the browser's."""
    asked = accept_language[:2].lower()
    return Translator(asked if asked in PAGE_LANGUAGES else usual or "en")


def translate_error(message: str, tr: Translator) -> str:
    """Translates the problem or the next step of an error; a message without a text stays as it is."""
    for pattern, persian in _list_patterns() if tr.lang == "fa" else ():
        if found := pattern.fullmatch(message):
            # Numbers get the digits of the language, names and paths stay.
            return persian.format(**{name: tr.figure(value) for name, value in found.groupdict().items()})
    return message


@cache
def _list_patterns() -> list[tuple[re.Pattern[str], str]]:
    """The expression that the messages of an error match, with its Persian text; those with more words come first."""
    texts = sorted(read_catalogue("fa_errors.json").items(), key=lambda pair: -len(_PLACEHOLDER.sub("", pair[0])))
    return [(re.compile(_write_pattern(english), re.DOTALL), persian) for english, persian in texts]


def _write_pattern(text: str) -> str:
    parts = _PLACEHOLDER.split(text)
    return "".join(f"(?P<{part}>.+?)" if place % 2 else re.escape(part) for place, part in enumerate(parts))
