"""The description of a model travels as JSON, and anything that is not one is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from myxtts.errors import DataError
from myxtts.models.spec import ModelSpec

SPEC = ModelSpec((12, 4), 5, 3, ("en", "fa"), ("ann",), (0.0, -1.5, 2.0), 1.5, 86.1, (100.0, 200.0, 300.0))


def test_it_survives_json() -> None:
    assert ModelSpec.from_json(json.loads(json.dumps(SPEC.to_json()))) == SPEC


def test_one_speaker_is_not_many() -> None:
    assert not SPEC.has_many_speakers
    assert ModelSpec.from_json(SPEC.to_json() | {"speakers": ["ann", "bob"]}).has_many_speakers


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("factor_sizes", []),
        ("factor_sizes", [0, 4]),
        ("factor_sizes", [12, 2**30]),
        ("factor_sizes", [12, "4"]),
        ("factor_sizes", "12"),
        ("single_state_symbols", 13),
        ("single_state_symbols", -1),
        ("single_state_symbols", 2.0),
        ("n_mels", True),
        ("n_mels", 10**9),
        ("languages", []),
        ("languages", ["en", "en"]),
        ("speakers", [1]),
        ("speakers", ["a" * 10_000]),
        ("mel_mean", [0.0, 1.0]),
        ("mel_mean", [0.0, 1.0, float("nan")]),
        ("mel_deviation", 0.0),
        ("mel_deviation", "1"),
        ("frame_rate_hz", float("inf")),
        ("frame_rate_hz", None),
        ("band_hz", [100.0, 200.0]),
        ("band_hz", [100.0, 300.0, 200.0]),
        ("band_hz", [100.0, "200", 300.0]),
    ],
)
def test_an_impossible_value_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(DataError, match=field):
        ModelSpec.from_json(SPEC.to_json() | {field: value})


@pytest.mark.parametrize("data", [None, [], "spec", {}, SPEC.to_json() | {"more": 1}])
def test_anything_else_is_refused(data: Any) -> None:
    with pytest.raises(DataError, match="description cannot be used"):
        ModelSpec.from_json(data)
