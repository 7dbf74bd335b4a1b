"""Reads the sentences of FarsDat (GE2PE, MIT): words of the front end, each with its phonemes and whether it has ezafe.

The phonemes are words too, but not the same ones: a written word may be two spoken ones, a date is read in another way,
a word is missing. Both sides are aligned by their consonants, and words that do not fit are left without phonemes.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from myxtts.text.normalize import normalize_text
from myxtts.text.persian.words import split_words

SIGNS = {
    "/": "ɑ",
    ".": "ʃ",
    ",": "dʒ",
    "'": "tʃ",
    "[": "ʒ",
    "]": "ʔ",
    "y": "j",
    "g": "ɡ",
    "u": "uː",
    **{letter: letter for letter in "aeiobdfhklmnpqrstvxz"},
}
"""IPA of the signs of FarsDat, with the symbols that espeak-ng uses for Persian."""

_LETTERS = {
    **dict.fromkeys("ثسص", "s"),
    **dict.fromkeys("ذزضظ", "z"),
    **dict.fromkeys("تط", "t"),
    **dict.fromkeys("حه", "h"),
    **dict.fromkeys("غق", "q"),
    **dict(zip("بپدرفکگلمنخشجچژ", "bpdrfkglmnx.,'[", strict=True)),
}
_VOWELS = frozenset("aeio/u1]yv-\\")
_MAX_COST = 0.5
"""Share of consonants that may differ between a written word and its phonemes."""
_MAX_JOINED = 4
"""Spoken words that one written word may have."""


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A written word; `phonemes` in the signs of FarsDat without the mark of ezafe, '' where they are not known."""

    word: str
    phonemes: str
    has_ezafe: bool
    num_spoken: int = 1


def has_same_consonants(word: SpokenWord) -> bool:
    return _distance(_written_skeleton(word.word), _spoken_skeleton(word.phonemes)) == 0


def read_farsdat(path: Path) -> list[list[SpokenWord]]:
    """Returns the sentences with the words as the front end splits them; marks of punctuation have no phonemes."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [_align(split_words(normalize_text(row["Grapheme"], "fa", 1)), row["Phoneme"].split()) for row in rows]


def to_ipa(phonemes: str) -> str:
    return "".join(SIGNS.get(sign, "") for sign in phonemes)


def _written_skeleton(word: str) -> str:
    letters = [_LETTERS[letter] for letter in word if letter in _LETTERS]
    return "".join(letter for index, letter in enumerate(letters) if index == 0 or letters[index - 1] != letter)


def _spoken_skeleton(phonemes: str) -> str:
    signs = [sign for sign in phonemes if sign not in _VOWELS]
    return "".join(sign for index, sign in enumerate(signs) if index == 0 or signs[index - 1] != sign)


def _distance(written: str, spoken: str) -> int:
    """Edit distance of two skeletons; a silent he costs nothing."""
    row = list(range(len(spoken) + 1))
    for index, letter in enumerate(written, start=1):
        before, row = row, [index]
        drop = 0 if letter == "h" else 1
        for column, sign in enumerate(spoken, start=1):
            row.append(min(before[column] + drop, row[-1] + 1, before[column - 1] + (letter != sign)))
        row[0] = before[0] + drop
    return row[-1]


def _align(words: list[str], spoken: list[str]) -> list[SpokenWord]:
    """Pairs written and spoken words in order at least cost; a mark of punctuation pairs with nothing for free."""
    spoken = [word for word in spoken if word.strip("-\\")]
    skeletons = [_written_skeleton(word) for word in words]
    sounds = [_spoken_skeleton(word) for word in spoken]
    best: list[list[tuple[float, int]]] = [[(0.0, 0)] * (len(spoken) + 1) for _ in range(len(words) + 1)]
    for column in range(1, len(spoken) + 1):
        best[0][column] = (best[0][column - 1][0] + 1 + len(sounds[column - 1]), -1)
    for row, word in enumerate(words, start=1):
        alone = 0.0 if not word[0].isalpha() else 1.0 + len(skeletons[row - 1])
        for column in range(len(spoken) + 1):
            options = [(best[row - 1][column][0] + alone, 0)]
            if column:
                options.append((best[row][column - 1][0] + 1 + len(sounds[column - 1]), -1))
            for count in range(1, min(_MAX_JOINED, column) + 1):
                joined = "".join(sounds[column - count : column])
                cost = 2 * _distance(skeletons[row - 1], joined) + 0.3 * (count - 1)
                cost += 0.5 * (word[0] in "اآع") * (spoken[column - count][0] != "]")
                cost += 5.0 * (not word[0].isalpha())
                options.append((best[row - 1][column - count][0] + cost, count))
            best[row][column] = min(options)
    found: list[SpokenWord] = []
    row, column = len(words), len(spoken)
    while row:
        count = best[row][column][1]
        if count == -1:
            column -= 1
            continue
        row, column = row - 1, column - count
        found.append(_pair(words[row], spoken[column : column + count], skeletons[row]))
    return found[::-1]


def _pair(word: str, spoken: list[str], skeleton: str) -> SpokenWord:
    phonemes = "".join(part.replace("1", "").strip("-\\") for part in spoken)
    cost = _distance(skeleton, _spoken_skeleton(phonemes))
    if not spoken or cost > _MAX_COST * max(1, len(skeleton)):
        return SpokenWord(word, "", False)
    has_ezafe = spoken[-1].rstrip("-\\").endswith("e1")
    return SpokenWord(word, phonemes, has_ezafe, len(spoken))
