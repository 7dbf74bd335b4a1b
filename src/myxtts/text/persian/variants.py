"""The words of a Persian text whose reading is open, with the readings that each may have.

A word is open where spelling leaves its ezafe to the tagger, and where a table has several readings of it. What is
written (vowel signs, kasra) is not open. `training.voice.refine` compares the variants with a recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from myxtts.text.inventory import PUNCTUATION
from myxtts.text.persian.reading import Choice, PersianReading, has_vowel_signs, split_sentences
from myxtts.text.persian.tagger import load_tagger
from myxtts.text.persian.words import fold_word, is_persian, judge_ezafe, split_written_ezafe

MARGIN_PER_LOG_ODDS = 120.0
"""Margins of the tagger to log odds: the logistic fit of right and wrong ezafes in sentences that it was not trained on
(1,218 open words of the test sentences in persian/sentences)."""
_LOG_ODDS_OF_TABLE = 2.0
"""Of the reading that a table chooses against another one: about 9 of 10 are right."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A reading of a word, and the log odds that text alone gives it against the front end's own reading."""

    choice: Choice
    log_odds: float


@dataclass(frozen=True, slots=True)
class OpenWord:
    """`guess` is how the front end reads the word, `others` are the readings that it rejects."""

    guess: Choice
    others: tuple[Variant, ...]

    @property
    def is_homograph(self) -> bool:
        return any(variant.choice.ipa != self.guess.ipa for variant in self.others)


def list_open_words(reading: PersianReading, parts: Sequence[str]) -> list[OpenWord]:
    """Returns the open words of a text, whose clauses and marks are `parts`, in order."""
    found: list[OpenWord] = []
    read = [word for row in reading.read(parts) for word in row]
    place = 0
    for sentence in split_sentences(parts):
        words = [word for _, word in sentence]
        margins = load_tagger().measure_margins(words)
        for index, word in enumerate(words):
            if word in PUNCTUATION:
                continue
            following = words[index + 1] if index + 1 < len(words) else ""
            is_open = reading.ezafe and judge_ezafe(word, following) is None
            guess = Choice(place, word, read[place].has_ezafe, read[place].reading)
            others = _list_others(reading, guess, abs(margins[index]) if is_open else None)
            if others:
                found.append(OpenWord(guess, others))
            place += 1
    return found


def _list_others(reading: PersianReading, guess: Choice, margin: int | None) -> tuple[Variant, ...]:
    """Returns the variants of a word; `margin` is None where its ezafe is not open."""
    base, is_written = split_written_ezafe(guess.word)
    if not is_persian(guess.word) or has_vowel_signs(base):
        return ()
    readings = dict.fromkeys((guess.ipa, *reading.list_readings(fold_word(base)))) if guess.ipa else {"": None}
    variants = []
    for ezafe in (guess.ezafe, not guess.ezafe) if margin is not None and not is_written else (guess.ezafe,):
        for ipa in readings:
            choice = Choice(guess.place, guess.word, ezafe, ipa)
            if choice != guess:
                odds = -(margin or 0) / MARGIN_PER_LOG_ODDS * (ezafe != guess.ezafe)
                variants.append(Variant(choice, odds - _LOG_ODDS_OF_TABLE * (ipa != guess.ipa)))
    return tuple(variants)
