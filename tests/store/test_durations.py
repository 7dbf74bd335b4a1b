"""Durations join a store later, without a change to what is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.store.corpora import SmallCorpus, list_files, small_segments

from myxtts.errors import BusyError, DataError, StorageError
from myxtts.storage.atomic import lock_directory, plan_faults
from myxtts.store.durations import load_durations, save_durations, write_durations
from myxtts.store.reader import FeatureStore
from myxtts.store.update import compact_store
from myxtts.store.verify import verify_store


def align_evenly(store: FeatureStore, row: int) -> NDArray[np.int32]:
    num_tokens, num_frames = store.entry(row, "tokens").length, store.entry(row, "mel").length
    return np.diff(np.linspace(0, num_frames, num_tokens + 1).astype(np.int32)).astype(np.int32)


def align_all(corpus: SmallCorpus) -> dict[str, NDArray[np.int32]]:
    store = corpus.open_store()
    durations = {store.id_of(row): align_evenly(store, row) for row in range(len(store))}
    with small_segments(4):
        assert write_durations(corpus.store_folder, durations) == len(durations)
    return durations


def read_durations(corpus: SmallCorpus) -> dict[str, NDArray[np.int32]]:
    store = corpus.open_store()
    return {store.id_of(row): store.read_part(row, "durations") for row in range(len(store))}


def test_durations_are_stored_beside_untouched_files(stored: SmallCorpus) -> None:
    files = list_files(stored.store_folder / "generation-0001")
    before = stored.take_snapshot()
    expected = align_all(stored)
    found = read_durations(stored)
    assert {id: values.tolist() for id, values in found.items()} == {
        id: values.tolist() for id, values in expected.items()
    }
    assert list_files(stored.store_folder / "generation-0001").items() > files.items()
    after = stored.take_snapshot()
    assert [{**row[5], "durations": b""} for row in after] == [row[5] for row in before]
    assert [row[:5] for row in after] == [row[:5] for row in before]
    assert verify_store(stored.store_folder).is_whole
    assert stored.precompute().num_kept == 10


def test_durations_of_some_utterances_can_be_replaced(stored: SmallCorpus) -> None:
    align_all(stored)
    store = stored.open_store()
    row = store.find("clip04")
    assert row is not None
    changed = align_evenly(store, row)[::-1].copy()
    write_durations(stored.store_folder, {"clip04": changed})
    assert read_durations(stored)["clip04"].tolist() == changed.tolist()
    assert read_durations(stored)["clip05"].size


def test_no_durations_are_an_empty_array(stored: SmallCorpus) -> None:
    assert {len(values) for values in read_durations(stored).values()} == {0}
    assert write_durations(stored.store_folder, {}) == 0


def test_durations_survive_new_labels_and_compaction_but_not_a_new_text_or_recording(stored: SmallCorpus) -> None:
    expected = align_all(stored)
    stored.change("clip01", speaker="zoe")
    stored.change("clip02", text="Of words.")
    stored.add("clip03", seed=77)
    stored.prepare()
    stored.precompute()
    compact_store(stored.store_folder)
    found = read_durations(stored)
    assert found["clip01"].tolist() == expected["clip01"].tolist()
    assert found["clip02"].size == 0
    assert found["clip03"].size == 0


def test_durations_survive_the_repair_of_a_spectrogram(stored: SmallCorpus) -> None:
    expected = align_all(stored)
    path = stored.store_folder / "generation-0001" / "000000.mel"
    raw = bytearray(path.read_bytes())
    raw[100] ^= 1
    path.write_bytes(raw)
    assert verify_store(stored.store_folder, fix=True).is_whole
    assert {id: values.tolist() for id, values in read_durations(stored).items()} == {
        id: values.tolist() for id, values in expected.items()
    }


def test_durations_do_not_survive_a_repair_from_another_recording(stored: SmallCorpus) -> None:
    stored.prepare(headers_only=True)
    stored.precompute()
    align_all(stored)
    stored.add("clip02", seed=88, seconds=0.8)
    path = stored.store_folder / "generation-0001" / "000000.mel"
    path.write_bytes(path.read_bytes()[:64] + bytes(path.stat().st_size - 64))
    assert verify_store(stored.store_folder, fix=True).is_whole
    found = read_durations(stored)
    assert {id for id, values in found.items() if not values.size} == {"clip02"}


def test_damaged_durations_are_dropped_and_counted_as_lost(stored: SmallCorpus) -> None:
    align_all(stored)
    path = stored.store_folder / "generation-0001" / "000003.durations"
    raw = bytearray(path.read_bytes())
    raw[64] ^= 1
    path.write_bytes(raw)
    report = verify_store(stored.store_folder, fix=True)
    assert (report.num_broken, report.num_repaired, report.num_unrecoverable) == (1, 0, 1)
    assert "align" in report.problems[-1]
    assert verify_store(stored.store_folder).is_whole
    assert sorted(values.size > 0 for values in read_durations(stored).values()) == [False] + 9 * [True]


@pytest.mark.parametrize("fault", ["unknown", "short", "sum", "negative", "float"])
def test_durations_that_do_not_fit_are_refused_and_nothing_is_written(stored: SmallCorpus, fault: str) -> None:
    store = stored.open_store()
    values = align_evenly(store, 1)
    bad: Any = {
        "unknown": values,
        "short": values[1:],
        "sum": values + 1,
        "negative": np.concatenate([[-1, values[0] + values[1] + 1], values[2:]]).astype(np.int32),
        "float": values.astype(np.float64),
    }[fault]
    files = list_files(stored.store_folder)
    wanted = {"clip00": align_evenly(store, 0), "nobody" if fault == "unknown" else "clip01": bad}
    with pytest.raises(DataError, match="nobody" if fault == "unknown" else "clip01"):
        write_durations(stored.store_folder, wanted)
    del files[".lock"]
    assert list_files(stored.store_folder).items() >= files.items()
    assert read_durations(stored)["clip00"].size == 0


def test_durations_wait_for_no_other_writer(stored: SmallCorpus) -> None:
    store = stored.open_store()
    with lock_directory(stored.store_folder, "another job"), pytest.raises(BusyError, match="another job"):
        write_durations(stored.store_folder, {"clip00": align_evenly(store, 0)})


def test_durations_need_a_store(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no complete feature cache"):
        write_durations(tmp_path, {"a": np.ones(1, np.int32)})


def read_aligned(store: FeatureStore) -> dict[str, list[int]]:
    found = store.read_durations(np.arange(len(store)))
    return {store.id_of(row): values.tolist() for row, values in enumerate(found)}


def test_a_run_can_have_durations_of_its_own(stored: SmallCorpus, tmp_path: Path) -> None:
    """The store stays as it is, durations of another model in it among them; what is not in the file has none."""
    others = {id: values.tolist() for id, values in align_all(stored).items()}
    store, path = stored.open_store(), tmp_path / "run" / "durations.safetensors"
    own = {id: np.array(values[::-1], np.int32) for id, values in others.items() if id != "clip03"}
    fingerprint = save_durations(path, store, own)
    assert save_durations(path, store, dict(reversed(own.items()))) == fingerprint
    assert read_aligned(store) == others
    load_durations(path, store, fingerprint)
    assert read_aligned(store) == {id: own[id].tolist() if id in own else [] for id in others}
    assert read_aligned(stored.open_store()) == others


def test_own_durations_that_are_damaged_or_of_another_run_are_refused(stored: SmallCorpus, tmp_path: Path) -> None:
    store, path = stored.open_store(), tmp_path / "durations.safetensors"
    own = {store.id_of(row): align_evenly(store, row) for row in range(len(store))}
    fingerprint = save_durations(path, store, own)
    with pytest.raises(DataError, match="not the one that the run was trained with"):
        load_durations(path, store, "00000000")
    raw = bytearray(path.read_bytes())
    raw[-40] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DataError, match=r"cannot be used.*") as refusal:
        load_durations(path, store, fingerprint)
    assert "training.durations=search" in refusal.value.next_step
    path.unlink()
    with pytest.raises(DataError, match="No such file"):
        load_durations(path, store, fingerprint)


def test_own_durations_of_features_that_have_changed_are_refused(stored: SmallCorpus, tmp_path: Path) -> None:
    store, path = stored.open_store(), tmp_path / "durations.safetensors"
    fingerprint = save_durations(path, store, {store.id_of(2): align_evenly(store, 2)})
    store.columns["mel_length"] = store.columns["mel_length"] + 1
    with pytest.raises(DataError, match=f"the features of {store.id_of(2)} have changed"):
        load_durations(path, store, fingerprint)


def test_a_full_disk_leaves_no_file_of_durations(stored: SmallCorpus, tmp_path: Path) -> None:
    store, path = stored.open_store(), tmp_path / "durations.safetensors"
    plan_faults("tensor_write:1:ENOSPC")
    try:
        with pytest.raises(StorageError, match="No space left"):
            save_durations(path, store, {store.id_of(2): align_evenly(store, 2)})
    finally:
        plan_faults("")
    assert list(tmp_path.glob("*durations*")) == []
