"""`precompute` makes what is missing, keeps what is right, and leaves out what cannot be used."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.store.corpora import DATA, SmallCorpus, list_files, with_changes

from myxtts.config.schema import DataConfig
from myxtts.corpus.audio import AudioLimits
from myxtts.errors import DataError
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.features.extract import FeatureExtractor
from myxtts.store.precompute import choose_store_folder, precompute


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("cache_waveforms", [False, True])
def test_store_holds_the_features_of_every_utterance(corpus: SmallCorpus, dtype: str, cache_waveforms: bool) -> None:
    data = with_changes(mel_dtype=dtype, cache_waveforms=cache_waveforms)
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
        np.testing.assert_array_equal(pcm, expected.pcm if cache_waveforms else expected.pcm[:0])


def test_result_does_not_depend_on_threads_or_on_earlier_runs(corpus: SmallCorpus, tmp_path: Path) -> None:
    corpus.precompute(num_threads=1)
    one = corpus.take_snapshot()
    shutil.rmtree(corpus.store_folder)
    corpus.precompute(num_threads=4)
    assert corpus.take_snapshot() == one


def test_length_before_trimming_is_kept_with_each_utterance(corpus: SmallCorpus) -> None:
    corpus.precompute(with_changes(trim_silence=False))
    columns = corpus.open_store().columns
    np.testing.assert_array_equal(columns["source_frames"], columns["mel_length"])
    assert len(set(columns["source_frames"].tolist())) > 1


def test_length_that_the_corpus_learns_later_is_taken_over(stored: SmallCorpus) -> None:
    file = stored.folder / "corpus" / "corpus.jsonl"
    known = file.read_text(encoding="utf-8")
    heading, *lines = known.splitlines()
    unknown = [json.dumps({**json.loads(line), "num_samples": 0}) for line in lines]
    lengths = stored.open_store().columns["source_frames"].tolist()
    for text, expected in (("\n".join([heading, *unknown]) + "\n", [0] * 10), (known, lengths)):
        file.write_text(text, encoding="utf-8")
        summary = stored.precompute()
        assert (summary.num_made, summary.num_tokens_made) == (0, 0)
        assert stored.open_store().columns["source_frames"].tolist() == expected


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
    for number, id in enumerate(list(twin.lines)):
        twin.add(id, seed=100 + number)
    with pytest.raises(DataError, match=r"belong to another corpus.* 0 of their 10") as caught:
        precompute(twin.prepare(), stored.store_folder, DATA, num_threads=1)
    assert "--cache-dir" in caught.value.next_step
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
    with pytest.raises(DataError, match=r"3 of 10 utterances \(30.0 %\)[\s\S]* 3 unreadable: corpus.jsonl:"):
        stored.precompute(with_changes(max_bad_share=0.2))
    assert stored.take_snapshot() == before
    for id, raw in saved.items():
        stored.audio(id).write_bytes(raw)
    stored.prepare()
    stored.precompute()
    assert stored.take_snapshot() == before


def test_recordings_that_were_moved_are_named_with_the_way_to_find_them(stored: SmallCorpus) -> None:
    for number, id in enumerate(("clip01", "clip02", "clip03")):
        stored.add(id, seed=300 + number)
    stored.prepare()
    for id in ("clip01", "clip02", "clip03"):
        stored.audio(id).unlink()
    with pytest.raises(
        DataError, match=r"3 missing-file: .*no such file: /.*clip01[\s\S]*prepare again, with --audio-root"
    ):
        stored.precompute(with_changes(max_bad_share=0.2))


def test_a_rejected_utterance_leaves_the_store(stored: SmallCorpus) -> None:
    stored.add("clip04", seed=99)
    stored.prepare()
    stored.audio("clip04").unlink()
    summary = stored.precompute()
    assert (summary.num_removed, summary.num_rejected) == (1, 1)
    assert stored.open_store().find("clip04") is None


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
