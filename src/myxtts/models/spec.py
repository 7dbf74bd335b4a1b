"""Model specification: vocabulary, languages, speakers and mel statistics of the corpus, frozen into every bundle."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any, Self

from myxtts.errors import DataError

DEFAULT_NUM_STEPS = 16
"""Euler steps of the decoder: eight are intelligible, sixteen sound cleaner, more are hardly audible."""

_MAX_IDS = 2**31 - 1
_MAX_NAMES = 1_000_000
_MAX_NAME_LENGTH = 1000
_MAX_MELS = 4096
_MAX_FACTORS = 16


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Sizes and scales that follow from the data. A token id packs its factors as digits, the symbol first.

    Symbols below `single_state_symbols` (specials and punctuation) get one state in the alignment, phones two.
    `band_hz` are the centres of the mel bands.
    """

    factor_sizes: tuple[int, ...]
    single_state_symbols: int
    n_mels: int
    languages: tuple[str, ...]
    speakers: tuple[str, ...]
    mel_mean: tuple[float, ...]
    mel_deviation: float
    frame_rate_hz: float
    band_hz: tuple[float, ...]

    def __post_init__(self) -> None:
        _check(0 < len(self.factor_sizes) <= _MAX_FACTORS, "factor_sizes", self.factor_sizes)
        _check(all(_is_whole(size, 1) for size in self.factor_sizes), "factor_sizes", self.factor_sizes)
        _check(math.prod(self.factor_sizes) <= _MAX_IDS, "factor_sizes", self.factor_sizes)
        fits = _is_whole(self.single_state_symbols, 0) and self.single_state_symbols <= self.factor_sizes[0]
        _check(fits, "single_state_symbols", self.single_state_symbols)
        _check(_is_whole(self.n_mels, 1) and self.n_mels <= _MAX_MELS, "n_mels", self.n_mels)
        for name in ("languages", "speakers"):
            _check_names(name, getattr(self, name))
        is_complete = len(self.mel_mean) == self.n_mels and all(map(_is_finite, self.mel_mean))
        _check(is_complete, "mel_mean", self.mel_mean)
        is_complete = len(self.band_hz) == self.n_mels and all(map(_is_finite, self.band_hz))
        _check(is_complete and all(low < high for low, high in pairwise(self.band_hz)), "band_hz", self.band_hz)
        for name in ("mel_deviation", "frame_rate_hz"):
            value = getattr(self, name)
            _check(_is_finite(value) and value > 0, name, value)

    @property
    def has_many_speakers(self) -> bool:
        return len(self.speakers) > 1

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """The spec that `to_json` described; anything else is refused."""
        names = {field.name for field in fields(cls)}
        if not isinstance(data, dict) or set(data) != names:
            found = sorted(map(str, data)) if isinstance(data, dict) else type(data).__name__
            raise _complain(f"it has {found}, but needs exactly {sorted(names)}")
        values = dict(data)
        for name in ("factor_sizes", "languages", "speakers", "mel_mean", "band_hz"):
            _check(isinstance(values[name], list), name, values[name])
            values[name] = tuple(values[name])
        return cls(**values)


def _check_names(field: str, names: tuple[object, ...]) -> None:
    _check(0 < len(names) <= _MAX_NAMES, field, f"{len(names)} names")
    for name in names:
        _check(isinstance(name, str) and len(name) <= _MAX_NAME_LENGTH, field, name)
    _check(len(set(names)) == len(names), field, "a name that occurs twice")


def _is_whole(value: object, lowest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= lowest


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _check(is_right: bool, field: str, value: object) -> None:
    if not is_right:
        raise _complain(f"{field} cannot be {str(value)[:100]}")


def _complain(problem: str) -> DataError:
    return DataError(
        f"The model's description cannot be used: {problem}.",
        next_step="The file is damaged or from another version: take it again from where it was made.",
    )
