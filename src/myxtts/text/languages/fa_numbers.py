"""Spells numbers in Persian; the names of months, units and currencies come from fa.json.

Decimals are read the way they are taught at school: whole part, "ممیز", then the fraction with its place value, as in
"سه ممیز چهارده صدم". Fractions longer than six digits are read digit by digit.
"""

from __future__ import annotations

from typing import NamedTuple

from myxtts.text.languages.generic import MAX_SPELLED_DIGITS, is_code, load_table, split_keys
from myxtts.text.languages.unicode_cleanup import ZWNJ

_SMALL = ("صفر یک دو سه چهار پنج شش هفت هشت نه ده یازده دوازده سیزده چهارده پانزده شانزده هفده هجده نوزده").split()
_TENS = "صفر ده بیست سی چهل پنجاه شصت هفتاد هشتاد نود".split()
_HUNDREDS = "صفر صد دویست سیصد چهارصد پانصد ششصد هفتصد هشتصد نهصد".split()
_SCALES = ("هزار میلیون میلیارد تریلیون کوادریلیون کوینتیلیون سکستیلیون سپتیلیون اکتیلیون نانیلیون دسیلیون").split()
_PLACES = ("", "دهم", "صدم", "هزارم", f"ده{ZWNJ}هزارم", "صدهزارم", "میلیونیم")
"""Place values of decimals by their number of digits: tenths, hundredths, … millionths."""

NUMBER_WORDS = frozenset([*_SMALL, *_TENS, *_HUNDREDS, *_SCALES])
"""Words that are no verbs, for the repair of half-spaces in `fa`."""
_AND = " و "
_GROUP_SIGNS = str.maketrans("", "", "٬،,.")
"""Removes the separators between groups of three digits."""


def spell_cardinal(number: int) -> str:
    """Joins the groups of three digits by "و"; 1000 is هزار without یک. At most `MAX_SPELLED_DIGITS` digits."""
    assert 0 <= number < 10**MAX_SPELLED_DIGITS, number
    if number == 0:
        return _SMALL[0]
    groups: list[str] = []
    for scale in ("", *_SCALES):
        number, group = divmod(number, 1000)
        if group == 1 and scale == _SCALES[0]:
            groups.append(scale)
        elif group:
            groups.append(f"{_spell_below_thousand(group)} {scale}".rstrip())
    return _AND.join(reversed(groups))


def _spell_below_thousand(number: int) -> str:
    parts: list[str] = []
    hundreds, rest = divmod(number, 100)
    if hundreds:
        parts.append(_HUNDREDS[hundreds])
    if 0 < rest < 20:
        parts.append(_SMALL[rest])
    elif rest:
        tens, ones = divmod(rest, 10)
        parts.append(_TENS[tens])
        if ones:
            parts.append(_SMALL[ones])
    return _AND.join(parts)


def make_ordinal(cardinal: str) -> str:
    """Turns a cardinal into the ordinal: `بیست و سه` becomes `بیست و سوم`, `سی` becomes `سی‌ام`."""
    last = cardinal.rpartition(" ")[2]
    if last == "سه":
        return f"{cardinal[:-1]}وم"
    return f"{cardinal}{ZWNJ}ام" if last == "سی" else f"{cardinal}م"


def spell_digits(digits: str) -> str:
    return " ".join(_SMALL[int(digit)] for digit in digits)


def spell_integer(digits: str) -> str:
    """Spells a number, or its digits one by one where it is a code: a telephone number, or one too long to name."""
    plain = digits.translate(_GROUP_SIGNS)
    return spell_digits(plain) if is_code(plain, digits) else spell_cardinal(int(plain))


def spell_decimal(whole: str, fraction: str) -> str:
    """Spells 3.14 as "three point fourteen hundredths"; more than six decimals digit by digit."""
    words = f"{spell_integer(whole)} ممیز"
    if len(fraction) >= len(_PLACES):
        return f"{words} {spell_digits(fraction)}"
    if not fraction.strip("0"):
        return f"{words} {_SMALL[0]}"
    return f"{words} {spell_cardinal(int(fraction))} {_PLACES[len(fraction)]}"


def spell_fraction(numerator: int, denominator: int) -> str:
    """Spells 2/3 as "two third"; 1/2 has a word of its own."""
    if (numerator, denominator) == (1, 2):
        return "نیم"
    return f"{spell_cardinal(numerator)} {make_ordinal(spell_cardinal(denominator))}"


_TABLE = load_table("fa")
SOLAR_MONTHS: list[str] = _TABLE["solar_months"].split()
SOLAR_DAYS_IN_MONTH = (31, 31, 31, 31, 31, 31, 30, 30, 30, 30, 30, 30)
"""Most days of each month of the solar (Jalali) calendar; the last month has 30 in leap years."""
GREGORIAN_MONTHS: list[str] = _TABLE["gregorian_months"].split()
GREGORIAN_DAYS_IN_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""Most days of each month: leap years are not told apart."""
UNITS = split_keys(_TABLE["units"])


class Currency(NamedTuple):
    """Names of a currency and of its hundredth; Persian has no plural after a number."""

    name: str
    cent: str = "سنت"


CURRENCIES = {sign: Currency(*names.split("|")) for sign, names in _TABLE["currencies"].items()}
SCALES = ("هزار", "میلیون", "میلیارد", "تریلیون")
