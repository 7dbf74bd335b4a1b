"""Scores of the Persian front end: ezafe by word, and readings of homographs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from myxtts.text.persian.reading import PersianReading
from myxtts.text.persian.tagger import Tagger
from persian.lexicon import latin_to_ipa
from persian.sentences import MarkedWord
from persian.treebank import TaggedWord


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Homographs that were read right, and all."""

    num_right: int
    num_words: int

    def to_json(self) -> dict[str, float | int]:
        return {"accuracy": round(self.num_right / self.num_words, 4), "words": self.num_words}

    def __str__(self) -> str:
        return f"{self.num_right / self.num_words:.1%} of {self.num_words} homographs right"


@dataclass(frozen=True, slots=True)
class Score:
    """Counts of words: ezafe found, added wrongly and missed, and all words."""

    num_right: int
    num_added: int
    num_missed: int
    num_words: int

    @property
    def f1(self) -> float:
        return 2 * self.num_right / max(1, 2 * self.num_right + self.num_added + self.num_missed)

    def to_json(self) -> dict[str, float | int]:
        return {
            "f1": round(self.f1, 4),
            "added": round(self.num_added / max(1, self.num_words), 4),
            "words": self.num_words,
        }

    def __str__(self) -> str:
        share = self.num_added / max(1, self.num_words)
        return f"F1 {self.f1:.3f}, wrongly added on {share:.1%} of {self.num_words:,} words"


def score_ezafe(tagger: Tagger, sentences: Iterable[list[TaggedWord]]) -> Score:
    """Compares the ezafes that are found with those that are known."""
    counts = {(True, True): 0, (False, True): 0, (True, False): 0, (False, False): 0}
    for words in sentences:
        tags = tagger.tag([word.word for word in words])
        for word, tag in zip(words, tags, strict=True):
            if word.ezafe is not None and word.word[0].isalpha():
                counts[word.ezafe, tag.endswith("+")] += 1
    return Score(counts[True, True], counts[False, True], counts[True, False], sum(counts.values()))


def score_homographs(sentences: Iterable[list[MarkedWord]]) -> Accuracy:
    """Counts the marked readings that the front end gives."""
    num_right = num_words = 0
    for words in sentences:
        read = PersianReading().read([" ".join(word.word for word in words)])[0]
        spoken = [item for item in read if item.word[0].isalnum()]
        for word, found in zip((word for word in words if word.word[0].isalnum()), spoken, strict=True):
            if word.reading:
                num_words += 1
                wanted = simplify(latin_to_ipa(word.reading))
                is_right = simplify(found.ipa) in (wanted, f"{wanted}e", f"{wanted}je")
                num_right += is_right
    return Accuracy(num_right, num_words)


def simplify(ipa: str) -> str:
    """IPA without stress, length and doubling, which do not tell readings apart."""
    plain = ipa.replace("ˈ", "").replace("ː", "").replace("O", "o")
    return "".join(sign for index, sign in enumerate(plain) if index == 0 or plain[index - 1] != sign)
