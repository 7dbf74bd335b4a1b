"""Phoneme ids of Piper to token ids of a model, in TensorFlow operations, so that the mapping is part of the graph.

Piper and sherpa-onnx send one id per code point of espeak-ng's IPA, with padding in between: "ˈ", "e", "ɪ", "ː". A
token of ours packs a letter with its modifiers, its stress and its position in the word (`text.inventory`). The ids of
`make_id_map` name code points; the graph does what `ipa.parse_word` and `PhonemeTokenizer.encode` do with a string:

    1. padding and signs without meaning are dropped; c with a cedilla, which Piper takes apart, is one letter
    2. modifiers join the letter before them, sign by sign, by a table of combinations
    3. a stress mark moves to the next nucleus of its word, or to the next phone if there is none
    4. a phone learns whether it begins or ends its word
    5. a space stays between two words only; a repeated mark of punctuation is one token

Shape legend: P phoneme ids, N tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.text.inventory import (
    END,
    INSIDE,
    MODIFIER_LETTERS,
    PUNCTUATION,
    SPACE,
    SPECIALS,
    START,
    STRESS_MARKS,
    SYLLABIC,
    TONE_FIGURES,
    VOWELS,
    WHOLE_WORD,
    WORD_END,
    WORD_START,
    Inventory,
)
from myxtts.text.ipa import LETTER_SPELLINGS, PUNCTUATION_SPELLINGS, find_modifier
from myxtts.types import Tensor

PIPER_PAD, PIPER_START, PIPER_END = "_", "^", "$"
"""Names that Piper gives to padding and to the ends of a sentence; their ids are 0, 1 and 2 in every voice."""
_MAX_MODIFIERS = 4
"""Signs behind one letter that are read; espeak-ng prints three at most."""
_CEDILLA = "\u0327"
_NOTHING = -1


@dataclass(frozen=True)
class _Signs:
    """The code points with an id of their own, in the order of their ids, and what each of them is."""

    names: tuple[str, ...]
    symbols: NDArray[np.int32]
    """Number of the symbol in the inventory for letters, punctuation, space and both ends; else -1."""
    modifiers: NDArray[np.int32]
    """Index of a modifier sign in `modifier_signs`; else -1."""
    stresses: NDArray[np.int32]
    """Stress of a mark; else 0."""
    modifier_signs: tuple[str, ...]


def make_id_map(inventory: Inventory) -> dict[str, list[int]]:
    """Phoneme ids as the JSON of a Piper voice lists them; other spellings of a sign have the ids of their letters."""
    names = _list_signs(inventory).names
    ids = {name: [number] for number, name in enumerate(names)}
    others = LETTER_SPELLINGS | PUNCTUATION_SPELLINGS
    known = {
        sign: [ids[letter][0] for letter in letters] for sign, letters in others.items() if set(letters) <= set(ids)
    }
    return ids | {sign: found for sign, found in known.items() if found and sign not in ids}


def _list_signs(inventory: Inventory) -> _Signs:
    specials = {PIPER_START: START, PIPER_END: END, SPACE: SPACE, **{mark: mark for mark in PUNCTUATION}}
    letters = [symbol for symbol in inventory.symbols[len(SPECIALS) :] if len(symbol) == 1]
    modifier_signs = tuple(MODIFIER_LETTERS + TONE_FIGURES)
    marks = STRESS_MARKS[1:]
    names = (PIPER_PAD, *specials, *letters, *modifier_signs, *marks, _CEDILLA)
    symbols = {sign: inventory.symbol_numbers[name] for sign, name in specials.items()}
    symbols |= {letter: inventory.symbol_numbers[letter] for letter in letters}
    return _Signs(
        names,
        np.array([symbols.get(name, _NOTHING) for name in names], np.int32),
        np.array([modifier_signs.index(name) if name in modifier_signs else _NOTHING for name in names], np.int32),
        np.array([STRESS_MARKS.index(name) if name in marks else 0 for name in names], np.int32),
        modifier_signs,
    )


class PhonemeReader:
    """Maps phoneme ids [P] of Piper to packed token ids [N] of an inventory."""

    def __init__(self, inventory: Inventory) -> None:
        self._signs = _list_signs(inventory)
        self._sizes = inventory.factor_sizes
        self._space = inventory.symbol_numbers[SPACE]
        names = self._signs.names
        self._plain_c, self._cedilla_c = (names.index(letter) if letter in names else _NOTHING for letter in "cç")
        self._next_modifier = _tabulate_modifiers(inventory, self._signs.modifier_signs)
        self._is_syllabic = np.array([SYLLABIC in modifier for modifier in inventory.modifiers])
        self._is_vowel = np.array([symbol in VOWELS for symbol in inventory.symbols])

    def __call__(self, ids_P: Tensor) -> Tensor:
        ids_P = tf.cast(ids_P, tf.int32)
        ids_P = self._add_cedillas(tf.boolean_mask(ids_P, (ids_P > 0) & (ids_P < len(self._signs.names))))
        symbol_P, sign_P, mark_P = (
            tf.gather(table, ids_P) for table in (self._signs.symbols, self._signs.modifiers, self._signs.stresses)
        )
        is_letter_P = symbol_P >= len(SPECIALS)
        modifier_P = self._join_modifiers(sign_P, is_letter_P)
        word_P = tf.cumsum(tf.cast((symbol_P >= 0) & ~is_letter_P, tf.int32))
        is_nucleus_P = is_letter_P & (
            tf.gather(self._is_vowel, tf.maximum(symbol_P, 0)) | tf.gather(self._is_syllabic, modifier_P)
        )
        stress_P = _place_stresses(mark_P, is_letter_P, is_nucleus_P, word_P)
        position_P = _find_positions(is_letter_P, word_P)
        is_kept_P = self._choose_tokens(symbol_P, is_letter_P)
        packed_P = tf.zeros_like(symbol_P)
        for factor_P, size in zip((symbol_P, modifier_P, stress_P, position_P), self._sizes, strict=True):
            packed_P = packed_P * size + factor_P
        return tf.boolean_mask(packed_P, is_kept_P)

    def _add_cedillas(self, ids_P: Tensor) -> Tensor:
        """Ids in which c and a cedilla are ç."""
        is_cedilla_P = ids_P == len(self._signs.names) - 1
        is_next_P = tf.concat([is_cedilla_P[1:], [False]], axis=0)[: tf.shape(ids_P)[0]]
        joined_P = tf.where(is_next_P & (ids_P == self._plain_c), self._cedilla_c, ids_P)
        return tf.boolean_mask(joined_P, ~is_cedilla_P)

    def _join_modifiers(self, sign_P: Tensor, is_letter_P: Tensor) -> Tensor:
        """Modifier of each letter, from the signs behind it; 0 elsewhere."""
        modifier_P = tf.zeros_like(sign_P)
        follows_P = is_letter_P
        for distance in range(1, _MAX_MODIFIERS + 1):
            next_P = tf.concat([sign_P[distance:], tf.fill([distance], _NOTHING)], axis=0)[: tf.shape(sign_P)[0]]
            follows_P &= next_P >= 0
            place_P = modifier_P * len(self._signs.modifier_signs) + tf.maximum(next_P, 0)
            modifier_P = tf.where(follows_P, tf.gather(self._next_modifier, place_P), modifier_P)
        return modifier_P

    def _choose_tokens(self, symbol_P: Tensor, is_letter_P: Tensor) -> Tensor:
        """Which signs become tokens: letters, ends, a mark unless it repeats the one before, spaces between words."""
        index_P = tf.range(tf.shape(symbol_P)[0])
        is_space_P = symbol_P == self._space
        is_other_P = (symbol_P >= 0) & ~is_space_P
        before_P = _find_last(is_other_P, index_P)
        after_P = _find_next(is_other_P, index_P)
        is_first_space_P = _find_last(is_space_P, index_P) <= before_P
        is_between_P = _look_up(is_letter_P, before_P) & _look_up(is_letter_P, after_P)
        is_mark_P = is_other_P & ~is_letter_P
        is_repeated_P = is_mark_P & (tf.gather(symbol_P, tf.maximum(before_P, 0)) == symbol_P) & (before_P >= 0)
        return tf.where(is_space_P, is_first_space_P & is_between_P, is_other_P & ~is_repeated_P)


def _tabulate_modifiers(inventory: Inventory, signs: tuple[str, ...]) -> NDArray[np.int32]:
    """The modifier that each modifier becomes with one more sign, as a flat table [modifiers * signs]."""
    table = [
        inventory.modifier_numbers[find_modifier(modifier + sign, inventory)[0]]
        for modifier in inventory.modifiers
        for sign in signs
    ]
    return np.array(table, np.int32)


def _place_stresses(mark_P: Tensor, is_letter_P: Tensor, is_nucleus_P: Tensor, word_P: Tensor) -> Tensor:
    """Stress of each phone: that of the marks before it which belong to it; of two the stronger counts."""
    index_P = tf.range(tf.shape(mark_P)[0])
    letter_P, nucleus_P = _find_next(is_letter_P, index_P), _find_next(is_nucleus_P, index_P)
    is_nucleus_near_P = _look_up(word_P, nucleus_P, _NOTHING) == word_P
    is_letter_near_P = _look_up(word_P, letter_P, _NOTHING) == word_P
    target_P = tf.where(is_nucleus_near_P, nucleus_P, tf.where(is_letter_near_P, letter_P, _NOTHING))
    is_meant_PP = target_P[:, None] == index_P
    return tf.reduce_max(tf.where(is_meant_PP, mark_P[:, None], 0), axis=0)


def _find_positions(is_letter_P: Tensor, word_P: Tensor) -> Tensor:
    """Position of each phone in its word; 0 for everything else."""
    index_P = tf.range(tf.shape(word_P)[0])
    is_first_P = _look_up(word_P, _find_last(is_letter_P, index_P), _NOTHING) != word_P
    is_last_P = _look_up(word_P, _find_next(is_letter_P, index_P, strictly=True), _NOTHING) != word_P
    alone_P, first_P, last_P = is_first_P & is_last_P, is_first_P, is_last_P
    position_P = tf.where(alone_P, WHOLE_WORD, tf.where(first_P, WORD_START, tf.where(last_P, WORD_END, INSIDE)))
    return tf.where(is_letter_P, position_P, 0)


def _find_last(is_meant_P: Tensor, index_P: Tensor) -> Tensor:
    """Index of the nearest meant sign before each sign; -1 where there is none."""
    is_before_PP = (index_P < index_P[:, None]) & is_meant_P
    return tf.reduce_max(tf.where(is_before_PP, index_P, _NOTHING), axis=1)


def _find_next(is_meant_P: Tensor, index_P: Tensor, *, strictly: bool = False) -> Tensor:
    """Index of the nearest meant sign at or behind each sign (`strictly`: behind it); -1 where there is none."""
    is_behind_PP = index_P > index_P[:, None] if strictly else index_P >= index_P[:, None]
    num_signs = tf.shape(index_P)[0]
    found_P = tf.reduce_min(tf.where(is_behind_PP & is_meant_P, index_P, num_signs), axis=1)
    return tf.where(found_P < num_signs, found_P, _NOTHING)


def _look_up(values_P: Tensor, index_P: Tensor, missing: int = 0) -> Tensor:
    """Values at indices; `missing` where an index is -1."""
    found_P = tf.gather(values_P, tf.maximum(index_P, 0))
    return tf.where(index_P >= 0, found_P, tf.cast(missing, found_P.dtype))
