"""Numbers in English: spells them (American: no "and"), and reads amounts, ordinals, fractions, codes, Roman numerals.

The words come from en.json. Each pattern finds one kind of written amount, and the function of the same name gives its
words; `en` applies them in its order. Quantifiers are possessive (`++`) or bounded, so that a hostile text cannot make
a pattern backtrack for more than linear time.

A Roman numeral is read only where the word before shows that it is one: Henry VIII, Chapter IV, World War II. A lone I
is the pronoun unless it ends its phrase: "Part I." but not "the part I liked".
"""

from __future__ import annotations

import re
from typing import NamedTuple

from myxtts.text.languages.generic import MAX_SPELLED_DIGITS, either, is_code, load_table, read_roman, say, split_keys


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

_IRREGULAR_ORDINALS: dict[str, str] = TABLE["irregular_ordinals"]
_SMALL: list[str] = TABLE["below_twenty"].split()
_TENS: list[str] = TABLE["tens"].split()
_SCALES: list[str] = TABLE["powers_of_thousand"].split()
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
    regular = f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th"
    return cardinal[:start] + _IRREGULAR_ORDINALS.get(last, regular)


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


_LETTER = r"[^\W\d_]"
# Digits, with commas between groups of three or without any.
_WHOLE = r"(?:\d{1,3}(?:,\d{3}){1,11}(?!,?\d)|\d++)"
_NUMERAL = rf"{_WHOLE}(?:\.\d++)?"
# A hyphen is a minus sign only at the start of a word or behind a sign; inside a word it joins.
_MINUS = r"(?:(?<![^\s(\[{\"'=<>,;:/])(?P<minus>-))?"
_PREFIXED_CURRENCY = rf"(?:(?<!{_LETTER})(?:{either(sign for sign in CURRENCIES if sign[0].isalpha())})|[$£€¥₹₽₩₺₿])"
_SIGN = r"[$£€¥₹₽₩₺₿]"
_PER = rf"(?:/(?P<per>[A-Za-z]{{1,12}}+)(?!{_LETTER}))?"
"""A rate behind an amount: the "/l" of 5 g/l, the "/hour" of $20/hour."""

ORDINAL = re.compile(rf"(?<!\d)(?P<ordinal>{_WHOLE})(?:st|nd|rd|th|ST|ND|RD|TH)(?!\w)")
FRACTION = re.compile(
    r"(?<![\d./])(?:(?<![,-])(?P<whole>\d{1,6}+) )?(?P<numerator>\d{1,3}+)/(?P<denominator>\d{1,4}+)(?!\d|[./]\d)"
    rf"(?: ?(?P<unit>{either(UNITS)})(?!{_LETTER}))?"
)
HEIGHT = re.compile(r"(?<![\w.'])(?P<feet>\d{1,2})' ?(?P<inches>\d{1,2})(?:\"|'')(?!\w)")
MONEY = re.compile(
    rf"{_MINUS}(?P<currency>{_PREFIXED_CURRENCY}) ?(?P<minus_after>-)?(?P<number>{_NUMERAL}|\.\d++)"
    rf"(?:(?P<dash>-| - )(?:{_SIGN} ?)?(?P<number_to>{_NUMERAL}))?"
    rf"(?:[ -]?(?P<scale>{either(SCALES)})(?!{_LETTER}))?{_PER}"
)
MEASURE = re.compile(
    rf"{_MINUS}(?P<number>{_NUMERAL}|(?<![\w.])\.\d++)(?:(?P<dash>-| - )(?P<number_to>{_NUMERAL}))?"
    rf"(?:[ -]?(?P<scale>{either(WORD_SCALES)})(?!{_LETTER}))?"
    rf"(?:(?P<gap>[ -]?)(?P<unit>{either(UNITS)}|{_SIGN}(?![$\d]))(?!{_LETTER})(?P<stop>\.(?= [a-z]))?)?{_PER}"
)

# Denominators whose fractions have names; 3/7 is "three sevenths", 3/11 is "three over eleven".
_NAMED_DENOMINATORS = frozenset({2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 20, 32, 64, 100})
# Fixed expressions that look like fractions.
_SAYINGS = {("24", "7"): "twenty-four seven", ("9", "11"): "nine eleven", ("50", "50"): "fifty-fifty"}
# Beginnings of units that take "an": half an hour, half an ounce.
_VOWEL_SOUNDS = ("a", "e", "i", "o", "u", "hour")


def read_ordinal(match: re.Match[str]) -> str:
    """the 21st → the twenty-first"""
    return make_ordinal(spell_integer(match["ordinal"]))


def read_fraction(match: re.Match[str]) -> str:
    """2 3/4 cups and 1/2 mile → two and three quarters cups and one half mile"""
    whole, unit = match["whole"], UNITS.get(match["unit"] or "")
    numerator, denominator = int(match["numerator"]), int(match["denominator"])
    if denominator not in _NAMED_DENOMINATORS or not 0 < numerator < denominator:
        words = _SAYINGS.get((match["numerator"], match["denominator"])) or _read_ratio(match)
        words = f"{spell_integer(whole)} {words}" if whole else words
        return f"{words} {unit.plural}" if unit else words
    words = _name_fraction(numerator, denominator)
    if whole:
        words = f"{spell_integer(whole)} and {'a half' if denominator == 2 else words}"
        return f"{words} {unit.plural}" if unit else words
    if unit is None:
        return words
    return f"{words} of {'an' if unit.singular.startswith(_VOWEL_SOUNDS) else 'a'} {unit.singular}"


def _read_ratio(match: re.Match[str]) -> str:
    """22/7 → twenty-two over seven"""
    return f"{spell_integer(match['numerator'])} over {spell_integer(match['denominator'])}"


def _name_fraction(numerator: int, denominator: int) -> str:
    if denominator == 2:
        return "one half"
    part = "quarter" if denominator == 4 else spell_ordinal(denominator)
    return f"{spell_cardinal(numerator)} {part}{'s' if numerator > 1 else ''}"


def read_height(match: re.Match[str]) -> str:
    """6'2" tall → six feet two inches tall"""
    feet, inches = match["feet"], match["inches"]
    return (
        f"{spell_integer(feet)} {'foot' if feet == '1' else 'feet'} "
        f"{spell_integer(inches)} {'inch' if inches == '1' else 'inches'}"
    )


def read_money(match: re.Match[str]) -> str:
    """$12.50 → twelve dollars and fifty cents"""
    is_negative = match["minus"] or match["minus_after"]
    words = _read_amount(match, CURRENCIES[match["currency"]])
    return f"{'minus ' if is_negative else ''}{words}{_read_rate(match)}"


def _read_amount(match: re.Match[str], currency: Currency) -> str:
    """£0.05 → five pence"""
    whole, _, fraction = match["number"].partition(".")
    if match["scale"] or match["number_to"] or len(fraction) != 2:
        name = currency.singular if _is_one(match) else currency.plural
        return f"{_read_span(match, as_year=False)} {name}"
    cents = int(fraction)
    cents_words = f"{spell_cardinal(cents)} {currency.cent if cents == 1 else currency.cents}"
    if not whole.strip("0") and cents:
        return cents_words
    whole_words = f"{spell_integer(whole or '0')} {currency.singular if whole == '1' else currency.plural}"
    return f"{whole_words} and {cents_words}" if cents else whole_words


def read_measure(match: re.Match[str]) -> str:
    """3.5 km/h → three point five kilometers per hour"""
    sign = "minus " if match["minus"] else ""
    unit_text = match["unit"]
    if unit_text in CURRENCIES:
        return f"{sign}{_read_amount(match, CURRENCIES[unit_text])}{_read_rate(match)}"
    words = sign + _read_span(match, as_year=not (unit_text or sign or match["scale"]))
    if unit_text is not None:
        unit = UNITS[unit_text]
        if match["gap"] == "-":
            return f"{words}-{unit.singular}{_read_rate(match)}"
        stop = "." if match["stop"] and unit_text not in DOTTED_UNITS else ""
        words = f"{words} {unit.singular if _is_one(match) else unit.plural}{stop}"
    return words + _read_rate(match)


def _is_one(match: re.Match[str]) -> bool:
    return match["number"] == "1" and match["number_to"] is None and match["scale"] is None


def _read_span(match: re.Match[str], *, as_year: bool) -> str:
    """Reads one number or a range, with its scale. Between spaces a dash is a minus if the first number is larger."""
    first, second = match["number"], match["number_to"]
    words = _read_number(first, as_year=as_year)
    if second is not None:
        subtracts = match["dash"] == " - " and _weigh(first) > _weigh(second)
        words = f"{words} {'minus' if subtracts else 'to'} {_read_number(second, as_year=as_year)}"
    return f"{words} {SCALES[match['scale']]}" if match["scale"] else words


def _weigh(numeral: str) -> tuple[int, str]:
    """Returns a sort key by size, without conversion to int, which is slow or refused for very long numerals."""
    whole, _, fraction = numeral.replace(",", "").partition(".")
    whole = whole.lstrip("0")
    return len(whole), f"{whole}.{fraction}"


def _read_number(numeral: str, *, as_year: bool) -> str:
    return spell_year(int(numeral)) if as_year and is_year(numeral) else spell_numeral(numeral)


def _read_rate(match: re.Match[str]) -> str:
    """5 g/l → five grams per liter"""
    per: str | None = match["per"]
    if per is None:
        return ""
    unit: Unit | None = UNITS.get(per)
    return f" per {unit.singular if unit else per}"


_NOT_INSIDE = r"(?<![\w.-])"
_ENDS = r"(?![\w-]|\.\d)"

PHONE = re.compile(rf"{_NOT_INSIDE}(?:\+?\d{{1,3}}[ .-])?(?:\(\d{{3}}\) ?|\d{{3}}[ .-])\d{{3}}[ .-]\d{{4}}{_ENDS}")
AREA_CODE_PHONE = re.compile(rf"{_NOT_INSIDE}0\d{{2,4}}(?:[ -]\d{{3,8}}){{1,3}}{_ENDS}")
SHORT_PHONE = re.compile(rf"{_NOT_INSIDE}\d{{3}}-\d{{4}}{_ENDS}")
DIGIT_CHAIN = re.compile(r"(?<![\d-])\d++(?:-\d++){2,}+")
POWER_OF_TEN = re.compile(r"(?<![\w.])(?P<base>\d++(?:\.\d++)?)[eE](?P<sign>[+-]?)(?P<exponent>\d{1,6}+)(?!\w|\.\d)")
DIMENSIONS = re.compile(r"(?<![\w.])\d{1,6}+(?: ?x ?\d{1,6}+){1,3}(?!\w)")


def read_phone(match: re.Match[str]) -> str:
    """+1 555-123-4567 → plus one, five five five, one two three, four five six seven"""
    groups = re.findall(r"\d+", match[0])
    plus = "plus " if match[0].startswith("+") else ""
    return plus + ", ".join(map(spell_digits, groups))


def read_power_of_ten(match: re.Match[str]) -> str:
    """3e-5 → three times ten to the minus five"""
    sign = "minus " if match["sign"] == "-" else ""
    return f"{spell_numeral(match['base'])} times ten to the {sign}{spell_integer(match['exponent'])}"


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
