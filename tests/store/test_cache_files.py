"""A flipped bit in any file of a cache folder is found, and mended from the recordings."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.store.corpora import SmallCorpus, take_snapshot
from tests.store.flips import flip_bit

from myxtts.config.schema import XTTSConfig
from myxtts.store.provide import Report, ensure_features, make_features
from myxtts.store.verify import verify_store


def make_config(data: Path, store: Path) -> XTTSConfig:
    return XTTSConfig(train_data=data, cache_dir=store, text_frontend="characters", corpus_format="manifest")


def list_cache_files(folder: Path) -> list[Path]:
    """All files except for locks, which hold nothing but the process that has them."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")


@pytest.mark.parametrize("kind", ["recordings", "corpus"])
def test_a_flipped_bit_in_every_file_is_found_and_mended(corpus: SmallCorpus, kind: str) -> None:
    store = corpus.store_folder
    make_features(make_config(corpus.folder / kind, store), Report())
    before = take_snapshot(store)
    content = {path: path.read_bytes() for path in list_cache_files(store)}
    assert verify_store(store).is_whole
    generator = random.Random(5)
    for path in list_cache_files(store):
        if not path.exists() or not path.stat().st_size:
            continue
        flip_bit(path, generator.randrange(8 * path.stat().st_size))
        assert verify_store(store).num_broken >= 1, path
        assert verify_store(store, fix=True).is_whole, path
        assert verify_store(store).num_broken == 0, path
        assert take_snapshot(store) == before, path
        if path.parent != store / "generation-0001" and path.name not in ("store.json", "checksums.json"):
            assert path.read_bytes() == content[path]


def test_a_list_is_mended_from_recordings_that_have_moved(corpus: SmallCorpus, tmp_path: Path) -> None:
    store = corpus.store_folder
    make_features(make_config(corpus.folder / "recordings", store), Report())
    before = take_snapshot(store)
    (corpus.folder / "recordings").rename(tmp_path / "moved")
    (store / "corpus" / "corpus.jsonl").write_bytes(b"noise")
    assert verify_store(store, fix=True, corpus=tmp_path / "moved").is_whole
    assert take_snapshot(store) == before


def test_a_damaged_list_of_an_earlier_version_is_mended(corpus: SmallCorpus) -> None:
    store = corpus.store_folder
    make_features(make_config(corpus.folder / "recordings", store), Report())
    before = take_snapshot(store)
    (store / "checksums.json").unlink()
    (store / "corpus" / "corpus.jsonl").write_bytes(b"noise")
    assert verify_store(store, fix=True).is_whole
    assert take_snapshot(store) == before


@pytest.mark.parametrize("name", ["corpus.jsonl", "frontend.json"])
def test_a_damaged_list_is_made_again_before_features_are_loaded(corpus: SmallCorpus, name: str) -> None:
    store, said = corpus.store_folder, list[str]()
    config = make_config(corpus.folder / "recordings", store)
    make_features(config, Report())
    before, content = take_snapshot(store), (store / "corpus" / name).read_bytes()
    flip_bit(store / "corpus" / name, 99)
    ensure_features(config, Report(said.append))
    assert "is damaged: making it again" in said[0]
    assert ((store / "corpus" / name).read_bytes(), take_snapshot(store)) == (content, before)
