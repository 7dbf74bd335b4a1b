"""Cardinals and ordinals in words, with gender, for the languages that have a table of words (see `quantities`).

Turkish and Arabic are spelled here: num2words writes Turkish without spaces and has wrong Arabic words for 200, 2000
and the ordinals. The others come from num2words; the tables list what is replaced in them, such as `veintiuno` by
`veintiún` before a masculine noun.
"""

from __future__ import annotations

import re
from functools import lru_cache

from myxtts.text.languages.generic import call_num2words, load_table

MAX_SPELLED = 10**15 - 1
"""Larger numbers are read digit by digit."""


@lru_cache(maxsize=8192)
def spell_cardinal(number: int, language: str, gender: str = "") -> str:
    """Returns a number in words. `gender` is m, f or n for a number before a noun, "" for one that stands alone."""
    assert 0 <= number <= MAX_SPELLED, number
    if language == "tr":
        return _spell_turkish(number)
    if language == "ar":
        return _spell_arabic(number, gender or "m")
    table = load_table(language)
    words = _replace(call_num2words(number, language), table["replace_cardinal"].get("always", {}))
    return _replace(words, table["replace_cardinal"].get(gender, {}))


@lru_cache(maxsize=1024)
def spell_ordinal(number: int, language: str, gender: str = "m") -> str:
    """Returns the ordinal of a number up to 999,999 in words; the language is not Arabic."""
    if language == "tr":
        stem, _, last = _spell_turkish(number).rpartition(" ")
        return f"{stem} {_TURKISH_ORDINALS[last]}".lstrip()
    table = load_table(language)["replace_ordinal"]
    words = _replace(call_num2words(number, language, "ordinal"), table.get("always", {}))
    return _replace(words, table.get(gender, {}))


def _replace(words: str, replacements: dict[str, str]) -> str:
    for pattern, replacement in replacements.items():
        words = re.sub(pattern, replacement, words)
    return words


_TURKISH_ONES = "sıfır bir iki üç dört beş altı yedi sekiz dokuz".split()
_TURKISH_TENS = "sıfır on yirmi otuz kırk elli altmış yetmiş seksen doksan".split()
_TURKISH_SCALES = ("", "bin", "milyon", "milyar", "trilyon")
_TURKISH_ORDINALS = dict(
    pair.split(":")
    for pair in (
        "sıfır:sıfırıncı bir:birinci iki:ikinci üç:üçüncü dört:dördüncü beş:beşinci altı:altıncı yedi:yedinci "
        "sekiz:sekizinci dokuz:dokuzuncu on:onuncu yirmi:yirminci otuz:otuzuncu kırk:kırkıncı elli:ellinci "
        "altmış:altmışıncı yetmiş:yetmişinci seksen:sekseninci doksan:doksanıncı yüz:yüzüncü bin:bininci "
        "milyon:milyonuncu milyar:milyarıncı trilyon:trilyonuncu"
    ).split()
)


def _spell_turkish(number: int) -> str:
    """1984 is bin dokuz yüz seksen dört: a hundred and a thousand have no "bir" before them."""
    if number == 0:
        return _TURKISH_ONES[0]
    words: list[str] = []
    for power in range(len(_TURKISH_SCALES) - 1, -1, -1):
        group = number // 1000**power % 1000
        if not group:
            continue
        hundreds, tens, ones = group // 100, group // 10 % 10, group % 10
        if hundreds:
            words += ["yüz"] if hundreds == 1 else [_TURKISH_ONES[hundreds], "yüz"]
        if tens:
            words.append(_TURKISH_TENS[tens])
        if ones and not (group == 1 and power == 1):
            words.append(_TURKISH_ONES[ones])
        if power:
            words.append(_TURKISH_SCALES[power])
    return " ".join(words)


_ARABIC_ONES = {
    "m": "صفر واحد اثنان ثلاثة أربعة خمسة ستة سبعة ثمانية تسعة عشرة".split(),
    "f": "صفر واحدة اثنتان ثلاث أربع خمس ست سبع ثماني تسع عشر".split(),
}
"""By the gender of what is counted: from three on, masculine nouns take the form in ة."""
_ARABIC_TEENS = {"m": ("أحد", "اثنا", "عشر"), "f": ("إحدى", "اثنتا", "عشرة")}
_ARABIC_TENS = "صفر عشر عشرون ثلاثون أربعون خمسون ستون سبعون ثمانون تسعون".split()
_ARABIC_HUNDREDS = "صفر مئة مئتان ثلاثمئة أربعمئة خمسمئة ستمئة سبعمئة ثمانمئة تسعمئة".split()
_ARABIC_SCALES = (
    ("ألف", "ألفان", "آلاف", "ألفا"),
    ("مليون", "مليونان", "ملايين", "مليونا"),
    ("مليار", "ملياران", "مليارات", "مليارا"),
    ("تريليون", "تريليونان", "تريليونات", "تريليونا"),
)
"""Thousand and larger: one, two, three to ten, eleven to ninety-nine of them."""


def _spell_arabic(number: int, gender: str) -> str:
    """Joins the groups by و: 1984 is ألف وتسعمئة وأربعة وثمانون."""
    if number == 0:
        return _ARABIC_ONES["m"][0]
    parts: list[str] = []
    for power in range(len(_ARABIC_SCALES), 0, -1):
        if group := number // 1000**power % 1000:
            parts.append(count_arabic(group, _ARABIC_SCALES[power - 1], "m", names_one=False))
    if rest := number % 1000:
        parts.append(_spell_arabic_group(rest, gender))
    return " و".join(parts)


def _spell_arabic_group(number: int, gender: str) -> str:
    """Spells a number below a thousand."""
    hundreds, rest = divmod(number, 100)
    parts = [_ARABIC_HUNDREDS[hundreds]] if hundreds else []
    if rest:
        parts.append(_spell_arabic_below_hundred(rest, gender))
    return " و".join(parts)


def _spell_arabic_below_hundred(number: int, gender: str) -> str:
    """Eleven and twelve agree with what is counted; in thirteen to nineteen the ten does and the unit is opposite."""
    ones = _ARABIC_ONES[gender]
    if number <= 10:
        return ones[number]
    if number < 20:
        eleven, twelve, ten = _ARABIC_TEENS[gender]
        return f"{ {11: eleven, 12: twelve}.get(number) or ones[number - 10] } {ten}"
    tens, unit = divmod(number, 10)
    return f"{ones[unit]} و{_ARABIC_TENS[tens]}" if unit else _ARABIC_TENS[tens]


def count_arabic(number: int, forms: tuple[str, ...], gender: str, *, names_one: bool = True) -> str:
    """Counts a noun: singular with "one" behind it, dual, plural for 3 to 10, accusative for 11 to 99, else singular.

    The last two digits choose the form. A noun with a single form is borrowed and does not change.
    """
    singular, dual, plural, accusative = forms if len(forms) == 4 else (forms[0], "", forms[0], forms[0])
    if number == 1:
        return f"{singular} {_ARABIC_ONES[gender][1]}" if names_one else singular
    if number == 2 and dual:
        return dual
    words = _spell_arabic(number, gender)
    if number > 2 and words.endswith("ئتان") and number % 1000 == 200:
        # The n of the dual is dropped before a noun: مئتا كيلومتر.
        words = words[:-1]
    last = number % 100
    return f"{words} {plural if 3 <= last <= 10 else accusative if last >= 11 else singular}"
