"""Spells numbers in American English (no "and", hyphens in twenty-one to ninety-nine), and reads Roman numerals.

The names of units, currencies, scales and months that stand beside a number come from en.json.

A Roman numeral is read only where the word before shows that it is one: Henry VIII, Chapter IV, World War II. A lone I
is the pronoun unless it ends its phrase: "Part I." but not "the part I liked".
"""

from __future__ import annotations

import re
from typing import NamedTuple

from myxtts.text.languages.generic import MAX_SPELLED_DIGITS, is_code, load_table, read_roman, say, split_keys


class Unit(NamedTuple):
    """Spoken names of a unit; which of them is chosen by the number."""

    singular: str
    plural: str


class Currency(NamedTuple):
    """Spoken names of a currency and of its hundredth."""

    singular: str
    plural: str
    cent: str = "cent"
    cents: str = "cents"


def _read_units(table: dict[str, str]) -> dict[str, Unit]:
    """Splits "foot|feet"; a plural that is not given ends in s."""
    pairs = {sign: names.partition("|") for sign, names in split_keys(table).items()}
    return {sign: Unit(singular, plural or f"{singular}s") for sign, (singular, _, plural) in pairs.items()}


TABLE = load_table("en")
MONTHS = TABLE["months"].split()
UNITS = _read_units(TABLE["units"])
"""Units by their written sign. Left out on purpose: "in" and "a" are words, "M" and "B" are millions."""
DOTTED_UNITS = frozenset(TABLE["dotted_units"].split())
"""Units that are often written with a full stop of their own."""
AREA_UNITS = _read_units(TABLE["area_units"])
"""Units that are written with a raised two or three."""
CURRENCIES = {sign: Currency(*names.split("|")) for sign, names in split_keys(TABLE["currencies"]).items()}
SCALES = split_keys(TABLE["scales"])
"""Words and abbreviations for powers of ten in amounts of money: $5m, £2bn."""
WORD_SCALES = frozenset({"thousand", "million", "billion", "trillion", "mn", "bn", "tn"})
"""Scales that are read without a currency, too: "5 million", "3 bn", but not "5 m", which is meters."""

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
_SCALES = (
    "thousand million billion trillion quadrillion quintillion sextillion septillion octillion nonillion decillion"
).split()
_IRREGULAR_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
FIRST_YEAR, LAST_YEAR = 1100, 2099
"""Four-digit numbers in this range are read as years where no unit or sign shows otherwise."""


def spell_cardinal(number: int) -> str:
    """1234 is one thousand two hundred thirty-four. At most `MAX_SPELLED_DIGITS` digits."""
    assert 0 <= number < 10**MAX_SPELLED_DIGITS, number
    if number < 1000:
        return _spell_below_thousand(number)
    groups: list[str] = []
    for scale in ("", *_SCALES):
        number, group = divmod(number, 1000)
        if group:
            groups.append(f"{_spell_below_thousand(group)} {scale}".rstrip())
    return " ".join(reversed(groups))


def _spell_below_thousand(number: int) -> str:
    if number < 20:
        return _SMALL[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return f"{_TENS[tens]}-{_SMALL[ones]}" if ones else _TENS[tens]
    hundreds, rest = divmod(number, 100)
    return f"{_SMALL[hundreds]} hundred" + (f" {_spell_below_thousand(rest)}" if rest else "")


def spell_ordinal(number: int) -> str:
    return make_ordinal(spell_cardinal(number))


def make_ordinal(cardinal: str) -> str:
    """Turns the words of a cardinal into those of the ordinal: `twenty-one` becomes `twenty-first`."""
    start = max(cardinal.rfind(" "), cardinal.rfind("-")) + 1
    last = cardinal[start:]
    if last in _IRREGULAR_ORDINALS:
        ordinal = _IRREGULAR_ORDINALS[last]
    else:
        ordinal = f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th"
    return cardinal[:start] + ordinal


def spell_year(year: int) -> str:
    """1905 is nineteen oh five, 2005 two thousand five, 2019 twenty nineteen."""
    century, rest = divmod(year, 100)
    if year // 10 % 100 == 0:
        return spell_cardinal(year)
    if rest == 0:
        return f"{spell_cardinal(century)} hundred"
    between = " oh " if rest < 10 else " "
    return f"{spell_cardinal(century)}{between}{spell_cardinal(rest)}"


def spell_digits(digits: str) -> str:
    return " ".join(_SMALL[int(digit)] for digit in digits)


def spell_integer(digits: str) -> str:
    """Spells a number, or its digits one by one where it is a code: 007, a telephone number, one too long to name."""
    plain = digits.replace(",", "")
    return spell_digits(plain) if is_code(plain, digits) else spell_cardinal(int(plain))


def spell_numeral(numeral: str) -> str:
    """Reads `1,234`, `3.14` or `.5`."""
    whole, point, fraction = numeral.partition(".")
    if not point:
        return spell_integer(whole)
    return f"{spell_integer(whole) if whole else ''} point {spell_digits(fraction)}".lstrip()


def is_year(numeral: str) -> bool:
    return len(numeral) == 4 and numeral.isdecimal() and FIRST_YEAR <= int(numeral) <= LAST_YEAR


RULERS = frozenset(TABLE["rulers"].split())
"""Names that are followed by an ordinal."""
COUNTED = frozenset(TABLE["counted"].split())
"""Words that are followed by a cardinal."""
# Numerals read after any other capitalised word. IV, VI and X are left out: they are abbreviations or letters as well.
_UNMISTAKABLE = frozenset({"II", "III", "VII", "VIII"})

_CANDIDATE = re.compile(r"(?<![^\W\d_])(?P<word>[A-Za-z][a-z]*+) (?P<numeral>[IVXLC]{1,8}+)(?![^\W\d_])")
_PHRASE_END = re.compile(r"[.,:;!?)\u2026\u2014]|$")


def expand_roman_numerals(text: str) -> str:
    """Replaces Roman numerals behind a name, a counted noun or a capitalised word by number words."""
    return _CANDIDATE.sub(_read_candidate, text)


def _read_candidate(match: re.Match[str]) -> str:
    """Reads a word and the numeral behind it: "the eighth" after rulers, "eight" after counted nouns, else as it is."""
    word, numeral = match["word"], match["numeral"]
    if not read_roman(numeral):
        return match[0]
    if numeral == "I":
        follows_world_war = word == "War" and match.string.endswith("World ", 0, match.start())
        is_number = word.lower() in COUNTED and word[0].isupper() and _PHRASE_END.match(match.string, match.end())
        return f"{word} {say('one')}" if follows_world_war or is_number else match[0]
    if word in RULERS and numeral not in ("L", "C"):
        return f"{word} {say(f'the {spell_ordinal(read_roman(numeral))}')}"
    is_counted = word.lower() in COUNTED and (len(numeral) > 1 or (word[0].isupper() and numeral in "VX"))
    if is_counted or (word[0].isupper() and len(word) > 1 and numeral in _UNMISTAKABLE):
        return f"{word} {say(spell_cardinal(read_roman(numeral)))}"
    return match[0]
