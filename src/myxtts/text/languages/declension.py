"""Forms of ordinals that depend on the sentence: German endings by article and gender, Arabic days and hours."""

from __future__ import annotations

import re
from functools import lru_cache

from myxtts.text.languages.generic import load_table
from myxtts.text.languages.number_words import count_arabic, spell_cardinal, spell_ordinal

_WORDS_BEFORE = re.compile(r"(?:([^\W\d_]+) )?([^\W\d_]+),? \Z")
_EARLIER_ORDINAL = re.compile(r"(?:([^\W\d_]+) )?([^\W\d_]+) \d{1,4}\.?(?: \w+)? ?(?:und|oder|bis|-|—) ?\Z")
_LONGEST_CONTEXT = 48
"""Characters before an ordinal that are searched for an article."""
_WITH_N = frozenset(
    "am vom zum zur beim im dem den des ab bis seit diesem diesen dieser jedem jeden jeder einem einen eines einer "
    "ihrem ihren ihrer seinem seinen seiner meinem meinen meiner unserem unseren unserer keinem keinen keiner".split()
)
"""Articles and prepositions after which an ordinal ends in -en."""
_WITH_E = frozenset("die das diese dieses eine jede jedes keine seine ihre meine unsere deine welche".split())
_PREPOSITIONS = frozenset(
    "in aus an auf von zu bei mit nach seit vor hinter unter neben zwischen während wegen trotz ab gegenüber".split()
)
"""Before "der": the article is then feminine dative, as in "in der dritten Klasse"."""
_FEMININE_NOUN = re.compile(r".*(?:ung|heit|keit|ion|tät|ik|ei|schaft|e|liga)")
_ENDING_BY_GENDER = {"m": "r", "f": "", "n": "s"}


def name_german_ordinal(number: int, noun: str, text: str, place: int) -> str:
    """Returns the ordinal that stands at `place` of a text before a noun, with its ending.

    am 3. Mai: dritten; der 3. Mai: dritte; in der 3. Klasse: dritten; 3. Mai: dritter; 2. Auflage: zweite.
    """
    stem = spell_ordinal(number, "de")
    before = text[max(0, place - _LONGEST_CONTEXT) : place]
    found = _EARLIER_ORDINAL.search(before) or _WORDS_BEFORE.search(before)
    earlier, word = (found[1] or "", found[2]) if found else ("", "")
    word, earlier = word.lower(), earlier.lower()
    if word in _WITH_N or (word == "der" and earlier in _PREPOSITIONS):
        return f"{stem}n"
    if word == "der" or word in _WITH_E:
        return stem
    return f"{stem}{_ENDING_BY_GENDER[_find_gender(noun)]}"


@lru_cache
def _list_genders() -> dict[str, str]:
    return {noun: gender for gender, nouns in load_table("de")["ordinal_nouns"].items() for noun in nouns.split()}


def _find_gender(noun: str) -> str:
    """The gender of a German noun, by the table or by its ending; masculine as the names of months otherwise."""
    known = _list_genders().get(noun)
    return known or ("f" if _FEMININE_NOUN.fullmatch(noun) and noun not in load_table("de")["months"] else "m")


_ARABIC_DAYS = "الأول الثاني الثالث الرابع الخامس السادس السابع الثامن التاسع العاشر".split()
_ARABIC_HOURS = "الواحدة الثانية الثالثة الرابعة الخامسة السادسة السابعة الثامنة التاسعة العاشرة".split()
_ARABIC_TENS = {20: "العشرون", 30: "الثلاثون"}
_MINUTE = ("دقيقة", "دقيقتان", "دقائق", "دقيقة")


def name_arabic_day(day: int) -> str:
    """The ordinal of a day of the month: الثالث, الحادي عشر, الخامس والعشرون."""
    return _name_arabic_ordinal(day, _ARABIC_DAYS, "الحادي", "عشر")


def name_arabic_hour(hour: int, minute: int) -> str:
    """The time of day: hours are feminine ordinals, quarter and half have words of their own."""
    hour_words = _name_arabic_ordinal(hour, _ARABIC_HOURS, "الحادية", "عشرة") if hour else spell_cardinal(0, "ar")
    parts = {0: "", 15: " والربع", 30: " والنصف"}
    minutes = parts.get(minute)
    if minutes is None:
        minutes = f" و{count_arabic(minute, _MINUTE, 'f')}"
    return f"الساعة {hour_words}{minutes}"


def _name_arabic_ordinal(number: int, ordinals: list[str], first: str, ten: str) -> str:
    """Ordinals up to 31; `first` is the one of compounds, as in "eleventh" and "twenty-first"."""
    if number <= 10:
        return ordinals[number - 1]
    tens, unit = divmod(number, 10)
    unit_words = first if unit == 1 else ordinals[unit - 1]
    if tens == 1:
        return f"{unit_words} {ten}"
    return f"{unit_words} و{_ARABIC_TENS[10 * tens]}" if unit else _ARABIC_TENS[10 * tens]
