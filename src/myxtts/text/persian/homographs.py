"""Words with several readings: a table of readings and the conditions under which each is taken.

A line of homographs.tsv is a word, its IPA and a condition, with tabs between. The first line of a word whose condition
holds is taken; a line without condition always holds. A condition is a list of terms, all of which must hold:

    tag:V,A          the part of speech that the tagger found: N noun, E name, A adjective, V verb, P preposition,
                     R pronoun, D determiner, M number, B adverb
    ezafe            the word has ezafe
    next:بن,ابن      the word behind is one of these; "." is the end of the clause
    prev:ساعت        the word before is one of these; "." is the start of the clause
    near:زمین,گندم*  one of these is among the words around; * stands for any ending
    register:colloquial
    !next:…          the opposite of a term

Words are compared without half-spaces, vowel signs and inflectional endings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from myxtts.errors import DataError
from myxtts.storage.regular_file import FileRefusedError, read_regular
from myxtts.text.lexicon import find_ipa_problem
from myxtts.text.persian.tagger import find_stem
from myxtts.text.persian.words import fold_word

Register = Literal["formal", "colloquial"]
TABLE_FILE = "homographs.tsv"
_KEYS = frozenset({"tag", "next", "prev", "near", "register", "ezafe"})
MAX_TABLE_BYTES = 1_000_000
"""Of a table of the user, which becomes part of the front end."""
_MAX_DISTANCE = 6
"""Words that `near` looks at on each side."""


@dataclass(frozen=True, slots=True)
class Context:
    """A word in its sentence: the words, their tags, and the place of the word."""

    words: Sequence[str]
    tags: Sequence[str]
    place: int
    register: Register

    def neighbour(self, distance: int) -> str:
        """Returns the word at a distance, "." beyond the clause."""
        index = self.place + distance
        word = self.words[index] if 0 <= index < len(self.words) else ""
        return word if word[:1].isalnum() else "."


@dataclass(frozen=True, slots=True)
class _Term:
    key: str
    words: frozenset[str]
    beginnings: tuple[str, ...]
    is_opposite: bool

    def holds(self, context: Context) -> bool:
        return self._is_true(context) != self.is_opposite

    def _is_true(self, context: Context) -> bool:
        tag = context.tags[context.place]
        if self.key == "ezafe":
            return tag.endswith("+")
        if self.key == "tag":
            return tag[0] in self.words
        if self.key == "register":
            return context.register in self.words
        if self.key == "near":
            first = max(0, context.place - _MAX_DISTANCE)
            around = context.words[first : context.place + _MAX_DISTANCE + 1]
            return any(self._names(word) for index, word in enumerate(around, first) if index != context.place)
        return self._names(context.neighbour(1 if self.key == "next" else -1))

    def _names(self, word: str) -> bool:
        folded = fold_word(word)
        if folded in self.words or find_stem(folded) in self.words:
            return True
        return bool(self.beginnings) and folded.startswith(self.beginnings)


@dataclass(frozen=True, slots=True)
class _Reading:
    ipa: str
    terms: tuple[_Term, ...]

    def is_of(self, register: Register) -> bool:
        return all((register in term.words) != term.is_opposite for term in self.terms if term.key == "register")


class Homographs:
    """Readings by folded word, in the order of the table."""

    def __init__(self, readings: Mapping[str, Sequence[_Reading]]) -> None:
        self._readings = readings

    def choose(self, word: str, context: Context) -> str | None:
        """Returns the IPA of a folded word in its context; None where no line fits."""
        for reading in self._readings.get(word, ()):
            if all(term.holds(context) for term in reading.terms):
                return reading.ipa
        return None

    def list_readings(self, word: str, register: Register) -> tuple[str, ...]:
        """Returns the different IPA of a folded word, in any context of a register."""
        lines = self._readings.get(word, ())
        return tuple(dict.fromkeys(reading.ipa for reading in lines if reading.is_of(register)))

    def always_decides(self, word: str) -> bool:
        """Whether a word has a reading in every context: its last line has no condition."""
        return word in self._readings and not self._readings[word][-1].terms

    def __len__(self) -> int:
        return len(self._readings)


@lru_cache(maxsize=8)
def parse_homographs(text: str, place: str) -> Homographs:
    """Reads a table; raises DataError with `place` and line for a line that cannot be used."""
    readings: dict[str, list[_Reading]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        word, ipa, condition = (*(field.strip() for field in line.split("\t")), "", "")[:3]
        problem = find_ipa_problem(ipa) if word else "has no word"
        if problem:
            raise _refuse(f"{place}:{number}", f"{ipa!r} {problem}")
        terms = tuple(_parse_term(term, f"{place}:{number}") for term in condition.split())
        readings.setdefault(fold_word(word), []).append(_Reading(ipa, terms))
    return Homographs(readings)


def _parse_term(text: str, place: str) -> _Term:
    is_opposite = text.startswith("!")
    key, _, value = text.removeprefix("!").partition(":")
    if key not in _KEYS or (not value and key != "ezafe"):
        raise _refuse(place, f"{text!r} is no condition")
    values = [item for item in value.split(",") if item]
    beginnings = tuple(fold_word(item[:-1]) for item in values if item.endswith("*"))
    words = frozenset(fold_word(item) for item in values if not item.endswith("*"))
    return _Term(key, words, beginnings, is_opposite)


def _refuse(place: str, problem: str) -> DataError:
    return DataError(
        f"{place}: {problem}.", next_step="Write a word, a tab, its IPA, a tab and a condition or nothing."
    )


def read_homographs(path: Path) -> str:
    """Returns the text of a table of the user, checked; raises DataError where it cannot be used."""
    try:
        text = read_regular(path, MAX_TABLE_BYTES).decode("utf-8-sig")
    except (OSError, FileRefusedError, UnicodeDecodeError) as error:
        next_step = "Check the path in data.persian_homographs; the table is text in UTF-8."
        raise DataError(f"The table of readings {path} cannot be read: {error}.", next_step=next_step) from error
    parse_homographs(text, str(path))
    return text


@lru_cache(maxsize=1)
def load_homographs() -> Homographs:
    """Reads the shipped table when it is first needed."""
    return parse_homographs(Path(__file__).with_name(TABLE_FILE).read_text(encoding="utf-8"), TABLE_FILE)
