"""Every setting that shapes features is noticed when it changes: refused by name, or followed by a rebuild."""

from __future__ import annotations

import os
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.store.corpora import SmallCorpus, change_alphabet, list_files, with_changes

import myxtts.store.settings
from myxtts.errors import DataError
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.text.espeak import is_espeak_available

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
    "store_pcm": True,
}


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_every_changed_audio_setting_is_refused_by_name(stored: SmallCorpus, name: str) -> None:
    before = stored.take_snapshot()
    shown = "has_pcm" if name == "store_pcm" else name
    with pytest.raises(DataError, match=rf"other settings: {shown} .* → ") as caught:
        stored.precompute(with_changes(**{name: OTHER_VALUES[name]}))
    assert "--rebuild" in caught.value.next_step
    assert stored.take_snapshot() == before


def test_no_setting_that_shapes_features_is_forgotten() -> None:
    shaping = {field.name for definition in (MelDefinition, AudioDefinition) for field in fields(definition)}
    assert shaping | {"mel_dtype", "store_pcm"} == set(OTHER_VALUES)


@pytest.mark.parametrize("name", ["n_mels", "trim_db", "mel_dtype", "store_pcm"])
def test_auto_rebuild_makes_features_anew(stored: SmallCorpus, tmp_path: Path, name: str) -> None:
    data = with_changes(**{name: OTHER_VALUES[name]}, auto_rebuild_mel_cache=True)
    assert stored.precompute(data).num_made == 10
    rebuilt = stored.take_snapshot()
    shutil.rmtree(stored.store_folder)
    stored.precompute(data)
    assert rebuilt == stored.take_snapshot()


def test_a_new_version_of_the_definition_is_noticed(stored: SmallCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(myxtts.store.settings.StoreSettings.__init__, "__defaults__", (2,))
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
