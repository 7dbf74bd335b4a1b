"""Normaliser of languages without rules of their own (Unicode cleanup, numbers by num2words), and shared functions.

num2words (LGPL) is the extra `numbers`, loaded with the first number that needs it. unicode-rbnf, which spells by the
rules of the Unicode CLDR, does not replace it: of the languages below it lacks Bengali, and its Arabic, Azerbaijani,
Catalan, Icelandic, Lithuanian, Romanian and Slovene have wrong words (German, Italian and Swedish are better there).
Only whole numbers are left to num2words: its decimals and negative numbers are wrong or missing in several languages
(Italian drops the fraction, Turkish answers with nothing, Amharic never ends), and its converters keep state.
Signs such as % stay as they are, because how they are said depends on the language.

Shared by all languages: a rule marks the words that replace a written sign with `say`, and `settle_edges` turns the
marks into spaces once every rule has run. A rule may thus write words without looking at its neighbours, and a rule
that runs later still sees where a word begins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from myxtts.errors import MissingExtraError
from myxtts.text.languages.unicode_cleanup import clean_unicode, tidy

Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]
"""A pattern, and a function from its match to spoken words."""

LETTER = r"[^\W\d_²³]"
"""A letter, in patterns. A raised two or three is a word character for Python, but no letter."""
EDGE = "\ue000"
"""Marks where replaced words begin and end. Private-use, so text from `clean_unicode` never holds it."""

VERSION = re.compile(r"(?<![\d.])\d++(?:\.\d++){2,}+")
SCORE = re.compile(r"(?<![\d:.])\d{1,6}+:\d{1,6}+(?!\d|:\d)")
MINUS = r"(?:(?<![^\s(\[{\"'=<>:/])(?P<minus>-))?"
"""A hyphen is a minus sign only at the start of a word or behind a sign; inside a word it joins."""
_SIGN_BETWEEN_NUMBERS = re.compile(f"{EDGE}[.,:/]{EDGE}")
DAYS_IN_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""Most days of each month: leap years are not told apart."""
_SHORT_YEAR_PIVOT = 50
"""In dates, years of two digits below this are of the 21st century."""
MAX_SPELLED_DIGITS = 36
"""Longer numbers have no name in common use, in English and Persian."""
_MIN_CODE_DIGITS = 10
"""A number of this many digits without separators is a code: 10 are a US telephone number."""

_ROMAN = re.compile(r"C{0,3}(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}

_EDGES = re.compile(f"[ {EDGE}]*{EDGE}[ {EDGE}]*")
_STAYS_BEFORE_WORDS = frozenset("([{\"'«-—/")
_STAYS_AFTER_WORDS = frozenset(".,!?;:)]}\"'»…،؛؟-—/")


@lru_cache
def load_table(name: str) -> dict[str, Any]:
    """Reads one of the tables of words beside this module; they are part of the package."""
    table: dict[str, Any] = json.loads((Path(__file__).parent / f"{name}.json").read_text(encoding="utf-8"))
    return table


def split_keys(table: Mapping[str, str]) -> dict[str, str]:
    """Returns the table with one entry per spelling: the key "l|L" stands for two."""
    return {key: words for keys, words in table.items() for key in keys.split("|")}


def either(keys: Iterable[str]) -> str:
    """Returns a pattern for any of the keys, the longest first, since alternatives are tried in order: mm before m."""
    return "|".join(re.escape(key) for key in sorted(keys, key=len, reverse=True))


def say(words: str) -> str:
    """Marks words that replace written signs; `settle_edges` puts spaces around them where they are missing."""
    return f"{EDGE}{words}{EDGE}"


def apply_rules(text: str, rules: Iterable[Rule]) -> str:
    """Applies rules in order, each to the output of the one before."""
    for pattern, read in rules:
        text = _apply_rule(text, pattern, read)
    return text


def _apply_rule(text: str, pattern: re.Pattern[str], read: Callable[[re.Match[str]], str]) -> str:
    return pattern.sub(lambda match: say(read(match)), text)


def join_numbers(spell: Callable[[str], str], word: str) -> Callable[[re.Match[str]], str]:
    """Returns the function of a rule that spells each number of a match, with a word between them."""
    return lambda match: word.join(map(spell, re.findall(r"\d+", match[0])))


def is_code(digits: str, written: str) -> bool:
    """Whether a number is read digit by digit, as 007, a telephone number or one too long to name are.

    `written` is the numeral with its separators: 1,000,000,000 and 5000000000 are amounts however long they are.
    """
    is_plain = len(digits) >= _MIN_CODE_DIGITS and digits == written and not digits.endswith("000000")
    return is_plain or len(digits) > MAX_SPELLED_DIGITS or (len(digits) > 1 and digits[0] == "0")


def complete_year(year: str) -> str:
    """Returns a year with four digits."""
    return year if len(year) > 2 else f"{20 if int(year) < _SHORT_YEAR_PIVOT else 19}{year}"


def read_roman(numeral: str) -> int:
    """Returns the value of a Roman numeral: the sum of its letters, but one before a larger letter is subtracted.

    It is 0 where the numeral is not well formed.
    """
    if not _ROMAN.fullmatch(numeral):
        return 0
    values = [_ROMAN_VALUES[letter] for letter in numeral]
    return sum(-value if value < after else value for value, after in zip(values, [*values[1:], 0], strict=True))


def settle_edges(text: str) -> str:
    """Replaces marks by spaces, or by nothing beside brackets, quotes, hyphens and punctuation."""
    return tidy(_EDGES.sub(_choose_space, text))


def _choose_space(match: re.Match[str]) -> str:
    text, start, end = match.string, match.start(), match.end()
    if " " in match[0]:
        return " "
    if start > 0 and text[start - 1] in _STAYS_BEFORE_WORDS:
        return ""
    return "" if end < len(text) and text[end] in _STAYS_AFTER_WORDS else " "


class NumberStyle(NamedTuple):
    """Number format of a language: spoken words for decimal sign and minus, and the signs that are written.

    `spaced` is false where words are written without spaces; `converter` is num2words' code where it differs.
    """

    point: str
    minus: str
    decimal_signs: str = ","
    group_signs: str = "."
    spaced: bool = True
    converter: str = ""

    @property
    def grouped(self) -> str:
        """The pattern of a whole number whose digits are written in groups."""
        signs = re.escape(self.group_signs)
        return rf"[1-9]\d{{0,2}}(?:[{signs}]\d{{3}}(?!\d)){{1,4}}(?![{signs}]\d)"


NUMBER_STYLES = {code: NumberStyle(**style) for code, style in load_table("numbers").items()}
"""Languages whose numbers become words; in every other one the digits stay."""

_MAX_DIGITS = 15
"""Longer numbers are read digit by digit."""
_NUM2WORDS_LOCK = Lock()
"""The converters of num2words keep state."""
_CHAIN = r"(?P<chain>\d++(?:[.:/]\d++){2,}+)"


def normalize_generic(text: str, language: str) -> str:
    """Cleans Unicode and spells numbers; `language` is a primary code such as "de"."""
    return settle_edges(expand_numbers(clean_unicode(text), language))


def expand_numbers(text: str, language: str) -> str:
    """Spells every number where the language is in `NUMBER_STYLES`; otherwise returns the text as it is."""
    style = NUMBER_STYLES.get(language)
    if style is None:
        return text
    text = _compile_numeral(language).sub(lambda match: _read_numeral(match, language, style), text)
    return _SIGN_BETWEEN_NUMBERS.sub(EDGE, text)


@lru_cache
def _compile_numeral(language: str) -> re.Pattern[str]:
    """Returns the pattern of numerals: an optional minus, then a chain (dates, versions, times) or a decimal number."""
    style = NUMBER_STYLES[language]
    grouped, decimals = style.grouped, re.escape(style.decimal_signs)
    fraction = rf"(?:[{decimals}](?P<fraction>\d++)(?![{decimals}:/]\d))?"
    return re.compile(rf"{MINUS}(?:(?!{grouped}){_CHAIN}|(?P<whole>{grouped}|\d++){fraction})")


def _read_numeral(match: re.Match[str], language: str, style: NumberStyle) -> str:
    gap = " " if style.spaced else ""
    if match["chain"]:
        parts = [part.lstrip("0") or "0" for part in re.split(r"\D", match["chain"])]
        words = " ".join(_spell_integer(part, language, style) for part in parts)
    else:
        words = _spell_integer(re.sub(r"\D", "", match["whole"]), language, style)
    if match["fraction"]:
        words = gap.join([words, style.point, _spell_digits(match["fraction"], language, style)])
    if match["minus"]:
        words = f"{style.minus}{gap}{words}"
    return say(words) if style.spaced else words


def _spell_integer(digits: str, language: str, style: NumberStyle) -> str:
    """Spells a number; digit by digit where it has a leading zero, is too long, or has no name in the language."""
    has_leading_zero = len(digits) > 1 and digits[0] == "0"
    if has_leading_zero or len(digits) > _MAX_DIGITS:
        return _spell_digits(digits, language, style)
    return call_num2words(int(digits), style.converter or language) or _spell_digits(digits, language, style)


def _spell_digits(digits: str, language: str, style: NumberStyle) -> str:
    gap = " " if style.spaced else ""
    return gap.join(call_num2words(int(digit), style.converter or language) for digit in digits)


@lru_cache(maxsize=4096)
def call_num2words(number: int, converter: str, kind: str = "cardinal") -> str:
    """Returns the words of a number by num2words, "" where the language has none for a number of this size."""
    with _NUM2WORDS_LOCK:
        try:
            from num2words import num2words
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                "Numbers in this language are put into words by num2words, which is not installed.",
                next_step="Run: pip install 'myxtts[numbers]', or write the numbers of the texts as words.",
            ) from error
        try:
            words: str = num2words(number, lang=converter, to=kind)
        except OverflowError:
            assert number > 9, (number, converter)
            return ""
    return words.replace(",", "")
