"""IPA text to factored phones and back.

Canonical IPA, which reading and writing again leaves as it is: words and marks of punctuation, one space after each but
the last; a stress mark stands before the vowel it is heard on; modifiers follow their letter in a fixed order; ties,
syllable breaks and links, which say nothing a neighbour does not, are left out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from myxtts.text.inventory import (
    INSIDE,
    MODIFIER_LETTERS,
    PUNCTUATION,
    SPACE,
    STRESS_MARKS,
    SYLLABIC,
    TONE_FIGURES,
    VOWELS,
    WHOLE_WORD,
    WORD_END,
    WORD_START,
    Inventory,
)

Factors = tuple[int, int, int, int]

# Other spellings of the same sign.
_LETTER_SPELLINGS = {
    "g": "ɡ",
    "ε": "ɛ",
    "ʦ": "ts",
    "ʣ": "dz",
    "ʧ": "tʃ",
    "ʤ": "dʒ",
    "ʨ": "tɕ",
    "ʥ": "dʑ",
    "ɩ": "ɪ",
    "\u030a": "\u0325",  # the ring above letters with a tail
    "\u0311": "\u032f",
    "\u0318": "\u031f",
    "˥": "⁵",
    "˦": "⁴",
    "˧": "³",
    "˨": "²",
    "˩": "¹",
    # Said nothing about the sound that the letters around them do not say.
    "\u0361": "",
    "\u035c": "",
    "\u203f": "",
    "\u200d": "",
    "\u200c": "",
}
PUNCTUATION_SPELLINGS = {
    "،": ",",
    "؛": ";",
    "؟": "?",
    "۔": ".",
    "।": ".",
    "॥": ".",
    "。": ".",
    "．": ".",
    "｡": ".",
    "、": ",",
    "，": ",",
    "､": ",",
    "！": "!",
    "？": "?",
    "；": ";",
    "：": ":",
    "։": ".",
    "՞": "?",
    "።": ".",
    "፣": ",",
    "፤": ";",
    "፧": "?",
    "–": "—",
    "―": "—",
    "⸺": "—",
    "⋯": "…",
    "¿": "",
    "¡": "",
}
_SPELLINGS = str.maketrans(_LETTER_SPELLINGS | PUNCTUATION_SPELLINGS)
_MARKS = "".join(PUNCTUATION)
_PIECES = re.compile(rf"[{_MARKS}]|[^\s{_MARKS}]+")
_DOTS = re.compile(r"\.{2,}")
_NUCLEI = frozenset(VOWELS)
_MODIFIER_ORDER = {letter: place for place, letter in enumerate(MODIFIER_LETTERS + TONE_FIGURES)}


def split_ipa(text: str) -> list[str]:
    """The words and marks of punctuation in IPA text, spelled the canonical way."""
    # NFD parts letters from their marks, but ç is a letter of its own.
    decomposed = unicodedata.normalize("NFD", text).replace("c\u0327", "ç")
    return _PIECES.findall(_DOTS.sub("…", decomposed).translate(_SPELLINGS))


def parse_word(word: str, inventory: Inventory) -> tuple[list[Factors], list[str]]:
    """The phones of one word, and what in it the inventory does not have."""
    unknown: list[str] = []
    letters: list[str] = []
    modifiers: list[str] = []
    marks: list[tuple[int, int]] = []
    for sign in word:
        if sign in "ˌˈ":
            marks.append((len(letters), STRESS_MARKS.index(sign)))
        elif sign in _MODIFIER_ORDER:
            if letters:
                modifiers[-1] += sign
            else:
                unknown.append(sign)
        elif sign in inventory.symbol_numbers:
            letters.append(sign)
            modifiers.append("")
        else:
            unknown.append(sign)
    kept = []
    for letter, modifier in zip(letters, modifiers, strict=True):
        known, lost = _find_modifier(modifier, inventory)
        kept.append(known)
        unknown += [f"{letter}{sign}" for sign in lost]
    stresses, lost_marks = _place_stresses(letters, kept, marks)
    unknown += lost_marks
    last = len(letters) - 1
    phones = [
        (
            inventory.symbol_numbers[letter],
            inventory.modifier_numbers[kept[index]],
            stresses[index],
            _find_position(index, last),
        )
        for index, letter in enumerate(letters)
    ]
    return phones, unknown


def render_ipa(factors: Iterable[Factors], inventory: Inventory) -> str:
    """Canonical IPA from the factors of words, spaces and punctuation."""
    parts: list[str] = []
    for symbol_number, modifier, stress, _ in factors:
        symbol = inventory.symbols[symbol_number]
        if symbol != SPACE and parts and parts[-1] in PUNCTUATION and symbol not in PUNCTUATION:
            parts.append(SPACE)
        parts.append(f"{STRESS_MARKS[stress]}{symbol}{inventory.modifiers[modifier]}")
    return "".join(parts)


def _find_modifier(written: str, inventory: Inventory) -> tuple[str, list[str]]:
    """The modifier as the inventory has it, and the signs that go beyond it."""
    if written in inventory.modifier_numbers:
        return written, []
    tone = "".join(sign for sign in written if sign in TONE_FIGURES)
    others = sorted({sign for sign in written if sign not in TONE_FIGURES}, key=_MODIFIER_ORDER.__getitem__)
    known, lost = "", []
    for sign in (*others, tone) if tone else others:
        if known + sign in inventory.modifier_numbers:
            known += sign
        else:
            lost.append(sign)
    return known, lost


def _place_stresses(
    letters: list[str], modifiers: list[str], marks: list[tuple[int, int]]
) -> tuple[list[int], list[str]]:
    """The stress of each phone: a mark belongs to the next vowel of the word, or to the next phone if there is none."""
    stresses = [0] * len(letters)
    lost = []
    for start, stress in marks:
        if start == len(letters):
            lost.append(STRESS_MARKS[stress])
            continue
        nuclei = (
            index for index in range(start, len(letters)) if letters[index] in _NUCLEI or SYLLABIC in modifiers[index]
        )
        nucleus = next(nuclei, start)
        stresses[nucleus] = max(stresses[nucleus], stress)
    return stresses, lost


def _find_position(index: int, last: int) -> int:
    if last == 0:
        return WHOLE_WORD
    return WORD_START if index == 0 else WORD_END if index == last else INSIDE
