"""Reads Roman numerals, but only where the word before shows that it is one: Henry VIII, Chapter IV, World War II.

A lone I is the pronoun unless it ends its phrase: "Part I." but not "the part I liked".
"""

from __future__ import annotations

import re

from myxtts.text.languages.en_numbers import spell_cardinal, spell_ordinal
from myxtts.text.languages.spoken import say

RULERS = frozenset(
    "Alexander Alfonso Benedict Boniface Catherine Charles Christian Clement Constantine Edward Elizabeth Francis "
    "Frederick George Gregory Gustav Harald Haakon Henry Innocent Ivan James John Julius Leo Leopold Louis Mary Mehmed "
    "Murad Napoleon Nicholas Olaf Otto Paul Peter Philip Pius Ramesses Ramses Richard Robert Rudolf Selim Sixtus "
    "Theodosius Urban Victor Vittorio Wilhelm William Xerxes Darius Artaxerxes Ptolemy".split()
)
"""Names that are followed by an ordinal."""

COUNTED = frozenset(
    "act appendix article book bowl canto category chapter class division episode figure grade lesson level mark "
    "number page part phase psalm round scene season section stage table title type unit volume war".split()
)
"""Words that are followed by a cardinal."""

# After any other capitalised word only numerals that are no initials: IV is a drip, VI an editor, X a letter.
_UNMISTAKABLE = frozenset({"II", "III", "VII", "VIII"})

_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
_WELL_FORMED = re.compile(r"C{0,3}(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
_CANDIDATE = re.compile(r"(?<![^\W\d_])(?P<word>[A-Za-z][a-z]*+) (?P<numeral>[IVXLC]{1,8}+)(?![^\W\d_])")
_PHRASE_END = re.compile(r"[.,:;!?)\u2026\u2014]|$")


def expand_roman_numerals(text: str) -> str:
    return _CANDIDATE.sub(_read_candidate, text)


def _read_candidate(match: re.Match[str]) -> str:
    word, numeral = match["word"], match["numeral"]
    if not _WELL_FORMED.fullmatch(numeral):
        return match[0]
    if numeral == "I":
        follows_world_war = word == "War" and match.string.endswith("World ", 0, match.start())
        is_number = word.lower() in COUNTED and word[0].isupper() and _PHRASE_END.match(match.string, match.end())
        return f"{word} {say('one')}" if follows_world_war or is_number else match[0]
    if word in RULERS and numeral not in ("L", "C"):
        return f"{word} {say(f'the {spell_ordinal(read_roman(numeral))}')}"
    is_counted = word.lower() in COUNTED and (len(numeral) > 1 or (word[0].isupper() and numeral in "VX"))
    if is_counted or (word[0].isupper() and len(word) > 1 and numeral in _UNMISTAKABLE):
        return f"{word} {say(spell_cardinal(read_roman(numeral)))}"
    return match[0]


def read_roman(numeral: str) -> int:
    values = [_VALUES[letter] for letter in numeral]
    return sum(-value if value < after else value for value, after in zip(values, [*values[1:], 0], strict=True))
