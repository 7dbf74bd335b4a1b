"""How Persian text is read: finds ezafe and homographs of a text by context, and gives each word its IPA.

Order for each word: what is written (vowel signs), the table of homographs, the lexicon, espeak-ng. Words of other
scripts are left to espeak-ng as they are. `Phonemizer` asks for the words of a text and phonemises those without IPA.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from myxtts.text.inventory import PUNCTUATION
from myxtts.text.persian.homographs import Context, Homographs, Register, load_homographs, parse_homographs
from myxtts.text.persian.pronounce import (
    Pronunciations,
    add_ezafe,
    clean_espeak,
    drop_ezafe,
    load_pronunciations,
    place_stress,
    shorten_last,
    split_plural,
)
from myxtts.text.persian.tagger import Tagger, load_tagger
from myxtts.text.persian.words import fold_word, is_persian, split_written_ezafe

Source = Literal["lexicon", "rule", "espeak", "written"]
_SENTENCE_ENDS = frozenset(".!?…")
_VOWEL_SIGNS = re.compile("[\u064b-\u0652\u0670]")


@dataclass(frozen=True, slots=True)
class ReadWord:
    """One word of a clause. `ipa` is final; '' where espeak-ng is asked for `spelling`, whose answer `finish` takes."""

    word: str
    spelling: str
    ipa: str
    source: Source
    has_ezafe: bool
    tag: str

    def replace_ipa(self, ipa: str) -> ReadWord:
        """Returns the word with IPA of the user, which has no ezafe but the written one and that of the sentence."""
        folded = fold_word(self.spelling)
        spoken = add_ezafe(ipa, folded) if self.has_ezafe else ipa
        return replace(self, ipa=spoken, source="lexicon")

    def finish(self, ipa: str) -> str:
        """Returns the IPA of espeak-ng with stress and ezafe of this word; foreign words as they are."""
        if not is_persian(self.spelling) or not ipa:
            return ipa
        folded = fold_word(self.spelling)
        return _inflect(drop_ezafe(clean_espeak(ipa), folded), self.tag, folded, has_ezafe=self.has_ezafe)


@dataclass(frozen=True)
class PersianReading:
    """Settings that a front end keeps: whether ezafe is added where it is not written, the register, and the text of a
    table of the user, whose readings come before those of the built-in table.
    """

    ezafe: bool = True
    register: Register = "formal"
    homographs: str = ""

    def read(self, parts: Sequence[str]) -> list[list[ReadWord]]:
        """Reads the clauses of one text; a mark of punctuation between them gives an empty list."""
        return _read_cached(self, tuple(parts))

    def _read(self, parts: Sequence[str]) -> list[list[ReadWord]]:
        rows: list[list[ReadWord]] = [[] for _ in parts]
        sentence: list[tuple[int, str]] = []
        for index, part in enumerate(parts):
            sentence += [(index, word) for word in part.split()]
            if part in _SENTENCE_ENDS or index + 1 == len(parts):
                words = [word for _, word in sentence]
                for (row, _), read in zip(sentence, self._read_sentence(words), strict=True):
                    if read.word not in PUNCTUATION:
                        rows[row].append(read)
                sentence = []
        return rows

    def _read_sentence(self, words: list[str]) -> list[ReadWord]:
        if not any(map(is_persian, words)):
            return [ReadWord(word, word, "", "espeak", False, "X") for word in words]
        tables = _Tables(load_tagger(), load_homographs(), load_pronunciations())
        tags = tables.tagger.tag(words)
        return [self._read_word(Context(words, tags, place, self.register), tables) for place in range(len(words))]

    def _read_word(self, context: Context, tables: _Tables) -> ReadWord:
        word, tag = context.words[context.place], context.tags[context.place]
        base, is_written = split_written_ezafe(word)
        folded = fold_word(base)
        has_ezafe = is_written or (tag.endswith("+") and (self.ezafe or folded.endswith("های")))
        if not is_persian(word):
            return ReadWord(word, word, "", "espeak", False, tag)
        if _VOWEL_SIGNS.search(base):
            return ReadWord(word, base, "", "written", has_ezafe, tag)
        chosen = self._choose_reading(folded, context, tables.homographs)
        ipa = chosen or tables.pronunciations.find(base)
        source: Source = "written" if is_written else "rule" if chosen else "lexicon" if ipa else "espeak"
        spoken = _inflect(ipa, tag, folded, has_ezafe=has_ezafe) if ipa else ""
        return ReadWord(word, base, spoken, source, has_ezafe, tag)

    def _choose_reading(self, folded: str, context: Context, built_in: Homographs) -> str | None:
        """Returns the reading of a word, or of its singular with the plural ending; the user's table comes first."""
        mine = parse_homographs(self.homographs, "data.persian_homographs") if self.homographs else None
        singular, ending = split_plural(folded)
        for word, sound in ((folded, ""), (singular, ending)) if ending else ((folded, ""),):
            chosen = (mine and mine.choose(word, context)) or built_in.choose(word, context)
            if chosen:
                return chosen + sound
        return None


@lru_cache(maxsize=256)
def _read_cached(reading: PersianReading, parts: tuple[str, ...]) -> list[list[ReadWord]]:
    """Reads a text once where it is first encoded and then explained."""
    return reading._read(parts)


@dataclass(frozen=True, slots=True)
class _Tables:
    tagger: Tagger
    homographs: Homographs
    pronunciations: Pronunciations


def _inflect(ipa: str, tag: str, word: str, *, has_ezafe: bool) -> str:
    """Returns the IPA of a word with its stress and, if it has one, its ezafe."""
    stressed = place_stress(ipa, tag, word)
    return add_ezafe(stressed, word) if has_ezafe else shorten_last(stressed)
