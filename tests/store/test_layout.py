"""Names, headings and the checked JSON files of a store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myxtts.errors import DataError
from myxtts.store.layout import (
    ALIGNMENT,
    PARTS,
    StoreState,
    align,
    find_generations,
    find_segments,
    make_part_heading,
    read_checked_json,
    read_state,
    write_checked_json,
    write_state,
)

STATE = StoreState(3, (0, 1, 7), {"mel": {"n_mels": 80}}, {"corpus": "/صدا/corpus.jsonl"}, 12, 34.5)


def test_state_reads_back_as_written(tmp_path: Path) -> None:
    write_state(tmp_path, STATE)
    assert read_state(tmp_path) == STATE


def test_there_is_no_state_where_there_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert read_state(tmp_path) is None
    assert read_state(tmp_path / "nowhere") is None
    assert read_state(tmp_path / "file") is None


def test_every_flipped_bit_of_a_state_is_noticed(tmp_path: Path) -> None:
    write_state(tmp_path, STATE)
    path = tmp_path / "store.json"
    whole = path.read_bytes()
    unnoticed = []
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            read_state(tmp_path)
            unnoticed.append(bit)
        except DataError:
            pass
    assert unnoticed == []


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"5", b'"content"', b"{}", b"[" * 100_000, b"\xff\xfe{}", b'{"content": 1}', b"null"]
)
def test_anything_else_than_a_state_is_damage(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "store.json").write_bytes(raw)
    with pytest.raises(DataError, match=r"store\.json is damaged"):
        read_state(tmp_path)


def test_a_state_of_another_version_is_refused_by_its_number(tmp_path: Path) -> None:
    write_checked_json(tmp_path / "store.json", {**STATE.__dict__, "version": 99})
    with pytest.raises(DataError, match="version 99"):
        read_state(tmp_path)


def test_a_folder_in_the_place_of_a_state_is_damage(tmp_path: Path) -> None:
    (tmp_path / "store.json").mkdir()
    with pytest.raises(DataError, match="cannot be read"):
        read_state(tmp_path)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(fields=st.dictionaries(st.text(), json_values, max_size=4))
def test_checked_json_reads_back_as_written(tmp_path_factory: pytest.TempPathFactory, fields: dict[str, Any]) -> None:
    path = tmp_path_factory.getbasetemp() / "checked.json"
    write_checked_json(path, fields)
    assert read_checked_json(path) == json.loads(json.dumps(fields))


@given(st.integers(0, 10**12))
def test_alignment_is_the_next_multiple(num_bytes: int) -> None:
    assert align(num_bytes) % ALIGNMENT == 0
    assert 0 <= align(num_bytes) - num_bytes < ALIGNMENT


def test_headings_tell_segments_and_parts_apart() -> None:
    headings = {make_part_heading(segment, part) for segment in range(300) for part in PARTS}
    assert len(headings) == 300 * len(PARTS)
    assert {len(heading) for heading in headings} == {ALIGNMENT}


def test_segments_and_generations_are_found_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("000010.index", "000002.index", "1000000.index", "000002.mel", ".000003.index.1.myxtts-tmp"):
        (tmp_path / name).touch()
    for name in ("generation-0010", "generation-0009", "generation-10000", "generation-old"):
        (tmp_path / name).mkdir()
    assert find_segments(tmp_path) == [2, 10, 1_000_000]
    assert find_generations(tmp_path) == [9, 10, 10_000]
