"""Tokenizers: phonemes of a fixed inventory, or the characters of a corpus, to integer ids and back.

Both give one integer per token, which `unpack_factors` splits into the factors that a model has embeddings for; padding
is 0. A sequence is start, tokens, end. Both tokenizers are stored as JSON, in frontend.json, with their whole symbol
table; what is read from a file is checked, since a bundle may come from anywhere.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from myxtts.errors import refuse
from myxtts.storage.json_file import FileModel, JsonRefusedError, Listed, Model, VersionOne, check_fields
from myxtts.text.inventory import (
    END,
    PAD,
    PUNCTUATION,
    SPACE,
    SPECIALS,
    STANDARD_INVENTORY,
    START,
    Inventory,
    unpack_factors,
)
from myxtts.text.ipa import Factors, parse_word, render_ipa, split_ipa
from myxtts.text.languages.unicode_cleanup import limit_marks, tidy

TokenizerKind = Literal["phonemes", "characters"]

_MAX_ID = 2**31 - 1
"""Ids are int32."""
_MAX_CACHED_WORDS = 100_000
"""Words whose ids are remembered: a corpus repeats most of its words, and parsing IPA is slow."""
_CHARACTER_SPECIALS = (PAD, START, END, SPACE)
_JOINERS = "\u200c\u200d"
"""Zero-width signs that are part of the spelling: the half-space of Persian and the joiner of Indic scripts."""


def _refuse_duplicates(symbols: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(symbols)) != len(symbols):
        raise ValueError(f"has {Counter(symbols).most_common(1)[0][0]!r} twice")
    return symbols


_Symbols = Annotated[
    Listed[Annotated[str, Field(max_length=16)]], Field(max_length=100_000), AfterValidator(_refuse_duplicates)
]


class _PhonemeFile(FileModel):
    """JSON of a PhonemeTokenizer: its inventory, so that ids keep their meaning when the standard one grows."""

    kind: Literal["phonemes"]
    version: VersionOne
    symbols: _Symbols
    modifiers: _Symbols


class _CharacterFile(FileModel):
    """JSON of a CharacterTokenizer: the characters in the order of their ids."""

    kind: Literal["characters"]
    version: VersionOne
    characters: _Symbols


@dataclass(frozen=True, slots=True)
class Encoding:
    """Packed ids [T] of one text with start and end; `unknown` lists each symbol that has no id and was left out."""

    ids: NDArray[np.int32]
    unknown: tuple[str, ...] = ()


class Tokenizer(Protocol):
    """Text to ids and back. `factor_sizes` are the bases in which an id packs its factors, the symbol first."""

    kind: ClassVar[TokenizerKind]

    @property
    def factor_sizes(self) -> tuple[int, ...]: ...
    def encode(self, text: str) -> Encoding: ...
    def decode(self, ids: NDArray[np.integer]) -> str: ...
    def to_json(self) -> dict[str, Any]: ...
    @classmethod
    def from_json(cls, data: object) -> Self: ...


class PhonemeTokenizer:
    """IPA to factored ids: letter, modifier, stress and position in the word (see `inventory`).

    `decode(encode(x))` is the canonical spelling of x (see `ipa`) without unknown symbols. The ids of words are cached.
    """

    kind: ClassVar[TokenizerKind] = "phonemes"

    def __init__(self, inventory: Inventory = STANDARD_INVENTORY) -> None:
        self.inventory = inventory
        self._specials = {special: self._pack_special(special) for special in SPECIALS}
        self._ids_by_word: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {}

    @property
    def factor_sizes(self) -> tuple[int, ...]:
        return self.inventory.factor_sizes

    def encode(self, text: str) -> Encoding:
        """Encodes IPA with punctuation. A space stands between two words, none beside punctuation."""
        ids = [self._specials[START]]
        unknown: list[str] = []
        is_after_word = False
        for piece in split_ipa(text):
            if piece in PUNCTUATION:
                # Repeated marks such as !! are one token.
                if ids[-1] != self._specials[piece]:
                    ids.append(self._specials[piece])
                is_after_word = False
                continue
            word_ids, word_unknown = self._encode_word(piece)
            unknown += word_unknown
            if not word_ids:
                continue
            if is_after_word:
                ids.append(self._specials[SPACE])
            ids += word_ids
            is_after_word = True
        ids.append(self._specials[END])
        return Encoding(np.asarray(ids, np.int32), tuple(unknown))

    def decode(self, ids: NDArray[np.integer]) -> str:
        factors: list[Factors] = [tuple(row) for row in self.inventory.unpack(ids).tolist()]
        hidden = {self.inventory.symbol_numbers[special] for special in (PAD, START, END)}
        return render_ipa((row for row in factors if row[0] not in hidden), self.inventory)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "version": 1,
            "symbols": list(self.inventory.symbols),
            "modifiers": list(self.inventory.modifiers),
        }

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Raises DataError where the symbols cannot be an inventory, or their product does not fit int32 ids."""
        found = _check_file(data, _PhonemeFile)
        symbols, modifiers = found.symbols, found.modifiers
        if symbols[: len(SPECIALS)] != SPECIALS or modifiers[:1] != ("",) or "" in symbols:
            raise refuse("The tokenizer", "its symbols do not begin with the special ones, or its modifiers with none")
        sizes = (len(symbols), len(modifiers), *STANDARD_INVENTORY.factor_sizes[2:])
        if np.prod(sizes, dtype=np.float64) > _MAX_ID:
            problem = f"its {len(symbols)} symbols and {len(modifiers)} modifiers give too many ids"
            raise refuse("The tokenizer", problem)
        return cls(Inventory(symbols, modifiers))

    def _encode_word(self, word: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Returns ids and unknown signs of one word of IPA; the cache is emptied when it is full."""
        known = self._ids_by_word.get(word)
        if known is None:
            phones, unknown = parse_word(word, self.inventory)
            packed = self.inventory.pack(np.asarray(phones, np.int64).reshape(-1, 4))
            known = tuple(packed.tolist()), tuple(unknown)
            if len(self._ids_by_word) >= _MAX_CACHED_WORDS:
                self._ids_by_word.clear()
            self._ids_by_word[word] = known
        return known

    def _pack_special(self, special: str) -> int:
        factors = np.asarray([[self.inventory.symbol_numbers[special], 0, 0, 0]])
        return int(self.inventory.pack(factors)[0])


class CharacterTokenizer:
    """The characters of a corpus, of any script, in lower case. `decode(encode(x))` is `canonicalize(x)`.

    Used where espeak-ng is not installed or has no voice for the language; the model must learn pronunciation itself.
    """

    kind: ClassVar[TokenizerKind] = "characters"

    def __init__(self, characters: Sequence[str]) -> None:
        self._symbols = (*_CHARACTER_SPECIALS, *characters)
        self._numbers = {symbol: number for number, symbol in enumerate(self._symbols)}
        assert len(self._numbers) == len(self._symbols)

    @classmethod
    def fit(cls, texts: Iterable[str]) -> Self:
        """Collects the letters, marks, figures and punctuation of texts, sorted: ids do not depend on their order."""
        found: set[str] = set()
        for text in texts:
            found.update(_fold_text(text))
        return cls(sorted(character for character in found if _is_admitted(character)))

    @property
    def characters(self) -> tuple[str, ...]:
        return self._symbols[len(_CHARACTER_SPECIALS) :]

    @property
    def factor_sizes(self) -> tuple[int, ...]:
        return (len(self._symbols),)

    def canonicalize(self, text: str) -> str:
        """Returns the text in lower case, NFC, with single spaces and without unknown characters."""
        return self._keep_known(text)[0]

    def encode(self, text: str) -> Encoding:
        kept, unknown = self._keep_known(text)
        ids = [self._numbers[START], *(self._numbers[character] for character in kept), self._numbers[END]]
        return Encoding(np.asarray(ids, np.int32), unknown)

    def decode(self, ids: NDArray[np.integer]) -> str:
        numbers = unpack_factors(ids, self.factor_sizes)[:, 0].tolist()
        hidden = {self._numbers[special] for special in (PAD, START, END)}
        return "".join(self._symbols[number] for number in numbers if number not in hidden)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "version": 1, "characters": list(self.characters)}

    @classmethod
    def from_json(cls, data: object) -> Self:
        characters = _check_file(data, _CharacterFile).characters
        wrong = [character for character in characters if len(character) != 1 or not _is_admitted(character)]
        if wrong:
            raise refuse("The tokenizer", f"{wrong[0]!r} is not a character that can be a token")
        return cls(characters)

    def _keep_known(self, text: str) -> tuple[str, tuple[str, ...]]:
        """Returns the folded text without unknown characters, and those characters."""
        unknown: list[str] = []
        folded = _fold_text(text)
        while lost := [character for character in folded if character not in self._numbers]:
            unknown += lost
            # Leaving one out can bring a letter and a mark together, which NFC composes to another letter.
            folded = _fold_text("".join(character for character in folded if character in self._numbers))
        return folded, tuple(unknown)


def load_tokenizer(data: object) -> Tokenizer:
    """Builds the tokenizer that `to_json` described; raises DataError for anything else."""
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind == PhonemeTokenizer.kind:
        return PhonemeTokenizer.from_json(data)
    if kind == CharacterTokenizer.kind:
        return CharacterTokenizer.from_json(data)
    raise refuse("The tokenizer", f"its kind is {str(kind)[:40]!r}, not phonemes or characters")


def _fold_text(text: str) -> str:
    """Lower case, composed, single spaces."""
    return tidy(unicodedata.normalize("NFC", limit_marks(text)).lower())


def _is_admitted(character: str) -> bool:
    """Whether a character may be a token: Unicode categories letter, mark, number, punctuation, and joiners."""
    return character in _JOINERS or unicodedata.category(character)[0] in "LMNP"


def _check_file(data: object, model: type[Model]) -> Model:
    try:
        return check_fields(data, model)
    except JsonRefusedError as error:
        raise refuse("The tokenizer", str(error)) from error
