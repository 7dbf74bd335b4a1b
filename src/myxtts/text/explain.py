"""What the front end makes of a text, word by word: the words as they are spoken, each with its IPA and its origin."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from myxtts.text.inventory import PUNCTUATION
from myxtts.text.lexicon import Lexicon
from myxtts.text.phonemes import Phonemizer, split_clauses
from myxtts.text.word_cuts import cut_at_words

Source = Literal["lexicon", "rule", "espeak", "written", "characters"]
"""Where the IPA of a word comes from: the user's lexicon or the built-in one, a rule for homographs, espeak-ng, or the
signs of the text itself; characters have none."""


@dataclass(frozen=True, slots=True)
class ExplainedWord:
    """One word of the normalised text. `ezafe` says whether it is spoken with the linking vowel of Persian."""

    word: str
    ipa: str
    source: Source
    ezafe: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """A text with its normalised form, words, symbols that have no token, and number of tokens."""

    text: str
    language: str
    normalized: str
    words: tuple[ExplainedWord, ...]
    unknown: tuple[str, ...]
    num_tokens: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def explain_words(
    normalized: str, language: str, phonemizer: Phonemizer, lexicon: Lexicon | None
) -> tuple[ExplainedWord, ...]:
    """Returns the words of a normalised text in order; marks of punctuation are no words."""
    read = phonemizer.read_words(normalized, language)
    if read is not None:
        return tuple(ExplainedWord(word.word, word.ipa, word.source, word.has_ezafe) for word in read)
    clauses = [part for part in split_clauses(normalized).parts if part not in PUNCTUATION]
    spoken = phonemizer.phonemize(clauses, language)
    words: list[ExplainedWord] = []
    for clause, string in zip(clauses, spoken, strict=True):
        written = clause.split()
        parts = string.text.split()
        if len(parts) != len(written):
            alone = [word.text for word in phonemizer.phonemize(written, language)]
            parts = cut_at_words(string.text, alone)
        for word, ipa in zip(written, parts, strict=True):
            is_in_lexicon = lexicon is not None and lexicon.find(word) is not None
            words.append(ExplainedWord(word, ipa, "lexicon" if is_in_lexicon else "espeak"))
    return tuple(words)
