"""Persian: letters, half-spaces and punctuation are repaired, and numbers become the words one says.

Latin words stay for the phonemiser, which switches the language. The rules that need a digit leave none, and each of
the repairs is settled on text that the others have finished with; so normalised text passes through unchanged.
"""

from __future__ import annotations

import re

from myxtts.text.languages import fa_dates, fa_quantities
from myxtts.text.languages.fa_halfspace import repair_half_spaces
from myxtts.text.languages.fa_letters import WORD_CHAR, clean_persian_letters
from myxtts.text.languages.fa_punctuation import remove_stray_spaces, repair_punctuation
from myxtts.text.languages.fa_units import CURRENCIES
from myxtts.text.languages.spoken import Rule, apply_rules, say, settle_edges
from myxtts.text.languages.unicode_cleanup import ZWNJ, tidy

DOTTED = {
    "ه.ش": "هجری شمسی",
    "ه.ق": "هجری قمری",
    "ق.م": "قبل از میلاد",
    "ب.م": "بعد از میلاد",
    "ق.ظ": "قبل از ظهر",
    "ب.ظ": "بعد از ظهر",
}
"""Eras and halves of the day. A space may follow the first full stop, and another full stop the second letter."""

NUMBERED = {"ص": "صفحه", "صص": "صفحات", "ج": "جلد", "ش": "شماره"}
"""Letters that stand for a word before a number."""

_DOTTED_KEYS = "|".join(key.replace(".", r"\. ?") for key in DOTTED)
_DOTTED = re.compile(rf"(?<!{WORD_CHAR})(?:{_DOTTED_KEYS})(?!{WORD_CHAR})\.?")
_NUMBERED = re.compile(rf"(?<!{WORD_CHAR})({'|'.join(sorted(NUMBERED, key=len, reverse=True))})\.? ?(?=\d)")

_OPERATIONS = {
    "+": f"به{ZWNJ}علاوه",
    "=": "مساوی",
    "×": "ضربدر",
    "*": "ضربدر",
    "÷": "تقسیم بر",
    "<": "کوچک‌تر از",
    ">": "بزرگ‌تر از",
}
_OPERATION = re.compile(r"(?<=\d) ?([+=×*÷<>]) ?(?=-?\d)")
_PREFIXES = {"#": "شماره", "№": "شماره", "~": "حدود", "+": "مثبت"}
_PREFIX = re.compile(r"(?<!\w)([#№~+]) ?(?=\d)")

# The order matters: what is more specific comes first, and MEASURE takes every digit that is left.
_NUMBER_RULES: tuple[Rule, ...] = (
    (fa_dates.YEAR_FIRST, fa_dates.read_date),
    (fa_dates.DAY_FIRST, fa_dates.read_date),
    (fa_dates.SHORT_YEAR, fa_dates.read_date),
    (fa_dates.TIME, fa_dates.read_time),
    (fa_dates.CHRISTIAN_YEAR, fa_dates.read_christian_year),
    (fa_quantities.SCORE, fa_quantities.read_score),
    (fa_quantities.VERSION, fa_quantities.read_version),
    (fa_quantities.DIGIT_CHAIN, fa_quantities.read_digit_chain),
    (fa_quantities.ORDINAL, fa_quantities.read_ordinal),
    (fa_quantities.CENTURY, fa_quantities.read_century),
    (fa_quantities.FRACTION, fa_quantities.read_fraction),
    (fa_quantities.COMMON_FRACTION, fa_quantities.read_common_fraction),
    (fa_quantities.PERCENT_FIRST, fa_quantities.read_percent_first),
    (fa_quantities.MONEY, fa_quantities.read_money),
    (fa_quantities.MEASURE, fa_quantities.read_measure),
)

_SIGNS = {
    "%": "درصد",
    "°": "درجه",
    "²": "به توان دو",
    "³": "به توان سه",
    **{sign: currency.name for sign, currency in CURRENCIES.items()},
}
_SIGN = re.compile("[" + re.escape("".join(_SIGNS)) + "]")
_AND_SIGN = re.compile(r"(?<![A-Za-z])&|&(?![A-Za-z])")


def normalize_persian(text: str) -> str:
    text = remove_stray_spaces(clean_persian_letters(text))
    text = settle_edges(_expand_abbreviations(text))
    text = settle_edges(_read_signs(_read_numbers(text)))
    return tidy(repair_punctuation(repair_half_spaces(text)))


def _expand_abbreviations(text: str) -> str:
    text = _DOTTED.sub(_expand_dotted, text)
    return _NUMBERED.sub(lambda match: say(NUMBERED[match[1]]), text)


def _expand_dotted(match: re.Match[str]) -> str:
    key = match[0].replace(" ", "").rstrip(".")
    ends_sentence = match[0].endswith(".") and match.end() == len(match.string)
    return say(DOTTED[key]) + ("." if ends_sentence else "")


def _read_numbers(text: str) -> str:
    text = apply_rules(text, [(fa_quantities.PHONE, fa_quantities.read_phone)])
    text = _OPERATION.sub(lambda match: say(_OPERATIONS[match[1]]), text)
    text = _PREFIX.sub(lambda match: say(_PREFIXES[match[1]]), text)
    return apply_rules(text, _NUMBER_RULES)


def _read_signs(text: str) -> str:
    text = _SIGN.sub(lambda match: say(_SIGNS[match[0]]), text)
    return _AND_SIGN.sub(say("و"), text)
