"""Reads dates and times of day in Persian: solar (Jalali) and Gregorian calendars."""

from __future__ import annotations

import re

from myxtts.text.languages.fa_letters import WORD_CHAR
from myxtts.text.languages.fa_numbers import spell_cardinal, spell_integer
from myxtts.text.languages.fa_units import (
    GREGORIAN_DAYS_IN_MONTH,
    GREGORIAN_MONTHS,
    SOLAR_DAYS_IN_MONTH,
    SOLAR_MONTHS,
)

_SOLAR_YEARS = range(1200, 1500)
_GREGORIAN_YEARS = range(1500, 2200)
_SHORT_SOLAR_YEARS = range(32, 100)
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
    year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    month_name = _name_month(year, month, day)
    if month_name is None:
        return " ".join(spell_integer(part) for part in re.split(r"\D", match[0]))
    return f"{spell_cardinal(day)} {month_name} {spell_cardinal(year)}"


def _name_month(year: int, month: int, day: int) -> str | None:
    """None where there is no such day in either calendar."""
    if not 1 <= month <= 12:
        return None
    if year in _SOLAR_YEARS or year in _SHORT_SOLAR_YEARS:
        names, days = SOLAR_MONTHS, SOLAR_DAYS_IN_MONTH
    elif year in _GREGORIAN_YEARS:
        names, days = GREGORIAN_MONTHS, GREGORIAN_DAYS_IN_MONTH
    else:
        return None
    return names[month - 1] if 1 <= day <= days[month - 1] else None


def read_time(match: re.Match[str]) -> str:
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
    return f"{spell_integer(match['year'])} میلادی"
