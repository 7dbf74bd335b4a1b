"""Parses IPA text into factored phones, and renders phones as canonical IPA.

Canonical IPA is a fixed point of parsing and rendering: words and marks of punctuation, one space after each but the
last; a stress mark stands before the nucleus (vowel or syllabic consonant) of its syllable, not before the onset;
modifiers follow their letter in a fixed order; tie bars, links and zero-width signs are left out, because the letters
around them already determine the phones.
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
from myxtts.text.languages.unicode_cleanup import limit_marks

Factors = tuple[int, int, int, int]
"""Numbers of a phone's symbol, modifier, stress and position, as `inventory` has them."""

# Other spellings of the same sign: ASCII g, obsolete ligatures, diacritics above, tone letters.
LETTER_SPELLINGS = {
    **dict(zip("gεʦʣʧʤʨʥɩ", "ɡ ɛ ts dz tʃ dʒ tɕ dʑ ɪ".split(), strict=True)),
    "\u030a": "\u0325",  # the ring above letters with a tail
    "\u0311": "\u032f",
    "\u0318": "\u031f",
    **dict(zip("˥˦˧˨˩", "⁵⁴³²¹", strict=True)),
    # Tie bars, link, zero-width joiner and non-joiner.
    **dict.fromkeys("\u0361\u035c\u203f\u200d\u200c", ""),
}
# Marks of other scripts by the mark of PUNCTUATION that they stand for; inverted marks of Spanish are dropped.
PUNCTUATION_SPELLINGS = {
    **dict.fromkeys("۔।॥。．｡։።", "."),
    **dict.fromkeys("،、，､፣", ","),
    **dict.fromkeys("؟？՞፧", "?"),
    **dict.fromkeys("؛；፤", ";"),
    **dict.fromkeys("–―⸺", "—"),
    "！": "!",
    "：": ":",
    "⋯": "…",
    **dict.fromkeys("¿¡", ""),
}
_SPELLINGS = str.maketrans(LETTER_SPELLINGS | PUNCTUATION_SPELLINGS)
_MARKS = "".join(PUNCTUATION)
_PIECES = re.compile(rf"[{_MARKS}]|[^\s{_MARKS}]+")
_DOTS = re.compile(r"\.{2,}")
_NUCLEI = frozenset(VOWELS)
_MODIFIER_ORDER = {letter: place for place, letter in enumerate(MODIFIER_LETTERS + TONE_FIGURES)}


def split_ipa(text: str) -> list[str]:
    """Splits IPA text into words and marks of punctuation, with canonical letters (`LETTER_SPELLINGS`)."""
    # NFD separates letters from combining marks; ç is put together again, since it is a consonant of its own.
    decomposed = unicodedata.normalize("NFD", limit_marks(text)).replace("c\u0327", "ç")
    return _PIECES.findall(_DOTS.sub("…", decomposed).translate(_SPELLINGS))


def parse_word(word: str, inventory: Inventory) -> tuple[list[Factors], list[str]]:
    """Parses one word; returns its phones, and the signs that the inventory does not have or that belong to no phone.

    Stress marks are collected with the index of the next letter, and moved to the nucleus when all letters are known.
    """
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
        known, lost = find_modifier(modifier, inventory)
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
    """Renders the factors of words, spaces and punctuation as canonical IPA; positions in the word are not shown."""
    parts: list[str] = []
    for symbol_number, modifier, stress, _ in factors:
        symbol = inventory.symbols[symbol_number]
        if symbol != SPACE and parts and parts[-1] in PUNCTUATION and symbol not in PUNCTUATION:
            parts.append(SPACE)
        parts.append(f"{STRESS_MARKS[stress]}{symbol}{inventory.modifiers[modifier]}")
    return "".join(parts)


def find_modifier(written: str, inventory: Inventory) -> tuple[str, list[str]]:
    """Returns the modifier as the inventory has it, and the signs that were dropped.

    A combination that is not in the inventory is built up sign by sign in canonical order, as far as it is known.
    """
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
    """Returns the stress of each phone, and stress marks with no phone behind them.

    A mark belongs to the next nucleus of the word, or to the next phone if there is none; of two the stronger counts.
    """
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
