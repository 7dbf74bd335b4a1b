"""Recordings give the very samples that a store keeps, and what is missing or changed is said by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.training.trainer_programs import make_data

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.open import open_corpus
from myxtts.errors import ConfigError, DataError
from myxtts.runtime.hardware import detect_hardware
from myxtts.runtime.plan import choose_plan
from myxtts.store.precompute import precompute
from myxtts.store.reader import FeatureStore
from myxtts.training.vocoder_data import SegmentFeed, open_vocoder_data
from myxtts.training.vocoder_sound import RecordedSound, StoredSound, open_sound_of


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> XTTSConfig:
    return make_data(tmp_path_factory.mktemp("data"), n_fft=256, hop_length=64, win_length=256)


@pytest.fixture(scope="module")
def store(config: XTTSConfig) -> FeatureStore:
    return FeatureStore.open(str(config.data.cache_dir))


@pytest.mark.parametrize("budget_bytes", [0, 100_000, 10**9])
def test_recordings_sound_like_the_store(
    config: XTTSConfig, store: FeatureStore, tmp_path: Path, budget_bytes: int
) -> None:
    sounding = config.model_copy(update={"data.store_pcm": True, "data.cache_dir": tmp_path / "store"})
    precompute(open_corpus(str(config.data.train_data)), tmp_path / "store", sounding.data, num_threads=1)
    kept = FeatureStore.open(tmp_path / "store")
    rows = store.rows_of_split("train")
    recorded = open_sound_of(store, rows, config, "train", budget_bytes)
    stored = open_sound_of(kept, kept.rows_of_split("train"), sounding, "train", budget_bytes)
    assert isinstance(recorded, RecordedSound)
    assert isinstance(stored, StoredSound)
    assert "recordings" in recorded.origin
    assert "store" in stored.origin
    for row in (*rows.tolist(), int(rows[0])):
        other = kept.find(store.id_of(row))
        assert other is not None
        np.testing.assert_array_equal(recorded.read(row), stored.read(other))


def test_a_corpus_that_is_not_there_is_named_with_the_way_out(
    config: XTTSConfig, store: FeatureStore, tmp_path: Path
) -> None:
    moved = FeatureStore(store.folder, replace(store.state, origin={**store.state.origin, "corpus": "/gone/c.jsonl"}))
    alone = XTTSConfig(cache_dir=store.folder)
    with pytest.raises(DataError, match=r"/gone/c\.jsonl") as caught:
        open_sound_of(moved, store.rows_of_split("train"), alone, "train", 0)
    assert "data.store_pcm=true" in caught.value.next_step


def test_a_recording_that_changed_is_refused_by_name(config: XTTSConfig, store: FeatureStore, tmp_path: Path) -> None:
    rows = store.rows_of_split("train")[:2]
    paths = {one.id: one.audio for one in open_corpus(str(config.data.train_data)).utterances()}
    first, second = (store.id_of(int(row)) for row in rows)
    swapped = {first: paths[second], second: paths[first]}
    with pytest.raises(DataError, match=f"{first}.*has changed"):
        RecordedSound(store, rows, swapped, tmp_path, 0).read(int(rows[0]))


def test_the_feed_goes_on_from_any_position(config: XTTSConfig) -> None:
    hardware = detect_hardware()
    plan = choose_plan(config, hardware)
    data = open_vocoder_data(config, plan, hardware)
    with SegmentFeed(data, plan, start=0, stop=9) as feed:
        whole = list(feed)
    assert [batch.position for batch in whole] == list(range(9))
    with SegmentFeed(data, plan, start=5, stop=9) as feed:
        for batch, expected in zip(feed, whole[5:], strict=True):
            assert (batch.position, batch.ids) == (expected.position, expected.ids)
            for name, array in batch.part.items():
                np.testing.assert_array_equal(array, expected.part[name])


def test_a_vocoder_asks_for_a_store(config: XTTSConfig) -> None:
    hardware = detect_hardware()
    on_the_fly = config.model_copy(update={"preprocessing_mode": "on_the_fly"})
    with pytest.raises(ConfigError, match="on_the_fly"):
        open_vocoder_data(on_the_fly, choose_plan(on_the_fly, hardware), hardware)
