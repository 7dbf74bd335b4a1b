"""Reads number codes in English: telephone numbers, versions, dimensions, scores and powers of ten."""

from __future__ import annotations

import re

from myxtts.text.languages.en_numbers import spell_digits, spell_integer, spell_numeral

_NOT_INSIDE = r"(?<![\w.-])"
_ENDS = r"(?![\w-]|\.\d)"

PHONE = re.compile(rf"{_NOT_INSIDE}(?:\+?\d{{1,3}}[ .-])?(?:\(\d{{3}}\) ?|\d{{3}}[ .-])\d{{3}}[ .-]\d{{4}}{_ENDS}")
AREA_CODE_PHONE = re.compile(rf"{_NOT_INSIDE}0\d{{2,4}}(?:[ -]\d{{3,8}}){{1,3}}{_ENDS}")
SHORT_PHONE = re.compile(rf"{_NOT_INSIDE}\d{{3}}-\d{{4}}{_ENDS}")
VERSION = re.compile(r"(?<![\d.])\d++(?:\.\d++){2,}+")
DIGIT_CHAIN = re.compile(r"(?<![\d-])\d++(?:-\d++){2,}+")
POWER_OF_TEN = re.compile(r"(?<![\w.])(?P<base>\d++(?:\.\d++)?)[eE](?P<sign>[+-]?)(?P<exponent>\d{1,6}+)(?!\w|\.\d)")
DIMENSIONS = re.compile(r"(?<![\w.])\d{1,6}+(?: ?x ?\d{1,6}+){1,3}(?!\w)")
SCORE = re.compile(r"(?<![\d:.])\d{1,6}+:\d{1,6}+(?!\d|:\d)")


def read_phone(match: re.Match[str]) -> str:
    groups = re.findall(r"\d+", match[0])
    plus = "plus " if match[0].startswith("+") else ""
    return plus + ", ".join(map(spell_digits, groups))


def read_version(match: re.Match[str]) -> str:
    return " point ".join(map(spell_integer, match[0].split(".")))


def read_digit_chain(match: re.Match[str]) -> str:
    return " ".join(map(spell_integer, match[0].split("-")))


def read_power_of_ten(match: re.Match[str]) -> str:
    sign = "minus " if match["sign"] == "-" else ""
    return f"{spell_numeral(match['base'])} times ten to the {sign}{spell_integer(match['exponent'])}"


def read_dimensions(match: re.Match[str]) -> str:
    return " by ".join(map(spell_integer, re.findall(r"\d+", match[0])))


def read_score(match: re.Match[str]) -> str:
    return " to ".join(map(spell_integer, match[0].split(":")))
