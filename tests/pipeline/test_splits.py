"""Validation data comes from where the configuration says, numbered as the training data is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pipeline.recordings import PLAIN_CLIPS, make_corpus

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.corpus_file import Corpus, open_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.errors import ConfigError, DataError
from myxtts.features.definition import count_longest_frames
from myxtts.pipeline.open import open_batches
from myxtts.pipeline.order import BatchOrder
from myxtts.pipeline.recordings import RecordingSource
from myxtts.pipeline.splits import (
    choose_corpus,
    choose_store_folder_of_split,
    join_training_store,
    make_order,
    open_source,
    order_split,
)
from myxtts.runtime.hardware import detect_hardware
from myxtts.runtime.plan import choose_plan
from myxtts.store.precompute import precompute
from myxtts.store.reader import FeatureStore

SETTINGS: dict[str, Any] = {"text_frontend": "characters", "val_share": 0.3, "batch_size": 2, "num_shapes": 2}


def edit_utterances(corpus: Corpus, edit: Any) -> Corpus:
    """The corpus with each line changed, or left out where `edit` gives None."""
    heading, *lines = corpus.file.read_text(encoding="utf-8").splitlines()
    edited = [fields for line in lines if (fields := edit(json.loads(line))) is not None]
    heading = json.dumps({**json.loads(heading), "num_utterances": len(edited)})
    corpus.file.write_text("\n".join([heading, *map(json.dumps, edited)]) + "\n", encoding="utf-8")
    return open_corpus(corpus.file)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two corpora with a store each; the one to validate on has the second speaker of the other alone."""
    folder = tmp_path_factory.mktemp("splits")
    data = XTTSConfig(**SETTINGS).data
    training = make_corpus(folder / "training", PLAIN_CLIPS[:7], data)
    validation = make_corpus(folder / "validation", PLAIN_CLIPS[:6], data)
    validation = edit_utterances(validation, lambda fields: fields if fields["speaker"] == "zoe" else None)
    precompute(training, folder / "store", data, num_threads=1)
    precompute(validation, folder / "store" / "val", data, num_threads=1)
    return folder


def make_config(folder: Path, **changes: Any) -> XTTSConfig:
    named = {
        "train_data": folder / "training" / "corpus",
        "val_data": folder / "validation" / "corpus",
        "cache_dir": folder / "store",
    }
    return XTTSConfig(**{**SETTINGS, **named, **changes})


def open_store_of_split(config: XTTSConfig) -> FeatureStore:
    store = FeatureStore.open(choose_store_folder_of_split(config.data, "val"))
    join_training_store(store, config.data, "val")
    return store


def list_ids(order: BatchOrder, table: FeatureStore | RecordingSource) -> list[list[str]]:
    plans = [order.batch(position) for position in range(order.num_batches_per_epoch)]
    return [[table.id_of(int(row)) for row in plan.rows[: plan.num_real]] for plan in plans]


def test_training_data_stays_where_it_is(folder: Path) -> None:
    config = make_config(folder)
    assert choose_corpus(config.data, "train") == folder / "training" / "corpus"
    assert choose_store_folder_of_split(config.data, "train") == folder / "store"
    store = FeatureStore.open(folder / "store")
    join_training_store(store, config.data, "train")
    assert 0 < len(store.rows_of_split("val")) < len(store)


def test_validation_split_of_the_training_corpus_serves_where_nothing_else_is_named(folder: Path) -> None:
    for val_data in (None, folder / "training" / "corpus", folder / "training" / "corpus" / "corpus.jsonl"):
        config = make_config(folder, val_data=val_data)
        assert choose_corpus(config.data, "val") == folder / "training" / "corpus"
        assert choose_store_folder_of_split(config.data, "val") == folder / "store"
        assert 0 < len(open_source(config.data, "val").rows_of_split("val")) < 7
        assert 0 < len(open_store_of_split(config).rows_of_split("val")) < 7


def test_all_of_a_validation_corpus_is_validated_on_under_the_training_numbers(folder: Path) -> None:
    config = make_config(folder)
    ids = [utterance.id for utterance in open_corpus(folder / "validation" / "corpus").utterances()]
    orders = []
    tables: tuple[FeatureStore | RecordingSource, ...] = (open_source(config.data, "val"), open_store_of_split(config))
    for table in tables:
        assert table.speakers == ("adam", "zoe")
        assert table.languages == ("en", "es")
        rows = table.rows_of_split("val")
        assert [table.id_of(int(row)) for row in rows] == ids
        assert (table.columns["speaker"] == 1).all()
        assert set(table.columns["language"].tolist()) == {0, 1}
        orders.append(list_ids(make_order(table.columns, rows, config, shuffle=False), table))
    assert orders[0] == orders[1]


@pytest.mark.parametrize("mode", ["precompute", "on_the_fly"])
def test_batches_of_the_validation_corpus_are_opened_by_naming_the_split(folder: Path, mode: str) -> None:
    config = make_config(folder, preprocessing_mode=mode, use_tf_native_loading=False)
    with open_batches(config, split="val", epochs=1, framework="numpy") as batches:
        seen = [(batch.ids[: batch.num_real], batch.speaker[: batch.num_real].tolist()) for batch in batches]
    ids = [utterance.id for utterance in open_corpus(folder / "validation" / "corpus").utterances()]
    assert sorted(id for names, _ in seen for id in names) == sorted(ids)
    assert {number for _, numbers in seen for number in numbers} == {1}


def test_speakers_that_training_does_not_know_are_refused_by_name(folder: Path, tmp_path: Path) -> None:
    data = XTTSConfig(**SETTINGS).data
    validation = make_corpus(tmp_path, PLAIN_CLIPS[:4], data)
    edit_utterances(validation, lambda fields: {**fields, "speaker": f"stranger {fields['speaker']}"})
    config = make_config(folder, val_data=tmp_path / "corpus", cache_dir=tmp_path / "store")
    precompute(open_corpus(folder / "training" / "corpus"), tmp_path / "store", data, num_threads=1)
    precompute(open_corpus(tmp_path / "corpus"), tmp_path / "store" / "val", data, num_threads=1)
    with pytest.raises(DataError, match=r"speakers .*: stranger adam, stranger zoe"):
        open_source(config.data, "val")
    with pytest.raises(DataError, match=r"speakers .*: stranger adam, stranger zoe") as raised:
        open_store_of_split(config)
    assert "--val-data" in raised.value.next_step


def test_texts_encoded_in_another_way_are_refused(folder: Path, tmp_path: Path) -> None:
    data = XTTSConfig(**SETTINGS).data
    make_corpus(tmp_path, PLAIN_CLIPS[:4], data)
    metadata = tmp_path / "recordings" / "metadata.csv"
    metadata.write_text(metadata.read_text(encoding="utf-8").replace("Words", "Wörds"), encoding="utf-8")
    prepare_corpus([Recordings(tmp_path / "recordings", "manifest")], tmp_path / "corpus", data, num_threads=1)
    config = make_config(folder, val_data=tmp_path / "corpus", cache_dir=tmp_path / "store")
    precompute(open_corpus(folder / "training" / "corpus"), tmp_path / "store", data, num_threads=1)
    precompute(open_corpus(tmp_path / "corpus"), tmp_path / "store" / "val", data, num_threads=1)
    with pytest.raises(DataError, match="front end"):
        open_source(config.data, "val")
    with pytest.raises(DataError, match="front end"):
        open_store_of_split(config)


def test_validation_data_that_was_not_precomputed_is_named_with_the_command(folder: Path, tmp_path: Path) -> None:
    config = make_config(folder, cache_dir=tmp_path / "store")
    with pytest.raises(DataError, match="no features of val_data") as raised:
        choose_store_folder_of_split(config.data, "val")
    assert f"--cache-dir {tmp_path / 'store' / 'val'}" in raised.value.next_step


def test_validation_data_that_was_not_prepared_is_named_with_the_command(folder: Path) -> None:
    config = make_config(folder, val_data=folder / "validation" / "recordings")
    for choose in (choose_corpus, choose_store_folder_of_split):
        with pytest.raises(DataError, match="neither a prepared corpus nor a part of") as raised:
            choose(config.data, "val")
        assert "myxtts prepare" in raised.value.next_step


@pytest.mark.parametrize("audio_root", [False, True])
def test_recordings_that_were_prepared_together_are_one_corpus(folder: Path, tmp_path: Path, audio_root: bool) -> None:
    data = XTTSConfig(**SETTINGS).data
    root = tmp_path / "all"
    for name, clips in (("training", PLAIN_CLIPS[:3]), ("validation", PLAIN_CLIPS[3:6])):
        make_corpus(root / name, clips, data)
        metadata = root / name / "recordings" / "metadata.csv"
        place = f"{name}/recordings/wavs/" if audio_root else "wavs/"
        text = metadata.read_text(encoding="utf-8").replace("wavs/", place).replace("\nclip", f"\n{name}")
        # A sentence that is also trained on would be rejected.
        text = text.replace("Words", f"Words of {name}")
        metadata.write_text(text, encoding="utf-8")
    audio = root if audio_root else None
    inputs = [
        Recordings(root / "training" / "recordings", "manifest", audio, split="train"),
        Recordings(root / "validation" / "recordings", "manifest", audio, split="val"),
    ]
    prepare_corpus(inputs, tmp_path / "corpus", data, num_threads=1)
    precompute(open_corpus(tmp_path / "corpus"), tmp_path / "store", data, num_threads=1)
    val_data = root / "validation" / "recordings"
    config = make_config(folder, train_data=tmp_path / "corpus", val_data=val_data, cache_dir=tmp_path / "store")
    assert choose_corpus(config.data, "val") == tmp_path / "corpus"
    assert choose_store_folder_of_split(config.data, "val") == tmp_path / "store"
    assert len(open_store_of_split(config).rows_of_split("val")) == 3


def test_nothing_named_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="No corpus"):
        choose_corpus(XTTSConfig().data, "train")
    with pytest.raises(ConfigError, match="No corpus and no feature cache"):
        choose_store_folder_of_split(XTTSConfig().data, "val")


def test_unknown_lengths_count_as_the_longest_in_a_store_and_on_the_fly(folder: Path, tmp_path: Path) -> None:
    config = make_config(folder, val_data=None, max_duration_s=1.9, cache_dir=tmp_path / "store")
    corpus = make_corpus(tmp_path, PLAIN_CLIPS[:7], config.data)
    corpus = edit_utterances(
        corpus, lambda fields: {**fields, "num_samples": fields["num_samples"] * (hash_half(fields))}
    )
    precompute(corpus, tmp_path / "store", config.data, num_threads=1)
    orders = []
    limit = count_longest_frames(config.data)
    tables: tuple[FeatureStore | RecordingSource, ...] = (
        FeatureStore.open(tmp_path / "store"),
        RecordingSource.open(corpus, config.data),
    )
    for table in tables:
        rows = np.arange(len(table))
        assert 0 < np.count_nonzero(table.columns["source_frames"] == 0) < len(table)
        orders.append(list_ids(make_order(table.columns, rows, config, shuffle=True), table))
        shorter = config.model_copy(update={"max_mel_frames": limit - 1})
        left = make_order(table.columns, rows, shorter, shuffle=True)
        kept = [id for batch in list_ids(left, table) for id in batch]
        assert kept
        assert set(kept) == {table.id_of(int(row)) for row in np.flatnonzero(table.columns["source_frames"])}
    assert orders[0] == orders[1]


def hash_half(fields: dict[str, Any]) -> int:
    return int(fields["id"][-1]) % 2


def test_an_empty_split_and_a_limit_that_leaves_nothing_are_told_apart(folder: Path) -> None:
    config = make_config(folder)
    store = FeatureStore.open(folder / "store")
    with pytest.raises(DataError, match="has no utterances"):
        make_order(store.columns, store.rows_of_split("test"), config, shuffle=True)
    with pytest.raises(DataError, match="max_mel_frames, 3"):
        tight = config.model_copy(update={"max_mel_frames": 3})
        make_order(store.columns, store.rows_of_split("train"), tight, shuffle=True)
    with pytest.raises(ConfigError, match="auto"):
        unsized = config.model_copy(update={"batch_size": "auto"})
        make_order(store.columns, store.rows_of_split("train"), unsized, shuffle=True)


def test_batches_can_be_sliced_for_replicas(folder: Path) -> None:
    store = FeatureStore.open(folder / "store")
    order = make_order(store.columns, np.arange(len(store)), make_config(folder), shuffle=True, multiple_of=4)
    assert all(shape.num_utterances == 4 for shape in order.shapes)


def test_clips_of_repeated_speakers_come_several_times_per_epoch_in_shuffled_places(folder: Path) -> None:
    plan = choose_plan(make_config(folder), detect_hardware())
    store = FeatureStore.open(folder / "store")
    zoe = store.speakers.index("zoe")
    plain = order_split(store, "train", make_config(folder), plan)
    order = order_split(store, "train", make_config(folder, repeat_speakers="zoe=3"), plan)
    rows = [row for number in range(order.num_batches_per_epoch) for row in order.batch(number).rows if row >= 0]
    expected = [row for row in plain.rows for _ in range(3 if store.columns["speaker"][row] == zoe else 1)]
    assert sorted(rows) == sorted(expected)
    assert len(rows) > len(plain.rows)
    # References may be copies of other clips, but batches stay reproducible.
    again = order_split(store, "train", make_config(folder, repeat_speakers="zoe=3"), plan)
    assert [again.batch(number).rows.tolist() for number in range(3)] == [
        order.batch(number).rows.tolist() for number in range(3)
    ]
    assert order_split(store, "val", make_config(folder, repeat_speakers="zoe=3"), plan).rows.size == (
        order_split(store, "val", make_config(folder), plan).rows.size
    ), "validation is not repeated"


def test_repeated_speakers_must_be_in_the_corpus_and_numbers_must_be_numbers(folder: Path) -> None:
    plan = choose_plan(make_config(folder), detect_hardware())
    with pytest.raises(ConfigError, match=r"'ben', whom the corpus does not have.*zoe"):
        order_split(FeatureStore.open(folder / "store"), "train", make_config(folder, repeat_speakers="ben=2"), plan)
    for wrong in ("zoe", "zoe=0", "=2", "zoe=x", "zoe=1000"):
        with pytest.raises(ConfigError, match="repeat_speakers"):
            make_config(folder, repeat_speakers=wrong)
