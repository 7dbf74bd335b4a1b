"""Model specification: vocabulary, languages, speakers and mel statistics of the corpus, frozen into every bundle.

Measured once by `training.voice.data.measure_spec`; together with `ModelConfig` it determines the shapes of all
weights. Read from files of unknown origin, so every field is validated.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from myxtts.errors import refuse
from myxtts.storage.json_file import JsonRefusedError, check_fields

_MAX_IDS = 2**31 - 1
"""Packed token ids are int32."""


def _refuse_twice(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("a name occurs twice")
    return names


# The limits keep a damaged file from allocating absurd amounts of memory.
_Names = Annotated[
    tuple[Annotated[str, Field(max_length=1000)], ...],
    Field(min_length=1, max_length=1_000_000),
    AfterValidator(_refuse_twice),
]


@dataclass(frozen=True, slots=True, config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False))
class ModelSpec:
    """Sizes and scales measured on the corpus.

    A token id packs its factors as digits of a mixed radix (`factor_sizes`), the symbol first. Symbols below
    `single_state_symbols` (specials and punctuation) get one state in the alignment, phones two. Log-mels are
    normalised by `mel_mean` (one per band) and `mel_deviation` (one for all). `band_hz` are the centres of the mel
    bands.
    """

    factor_sizes: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1, max_length=16)]
    single_state_symbols: Annotated[int, Field(ge=0)]
    n_mels: Annotated[int, Field(ge=1, le=4096)]
    languages: _Names
    speakers: _Names
    mel_mean: tuple[float, ...]
    mel_deviation: Annotated[float, Field(gt=0)]
    frame_rate_hz: Annotated[float, Field(gt=0)]
    band_hz: tuple[float, ...]

    def __post_init__(self) -> None:
        _check(math.prod(self.factor_sizes) <= _MAX_IDS, "factor_sizes", self.factor_sizes)
        _check(self.single_state_symbols <= self.factor_sizes[0], "single_state_symbols", self.single_state_symbols)
        _check(len(self.mel_mean) == self.n_mels, "mel_mean", self.mel_mean)
        is_rising = all(low < high for low, high in pairwise(self.band_hz))
        _check(len(self.band_hz) == self.n_mels and is_rising, "band_hz", self.band_hz)

    @property
    def has_many_speakers(self) -> bool:
        return len(self.speakers) > 1

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Reads what `to_json` gave; raises DataError for anything else."""
        try:
            return check_fields(data, cls)
        except JsonRefusedError as error:
            raise refuse("The model's description", str(error)) from error


def _check(is_right: bool, field: str, value: object) -> None:
    if not is_right:
        raise refuse("The model's description", f"{field} cannot be {str(value)[:100]}")
