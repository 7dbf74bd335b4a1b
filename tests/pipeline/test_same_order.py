"""One configuration gives one sequence of utterances, whatever way and in how many threads they are loaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.pipeline.recordings import MIXED_CLIPS, PLAIN_CLIPS, make_corpus
from tests.store.corpora import small_segments
from tests.store.flips import flip_bit

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.corpus_file import Corpus, open_corpus
from myxtts.pipeline.open import open_batches
from myxtts.store.precompute import precompute
from myxtts.store.reader import FeatureStore

NUM_EPOCHS = 2
WAYS: dict[str, dict[str, Any]] = {
    "precompute": {},
    "on the fly, native": {"preprocessing_mode": "on_the_fly"},
    "on the fly, python": {"preprocessing_mode": "on_the_fly", "use_tf_native_loading": False},
}
SETTINGS: dict[str, Any] = {
    "text_frontend": "characters",
    "batch_size": 3,
    "num_shapes": 3,
    "val_share": 0.2,
    "reference_s": 0.4,
    "buffer_size": 4,
    "auto_tune_performance": False,
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("same_order")
    clips = (*PLAIN_CLIPS, *MIXED_CLIPS[4:])
    made = make_corpus(folder, clips, XTTSConfig(**SETTINGS).data)
    precompute(made, folder / "store", XTTSConfig(**SETTINGS).data, num_threads=1)
    return made


def make_config(corpus: Corpus, **changes: Any) -> XTTSConfig:
    folder = corpus.file.parent
    named = {"train_data": folder, "cache_dir": folder.with_name("store")}
    return XTTSConfig(**{**SETTINGS, **named, **changes})


def collect(config: XTTSConfig, **options: Any) -> list[tuple[tuple[str, ...], NDArray[np.float32]]]:
    """Ids and voices, batch by batch."""
    with open_batches(config, framework="numpy", **{"epochs": NUM_EPOCHS, **options}) as batches:
        return [(batch.ids, np.array(batch.reference)) for batch in batches]


def list_ids(config: XTTSConfig, **options: Any) -> list[tuple[str, ...]]:
    return [ids for ids, _ in collect(config, **options)]


@pytest.fixture(scope="module")
def expected(corpus: Corpus) -> list[tuple[str, ...]]:
    """What the recordings in Python give with one thread."""
    return list_ids(make_config(corpus, **WAYS["on the fly, python"], num_workers=1))


def test_every_utterance_comes_once_an_epoch(corpus: Corpus, expected: list[tuple[str, ...]]) -> None:
    ids = sorted(utterance.id for utterance in corpus.utterances("train"))
    half = len(expected) // NUM_EPOCHS
    for epoch in (expected[:half], expected[half:]):
        assert sorted(id for batch in epoch for id in batch if id) == ids
    assert expected[:half] != expected[half:]


@pytest.mark.parametrize("num_workers", [1, 2, 4])
@pytest.mark.parametrize("way", WAYS)
def test_order_is_the_same_with_and_without_a_store_in_any_number_of_threads(
    corpus: Corpus, expected: list[tuple[str, ...]], way: str, num_workers: int
) -> None:
    assert list_ids(make_config(corpus, **WAYS[way], num_workers=num_workers)) == expected


@pytest.mark.parametrize("way", WAYS)
def test_stopping_at_any_batch_and_resuming_changes_nothing(
    corpus: Corpus, expected: list[tuple[str, ...]], way: str
) -> None:
    starts = range(len(expected)) if way == "precompute" else (1, len(expected) // 2 + 1)
    for start in starts:
        assert list_ids(make_config(corpus, **WAYS[way]), start=start) == expected[start:]


@pytest.mark.parametrize("changes", [{"frame_budget": 400}, {"max_mel_frames": 90}, {"seed": 8}])
@pytest.mark.parametrize("split", ["train", "val"])
def test_other_batch_settings_give_one_order_as_well(corpus: Corpus, changes: dict[str, Any], split: str) -> None:
    first, *others = (list_ids(make_config(corpus, **way, **changes), split=split) for way in WAYS.values())
    assert len(first) > 0
    assert all(other == first for other in others)


def test_shapes_are_tighter_where_silence_is_known_to_be_gone(corpus: Corpus) -> None:
    sizes = []
    for way in ("precompute", "on the fly, python"):
        with open_batches(make_config(corpus, **WAYS[way]), framework="numpy", epochs=1) as batches:
            sizes.append(sum(batch.mel.shape[1] for batch in batches))
    assert sizes[0] < sizes[1]


def test_a_store_that_was_added_to_and_repaired_keeps_the_order(
    corpus: Corpus, expected: list[tuple[str, ...]], tmp_path: Path
) -> None:
    text = corpus.file.read_text(encoding="utf-8")
    heading, *lines = text.splitlines(keepends=True)
    heading = heading.replace(f'"num_utterances": {len(lines)}', '"num_utterances": {}')
    config = make_config(corpus, cache_dir=tmp_path / "store")
    try:
        # The latter half first, then all of it: rows are numbered as they came.
        for part in (lines[len(lines) // 2 :], lines[::2], lines):
            corpus.file.write_text(heading.replace("{}", str(len(part))) + "".join(part), encoding="utf-8")
            with small_segments(4):
                precompute(open_corpus(corpus.file), tmp_path / "store", config.data, num_threads=1)
    finally:
        corpus.file.write_text(text, encoding="utf-8")
    flip_bit(next((tmp_path / "store").rglob("*.mel")), 8 * 5000)
    store = FeatureStore.open(tmp_path / "store")
    assert store.verify_and_fix_cache(fix=True).num_repaired == 1
    store = FeatureStore.open(tmp_path / "store")
    rows = [store.id_of(row) for row in range(len(store))]
    assert rows != [utterance.id for utterance in corpus.utterances()]
    assert sorted(rows) == sorted(utterance.id for utterance in corpus.utterances())
    collected = collect(config)
    assert [ids for ids, _ in collected] == expected
    for (_, voices), (_, others) in zip(collected, collect(make_config(corpus)), strict=True):
        np.testing.assert_array_equal(voices, others)
