"""Values that no writer can have written are refused, although every checksum matches."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.store.synthetic import append_segment, begin_store, make_values

from myxtts.errors import DataError
from myxtts.store.index import PartEntry, Row, read_index, write_index
from myxtts.store.layout import Part, read_state, write_checked_json, write_state
from myxtts.store.reader import FeatureStore
from myxtts.store.verify import check_before_training, verify_store


def make_store(folder: Path, part: Part = "mel", values: Any = None) -> FeatureStore:
    """Three utterances; `values` are other ones of a part of the second."""
    begin_store(folder)
    parts = [make_values(5, 4, number) for number in range(3)]
    if values is not None:
        parts[1][part] = values
    append_segment(folder, [(Row(f"clip{number}", "anna", "en"), parts[number]) for number in range(3)])
    state = read_state(folder)
    assert state is not None
    write_state(folder, replace(state, num_token_ids=99))
    return FeatureStore.open(folder)


WRONG_VALUES: list[tuple[Part, Any, str]] = [
    ("mel", np.full((5, 2), np.nan, "<f4"), "NaN or infinity"),
    ("mel", np.array([[0, 1], [2, -np.inf]], "<f4"), "NaN or infinity"),
    ("tokens", np.array([1, -2, 3, 4], "<i4"), "the token -2"),
    ("tokens", np.array([1, 99, 3, 4], "<i4"), "the token 99, but there are only 0 to 98"),
    ("durations", np.array([1, 1, 1, 1], "<i4"), "do not spread 5 frames over 4 tokens"),
    ("durations", np.array([6, -1, 0, 0], "<i4"), "do not spread 5 frames over 4 tokens"),
]


@pytest.mark.parametrize(("part", "values", "words"), WRONG_VALUES)
def test_impossible_values_are_damage(tmp_path: Path, part: Part, values: Any, words: str) -> None:
    store = make_store(tmp_path / "store", part, values)
    with pytest.raises(DataError, match=f"The stored {part} of clip1 is damaged: .*{words}") as caught:
        check_before_training(store, "sampled")
    assert "cache repair" in caught.value.next_step
    assert [problem for problem in verify_store(tmp_path / "store").problems if words in problem]


def alter(fields: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(fields))
    *folders, name = place.split(".")
    holder = copy
    for folder in folders:
        holder = holder[folder]
    holder[name] = value
    return copy


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("generation", True),
        ("generation", -1),
        ("generation", 10**30),
        ("segments", [0, 0]),
        ("segments", [True]),
        ("segments", {}),
        ("num_utterances", "3"),
        ("seconds", -1),
        ("settings", None),
        ("settings.has_pcm", 1),
        ("settings.mel_dtype", "int8"),
        ("settings.mel.n_mels", 0),
        ("settings.mel.n_mels", True),
        ("settings.mel.hop_length", 0),
        ("settings.mel.fmax", 1e9),
        ("settings.mel.other", 1),
        ("settings.audio.sample_rate", 8000),
        ("origin.limits.max_duration_s", -5),
        ("origin.corpus", 7),
        ("other", 1),
    ],
)
def test_a_state_that_cannot_be_is_refused_by_its_field(tmp_path: Path, place: str, value: Any) -> None:
    state = make_store(tmp_path).state
    write_checked_json(tmp_path / "store.json", alter(asdict(state), place, value))
    with pytest.raises(DataError, match=r"store\.json cannot be used: ") as caught:
        FeatureStore.open(tmp_path)
    assert "cache rebuild" in caught.value.next_step
    assert verify_store(tmp_path).num_broken == 1


def test_a_wrong_count_of_utterances_is_found(tmp_path: Path) -> None:
    state = make_store(tmp_path).state
    write_state(tmp_path, replace(state, num_utterances=8))
    with pytest.raises(DataError, match="names 8 utterances, its segments hold 3"):
        FeatureStore.open(tmp_path)
    assert verify_store(tmp_path).num_broken == 1


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (PartEntry(6, 64, 9, 7), "mel_segment holds 6, more than 5"),
        (PartEntry(5, 2**60, 9, 7), "mel_offset"),
        (PartEntry(5, 64, 2**32 - 1, 7), "mel_length"),
        (PartEntry(5, 65, 9, 7), "not aligned"),
    ],
)
def test_an_index_that_cannot_be_is_damage(tmp_path: Path, entry: PartEntry, words: str) -> None:
    write_index(tmp_path / "000005.index", [Row("a"), Row("b", parts={"mel": entry})])
    with pytest.raises(DataError, match=rf"000005\.index is damaged: .*{words}"):
        read_index(tmp_path / "000005.index")


def test_an_index_of_a_terabyte_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "000005.index").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DataError, match="1,099,511,627,776 bytes"):
        read_index(tmp_path / "000005.index")
