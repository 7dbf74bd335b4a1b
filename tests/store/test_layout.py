"""Names, headings and the checked JSON files of a store."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.corpora import SmallCorpus, change_alphabet, list_files, with_changes
from tests.store.synthetic import ORIGIN, SETTINGS

import myxtts.store.layout
from myxtts.errors import DataError
from myxtts.features.definition import AudioDefinition, MelDefinition
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
from myxtts.text.espeak import is_espeak_available

STATE = StoreState(3, (0, 1, 7), SETTINGS, replace(ORIGIN, corpus="/صدا/corpus.jsonl"), 12, 34.5)


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
    write_checked_json(tmp_path / "store.json", {**asdict(STATE), "version": 99})
    with pytest.raises(DataError, match="version 99"):
        read_state(tmp_path)


def test_a_folder_in_the_place_of_a_state_is_damage(tmp_path: Path) -> None:
    (tmp_path / "store.json").mkdir()
    with pytest.raises(DataError, match="not a file"):
        read_state(tmp_path)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)


@given(fields=st.dictionaries(st.text(), json_values, max_size=4))
def test_checked_json_reads_back_as_written(tmp_path_factory: pytest.TempPathFactory, fields: dict[str, Any]) -> None:
    path = tmp_path_factory.getbasetemp() / "checked.json"
    write_checked_json(path, fields)
    assert read_checked_json(path, dict[str, Any]) == json.loads(json.dumps(fields))


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


OTHER_VALUES: dict[str, Any] = {
    "sample_rate": 24_000,
    "n_fft": 2048,
    "hop_length": 200,
    "win_length": 800,
    "n_mels": 40,
    "fmin": 20.0,
    "fmax": 7600.0,
    "log_floor": 1e-4,
    "trim_silence": False,
    "trim_db": 30.0,
    "loudness": "peak",
    "loudness_target": 0.1,
    "mel_dtype": "float16",
    "cache_waveforms": True,
}


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_every_changed_audio_setting_is_refused_by_name(stored: SmallCorpus, name: str) -> None:
    before = stored.take_snapshot()
    shown = "has_pcm" if name == "cache_waveforms" else name
    with pytest.raises(DataError, match=rf"other settings: {shown} .* → ") as caught:
        stored.precompute(with_changes(**{name: OTHER_VALUES[name]}))
    assert "cache rebuild" in caught.value.next_step
    assert stored.take_snapshot() == before


def test_no_setting_that_shapes_features_is_forgotten() -> None:
    shaping = {field.name for definition in (MelDefinition, AudioDefinition) for field in fields(definition)}
    assert shaping | {"mel_dtype", "cache_waveforms"} == set(OTHER_VALUES)


@pytest.mark.parametrize("name", ["n_mels", "trim_db", "mel_dtype", "cache_waveforms"])
def test_auto_rebuild_makes_features_anew(stored: SmallCorpus, tmp_path: Path, name: str) -> None:
    data = with_changes(**{name: OTHER_VALUES[name]}, auto_rebuild_mel_cache=True)
    assert stored.precompute(data).num_made == 10
    rebuilt = stored.take_snapshot()
    shutil.rmtree(stored.store_folder)
    stored.precompute(data)
    assert rebuilt == stored.take_snapshot()


def test_a_new_version_of_the_definition_is_noticed(stored: SmallCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(myxtts.store.layout.StoreSettings.__init__, "__defaults__", (2,))
    with pytest.raises(DataError, match="definition of the features 1 → 2"):
        stored.precompute()


def test_several_changed_settings_are_all_listed(stored: SmallCorpus) -> None:
    with pytest.raises(DataError) as caught:
        stored.precompute(with_changes(n_mels=40, fmax=7600.0, loudness="none"))
    for words in ("n_mels 80 → 40", "fmax 8000.0 → 7600.0", "loudness rms → none"):
        assert words in str(caught.value)


def test_a_changed_front_end_rebuilds_tokens_alone(stored: SmallCorpus) -> None:
    before = {row[0]: row[5] for row in stored.take_snapshot()}
    files = list_files(stored.store_folder / "generation-0001")
    change_alphabet(stored)
    summary = stored.precompute()
    assert (summary.num_made, summary.num_tokens_made) == (0, 10)
    after = {row[0]: row[5] for row in stored.take_snapshot()}
    assert all(after[id]["mel"] == before[id]["mel"] for id in before)
    assert all(after[id]["tokens"] != before[id]["tokens"] for id in before)
    rebuilt = list_files(stored.store_folder / "generation-0002")
    assert {name: rebuilt[name] for name in files if name.endswith(".mel")} == {
        name: place for name, place in files.items() if name.endswith(".mel")
    }
    assert not (stored.store_folder / "generation-0001").exists()


def test_spectrograms_are_copied_where_there_are_no_hard_links(
    stored: SmallCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    before = {row[0]: row[5]["mel"] for row in stored.take_snapshot()}
    monkeypatch.setattr(os, "link", refuse)
    change_alphabet(stored)
    assert stored.precompute().num_made == 0
    assert {row[0]: row[5]["mel"] for row in stored.take_snapshot()} == before


def test_a_changed_front_end_is_refused_when_rebuilding_is_off(stored: SmallCorpus) -> None:
    before = stored.take_snapshot()
    change_alphabet(stored)
    with pytest.raises(DataError, match="text front end"):
        stored.precompute(with_changes(auto_rebuild_token_cache=False))
    assert stored.take_snapshot() == before


@pytest.mark.skipif(not is_espeak_available(), reason="espeak-ng is not installed")
def test_the_kind_of_front_end_and_its_lexicon_are_noticed(stored: SmallCorpus, tmp_path: Path) -> None:
    tokens = [row[5]["tokens"] for row in stored.take_snapshot()]
    stored.prepare(with_changes(text_frontend="phonemes"))
    assert "text settings changed" in stored.precompute().action
    phonemes = [row[5]["tokens"] for row in stored.take_snapshot()]
    assert all(old != new for old, new in zip(tokens, phonemes, strict=True))
    lexicon = tmp_path / "lexicon.txt"
    lexicon.write_text("words\tzɔːdz\n", encoding="utf-8")
    stored.prepare(with_changes(text_frontend="phonemes", lexicon=str(lexicon)))
    assert "text settings changed" in stored.precompute().action
    assert [row[5]["tokens"] for row in stored.take_snapshot()] != phonemes
