"""Features are made where they are missing, and only there, whatever the training data name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ClipWriter
from tests.store.corpora import SmallCorpus, list_files, take_snapshot

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.corpus_file import is_prepared, open_corpus
from myxtts.errors import ConfigError, DataError, UsageError
from myxtts.pipeline.open import open_batches
from myxtts.store.provide import Report, ensure_features, find_store_folder, make_features
from myxtts.store.reader import FeatureStore


def make_config(recordings: Path, store: Path, **settings: Any) -> XTTSConfig:
    return XTTSConfig(
        train_data=recordings, cache_dir=store, text_frontend="characters", batch_size=4, val_share=0.2, **settings
    )


def test_raw_recordings_become_features_once(ljspeech: Path, tmp_path: Path) -> None:
    config, said = make_config(ljspeech, tmp_path / "store"), list[str]()
    assert ensure_features(config, Report(said.append)) == config
    assert len(FeatureStore.open(tmp_path / "store")) == 20
    assert any("computing features first" in line for line in said)
    before = take_snapshot(tmp_path / "store")
    said.clear()
    assert ensure_features(config, Report(said.append)) == config
    assert (said, take_snapshot(tmp_path / "store")) == ([], before)


@pytest.mark.parametrize("keep_sound", [False, True])
def test_a_vocoder_gets_the_waveforms_too(ljspeech: Path, tmp_path: Path, keep_sound: bool) -> None:
    config = make_config(ljspeech, tmp_path / "store")
    assert ensure_features(config, Report(), keep_sound=keep_sound).data.cache_waveforms is False
    assert FeatureStore.open(tmp_path / "store").settings.has_pcm is keep_sound


def test_on_the_fly_only_the_corpus_is_made(ljspeech: Path, tmp_path: Path) -> None:
    config = make_config(ljspeech, tmp_path / "store", preprocessing_mode="on_the_fly")
    provided = ensure_features(config, Report())
    assert provided.data.train_data == str(tmp_path / "store" / "corpus")
    assert is_prepared(tmp_path / "store" / "corpus")
    assert ensure_features(provided, Report()) == provided
    with pytest.raises(DataError):
        FeatureStore.open(tmp_path / "store")


@pytest.mark.parametrize("mode", ["precompute", "on_the_fly"])
def test_batches_can_be_opened_on_raw_recordings(ljspeech: Path, tmp_path: Path, mode: str) -> None:
    config = make_config(ljspeech, tmp_path / "store", preprocessing_mode=mode)
    with open_batches(config, epochs=1, framework="numpy") as batches:
        assert sum(batch.num_real for batch in batches) == 16


def test_what_is_not_named_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No corpus and no feature cache"):
        ensure_features(XTTSConfig(), Report())
    with pytest.raises(UsageError, match="--train-data"):
        find_store_folder(XTTSConfig().data, UsageError)
    config = XTTSConfig(cache_dir=tmp_path / "store")
    assert ensure_features(config, Report()) == config, "opening the store says that there is none"
    with pytest.raises(UsageError, match="No corpus"):
        make_features(config, Report())


def list_ids(folder: Path) -> list[str]:
    store = FeatureStore.open(folder)
    return sorted(store.id_of(row) for row in range(len(store)))


def add_clip(folder: Path, write_clip: ClipWriter, name: str, seed: int) -> None:
    write_clip(folder / "wavs" / f"{name}.wav", seconds=1.5, seed=seed)
    with (folder / "metadata.csv").open("a", encoding="utf-8") as file:
        file.write(f"{name}|Sentence {seed}.|This is sentence number {seed}.\n")


@pytest.mark.parametrize("mode", ["precompute", "on_the_fly"])
def test_recordings_that_were_added_or_removed_are_noticed(
    ljspeech: Path, tmp_path: Path, write_clip: ClipWriter, mode: str
) -> None:
    config, said = make_config(ljspeech, tmp_path / "store", preprocessing_mode=mode), list[str]()
    ensure_features(config, Report())
    add_clip(ljspeech, write_clip, "LJ900", seed=90)
    provided = ensure_features(config, Report(said.append))
    assert any("have changed since they were listed" in line for line in said)
    ids = [one.id for one in open_corpus(tmp_path / "store" / "corpus").utterances()]
    assert len(ids) == 21
    if mode == "precompute":
        assert provided == config
        assert list_ids(tmp_path / "store") == sorted(ids)
        assert any("1 added" in line for line in said)
        first = ljspeech / "metadata.csv"
        first.write_text("".join(first.read_text("utf-8").splitlines(keepends=True)[3:]), encoding="utf-8")
        ensure_features(config, Report(said.append))
        assert len(list_ids(tmp_path / "store")) == 18
        assert any("3 removed" in line for line in said)


def test_the_settings_that_recordings_were_listed_with_stay(
    ljspeech: Path, tmp_path: Path, write_clip: ClipWriter
) -> None:
    make_features(make_config(ljspeech, tmp_path / "store", language="de"), Report())
    add_clip(ljspeech, write_clip, "LJ900", seed=90)
    ensure_features(make_config(ljspeech, tmp_path / "store"), Report())
    assert {one.language for one in open_corpus(tmp_path / "store" / "corpus").utterances()} == {"de"}


def test_a_prepared_corpus_that_has_grown_updates_its_store(corpus: SmallCorpus) -> None:
    config = make_config(corpus.folder / "corpus", corpus.store_folder)
    ensure_features(config, Report())
    corpus.add("clip20", seed=20)
    corpus.remove("clip03")
    corpus.prepare()
    off, said = config.model_copy(update={"data.auto_rebuild_token_cache": False}), list[str]()
    with pytest.raises(DataError, match=r"has changed .*1 added, 1 removed") as caught:
        ensure_features(off, Report(said.append))
    assert caught.value.next_step.startswith("Run: myxtts precompute --train-data")
    before = list_files(corpus.store_folder)
    with pytest.raises(ConfigError, match=r"has changed .*1 added, 1 removed.*started with") as refused:
        ensure_features(config, Report(said.append), may_update=False)
    assert "--force" in refused.value.next_step
    assert list_files(corpus.store_folder) == before
    ensure_features(config, Report(said.append))
    assert "1 added, 1 removed" in said[0]
    assert list_ids(corpus.store_folder) == sorted(corpus.lines)


def test_other_recordings_are_refused_and_moved_ones_are_not(
    ljspeech: Path, tmp_path: Path, write_clip: ClipWriter
) -> None:
    store = tmp_path / "store"
    ensure_features(make_config(ljspeech, store), Report())
    before = take_snapshot(store)
    other = tmp_path / "other"
    for number in range(3):
        add_clip(other, write_clip, f"LJ{number:03}", seed=50 + number)
    for make in (ensure_features, make_features):
        with pytest.raises(DataError, match="belong to another corpus"):
            make(make_config(other, store), Report())
    assert take_snapshot(store) == before
    moved = ljspeech.rename(tmp_path / "moved")
    ensure_features(make_config(moved, store), Report())
    assert take_snapshot(store) == before
    assert next(open_corpus(store / "corpus").utterances()).audio.startswith(str(moved))


def test_data_that_are_not_there_are_named(corpus: SmallCorpus) -> None:
    ensure_features(make_config(corpus.folder / "corpus", corpus.store_folder), Report())
    with pytest.raises(DataError, match="nothing at /no/such/folder"):
        ensure_features(make_config(Path("/no/such/folder"), corpus.store_folder), Report())


@pytest.mark.parametrize("has_store", [False, True])
def test_a_prepared_corpus_in_the_script_of_another_language_is_refused(
    ljspeech: Path, tmp_path: Path, has_store: bool
) -> None:
    """Earlier versions prepared Persian recordings as English ones without a word."""
    config = make_config(ljspeech, tmp_path / "store", preprocessing_mode="on_the_fly")
    corpus = Path(str(ensure_features(config, Report()).data.train_data))
    prepared = make_config(corpus, tmp_path / "features")
    if has_store:
        ensure_features(prepared, Report())
    lines = (corpus / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    persian = [re.sub(r'"text": "[^"]*"', '"text": "سلام دنیا، حال شما چطور است؟"', line) for line in lines]
    (corpus / "corpus.jsonl").write_text("".join(f"{line}\n" for line in persian), encoding="utf-8")
    with pytest.raises(DataError, match=r"20 of 20 texts in the language 'en'.*Arabic script.*Latin script") as caught:
        ensure_features(prepared, Report())
    assert "--language fa" in caught.value.next_step
