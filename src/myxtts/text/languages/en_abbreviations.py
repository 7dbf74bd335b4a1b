"""Expands English abbreviations that are written with a full stop, and lowers texts that are all in capitals.

An abbreviation is either always expanded, or only where what follows shows what it stands for: a name, or a number.
No expansion ends in a full stop, and whatever may bring a capital or take away a letter runs before the rules that
look for one: a second run finds nothing to do.

Many corpora have their transcripts in capitals. espeak-ng would read IT and US in them as abbreviations.
"""

from __future__ import annotations

import re
from itertools import islice

from myxtts.text.languages.en_numbers import MONTHS, RULERS, TABLE, UNITS
from myxtts.text.languages.generic import EDGE, either, say

TITLES: dict[str, str] = TABLE["titles"]
"""Written with or without the full stop."""
NAME_ABBREVIATIONS: dict[str, str] = TABLE["before_name"]
"""Expanded before a name only: a sentence may end in "gen." or "rep."."""
PLAIN_ABBREVIATIONS: dict[str, str] = TABLE["plain"]
"""Expanded wherever they are written with their full stop."""
CAPITAL_ABBREVIATIONS: dict[str, str] = TABLE["capital"]
"""Expanded where they are written with a capital."""
NUMBER_ABBREVIATIONS: dict[str, str] = TABLE["before_number"] | {
    month[:3].lower(): month for month in MONTHS if month != "May"
}
"""Expanded before a number only: "no." and "fig." are words too."""
LAST_PARTS = frozenset(
    re.split(r"[. ]", abbreviation.lower())[-1]
    for table in (TITLES, NAME_ABBREVIATIONS, CAPITAL_ABBREVIATIONS, PLAIN_ABBREVIATIONS, ("St", "vs"))
    for abbreviation in table
    if abbreviation != "etc"
)
"""Last letters before the full stop of abbreviations that do not end a sentence: "m" for "a.m."."""

_LETTER = r"[^\W\d_]"
_NUMBER_AHEAD = rf"(?= ?(?:[0-9]|[IVX]{{2,7}}(?!{_LETTER})))"
"""Digits or a Roman numeral of two letters or more follow."""
_NEXT = rf"(?=[ {EDGE}]*(?P<next>[^ {EDGE}])?)"
"""Captures the next character behind spaces, without consuming it."""


_VERSUS = re.compile(rf"(?<!{_LETTER})[Vv]s(?:\.|(?!{_LETTER}))")
_ADDRESS = re.compile(r"(?P<place>[0-9] (?:[A-Z][a-z]{0,20} ){1,3})(?P<key>St|Dr)\.")
_STREET = re.compile(rf"(?<!{_LETTER})St\.{_NEXT}")
_TITLE = re.compile(rf"(?<!{_LETTER})(?P<key>(?i:{either(TITLES)})(?=\.)|(?:{either(TITLES)})(?!{_LETTER}))\.?")
_BEFORE_NUMBER = re.compile(rf"(?<!{_LETTER})(?P<key>(?i:{either(NUMBER_ABBREVIATIONS)}))\.{_NUMBER_AHEAD}")
_BEFORE_NAME = re.compile(rf"(?<!{_LETTER})(?P<key>{either(NAME_ABBREVIATIONS)})\.{_NEXT}")
_PLAIN = re.compile(rf"(?<!{_LETTER})(?P<key>(?i:{either(PLAIN_ABBREVIATIONS)}))\.")
_CAPITAL = re.compile(rf"(?<!{_LETTER})(?P<key>{either(CAPITAL_ABBREVIATIONS)})\.")
_TITLE_BEFORE = re.compile(rf"(?<![A-Z])(?i:{either([*TITLES, *NAME_ABBREVIATIONS, 'St'])})\. \Z")
_LONGEST_TITLE = 8
"""Characters of the longest title with its full stop, the space behind it and the character before."""
_ADDRESS_WORDS = {"St": "Street", "Dr": "Drive"}
_MILLISECONDS = "ms"
"""In lower case this is a unit, not the title Ms."""


INITIALISMS = frozenset(TABLE["initialisms"].split())
"""Well-known abbreviations that are no words in lower case: they keep their capitals in a text of capitals."""
_NAMES = RULERS.union(MONTHS)
_CAPITAL_WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|')*+")
_CAPITAL_ADDRESS = re.compile(r"(?<=[0-9])(?P<place>(?: [A-Z]{1,20}){1,3}) ST\.")
_ROMAN = re.compile(r"[IVX]{2,7}")
_MIN_CAPITAL_WORDS = 2
_NEEDS_CAPITAL = frozenset({*TITLES, *NAME_ABBREVIATIONS, *CAPITAL_ABBREVIATIONS, "St"})


def is_in_capitals(text: str) -> bool:
    """Whether a text is written in capitals throughout, as whole corpora are: at least two words, no small letter."""
    if text.upper() != text:
        return False
    words = (word for word in _CAPITAL_WORD.findall(text) if len(word) > 1 and word != word.lower())
    words = (word for word in words if not _keeps_capitals(word))
    return len(list(islice(words, _MIN_CAPITAL_WORDS))) == _MIN_CAPITAL_WORDS


def lower_capitals(text: str) -> str:
    """Returns a text of capitals in lower case, but for what the other rules know by its capitals; others as they are.

    "IT IS US, SAID MR. LEE OF THE FBI" becomes "it is us, said Mr. Lee of the FBI".
    """
    if not is_in_capitals(text):
        return text
    return _CAPITAL_WORD.sub(_lower_word, _CAPITAL_ADDRESS.sub(r"\g<place> STREET", text))


def _keeps_capitals(word: str) -> bool:
    return word in INITIALISMS or _ROMAN.fullmatch(word) is not None


def _lower_word(match: re.Match[str]) -> str:
    word, text, start = match[0], match.string, match.start()
    before = text[max(0, start - 4) : start]
    if before[-1:].isdecimal() and len(word) == 1:
        # The S of 1990S, the M of $5M.
        return word.lower()
    is_unit = before.rstrip()[-1:].isdecimal() and word in UNITS
    is_country = word == "US" and before == "THE "
    if _keeps_capitals(word) or (len(word) == 1 and word != "A") or is_unit or is_country:
        return word
    is_title = word.capitalize() in _NEEDS_CAPITAL and text[match.end() : match.end() + 1] == "."
    title_before = _TITLE_BEFORE.search(text, max(0, start - _LONGEST_TITLE), start)
    if word.capitalize() in _NAMES or is_title or title_before:
        return word.capitalize()
    return f"I{word[1:].lower()}" if word.startswith("I'") else word.lower()


def expand_abbreviations(text: str) -> str:
    """Expands abbreviations; addresses come before titles, because "Dr." and "St." mean something else there."""
    text = _VERSUS.sub(say("versus"), text)
    text = _ADDRESS.sub(lambda match: match["place"] + _expand_word(match, _ADDRESS_WORDS), text)
    text = _STREET.sub(_expand_street, text)
    text = _TITLE.sub(_expand_title, text)
    text = _BEFORE_NUMBER.sub(_expand_before_number, text)
    text = _BEFORE_NAME.sub(_expand_before_name, text)
    text = _PLAIN.sub(_expand_plain, text)
    return _CAPITAL.sub(lambda match: _expand_word(match, CAPITAL_ABBREVIATIONS), text)


def _starts_name(char: str | None) -> bool:
    """A capital, or a digit: spelled dates begin with a capital as well."""
    return char is not None and (char.isupper() or char.isdecimal())


def _expand_street(match: re.Match[str]) -> str:
    """St. Paul → Saint Paul"""
    return say("Saint") if _starts_name(match["next"]) else say("Street") + _keep_final_stop(match)


def _expand_title(match: re.Match[str]) -> str:
    """Dr. Smith → Doctor Smith"""
    return match[0] if match["key"] == _MILLISECONDS else say(TITLES[match["key"].capitalize()])


def _expand_before_number(match: re.Match[str]) -> str:
    """fig. 3 → figure three"""
    return say(_match_case(match["key"], NUMBER_ABBREVIATIONS[match["key"].lower()]))


def _expand_before_name(match: re.Match[str]) -> str:
    """Gen. Lee → General Lee"""
    return say(NAME_ABBREVIATIONS[match["key"]]) if _starts_name(match["next"]) else match[0]


def _expand_plain(match: re.Match[str]) -> str:
    """e.g. tea → for example tea"""
    key = match["key"].lower()
    words = say(_match_case(match["key"], PLAIN_ABBREVIATIONS[key]))
    follower = match.string[match.end() : match.end() + 2]
    if key == "etc" and len(follower) == 2 and follower[0] == " " and follower[1].isupper():
        return f"{words}."
    return words + _keep_final_stop(match)


def _expand_word(match: re.Match[str], table: dict[str, str]) -> str:
    """Smith & Co. sells → Smith and Company sells"""
    return say(table[match["key"]]) + _keep_final_stop(match)


def _keep_final_stop(match: re.Match[str]) -> str:
    """Returns the full stop of an abbreviation at the very end of the text, where it also ends the sentence."""
    return "." if match.end() == len(match.string) else ""


def _match_case(key: str, words: str) -> str:
    """Capitalises the words where the abbreviation is capitalised, as at the start of a sentence."""
    return words[0].upper() + words[1:] if key[0].isupper() and "." not in key else words
