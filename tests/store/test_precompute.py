"""`precompute` makes what is missing, keeps what is right, and notices every change that matters."""

from __future__ import annotations

import csv
import json
import os
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import myxtts.store.settings
from myxtts.config.schema import DataConfig
from myxtts.corpus.listen import AudioLimits
from myxtts.errors import DataError
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.features.extract import FeatureExtractor
from myxtts.store.layout import name_generation
from myxtts.store.precompute import choose_store_folder, precompute
from myxtts.text.espeak import is_espeak_available
from tests.store.corpora import CHUNK, DATA, SmallCorpus, list_files

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


def with_changes(**changes: Any) -> DataConfig:
    return DataConfig(**{**DATA.model_dump(), **changes})


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("store_pcm", [False, True])
def test_store_holds_the_features_of_every_utterance(corpus: SmallCorpus, dtype: str, store_pcm: bool) -> None:
    data = with_changes(mel_dtype=dtype, store_pcm=store_pcm)
    corpus.precompute(data)
    prepared = corpus.prepare()
    extractor = FeatureExtractor(
        MelDefinition.from_config(data), AudioDefinition.from_config(data), AudioLimits.from_config(data), keep_pcm=True
    )
    frontend = prepared.load_frontend()
    store = corpus.open_store()
    assert [store.id_of(row) for row in range(len(store))] == list(corpus.lines)
    for row, utterance in enumerate(prepared.utterances()):
        expected = extractor.extract(utterance)
        stored = store[row]
        assert stored.mel.dtype == dtype
        np.testing.assert_array_equal(stored.mel, expected.mel.astype(dtype))
        np.testing.assert_array_equal(stored.tokens, frontend.encode(utterance.text, utterance.language).ids)
        assert (stored.speaker, stored.language, stored.split) == (utterance.speaker, "en", utterance.split)
        assert expected.pcm is not None
        pcm = store.read_part(row, "pcm")
        np.testing.assert_array_equal(pcm, expected.pcm if store_pcm else expected.pcm[:0])


def test_result_does_not_depend_on_threads_or_on_earlier_runs(corpus: SmallCorpus, tmp_path: Path) -> None:
    corpus.precompute(num_threads=1)
    one = corpus.take_snapshot()
    shutil.rmtree(corpus.store_folder)
    corpus.precompute(num_threads=4)
    assert corpus.take_snapshot() == one


def test_a_second_run_keeps_everything(stored: SmallCorpus) -> None:
    before = list_files(stored.store_folder / "generation-0001")
    summary = stored.precompute()
    assert (summary.num_kept, summary.num_made, summary.num_tokens_made) == (10, 0, 0)
    assert list_files(stored.store_folder / "generation-0001") == before


def test_a_touched_recording_is_not_a_change(stored: SmallCorpus) -> None:
    for id in stored.lines:
        os.utime(stored.audio(id), (1, 1))
    stored.prepare()
    assert stored.precompute().num_kept == 10


def test_added_changed_and_removed_utterances_leave_the_other_files_alone(stored: SmallCorpus) -> None:
    before = list_files(stored.store_folder / "generation-0001")
    rows_before = {row[0]: row for row in stored.take_snapshot()}
    stored.add("fresh", seed=100)
    stored.add("clip03", seed=101)
    stored.change("clip05", text="Words of clip now.")
    stored.change("clip06", speaker="zoe")
    stored.remove("clip08")
    stored.prepare()
    summary = stored.precompute()
    assert (summary.num_made, summary.num_tokens_made, summary.num_removed, summary.num_kept) == (2, 2, 1, 6)
    assert list_files(stored.store_folder / "generation-0001").items() >= before.items()
    after = {row[0]: row for row in stored.take_snapshot()}
    assert list(after) == [*(id for id in rows_before if id != "clip08"), "fresh"]
    for id in ("clip00", "clip01", "clip02", "clip04", "clip07", "clip09"):
        assert after[id] == rows_before[id]
    assert after["clip03"][5]["mel"] != rows_before["clip03"][5]["mel"]
    assert after["clip03"][5]["tokens"] == rows_before["clip03"][5]["tokens"]
    assert after["clip05"][5]["mel"] == rows_before["clip05"][5]["mel"]
    assert after["clip05"][5]["tokens"] != rows_before["clip05"][5]["tokens"]
    assert after["clip06"][1] == "zoe"
    assert after["clip06"][5] == rows_before["clip06"][5]
    assert stored.precompute().num_kept == 10


def test_moving_an_utterance_to_another_split_rewrites_no_features(stored: SmallCorpus) -> None:
    splits = [row[3] for row in stored.take_snapshot()]
    stored.prepare(seed=7)
    summary = stored.precompute()
    assert [row[3] for row in stored.take_snapshot()] != splits
    assert (summary.num_made, summary.num_tokens_made) == (0, 0)
    store = stored.open_store()
    assert sorted([*store.rows_of_split("train"), *store.rows_of_split("val")]) == list(range(10))


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


def change_alphabet(corpus: SmallCorpus) -> None:
    """A character that the front end has not seen gives every token another number."""
    corpus.change("clip01", text="Words! Of clip?")
    corpus.prepare()


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


def test_rebuild_makes_everything_anew(stored: SmallCorpus) -> None:
    before = stored.take_snapshot()
    assert stored.precompute(rebuild=True).num_made == 10
    assert stored.take_snapshot() == before
    assert [path.name for path in stored.store_folder.glob("generation-*")] == ["generation-0002"]


@pytest.mark.parametrize("name", ["store.json", "generation-0001/generation.json", "generation-0001/000001.index"])
def test_rebuild_works_whatever_is_damaged(stored: SmallCorpus, name: str) -> None:
    before = stored.take_snapshot()
    (stored.store_folder / name).write_bytes(b"noise")
    stored.precompute(rebuild=True)
    assert stored.take_snapshot() == before


def test_a_store_of_another_corpus_is_refused(stored: SmallCorpus, tmp_path: Path) -> None:
    before = stored.take_snapshot()
    twin = stored.copy(tmp_path / "twin")
    with pytest.raises(DataError, match="belongs to the corpus"):
        precompute(twin.prepare(), stored.store_folder, DATA, num_threads=1)
    assert stored.take_snapshot() == before


def test_a_moved_corpus_keeps_its_store(stored: SmallCorpus, tmp_path: Path) -> None:
    twin = stored.copy(tmp_path / "twin")
    shutil.rmtree(stored.folder)
    assert twin.precompute().num_kept == 10
    assert len(twin.open_store()) == 10


def test_bad_recordings_are_listed_and_left_out(corpus: SmallCorpus) -> None:
    corpus.audio("clip02").write_bytes(b"noise")
    corpus.audio("clip07").unlink()
    summary = corpus.precompute()
    assert (summary.num_utterances, summary.num_rejected) == (8, 2)
    assert summary.reasons == {"unreadable": 1, "missing-file": 1}
    listed = json.loads((corpus.store_folder / "rejections.json").read_text(encoding="utf-8"))
    assert [(item["id"], item["line"], item["reason"]) for item in listed] == [
        ("clip02", 4, "unreadable"),
        ("clip07", 9, "missing-file"),
    ]
    with (corpus.store_folder / "rejections.csv").open(encoding="utf-8-sig", newline="") as file:
        assert [row["id"] for row in csv.DictReader(file)] == ["clip02", "clip07"]


def test_a_recording_that_changed_behind_the_corpus_is_not_used(corpus: SmallCorpus) -> None:
    corpus.add("clip04", seed=99)
    summary = corpus.precompute()
    assert summary.reasons == {"changed-since-checked": 1}
    assert corpus.open_store().find("clip04") is None


def test_too_many_bad_recordings_stop_the_work_and_nothing_is_lost(stored: SmallCorpus) -> None:
    before = stored.take_snapshot()
    saved = {id: stored.audio(id).read_bytes() for id in ("clip01", "clip02", "clip03")}
    for number, id in enumerate(saved):
        stored.add(id, seed=200 + number)
    stored.prepare()
    for id in saved:
        stored.audio(id).write_bytes(b"noise")
    with pytest.raises(DataError, match=r"3 of 10 utterances \(30.0 %\)"):
        stored.precompute(with_changes(max_bad_share=0.2))
    assert stored.take_snapshot() == before
    for id, raw in saved.items():
        stored.audio(id).write_bytes(raw)
    stored.prepare()
    stored.precompute()
    assert stored.take_snapshot() == before


def test_a_rejected_utterance_leaves_the_store(stored: SmallCorpus) -> None:
    stored.add("clip04", seed=99)
    stored.prepare()
    stored.audio("clip04").unlink()
    summary = stored.precompute()
    assert (summary.num_removed, summary.num_rejected) == (1, 1)
    assert stored.open_store().find("clip04") is None


def leave_unfinished(corpus: SmallCorpus, data: DataConfig, **options: Any) -> None:
    """What a run that is ended after its first segment leaves."""

    class Ended(Exception):  # noqa: N818
        pass

    def end(num_seen: int, _: int) -> None:
        if num_seen > CHUNK:
            raise Ended

    with pytest.raises(Ended):
        corpus.precompute(data, progress=end, **options)


def test_an_unfinished_run_is_taken_up(corpus: SmallCorpus) -> None:
    leave_unfinished(corpus, DATA)
    with pytest.raises(DataError, match="no finished feature store"):
        corpus.open_store()
    summary = corpus.precompute()
    assert (summary.num_kept, summary.num_made) == (CHUNK, 10 - CHUNK)


def test_an_unfinished_rebuild_leaves_the_old_store_and_is_taken_up(stored: SmallCorpus) -> None:
    before = stored.take_snapshot()
    other = with_changes(n_mels=40, auto_rebuild_mel_cache=True)
    leave_unfinished(stored, other)
    assert stored.take_snapshot() == before
    assert stored.precompute(other).num_kept == CHUNK
    assert stored.open_store().n_mels == 40


def test_an_unfinished_run_for_other_settings_is_not_taken_up(corpus: SmallCorpus) -> None:
    leave_unfinished(corpus, DATA)
    corpus.precompute(with_changes(n_mels=40))
    store = corpus.open_store()
    assert {store.read_mel(row).shape[1] for row in range(len(store))} == {40}


def test_an_unfinished_run_for_another_corpus_is_not_taken_up(corpus: SmallCorpus, tmp_path: Path) -> None:
    leave_unfinished(corpus, DATA)
    twin = corpus.copy(tmp_path / "twin")
    summary = precompute(twin.prepare(), corpus.store_folder, DATA, num_threads=1)
    assert (summary.num_kept, summary.num_made) == (0, 10)


def test_a_rebuild_takes_up_nothing_but_a_rebuild(stored: SmallCorpus) -> None:
    change_alphabet(stored)
    leave_unfinished(stored, DATA)
    mel = stored.store_folder / "generation-0002" / "000000.mel"
    mel.write_bytes(bytes(len(mel.read_bytes())))
    stored.precompute(rebuild=True)
    assert stored.open_store().verify_and_fix_cache().is_whole


def test_a_damaged_segment_that_was_never_finished_is_made_again(corpus: SmallCorpus) -> None:
    leave_unfinished(corpus, DATA)
    index = corpus.store_folder / name_generation(1) / "000000.index"
    index.write_bytes(index.read_bytes()[:-1])
    assert corpus.precompute().num_made == 10
    assert corpus.open_store().verify_and_fix_cache().is_whole


def test_headers_only_corpora_are_made_and_kept_by_name(corpus: SmallCorpus) -> None:
    corpus.prepare(headers_only=True)
    assert corpus.precompute().num_made == 10
    assert corpus.precompute().num_kept == 10
    corpus.prepare()
    # A full check gives every recording its checksum, and the store already knew it.
    assert corpus.precompute().num_kept == 10


def test_where_a_store_lies() -> None:
    assert choose_store_folder(DataConfig(cache_dir="/x/y"), Path("/corpora/lj")) == Path("/x/y")
    assert choose_store_folder(DATA, Path("/corpora/lj")) == Path("/corpora/cached_features")
