"""Unicode normalisation: NFC, ASCII digits, plain quotes and dashes, no invisible characters.

`clean_unicode` is the first step of every language, and is idempotent. It is NFKC only where the compatibility form
means the same: superscripts, fractions and some signs are kept apart (`FoldTable`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

ZWNJ = "\u200c"
"""Zero-width non-joiner: the Persian half-space."""
ZWJ = "\u200d"
"""Zero-width joiner, in Indic conjuncts and emoji sequences."""
TATWEEL = "\u0640"
"""Arabic elongation stroke, which only widens a word on the page."""

# Put around folded digits by FoldTable, and removed by _separate_numerals: superscripts and subscripts, and other
# numerals such as fractions. Private-use characters of the input are dropped by the same table.
_INDEX_MARK = "\ue001"
_NUMERAL_MARK = "\ue002"

_PUNCTUATION = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc\u00b4\uff07", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb\u301d\u301e\uff02", '"'),
    **dict.fromkeys("\u2039\u203a", "'"),
    **dict.fromkeys("\u2010\u2011\u2012\u2043\u2212\ufe63\uff0d", "-"),
    **dict.fromkeys("\u2014\u2015\u2e3a\u2e3b", "\u2014"),
    "\u2026": "\u2026",
    "\u22ef": "\u2026",
    "\u2044": "/",
    "\u2215": "/",
    TATWEEL: "",
}

# Compatibility characters that mean something else than their folded form: number sign, trade mark, the vowels
# of Thai and Lao that are always written composed, and signs that are drawn as emoji.
_KEPT_COMPATIBILITY = frozenset("\u2116\u2122\u2120\u2139\u24c2\u3297\u3299\u0e33\u0eb3\u0edc\u0edd\u0f77\u0f79\u0f0c")
# Hangul compatibility letters, and enclosed alphanumerics and ideographs.
_KEPT_RANGES = ((0x3130, 0x318F), (0x1F100, 0x1F2FF))
_ARABIC_FORMS = ("<isolated>", "<initial>", "<medial>", "<final>")

_JOINERS = re.compile(f"[{ZWNJ}{ZWJ}]+")
# Arabic to NKo, Syriac supplement to Sinhala, Burmese, Khmer and Mongolian, Phags-pa to Javanese.
_JOINING_SCRIPTS = ((0x0600, 0x07FF), (0x0860, 0x0DFF), (0x1000, 0x109F), (0x1780, 0x18AF), (0xA840, 0xA9FF))
_FIRST_EMOJI = 0x2300
"""Start of the block Miscellaneous Technical; symbols below it form no joined emoji."""

_MAX_MARKS = 30
"""Combining marks on one letter, as in the Stream-Safe Text Format of UAX #15; no language needs more."""

# Inside a word or range an en dash is a hyphen; elsewhere it is an em dash, as is a run of hyphens.
_EN_DASH_INSIDE = re.compile(r"(?<=\S)\u2013(?=\S)")
_DASH_RUN = re.compile(r"[-\u2014]{2,}")
_DOT_RUN = re.compile(r"[.\u2026]{2,}")
_MARK_BETWEEN_DIGITS = re.compile(f"(?<=[0-9])[{_INDEX_MARK}{_NUMERAL_MARK}]+(?=[0-9])")


class FoldTable(dict[int, str]):
    """A `str.translate` table of plain forms, filled as characters occur. `overrides` are the forms of one language."""

    def __init__(self, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._overrides = dict(overrides or {})

    def __missing__(self, code_point: int) -> str:
        folded = self._fold(chr(code_point))
        self[code_point] = folded
        return folded

    def _fold(self, char: str) -> str:
        """Returns the plain form by Unicode category: digits to ASCII, spaces to one space, other controls to ""."""
        if char in self._overrides:
            return self._overrides[char]
        if char in _PUNCTUATION:
            return _PUNCTUATION[char]
        category = unicodedata.category(char)
        if category == "Nd":
            return str(unicodedata.decimal(char))
        if category[0] == "Z" or category == "Cc":
            return " " if char.isspace() else ""
        if category == "Cf":
            return char if char in (ZWNJ, ZWJ) else ""
        if category in ("Cs", "Co") or _is_noncharacter(ord(char)):
            return ""
        return self._fold_compatibility(char, category)

    def _fold_compatibility(self, char: str, category: str) -> str:
        """Returns the NFKC form of ligatures, full-width letters and the like. Superscripts and fractions are marked,
        so that `_separate_numerals` can keep them apart from the number before them."""
        tag = unicodedata.decomposition(char).partition(" ")[0]
        if not tag.startswith("<") or _keeps_its_form(char):
            return char
        folded = unicodedata.normalize("NFKC", char)
        if tag in ("<super>", "<sub>"):
            return f"{_INDEX_MARK}{folded}{_INDEX_MARK}" if folded.isdecimal() else char
        if folded.startswith(" "):
            if tag not in _ARABIC_FORMS:
                return char
            folded = folded.lstrip()
        plain = "".join(self[ord(part)] for part in folded if part != char)
        return f"{_NUMERAL_MARK}{plain}{_NUMERAL_MARK}" if category == "No" else plain


def _keeps_its_form(char: str) -> bool:
    return char in _KEPT_COMPATIBILITY or any(first <= ord(char) <= last for first, last in _KEPT_RANGES)


def _is_noncharacter(code_point: int) -> bool:
    return 0xFDD0 <= code_point <= 0xFDEF or code_point & 0xFFFE == 0xFFFE


DEFAULT_TABLE = FoldTable()


def limit_marks(text: str) -> str:
    """Cuts runs of combining marks to `_MAX_MARKS`, since sorting a run, as NFC does, takes quadratic time."""
    if text.isascii():
        return text
    kept: list[str] = []
    num_marks = 0
    for char in text:
        num_marks = num_marks + 1 if unicodedata.combining(char) else 0
        if num_marks <= _MAX_MARKS:
            kept.append(char)
    return "".join(kept)


def clean_unicode(text: str, table: FoldTable = DEFAULT_TABLE) -> str:
    """Returns NFC text with single spaces; digits of every script are ASCII; emoji and unknown symbols are kept."""
    text = unicodedata.normalize("NFC", limit_marks(text)).translate(table)
    text = _separate_numerals(text)
    text = _JOINERS.sub(_keep_needed_joiner, text)
    text = _EN_DASH_INSIDE.sub("-", text).replace("\u2013", "\u2014")
    text = _DASH_RUN.sub("\u2014", text)
    text = _DOT_RUN.sub("\u2026", text)
    return tidy(text)


def tidy(text: str) -> str:
    """Returns the text in NFC with single spaces, stripped."""
    return " ".join(unicodedata.normalize("NFC", limit_marks(text)).split())


def _separate_numerals(text: str) -> str:
    """Puts a space between a number and a numeral behind it: 10² must not become 102, nor 5½ 51/2."""
    text = text.replace(_INDEX_MARK * 2, "")
    text = _MARK_BETWEEN_DIGITS.sub(" ", text)
    return text.replace(_INDEX_MARK, "").replace(_NUMERAL_MARK, "")


def _keep_needed_joiner(match: re.Match[str]) -> str:
    """Keeps a joiner that shapes letters (the Persian half-space, Indic conjuncts) or builds an emoji; drops others."""
    text, start, end = match.string, match.start(), match.end()
    if start == 0 or end == len(text):
        return ""
    before, after = text[start - 1], text[end]
    shapes_letters = _is_joining_letter(before, "LM") and _is_joining_letter(after, "L")
    return match[0][0] if shapes_letters or _joins_emoji(before, after) else ""


def _is_joining_letter(char: str, categories: str) -> bool:
    code_point = ord(char)
    in_script = any(first <= code_point <= last for first, last in _JOINING_SCRIPTS)
    return in_script and unicodedata.category(char)[0] in categories


def _joins_emoji(before: str, after: str) -> bool:
    precedes = unicodedata.category(before) in ("So", "Sk") and ord(before) >= _FIRST_EMOJI
    return (precedes or before == "\ufe0f") and unicodedata.category(after) == "So" and ord(after) >= _FIRST_EMOJI
