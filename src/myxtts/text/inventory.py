"""Phone inventory of all languages as factored tokens: letter, modifier, stress and position in the word in one id.

A model looks up one embedding per factor and sums them, so that a long stressed vowel shares what it can with a short
one. An id is a mixed-radix number: ((letter * modifiers + modifier) * 3 + stress) * 4 + position. The order of the
tables decides the ids; it is stored with every model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import DataError

PAD, START, END, SPACE = "<pad>", "<start>", "<end>", " "
PUNCTUATION = (".", ",", "!", "?", ";", ":", "—", "…")
"""Marks that become tokens; `ipa.PUNCTUATION_SPELLINGS` maps those of other scripts to them."""
SPECIALS = (PAD, START, END, SPACE, *PUNCTUATION)
"""The first symbols of every inventory, in this order; padding must be first, so that its packed id is 0."""

VOWELS = "iyɨʉɯuɪʏʊᵻeøɘɵɤoəɚɛœɜɝɞʌɔæɐaɶɑɒ"
CONSONANTS = (
    "pbtdʈɖcɟkɡqɢʔʡmɱnɳɲŋɴʙrʀɾɽɺⱱɸβfvθðszʃʒʂʐɕʑɧçʝxɣχʁħʕʜʢhɦɬɮʋɹɻjɥɰwʍlɭʎʟɫɓɗʄɠʛʘǀǃǂǁ"
    "ᵐⁿᵑ"  # the short nasal at the start of a prenasalised stop
)

# Modifiers follow their letter in the order of MODIFIER_LETTERS. Tones come last, as superscript figures.
SYLLABIC = "\u0329"
MODIFIER_LETTERS = (
    "\u0325"  # voiceless
    "\u032c"  # voiced
    "\u032a\u033b\u033a"  # dental, laminal, apical
    "\u031e\u031d\u031f\u0320"  # lowered, raised, advanced, retracted
    "\u0308\u0306\u0348"  # centralised, extra short, tense
    "\u032f"  # not syllabic
    f"{SYLLABIC}\u0303"  # syllabic, nasal
    "ʼʰʱʲʷˠˤˀᵝ˞ˑː"
)
TONE_FIGURES = "¹²³⁴⁵⁶⁷⁸⁹"
"""Numbers of tones, and levels of contour tones; `ipa` folds the tone letters ˥ to ˩ to ⁵ to ¹."""
_CONTOUR_TONES = ("⁵⁵", "³⁵", "²¹⁴", "⁵¹", "¹¹", "²¹", "²²", "³³", "⁴⁴", "⁵³", "⁴³", "²³", "³²")
_COMBINATIONS = (
    *(f"{letter}ː" for letter in "\u0325\u032a\u033b\u033a\u031e\u031d\u0308\u0348\u0329\u0303ʼʰʲʷˠˤˀ˞"),
    *(f"\u032a{letter}" for letter in "\u0303ʰʲʷˠˤ"),
    *(f"{letter}\u0303" for letter in "\u031e\u0308\u032f\u0329"),
    *("\u0325\u031d", "ʰʲ", "ʰʷ", "ʲʷ", "ʼʷ", "\u0329ʲ"),
    *(f"{letter}{tone}" for letter in "ː\u0329" for tone in TONE_FIGURES[:7]),
    *(f"{letter}{tone}" for letter in "ː\u032a" for tone in _CONTOUR_TONES[:5]),
    *(f"\u032a{tone}" for tone in TONE_FIGURES[:5]),
)
MODIFIERS = ("", *MODIFIER_LETTERS, *TONE_FIGURES, *_CONTOUR_TONES, *_COMBINATIONS)
"""One entry per combination, since a phone has one modifier factor; the first is none."""

NUM_STRESSES = 3
STRESS_MARKS = ("", "ˌ", "ˈ")
"""No stress, secondary, primary: the index is the stress factor."""
NUM_POSITIONS = 4
INSIDE, WORD_START, WORD_END, WHOLE_WORD = range(NUM_POSITIONS)
"""Position factor of a phone in its word; a word of one phone is WHOLE_WORD."""


@dataclass(frozen=True)
class Inventory:
    """The tables behind a phoneme model's ids. The packed id of padding is 0."""

    symbols: tuple[str, ...] = (*SPECIALS, *VOWELS, *CONSONANTS)
    modifiers: tuple[str, ...] = MODIFIERS
    symbol_numbers: dict[str, int] = field(init=False, repr=False, compare=False)
    modifier_numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "symbol_numbers", {symbol: number for number, symbol in enumerate(self.symbols)})
        object.__setattr__(self, "modifier_numbers", {text: number for number, text in enumerate(self.modifiers)})
        assert self.symbols[: len(SPECIALS)] == SPECIALS
        assert self.modifiers[0] == ""
        assert len(self.symbol_numbers) == len(self.symbols)
        assert len(self.modifier_numbers) == len(self.modifiers)

    @property
    def factor_sizes(self) -> tuple[int, int, int, int]:
        """Sizes of the embedding tables, and the bases of packed ids: symbol, modifier, stress, position."""
        return len(self.symbols), len(self.modifiers), NUM_STRESSES, NUM_POSITIONS

    def pack(self, factors: NDArray[np.integer]) -> NDArray[np.int32]:
        """Ids [T] from factors [T, 4]."""
        return pack_factors(factors, self.factor_sizes)

    def unpack(self, ids: NDArray[np.integer]) -> NDArray[np.int32]:
        """Factors [T, 4] from ids [T]."""
        return unpack_factors(ids, self.factor_sizes)


STANDARD_INVENTORY = Inventory()


def pack_factors(factors: NDArray[np.integer], sizes: Sequence[int]) -> NDArray[np.int32]:
    """Packs factors [T, F] into ids [T]: mixed-radix digits with bases `sizes`, the last changing fastest."""
    ids = np.zeros(len(factors), np.int64)
    for column, size in enumerate(sizes):
        ids = ids * size + factors[:, column]
    return ids.astype(np.int32)


def unpack_factors(ids: NDArray[np.integer], sizes: Sequence[int]) -> NDArray[np.int32]:
    """Unpacks ids [T] into factors [T, F]; raises DataError for an id outside the product of `sizes`."""
    rest = np.asarray(ids, np.int64)
    num_ids = int(np.prod(sizes))
    if rest.size and not (rest.min() >= 0 and rest.max() < num_ids):
        wrong = int(rest.min()) if rest.min() < 0 else int(rest.max())
        raise DataError(
            f"The token id {wrong} is outside 0..{num_ids - 1}.",
            next_step="These tokens were made by another front end: encode the text again with this one.",
        )
    factors = np.empty((len(rest), len(sizes)), np.int32)
    for column in range(len(sizes) - 1, -1, -1):
        rest, factors[:, column] = np.divmod(rest, sizes[column])
    return factors
