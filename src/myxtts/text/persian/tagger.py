"""Tags Persian words with part of speech and ezafe: a linear model over hashed features, decoded with Viterbi.

Every tag is a part of speech, with "+" where the word has ezafe. Weights are int8, one row for each bucket of the hash
and one column for each tag, so that tagging a sentence is a gather, a sum and a search over a few tags. Features look
at the word, its affixes and its neighbours; their hashes are mixed as integers, whole sentences at a time.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from myxtts.storage.tensor_file import read_heading, read_tensors
from myxtts.text.persian.words import ZWNJ, fold_word, judge_ezafe

TAGS = ("N", "N+", "E", "E+", "A", "A+", "V", "P", "P+", "R", "R+", "D", "D+", "M", "M+", "B", "C", "I", "U", "X")
"""Noun, name, adjective, verb, preposition, pronoun, determiner, number, adverb, conjunction, particle, mark, other."""
HAS_EZAFE = np.array([tag.endswith("+") for tag in TAGS])
HASH_BITS = 17
WEIGHTS_FILE = "ezafe.safetensors"

_IMPOSSIBLE = -(2**30)
_NUM_ATOMS = 9
_WORD, _LAST1, _LAST2, _LAST3, _LAST4, _FIRST2, _FIRST3, _STEM, _SHAPE = range(_NUM_ATOMS)
_PADDING = 3
"""Empty words before and behind a sentence, for the features of neighbours."""
_SINGLE = (
    *((0, atom) for atom in range(_NUM_ATOMS)),
    *((offset, atom) for offset in (-1, 1) for atom in (_WORD, _LAST2, _LAST3, _FIRST2, _STEM, _SHAPE)),
    *((offset, atom) for offset in (-2, 2) for atom in (_WORD, _LAST2, _STEM)),
    (3, _WORD),
)
"""Features of one word: its distance and the atom."""
_PAIRS = (
    ((0, _WORD), (1, _WORD)),
    ((-1, _WORD), (0, _WORD)),
    ((0, _WORD), (1, _LAST2)),
    ((0, _LAST2), (1, _WORD)),
    ((0, _LAST3), (1, _LAST3)),
    ((0, _LAST2), (1, _LAST2)),
    ((0, _STEM), (1, _STEM)),
    ((-1, _WORD), (1, _WORD)),
    ((-1, _LAST2), (0, _LAST2)),
    ((1, _WORD), (2, _WORD)),
    ((0, _SHAPE), (1, _SHAPE)),
    ((0, _SHAPE), (1, _WORD)),
    ((0, _LAST1), (1, _FIRST2)),
    ((1, _LAST2), (2, _WORD)),
)
"""Features of two words together."""
_ENDINGS = ("هایشان هایمان هایتان هایی های هایم هایت هایش ها شان مان تان ترین تر یم ید ند ام ای اش ات ی م ت ش").split()
_MIN_STEM = 3


def _hash(text: str) -> int:
    return zlib.crc32(text.encode("utf-8"))


_FACTORS = np.array([2 * _hash(f"factor {index}") + 0x9E3779B97F4A7C15 | 1 for index in range(1 + 64)], np.uint64)
_SINGLE_FACTORS = _FACTORS[1 : 1 + len(_SINGLE)]
_PAIR_FACTORS = _FACTORS[1 + len(_SINGLE) : 1 + len(_SINGLE) + len(_PAIRS)]
_SINGLE_OFFSETS = np.array([offset for offset, _ in _SINGLE]) + _PADDING
_SINGLE_ATOMS = np.array([atom for _, atom in _SINGLE])
_FIRST_OFFSETS, _SECOND_OFFSETS = (np.array([pair[side][0] for pair in _PAIRS]) + _PADDING for side in (0, 1))
_FIRST_ATOMS, _SECOND_ATOMS = (np.array([pair[side][1] for pair in _PAIRS]) for side in (0, 1))


def find_stem(word: str) -> str:
    """Returns a folded word without its last inflectional ending, if enough is left."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _MIN_STEM:
            return word[: -len(ending)]
    return word


@lru_cache(maxsize=50_000)
def _list_atoms(written: str) -> NDArray[np.uint64]:
    """Returns the hashes of what features look at in one word."""
    word = fold_word(written)
    shape = f"{min(len(word), 6)}{'z' if ZWNJ in written else ''}{word[-1:] if word[-1:] in 'اوهی' else ''}"
    if not word[:1].isalpha():
        shape = word[:1]
    elif word.isascii():
        word, shape = "a", "a"
    texts = (word, word[-1:], word[-2:], word[-3:], word[-4:], word[:2], word[:3], find_stem(word), shape)
    return np.array([_hash(f"{kind}{text}") for kind, text in enumerate(texts)], np.uint64)


def list_features(words: Sequence[str]) -> NDArray[np.int64]:
    """Returns the buckets of the features of each word, [words, features]."""
    atoms = np.zeros((len(words) + 2 * _PADDING, _NUM_ATOMS), np.uint64)
    for index, word in enumerate(words):
        atoms[index + _PADDING] = _list_atoms(word)
    rows = np.arange(len(words))[:, None]
    single = atoms[rows + _SINGLE_OFFSETS, _SINGLE_ATOMS] + np.uint64(1)
    first = atoms[rows + _FIRST_OFFSETS, _FIRST_ATOMS] * _FACTORS[0]
    second = atoms[rows + _SECOND_OFFSETS, _SECOND_ATOMS]
    mixed = np.concatenate([single * _SINGLE_FACTORS, (first ^ second) * _PAIR_FACTORS], axis=1)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return (mixed >> np.uint64(64 - HASH_BITS)).astype(np.int64)


def search_path(scores: NDArray[np.int64], transitions: NDArray[np.int64]) -> list[int]:
    """Viterbi: the tags of the best path, given the scores [words, tags] and those of each pair of tags [tags, tags].

    The last row of `transitions` is the start of the sentence.
    """
    best = scores[0] + transitions[-1]
    # [tag, tag before]: the maximum runs over the last axis, which is contiguous.
    between = np.ascontiguousarray(transitions[:-1].T)
    pointers = []
    for row in scores[1:]:
        candidates = best + between
        before = candidates.argmax(axis=1)
        pointers.append(before)
        best = candidates[_EVERY_TAG, before] + row
    path = [int(best.argmax())]
    for before in reversed(pointers):
        path.append(int(before[path[-1]]))
    return path[::-1]


_EVERY_TAG = np.arange(len(TAGS))


def restrict_scores(words: Sequence[str], scores: NDArray[np.int64]) -> None:
    """Rules out the tags that spelling excludes, in place: ezafe before a full stop, none where it is written."""
    for index, word in enumerate(words):
        if word[:1].isalnum():
            judged = judge_ezafe(word, words[index + 1] if index + 1 < len(words) else "")
            if judged is not None:
                scores[index, judged != HAS_EZAFE] = _IMPOSSIBLE


@dataclass(frozen=True)
class Tagger:
    """Weights [buckets, tags] and transitions [tags + 1, tags]."""

    weights: NDArray[np.int8]
    transitions: NDArray[np.int64]

    def tag(self, words: Sequence[str]) -> list[str]:
        """Returns the tag of each word of one sentence, marks of punctuation included."""
        if not words:
            return []
        return [TAGS[number] for number in search_path(self._score(words), self.transitions)]

    def measure_margins(self, words: Sequence[str]) -> list[int]:
        """Returns for each word the score of the best path on which it has ezafe, less that of the best without.

        Far from zero for words that spelling decides.
        """
        if not words:
            return []
        scores = self._score(words)
        forward, backward = np.empty_like(scores), np.zeros_like(scores)
        forward[0] = scores[0] + self.transitions[-1]
        for index in range(1, len(words)):
            forward[index] = (forward[index - 1] + self.transitions[:-1].T).max(axis=1) + scores[index]
            behind = len(words) - 1 - index
            backward[behind] = (self.transitions[:-1] + scores[behind + 1] + backward[behind + 1]).max(axis=1)
        best = forward + backward
        margins = best[:, HAS_EZAFE].max(axis=1) - best[:, ~HAS_EZAFE].max(axis=1)
        return [int(margin) for margin in margins]

    def _score(self, words: Sequence[str]) -> NDArray[np.int64]:
        scores: NDArray[np.int64] = self.weights[list_features(words)].sum(axis=1, dtype=np.int64)
        restrict_scores(words, scores)
        return scores


@lru_cache(maxsize=1)
def load_tagger() -> Tagger:
    """Loads the shipped weights when they are first needed."""
    with Path(__file__).with_name(WEIGHTS_FILE).open("rb") as file:
        arrays, _ = read_tensors(file, read_heading(file), sealed=True)
    return Tagger(arrays["weights"], arrays["transitions"].astype(np.int64))
