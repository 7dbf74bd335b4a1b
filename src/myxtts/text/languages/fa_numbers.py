"""Numbers in Persian: spells them, and reads ordinals, fractions, ranges, money, measures, codes, dates and times.

The names of months, units and currencies come from fa.json. Decimals are read the way they are taught at school: whole
part, "ممیز", then the fraction with its place value, as in "سه ممیز چهارده صدم". Fractions longer than six digits are
read digit by digit.

Each pattern finds one kind of written amount, and a function of its name gives the words. Quantifiers are possessive
(`++`) or bounded, so that a hostile text cannot make a pattern backtrack for more than linear time. Digits are ASCII
here: `clean_unicode` has folded Persian and Arabic ones.

The calendar of a date is known by its year: 1200 to 1499 is solar (Jalali), 1500 to 2199 Gregorian.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from myxtts.text.languages.fa_letters import WORD_CHAR
from myxtts.text.languages.generic import DAYS_IN_MONTH, MAX_SPELLED_DIGITS, either, is_code, load_table, split_keys
from myxtts.text.languages.unicode_cleanup import ZWNJ

TABLE = load_table("fa")
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


SOLAR_MONTHS: list[str] = TABLE["solar_months"].split()
SOLAR_DAYS_IN_MONTH = (31, 31, 31, 31, 31, 31, 30, 30, 30, 30, 30, 30)
"""Most days of each month of the solar (Jalali) calendar; the last month has 30 in leap years."""
GREGORIAN_MONTHS: list[str] = TABLE["gregorian_months"].split()
UNITS = split_keys(TABLE["units"])


class Currency(NamedTuple):
    """Names of a currency and of its hundredth; Persian has no plural after a number."""

    name: str
    cent: str = "سنت"


CURRENCIES = {sign: Currency(*names.split("|")) for sign, names in TABLE["currencies"].items()}
SCALES = ("هزار", "میلیون", "میلیارد", "تریلیون")

# Digits, grouped by a Persian, Arabic or Latin separator or by full stops, or without any.
_WHOLE = r"(?:\d{1,3}(?:[٬،,]\d{3}){1,11}(?![٬،,]?\d)|\d{1,3}(?:\.\d{3}){2,11}(?!\.?\d)|\d++)"
_NUMERAL = rf"{_WHOLE}(?:[٫./]\d++)?"
_MINUS = r"(?:(?<![^\s(\[{\"'«=<>،:/])(?P<minus>-))?"
# Typed from right to left, the sign of a negative temperature ends up behind the number.
_TRAILING_MINUS = rf"(?P<minus_after>-(?= (?:تا|درجه)(?!{WORD_CHAR})))"
_SIGN = "[" + "".join(CURRENCIES) + "]"
_SCALE = rf"(?: ?(?P<scale>{'|'.join(SCALES)})(?!{WORD_CHAR}))?"

ORDINAL = re.compile(rf"(?<![\d٫./])(?P<number>{_WHOLE})(?:-?م|[ -]?اُ?م)(?P<superlative>ین)?(?!{WORD_CHAR})")
CENTURY = re.compile(rf"(?<=قرن |سده )(?P<number>\d{{1,2}})(?!\d|[٫./-]\d|{WORD_CHAR})")
FRACTION = re.compile(
    r"(?:(?<![\d٫./])(?P<whole>\d{1,9}+) )?(?<!\d)(?P<numerator>\d{1,3}+)\u2044(?P<denominator>\d{1,3}+)"
)
COMMON_FRACTION = re.compile(
    r"(?<![\d٫./])(?P<numerator>[123])/(?P<denominator>[234])(?!\d|[./٫]\d)"
    rf"(?! ?%| ?(?:درصد|{'|'.join(SCALES)})(?!{WORD_CHAR}))"
)
PHONE = re.compile(r"(?<![\w.٫-])(?:\+\d{1,3}[ -]?|0)\d{2,3}(?:[ -]\d{3,8}){1,3}(?![\w-])")
DIGIT_CHAIN = re.compile(r"(?<![\d/-])\d++(?:(?:-\d++){2,}+|(?:/\d++){2,}+)")
PERCENT_FIRST = re.compile(rf"(?<!\d)(?<!\d )% ?(?P<number>{_NUMERAL})")
MONEY = re.compile(rf"{_MINUS}(?P<currency>{_SIGN}) ?(?P<number>{_NUMERAL}){_SCALE}")
MEASURE = re.compile(
    rf"{_MINUS}(?P<number>{_NUMERAL})(?:{_TRAILING_MINUS}|(?P<dash>-| - )(?P<number_to>{_NUMERAL}))?{_SCALE}"
    rf"(?: ?(?P<unit>{either(UNITS)}|{_SIGN}(?! ?\d))(?![A-Za-z]))?"
)

_DOT_GROUPED = re.compile(r"[1-9]\d{0,2}(?:\.\d{3}){2,11}")
_NAMED_FRACTIONS = frozenset({("1", "2"), ("1", "3"), ("2", "3"), ("1", "4"), ("3", "4")})
"""Written with "/" these are fractions; any other number with "/" is a decimal."""


def read_ordinal(match: re.Match[str]) -> str:
    """۲۱م → بیست و یکم"""
    return make_ordinal(spell_integer(match["number"])) + (match.groupdict().get("superlative") or "")


def read_fraction(match: re.Match[str]) -> str:
    """۲ ½ → دو و نیم"""
    numerator, denominator = int(match["numerator"]), int(match["denominator"])
    words = spell_fraction(numerator, denominator)
    return f"{spell_integer(match['whole'])} و {words}" if match["whole"] else words


def read_common_fraction(match: re.Match[str]) -> str:
    """Reads 1/2, 1/3, 2/3, 1/4 and 3/4 as fractions, others as decimals: `/` is the Persian decimal sign."""
    numerator, denominator = match.groups()
    if (numerator, denominator) in _NAMED_FRACTIONS:
        return spell_fraction(int(numerator), int(denominator))
    return spell_decimal(numerator, denominator)


def read_phone(match: re.Match[str]) -> str:
    """۰۲۱-۱۲۳۴۵۶۷۸ → صفر دو یک، یک دو سه چهار پنج شش هفت هشت"""
    plus = "مثبت " if match[0].startswith("+") else ""
    return plus + "، ".join(map(spell_digits, re.findall(r"\d+", match[0])))


def read_version(match: re.Match[str]) -> str:
    """۲.۱۰.۳ → دو نقطه ده نقطه سه"""
    if _DOT_GROUPED.fullmatch(match[0]):
        return spell_integer(match[0])
    return " نقطه ".join(map(spell_integer, match[0].split(".")))


def read_percent_first(match: re.Match[str]) -> str:
    """%۲۰ → بیست درصد"""
    return f"{_spell_numeral(match['number'])} درصد"


def read_money(match: re.Match[str]) -> str:
    """$۱۲.۵۰ → دوازده دلار و پنجاه سنت"""
    return _read_sign(match) + _read_amount(match["number"], match["scale"], match["currency"])


def _read_amount(number: str, scale: str | None, sign: str) -> str:
    currency = CURRENCIES[sign]
    whole, cents = _split_numeral(number)
    if scale or cents is None or len(cents) != 2:
        return f"{_spell_numeral(number)} {f'{scale} ' if scale else ''}{currency.name}"
    cents_words = f"{spell_cardinal(int(cents))} {currency.cent}"
    if not whole.strip("0") and int(cents):
        return cents_words
    whole_words = f"{spell_integer(whole)} {currency.name}"
    return f"{whole_words} و {cents_words}" if int(cents) else whole_words


def read_measure(match: re.Match[str]) -> str:
    """۳٫۵ کیلومتر → سه ممیز پنج دهم کیلومتر"""
    number, number_to, scale, unit = match["number"], match["number_to"], match["scale"], match["unit"]
    sign = "منفی " if match["minus_after"] else _read_sign(match)
    if unit in CURRENCIES and number_to is None:
        return sign + _read_amount(number, scale, unit)
    words = [sign + _spell_numeral(number)]
    if number_to is not None:
        words.append(f"{_name_dash(match)} {_spell_numeral(number_to)}")
    if scale:
        words.append(scale)
    if unit:
        words.append(CURRENCIES[unit].name if unit in CURRENCIES else UNITS[unit])
    return " ".join(words)


def _name_dash(match: re.Match[str]) -> str:
    """Names the dash between two numbers: minus between spaces, a score where the first is larger, else a range."""
    first, second = match["number"], match["number_to"]
    if match["dash"] == " - ":
        return "منهای"
    is_score = max(len(first), len(second)) <= 2 and int(first) > int(second)
    return "بر" if is_score else "تا"


def _read_sign(match: re.Match[str]) -> str:
    return "منفی " if match["minus"] else ""


def _split_numeral(numeral: str) -> tuple[str, str | None]:
    """Splits a numeral into whole part and decimals, None where there are none."""
    parts = re.fullmatch(rf"({_WHOLE})[٫./](\d+)", numeral)
    return (parts[1], parts[2]) if parts else (numeral, None)


def _spell_numeral(numeral: str) -> str:
    whole, fraction = _split_numeral(numeral)
    return spell_integer(whole) if fraction is None else spell_decimal(whole, fraction)


_SOLAR_YEARS = range(1200, 1500)
_GREGORIAN_YEARS = range(1500, 2200)
_SHORT_SOLAR_YEARS = range(32, 100)
"""Years of two digits; below 32 the number may be a day, and the date is read as plain numbers."""
_STARTS, _ENDS = r"(?<![\d/.-])", r"(?!\d|[/.-]\d)"

YEAR_FIRST = re.compile(
    rf"{_STARTS}(?P<year>\d{{4}})(?P<bar>[/.-])(?P<month>\d{{1,2}})(?P=bar)(?P<day>\d{{1,2}}){_ENDS}"
)
DAY_FIRST = re.compile(
    rf"{_STARTS}(?P<day>\d{{1,2}})(?P<bar>[/.-])(?P<month>\d{{1,2}})(?P=bar)(?P<year>\d{{4}}){_ENDS}"
)
SHORT_YEAR = re.compile(rf"{_STARTS}(?P<year>\d{{2}})/(?P<month>\d{{1,2}})/(?P<day>\d{{1,2}}){_ENDS}")
TIME = re.compile(
    r"(?P<label>ساعت )?(?<![\d.:])(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}))?(?!\d|[.:]\d)"
)
CHRISTIAN_YEAR = re.compile(rf"(?<!\d)(?P<year>\d{{4}})(?:م\.?| م\.)(?!{WORD_CHAR})")


def read_date(match: re.Match[str]) -> str:
    """۱۴۰۰/۰۲/۱۳ → سیزده اردیبهشت هزار و چهارصد"""
    year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    month_name = _name_month(year, month, day)
    if month_name is None:
        return " ".join(spell_integer(part) for part in re.split(r"\D", match[0]))
    return f"{spell_cardinal(day)} {month_name} {spell_cardinal(year)}"


def _name_month(year: int, month: int, day: int) -> str | None:
    """Returns the month's name in the calendar of the year, None where there is no such day."""
    if not 1 <= month <= 12:
        return None
    if year in _SOLAR_YEARS or year in _SHORT_SOLAR_YEARS:
        names, days = SOLAR_MONTHS, SOLAR_DAYS_IN_MONTH
    elif year in _GREGORIAN_YEARS:
        names, days = GREGORIAN_MONTHS, DAYS_IN_MONTH
    else:
        return None
    return names[month - 1] if 1 <= day <= days[month - 1] else None


def read_time(match: re.Match[str]) -> str:
    """۷:۰۵ → هفت و پنج دقیقه"""
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    label = match["label"] or ""
    if hour > 24 or minute > 59 or second > 59:
        parts = [part for part in (match["hour"], match["minute"], match["second"]) if part]
        return label + " به ".join(map(spell_integer, parts))
    parts = [spell_cardinal(hour)]
    if minute:
        parts.append(f"{spell_cardinal(minute)} دقیقه")
    if second:
        parts.append(f"{spell_cardinal(second)} ثانیه")
    return ("ساعت " if len(parts) == 1 else label) + " و ".join(parts)


def read_christian_year(match: re.Match[str]) -> str:
    """۲۰۲۱م → دو هزار و بیست و یک میلادی"""
    return f"{spell_integer(match['year'])} میلادی"
