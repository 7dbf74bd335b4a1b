"""English text normaliser: spells numbers, dates, money, measures, abbreviations, Roman numerals and signs.

The rules that need a digit leave none, the rules for signs leave no such sign, and the abbreviations and Roman
numerals are settled before and after them; so normalised text passes through unchanged.
"""

from __future__ import annotations

import re

from myxtts.text.languages import en_dates, en_numbers
from myxtts.text.languages.en_abbreviations import expand_abbreviations, lower_capitals
from myxtts.text.languages.en_numbers import AREA_UNITS, CURRENCIES, TABLE, expand_roman_numerals, spell_integer
from myxtts.text.languages.generic import EDGE, SCORE, VERSION, Rule, apply_rules, join_numbers, say, settle_edges
from myxtts.text.languages.unicode_cleanup import clean_unicode

# The order matters: what is more specific comes first, and MEASURE takes every digit that is left.
_NUMBER_RULES: tuple[Rule, ...] = (
    (en_dates.ISO_DATE, en_dates.read_iso_date),
    (en_dates.SLASH_DATE, en_dates.read_slash_date),
    (en_dates.MONTH_DAY, en_dates.read_month_day),
    (en_dates.TIME, en_dates.read_time),
    (en_dates.HOUR, en_dates.read_hour),
    (SCORE, join_numbers(spell_integer, " to ")),
    (en_numbers.PHONE, en_numbers.read_phone),
    (en_numbers.AREA_CODE_PHONE, en_numbers.read_phone),
    (en_numbers.SHORT_PHONE, en_numbers.read_phone),
    (VERSION, join_numbers(spell_integer, " point ")),
    (en_numbers.DIGIT_CHAIN, join_numbers(spell_integer, " ")),
    (en_numbers.POWER_OF_TEN, en_numbers.read_power_of_ten),
    (en_numbers.DIMENSIONS, join_numbers(spell_integer, " by ")),
    (en_dates.DECADE, en_dates.read_decade),
    (en_dates.SHORT_YEAR, en_dates.read_short_year),
    (en_numbers.HEIGHT, en_numbers.read_height),
    (en_numbers.ORDINAL, en_numbers.read_ordinal),
    (en_numbers.FRACTION, en_numbers.read_fraction),
    (en_numbers.MONEY, en_numbers.read_money),
    (en_numbers.MEASURE, en_numbers.read_measure),
)

_AREA = re.compile(rf"(?P<one>(?<![\d.,])1 ?)?(?<![^\W\d_])(?P<unit>{'|'.join(AREA_UNITS)})(?P<power>[²³])")
_POWER = re.compile(r"([²³])(?=(\w)?)")
# The full stops of web addresses, which are read "dot".
_DOMAIN = re.compile(r"(?<=www)\.(?=\w)|(?<=\S)\.(?=(?:com|org|net|edu|gov|io)(?![^\W\d_]))")
_OPERATIONS = {"<": "is less than", ">": "is greater than", "*": "times", "^": "to the power of"}
_OPERATION = re.compile(r"(?<=[\w)]) ?([<>*^]) ?(?=[-$£€]?\d)")
_BEFORE_NUMBER = {"#": "number", "~": "about"}
_PREFIX = re.compile(r"([#~]) ?(?=[-$£€]?\d)")
_SPOKEN_HYPHEN = re.compile(f"{EDGE} ?- ?{EDGE}")
"""A hyphen between two amounts that have become words: a range, read "to"."""

_SIGNS: dict[str, str] = TABLE["signs"] | {
    sign: currency.singular for sign, currency in CURRENCIES.items() if len(sign) == 1
}
_SIGN = re.compile("&(?:amp;)*|[" + re.escape("".join(_SIGNS)) + "]")
# Longer runs are drawn lines, not arithmetic.
_PLUS = re.compile(r"(?<!\+)\+{1,2}(?!\+)")
_EQUALS = re.compile(r"(?<!=)={1,2}(?!=)")
_HASHTAG = re.compile(r"#(?=[^\W\d_])")


def normalize_english(text: str) -> str:
    """Returns English text as it is spoken.

    Units with powers come first, because Unicode folding would flatten m² to m2; Roman numerals last, because an
    abbreviation before a number ("vol. IV") must have become a word.
    """
    text = _POWER.sub(_read_power, _AREA.sub(_read_area, text))
    text = settle_edges(expand_abbreviations(lower_capitals(clean_unicode(text))))
    text = _DOMAIN.sub(say("dot"), text)
    text = settle_edges(_read_signs(_read_numbers(text)))
    return settle_edges(expand_roman_numerals(text))


def _read_area(match: re.Match[str]) -> str:
    """5 km² → five square kilometers"""
    unit = AREA_UNITS[match["unit"]]
    kind = "square" if match["power"] == "²" else "cubic"
    return f"1 {kind} {unit.singular}" if match["one"] else f" {kind} {unit.plural}"


def _read_power(match: re.Match[str]) -> str:
    """x² → x squared"""
    return f" {'squared' if match[1] == '²' else 'cubed'}{' ' if match[2] else ''}"


def _read_numbers(text: str) -> str:
    """Reads signs that belong to a number (5 < 7, #3, ~10), then every number."""
    text = _OPERATION.sub(lambda match: say(_OPERATIONS[match[1]]), text)
    text = _PREFIX.sub(lambda match: say(_BEFORE_NUMBER[match[1]]), text)
    text = apply_rules(text, _NUMBER_RULES)
    return _SPOKEN_HYPHEN.sub(say("to"), text)


def _read_signs(text: str) -> str:
    """50% @ home → fifty percent at home"""
    text = _SIGN.sub(lambda match: say(_SIGNS[match[0][0]]), text)
    text = _PLUS.sub(lambda match: say(" ".join(["plus"] * len(match[0]))), text)
    text = _EQUALS.sub(say("equals"), text)
    return _HASHTAG.sub(say("hashtag"), text)
