"""Coverage of phones and pairs of phones: what the texts of a corpus hold, against what is frequent in the language.

A phone is a letter of the inventory with its modifier; stress and position in the word do not count. A pair is two
phones in a row, also across the space between two words, but not across punctuation. Counts grow with the number of
distinct pairs (some hundreds per language), not with the corpus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from myxtts.text.inventory import NUM_POSITIONS, NUM_STRESSES, SPACE, SPECIALS, Inventory

ENOUGH_OF_A_PHONE = 20
"""Occurrences from which a phone is no longer called rare: a convention of this program, not a measured limit."""
_LEAST_SHARE = 0.001
"""Of all phones of a language: those that are rarer in the language itself are not called rare in a corpus."""
_NUM_SHOWN = 12
_NUM_VARIANTS = NUM_STRESSES * NUM_POSITIONS
"""Ids of one phone: they follow each other, since stress and position are the last factors of an id."""


@dataclass(slots=True)
class PhoneTally:
    """Counts of phones and pairs, by the names of phones; a pair is two names with a space between."""

    phones: Counter[str] = field(default_factory=Counter)
    pairs: Counter[str] = field(default_factory=Counter)

    @classmethod
    def from_json(cls, data: dict[str, dict[str, int]]) -> Self:
        return cls(Counter(data["phones"]), Counter(data["pairs"]))

    def __add__(self, other: PhoneTally) -> PhoneTally:
        return PhoneTally(self.phones + other.phones, self.pairs + other.pairs)

    def to_json(self) -> dict[str, dict[str, int]]:
        return {"phones": dict(self.phones.most_common()), "pairs": dict(self.pairs.most_common())}


class PhoneCounter:
    """Counts the phones of encoded texts as numbers, which is faster than by name; `tally` names them."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._num_modifiers = len(inventory.modifiers)
        self._first_phone = len(SPECIALS) * self._num_modifiers
        self._space = inventory.symbol_numbers[SPACE] * self._num_modifiers
        self._num_codes = len(inventory.symbols) * self._num_modifiers
        self._phones: Counter[int] = Counter()
        self._pairs: Counter[int] = Counter()

    def add(self, ids: NDArray[np.integer]) -> None:
        """Counts one encoded text."""
        phones, pairs = self.list_codes(ids)
        self._phones.update(phones)
        self._pairs.update(pairs)

    def list_codes(self, ids: NDArray[np.integer]) -> tuple[list[int], list[int]]:
        """Numbers of the phones and of the pairs of one text."""
        codes = np.asarray(ids, np.int64) // _NUM_VARIANTS
        codes = codes[codes != self._space]
        is_phone = codes >= self._first_phone
        is_pair = is_phone[:-1] & is_phone[1:]
        pairs = codes[:-1] * self._num_codes + codes[1:]
        return codes[is_phone].tolist(), pairs[is_pair].tolist()

    def tally(self) -> PhoneTally:
        tally = PhoneTally()
        for code, count in self._phones.items():
            tally.phones[self._name(code)] += count
        for code, count in self._pairs.items():
            first, second = divmod(code, self._num_codes)
            tally.pairs[f"{self._name(first)} {self._name(second)}"] += count
        return tally

    def _name(self, code: int) -> str:
        letter, modifier = divmod(code, self._num_modifiers)
        return self._inventory.symbols[letter] + self._inventory.modifiers[modifier]


@dataclass(frozen=True, slots=True)
class Coverage:
    """What one language of a corpus has of the phones and pairs of everyday speech.

    `pair_share` is the share of pairs in everyday sentences, counted as often as they occur there, that the corpus has
    at least once. Lists are sorted by frequency in the language and hold the first few.
    """

    language: str
    num_phones: int
    num_phones_of_language: int
    missing_phones: list[str]
    rare_phones: dict[str, int]
    num_pairs: int
    num_pairs_of_language: int
    pair_share: float
    missing_pairs: list[str]


def measure_coverage(language: str, found: PhoneTally, expected: PhoneTally) -> Coverage:
    """Compares a corpus with the frequencies of its language."""
    present = [phone for phone in expected.phones if phone in found.phones]
    pairs = [pair for pair in expected.pairs if pair in found.pairs]
    ordered = [phone for phone, _ in expected.phones.most_common()]
    least = _LEAST_SHARE * expected.phones.total()
    usual = [phone for phone in ordered if expected.phones[phone] >= least]
    missing_pairs = [pair for pair, _ in expected.pairs.most_common() if pair not in found.pairs]
    return Coverage(
        language,
        len(present),
        len(expected.phones),
        [phone for phone in ordered if phone not in found.phones][:_NUM_SHOWN],
        {phone: found.phones[phone] for phone in usual if 0 < found.phones[phone] < ENOUGH_OF_A_PHONE},
        len(pairs),
        len(expected.pairs),
        round(sum(expected.pairs[pair] for pair in pairs) / max(1, expected.pairs.total()), 4),
        missing_pairs[:_NUM_SHOWN],
    )


def choose_covering(texts: Iterable[PhoneTally], found: PhoneTally, expected: PhoneTally, number: int) -> list[int]:
    """Indices of the texts that add most to a corpus, the best first: greedy, each counted as recorded once chosen.

    The worth of a pair is its frequency in the language; each further occurrence is worth half of the one before.
    """
    left = dict(enumerate(texts))
    counts = Counter(found.pairs)
    chosen: list[int] = []

    def measure_gain(tally: PhoneTally) -> float:
        return sum(
            expected.pairs[pair] * (0.5 ** counts[pair] - 0.5 ** (counts[pair] + num))
            for pair, num in tally.pairs.items()
        )

    while left and len(chosen) < number:
        best = max(left, key=lambda index: (measure_gain(left[index]), -index))
        counts.update(left.pop(best).pairs)
        chosen.append(best)
    return chosen
