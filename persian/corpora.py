"""All sentences that the tagger is trained and scored with, by source."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from myxtts.text.persian.words import fold_word
from persian.farsdat import SpokenWord, read_farsdat
from persian.sentences import MarkedWord, list_tagged, read_sentences
from persian.treebank import TaggedWord, list_known_words, read_treebank

Sentences = list[list[TaggedWord]]
_OWN = Path(__file__).parent / "sentences"
_QUOTES = frozenset('«»"“”')


@dataclass(frozen=True)
class Corpora:
    """`training` and `tests` by source; `spoken` is FarsDat with phonemes; `known_words` are those of the treebanks."""

    training: dict[str, Sentences]
    tests: dict[str, Sentences]
    homographs: dict[str, list[list[MarkedWord]]]
    spoken: list[list[SpokenWord]]
    known_words: frozenset[str]
    nominals: list[str]
    verbs: list[str]


def load_corpora(folder: Path) -> Corpora:
    spoken = read_farsdat(folder / "FarsDat.csv")
    treebanks = {
        name: [words for path in sorted(folder.glob(f"fa_{code}-*.conllu")) for words in read_treebank(path)]
        for name, code in (("PerDT", "perdt"), ("Seraji", "seraji"))
    }
    counts = Counter(fold_word(word.word) for sentences in treebanks.values() for words in sentences for word in words)
    nominals, verbs = list_known_words(sorted(folder.glob("fa_*.conllu")))
    own = [words for path in sorted(_OWN.glob("train-*.txt")) for words in list_tagged(read_sentences(path))]
    training = {**treebanks, "FarsDat": [_tag_spoken(words) for words in spoken], "own sentences": own}
    tests = {
        f"own {path.stem[5:]} sentences": list_tagged(read_sentences(path))
        for path in sorted(_OWN.glob("test-*.txt"))
        if "homographs" not in path.stem
    }
    return Corpora(
        {name: _drop_quotes(sentences) for name, sentences in training.items()},
        {name: _drop_quotes(sentences) for name, sentences in tests.items()},
        {f"own {path.stem[5:]}": read_sentences(path) for path in sorted(_OWN.glob("test-homographs*.txt"))},
        spoken,
        frozenset(counts),
        sorted({*nominals, *_list_linked(own)}),
        verbs,
    )


def _list_linked(sentences: Sentences) -> set[str]:
    """The words with ezafe, which are nouns and adjectives; with a last ی they may be inflected."""
    linked = {fold_word(word.word) for words in sentences for word in words if word.ezafe}
    return {word for word in linked if not word.endswith("ی")}


def _tag_spoken(words: list[SpokenWord]) -> list[TaggedWord]:
    """Ezafe is known of words whose phonemes are; marks of punctuation have none."""
    return [TaggedWord(word.word, "", word.has_ezafe if word.phonemes else None) for word in words]


def _drop_quotes(sentences: Sentences) -> Sentences:
    """Leaves out quotation marks, as the front end does before it tags."""
    kept = ([word for word in words if word.word not in _QUOTES] for words in sentences)
    return [words for words in kept if words]
