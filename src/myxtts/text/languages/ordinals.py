"""Reads ordinals in languages with a table of words: 3e, 2.ª, 5'inci, German 3. Platz, 80er, and Roman numerals.

Roman numerals are read behind the names of rulers and beside words such as "siglo" that the table lists. Some forms
depend on the sentence: German endings on article and gender, Arabic days and hours.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from myxtts.text.languages.generic import LETTER, Rule, either, load_table, read_roman, split_keys
from myxtts.text.languages.number_words import count_arabic, spell_cardinal, spell_ordinal

_ENDS = rf"(?!{LETTER})"
_DIGITS = r"(?<![\d.,:/])(?P<n>\d{1,6}+)"
_ROMAN = r"(?P<roman>[IVX]{1,7}+)"


class Ordinals:
    """The rules for ordinals of one language."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._table: dict[str, Any] = load_table(language)
        self._marks = split_keys(self._table["ordinal_marks"])
        nouns = self._table.get("ordinal_nouns", {}).values()
        self._nouns = either(noun for words in nouns for noun in words.split())

    def list_rules(self) -> list[Rule]:
        rules: list[Rule] = []
        if self._marks:
            marks = either(self._marks)
            rules.append((re.compile(rf"{_DIGITS}(?P<mark>{marks})(?!\w)"), self._read_marked))
            rules.append(
                (re.compile(rf"(?<!{LETTER})(?P<roman>[IVX]{{1,7}})(?P<mark>{marks}){_ENDS}"), self._read_marked)
            )
        if "ordinal_before_degree" in self._table:
            before = either(self._table["ordinal_before_degree"].split())
            pattern = rf"(?<!{LETTER})(?P<before>{before}) {_DIGITS}(?P<mark>°)(?= [a-z])"
            rules.append((re.compile(pattern), self._read_marked))
        if self._language == "tr":
            pattern = rf"(?<![\d.,:/-])(?P<n>\d{{1,4}}+)\.(?= (?:{self._nouns}|[a-zçğıöşü]))"
            rules.append((re.compile(pattern), lambda match: spell_ordinal(int(match["n"]), "tr")))
        if self._language == "de":
            rules += self._list_german_rules()
        if self._language == "ar":
            century = re.compile(r"(?P<before>القرن) (?P<n>[1-9]|[12]\d)(?![\d.,])")
            rules.append((century, lambda match: f"{match['before']} {name_arabic_day(int(match['n']))}"))
        return rules + self._list_roman_rules()

    def _list_german_rules(self) -> list[Rule]:
        """Ordinals before a known noun, behind an article or preposition, or joined by "und"; decades such as 80er."""
        words = self._table["ordinal_after"].split()
        after = either([*words, *(word.capitalize() for word in words)])
        before = r"(?<![\d.,:/-])(?P<n>\d{1,4}+)\."
        joined = rf"{before}(?= (?:und|oder|bis) \d{{1,4}}\. (?P<next>{self._nouns}){_ENDS})"
        behind = rf"(?<!{LETTER})(?P<before>{after}) (?P<n>\d{{1,4}}+)\.(?= (?P<next>{LETTER}++))"
        return [
            (re.compile(joined), self._read_german),
            (re.compile(rf"{before}(?= (?P<next>{self._nouns}){_ENDS})"), self._read_german),
            (re.compile(behind), self._read_german),
            (re.compile(rf"(?<![\d.,])(?P<n>\d{{1,4}})(?P<ending>ern?){_ENDS}"), self._read_decade),
        ]

    def _read_german(self, match: re.Match[str]) -> str:
        before = f"{match['before']} " if "before" in match.groupdict() else ""
        place = match.start("n")
        return before + name_german_ordinal(int(match["n"]), match["next"], match.string, place)

    def _read_decade(self, match: re.Match[str]) -> str:
        """die 80er: die achtziger; die 1920er: die neunzehnhundertzwanziger"""
        number = int(match["n"])
        words = spell_cardinal(number, "de")
        if 1100 <= number < 2000:
            rest = spell_cardinal(number % 100, "de") if number % 100 else ""
            words = f"{spell_cardinal(number // 100, 'de')}hundert{rest}"
        return f"{words}{match['ending']}"

    def _read_marked(self, match: re.Match[str]) -> str:
        groups = match.groupdict()
        number = read_roman(groups["roman"]) if groups.get("roman") else int(match["n"])
        if not number and "roman" in groups:
            return match[0]
        before = f"{match['before']} " if "before" in groups else ""
        return before + spell_ordinal(number, self._language, self._marks.get(match["mark"], "m"))

    def _list_roman_rules(self) -> list[Rule]:
        roman: dict[str, str] = self._table.get("roman", {})
        rules: list[Rule] = []
        if "names" in roman:
            stop = r"(?:\.(?= [^\W\d_A-Z]))?" if self._language == "de" else ""
            pattern = rf"(?<!{LETTER})(?P<before>{either(roman['names'].split())}) {_ROMAN}{_ENDS}{stop}"
            rules.append((re.compile(pattern), lambda match: self._read_roman(match, roman["form"])))
        if "after" in roman:
            pattern = rf"(?<!{LETTER})(?P<before>{either(roman['after'].split())}) {_ROMAN}{_ENDS}"
            rules.append((re.compile(pattern), lambda match: self._read_roman(match, "{c}")))
        if "before" in roman:
            stop = r"\." if self._language == "tr" else ""
            pattern = rf"(?<!{LETTER}){_ROMAN}{stop}(?= (?:{either(roman['before'].split())}){_ENDS})"
            rules.append((re.compile(pattern), lambda match: self._read_roman(match, "{o}")))
        return rules

    def _read_roman(self, match: re.Match[str], form: str) -> str:
        """Reads a Roman numeral by its form: {c} is the cardinal, {o} the ordinal, {O} the same with a capital.

        After names, Spanish has ordinals up to ten, and French one for the first only.
        """
        number, language = read_roman(match["roman"]), self._language
        if not number:
            return match[0]
        if language == "fr" and number == 1 and "names" in self._table["roman"]:
            form = "{o}"
        if form == "{o10}":
            form = "{o}" if number <= 10 else "{c}"
        ordinal = spell_ordinal(number, language)
        words = form.format(c=spell_cardinal(number, language), o=ordinal, O=ordinal.capitalize())
        return f"{match['before']} {words}" if "before" in match.groupdict() else words


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
