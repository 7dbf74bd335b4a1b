"""How Persian text is read: finds ezafe and homographs of a text by context, and gives each word its IPA.

Order for each word: what is written (vowel signs), the table of homographs, the lexicon, espeak-ng. Words of other
scripts are left to espeak-ng as they are. `Phonemizer` asks for the words of a text and phonemises those without IPA.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from myxtts.text.inventory import PUNCTUATION
from myxtts.text.languages.fa import LATEST_RULES, PersianRules
from myxtts.text.persian import pronounce
from myxtts.text.persian.colloquial import find_colloquial, soften
from myxtts.text.persian.homographs import Context, Homographs, Register, load_homographs, parse_homographs
from myxtts.text.persian.tagger import TAGS, load_tagger
from myxtts.text.persian.words import fold_word, is_persian, split_written_ezafe

Source = Literal["lexicon", "rule", "espeak", "written"]
_SENTENCE_ENDS = frozenset(".!?…")
_VOWEL_SIGNS = re.compile("[\u064b-\u0652\u0670]")


@dataclass(frozen=True, slots=True)
class Choice:
    """How one word is read, whatever its context says. `place` counts the words of the text from 0.

    `ipa` is a reading without ezafe; '' leaves it to the tables.
    """

    place: int
    word: str
    ezafe: bool
    ipa: str = ""


@dataclass(frozen=True, slots=True)
class ReadWord:
    """One word of a clause. `ipa` is final; '' where espeak-ng is asked for `spelling`, whose answer `finish` takes.

    `reading` is what a table of homographs gave for the word, without ezafe; '' where none has it. `is_softened` says
    that its endings are colloquial.
    """

    word: str
    spelling: str
    ipa: str
    source: Source
    has_ezafe: bool
    tag: str
    reading: str = ""
    is_softened: bool = False

    def replace_ipa(self, ipa: str) -> ReadWord:
        """Returns the word with IPA of the user, which has no ezafe but the written one and that of the sentence."""
        folded = fold_word(self.spelling)
        spoken = pronounce.add_ezafe(ipa, folded) if self.has_ezafe else ipa
        return replace(self, ipa=spoken, source="lexicon")

    def finish(self, ipa: str) -> str:
        """Returns the IPA of espeak-ng with stress and ezafe of this word; foreign words as they are."""
        if not is_persian(self.spelling) or not ipa:
            return ipa
        folded = fold_word(self.spelling)
        formal = pronounce.drop_ezafe(pronounce.clean_espeak(ipa), folded)
        said = soften(formal, self.spelling, self.tag) if self.is_softened else formal
        return _inflect(said, self.tag, folded, has_ezafe=self.has_ezafe)


@dataclass(frozen=True)
class PersianReading:
    """Settings that a front end keeps: whether ezafe is added where it is not written, the register, and the text of a
    table of the user, whose readings come before those of the built-in table. `rules` is the version of the readings
    of numbers and signs, and of what the colloquial register changes.
    """

    ezafe: bool = True
    register: Register = "formal"
    homographs: str = ""
    rules: PersianRules = LATEST_RULES

    def read(self, parts: Sequence[str], choices: Sequence[Choice] = ()) -> list[list[ReadWord]]:
        """Reads the clauses of one text; a mark of punctuation between them gives an empty list.

        The words that `choices` name are read as they say. A choice whose word is not at its place is left out.
        """
        return _read_cached(self, tuple(parts), tuple(choices))

    def _read(self, parts: Sequence[str], choices: Sequence[Choice]) -> list[list[ReadWord]]:
        rows: list[list[ReadWord]] = [[] for _ in parts]
        chosen = {choice.place: choice for choice in choices}
        num_read = 0
        for sentence in split_sentences(parts):
            words = [word for _, word in sentence]
            spoken = [place for place, word in enumerate(words) if word not in PUNCTUATION]
            forced = {place: chosen[number] for number, place in enumerate(spoken, num_read) if number in chosen}
            num_read += len(spoken)
            for (row, _), read in zip(sentence, self._read_sentence(words, forced), strict=True):
                if read.word not in PUNCTUATION:
                    rows[row].append(read)
        return rows

    def _read_sentence(self, words: list[str], forced: Mapping[int, Choice]) -> list[ReadWord]:
        if not any(map(is_persian, words)):
            return [ReadWord(word, word, "", "espeak", False, "X") for word in words]
        tags = load_tagger().tag(words)
        forced = {place: choice for place, choice in forced.items() if choice.word == words[place]}
        for place, choice in forced.items():
            kind = tags[place].rstrip("+")
            tags[place] = f"{kind if f'{kind}+' in TAGS else 'N'}+" if choice.ezafe else kind
        return [
            self._read_word(Context(words, tags, place, self.register), forced.get(place))
            for place in range(len(words))
        ]

    def _read_word(self, context: Context, forced: Choice | None) -> ReadWord:
        word, tag = context.words[context.place], context.tags[context.place]
        base, is_written = split_written_ezafe(word)
        folded = fold_word(base)
        is_added = self.ezafe or forced is not None or folded.endswith("های")
        has_ezafe = is_written or (tag.endswith("+") and is_added)
        if not is_persian(word):
            return ReadWord(word, word, "", "espeak", False, tag)
        if has_vowel_signs(base):
            return ReadWord(word, base, "", "written", has_ezafe, tag)
        chosen = forced.ipa if forced and forced.ipa else self._choose_reading(folded, context)
        is_softened = self.register == "colloquial" and self.rules > 1
        if is_softened and not chosen:
            chosen = find_colloquial(folded, context)
        ipa = chosen or pronounce.load_pronunciations().find(base)
        if is_softened and ipa and not chosen:
            ipa = soften(ipa, base, tag)
        source: Source = "written" if is_written else "rule" if chosen else "lexicon" if ipa else "espeak"
        spoken = _inflect(ipa, tag, folded, has_ezafe=has_ezafe) if ipa else ""
        return ReadWord(word, base, spoken, source, has_ezafe, tag, chosen or "", is_softened)

    def _choose_reading(self, folded: str, context: Context) -> str | None:
        """Returns the reading of a word, or of its singular with the plural ending; the user's table comes first."""
        for word, sound in list_bases(folded):
            for table in self._load_tables():
                chosen = table.choose(word, context)
                if chosen:
                    return chosen + sound
        return None

    def list_readings(self, folded: str) -> tuple[str, ...]:
        """Returns all IPA that the tables have for a folded word, or for its singular with the plural ending."""
        return tuple(
            dict.fromkeys(
                ipa + sound
                for word, sound in list_bases(folded)
                for table in self._load_tables()
                for ipa in table.list_readings(word, self.register)
            )
        )

    def _load_tables(self) -> list[Homographs]:
        own = [parse_homographs(self.homographs, "data.persian_homographs")] if self.homographs else []
        return [*own, load_homographs()]


def has_vowel_signs(word: str) -> bool:
    return _VOWEL_SIGNS.search(word) is not None


def split_sentences(parts: Sequence[str]) -> Iterator[list[tuple[int, str]]]:
    """Yields the sentences of a text, each as its words and marks with the number of their part."""
    sentence: list[tuple[int, str]] = []
    for index, part in enumerate(parts):
        sentence += [(index, word) for word in part.split()]
        if part in _SENTENCE_ENDS or index + 1 == len(parts):
            yield sentence
            sentence = []


@lru_cache(maxsize=256)
def _read_cached(reading: PersianReading, parts: tuple[str, ...], choices: tuple[Choice, ...]) -> list[list[ReadWord]]:
    """Reads a text once where it is first encoded and then explained."""
    return reading._read(parts, choices)


def list_bases(folded: str) -> tuple[tuple[str, str], ...]:
    """Returns a folded word, and its singular with the IPA of the plural ending if it has one."""
    singular, ending = pronounce.split_plural(folded)
    return ((folded, ""), (singular, ending)) if ending else ((folded, ""),)


def _inflect(ipa: str, tag: str, word: str, *, has_ezafe: bool) -> str:
    """Returns the IPA of a word with its stress and, if it has one, its ezafe."""
    stressed = pronounce.place_stress(ipa, tag, word)
    return pronounce.add_ezafe(stressed, word) if has_ezafe else pronounce.shorten_last(stressed)
