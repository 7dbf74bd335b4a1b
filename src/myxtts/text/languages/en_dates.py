"""Reads dates, decades and times of day in English.

A date or time that does not exist (month 13, 25:00) is read as plain numbers.
"""

from __future__ import annotations

import re

from myxtts.text.languages.en_numbers import MONTHS, is_year, spell_cardinal, spell_integer, spell_ordinal, spell_year
from myxtts.text.languages.generic import DAYS_IN_MONTH, complete_year

_LETTER = r"[^\W\d_]"

ISO_DATE = re.compile(r"(?<![\d./-])(\d{4})-(\d{1,2})-(\d{1,2})(?!\d|[./-]\d)")
SLASH_DATE = re.compile(r"(?<![\d./-])(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})(?!\d|[./-]\d)")
MONTH_DAY = re.compile(rf"(?<!{_LETTER})({'|'.join(MONTHS)}) (\d{{1,2}})(?:st|nd|rd|th)?(?!\w|[.,:/-]\d)")
TIME = re.compile(
    r"(?<![\d.:])(?P<time>\d{1,2}:\d{2}(?::\d{2})?)(?!\d|[.:]\d)"
    rf"(?: ?(?P<half>[AaPp] ?[Mm])(?!{_LETTER}))?"
)
HOUR = re.compile(rf"(?<![\d.,:])(?P<hour>\d{{1,2}}) ?(?P<half>[ap] m|[ap]m|[AP]M)(?!{_LETTER})")
DECADE = re.compile(r"(?<![\w.,])'?(?P<decade>\d{1,3}0)s(?!\w)")

SHORT_YEAR = re.compile(r"(?<![\w'])'(?P<year>\d{2})(?![\w'])")


def read_iso_date(match: re.Match[str]) -> str:
    """2021-05-03 → May third twenty twenty-one"""
    year, month, day = match.groups()
    return _read_date(year, int(month), int(day)) or " ".join(map(spell_integer, match.groups()))


def read_slash_date(match: re.Match[str]) -> str:
    """Reads month/day/year as in America, or day/month/year where only that is a date."""
    first, second, year = match.groups()
    year = complete_year(year)
    date = _read_date(year, int(first), int(second)) or _read_date(year, int(second), int(first))
    return date or " ".join(map(spell_integer, match.groups()))


def _read_date(year: str, month: int, day: int) -> str:
    """Returns month, day and year in words, or "" where there is no such day or the year is out of range."""
    if not (1 <= month <= 12 and 1 <= day <= DAYS_IN_MONTH[month - 1] and is_year(year)):
        return ""
    return f"{MONTHS[month - 1]} {spell_ordinal(day)} {spell_year(int(year))}"


def read_month_day(match: re.Match[str]) -> str:
    """May 3 → May third"""
    month, day = match.groups()
    return f"{month} {spell_ordinal(int(day)) if 1 <= int(day) <= 31 else spell_integer(day)}"


def read_time(match: re.Match[str]) -> str:
    """7:05 pm → seven oh five p m"""
    hour, minute, *seconds = (int(part) for part in match["time"].split(":"))
    if hour > 24 or minute > 59 or any(second > 59 for second in seconds):
        return " to ".join(map(spell_integer, match["time"].split(":")))
    half = _read_half_of_day(match["half"])
    words = spell_cardinal(hour)
    if minute:
        words += f" oh {spell_cardinal(minute)}" if minute < 10 else f" {spell_cardinal(minute)}"
    elif not half:
        words += " hundred" if hour == 0 or hour > 12 else " o'clock"
    if seconds and seconds[0]:
        words += f" and {spell_cardinal(seconds[0])} second{'s' if seconds[0] != 1 else ''}"
    return f"{words} {half}".rstrip()


def read_hour(match: re.Match[str]) -> str:
    """9 AM → nine a m"""
    return f"{spell_integer(match['hour'])} {_read_half_of_day(match['half'])}"


def _read_half_of_day(half: str | None) -> str:
    return f"{half[0].lower()} m" if half else ""


def read_decade(match: re.Match[str]) -> str:
    """Reads 1990s, '90s and 90s; also 1900s and 2000s."""
    decade = match["decade"]
    words = spell_year(int(decade)) if is_year(decade) else spell_integer(decade).removeprefix("one ")
    return f"{words[:-1]}ies" if words.endswith("y") else f"{words}s"


def read_short_year(match: re.Match[str]) -> str:
    """the summer of '69 → the summer of sixty-nine"""
    return spell_integer(match["year"])
