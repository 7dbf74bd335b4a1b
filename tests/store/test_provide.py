"""Features are made where they are missing, and only there, whatever the training data name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.store.corpora import take_snapshot

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.corpus_file import is_prepared
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
    assert any("they are made first" in line for line in said)
    before = take_snapshot(tmp_path / "store")
    said.clear()
    assert ensure_features(config, Report(said.append)) == config
    assert (said, take_snapshot(tmp_path / "store")) == ([], before)


@pytest.mark.parametrize("keep_sound", [False, True])
def test_a_vocoder_gets_the_waveforms_too(ljspeech: Path, tmp_path: Path, keep_sound: bool) -> None:
    config = make_config(ljspeech, tmp_path / "store")
    assert ensure_features(config, Report(), keep_sound=keep_sound).data.store_pcm is False
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
    with pytest.raises(ConfigError, match="Neither a corpus nor a store"):
        ensure_features(XTTSConfig(), Report())
    with pytest.raises(UsageError, match="--train-data"):
        find_store_folder(XTTSConfig().data, UsageError)
    config = XTTSConfig(cache_dir=tmp_path / "store")
    assert ensure_features(config, Report()) == config, "opening the store says that there is none"
    with pytest.raises(UsageError, match="No corpus"):
        make_features(config, Report())


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
