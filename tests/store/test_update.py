"""Compaction drops what was replaced or removed, and copies nothing that is damaged."""

from __future__ import annotations

import pytest
from tests.store.corpora import SmallCorpus, small_segments

from myxtts.errors import BusyError, DataError
from myxtts.storage.atomic import lock_directory
from myxtts.store.update import compact_store
from myxtts.store.verify import verify_store


def test_compaction_keeps_the_content_and_frees_the_rest(stored: SmallCorpus) -> None:
    for number in range(1, 6):
        stored.add(f"clip0{number}", seed=50 + number)
    stored.remove("clip09")
    stored.prepare()
    stored.precompute()
    before = stored.take_snapshot()
    summary = compact_store(stored.store_folder)
    assert stored.take_snapshot() == before
    assert summary.num_utterances == 9
    assert summary.num_bytes_after < 0.7 * summary.num_bytes_before
    assert len(stored.open_store().state.segments) == 1
    assert verify_store(stored.store_folder).is_whole
    assert stored.precompute().num_kept == 9


def test_compacting_twice_changes_nothing(stored: SmallCorpus) -> None:
    with small_segments(3):
        compact_store(stored.store_folder)
        before = stored.take_snapshot()
        summary = compact_store(stored.store_folder)
    assert summary.num_bytes_after == summary.num_bytes_before
    assert stored.take_snapshot() == before


def test_a_damaged_record_is_not_given_a_checksum_that_fits(stored: SmallCorpus) -> None:
    path = stored.store_folder / "generation-0001" / "000001.mel"
    raw = bytearray(path.read_bytes())
    raw[1000] ^= 4
    path.write_bytes(raw)
    with pytest.raises(DataError, match=r"mel of clip04 is damaged.*cache repair"):
        compact_store(stored.store_folder)
    assert [path.name for path in stored.store_folder.glob("generation-*")] == ["generation-0001"]
    assert verify_store(stored.store_folder).num_broken == 1
    assert verify_store(stored.store_folder, fix=True).is_whole
    compact_store(stored.store_folder)
    assert verify_store(stored.store_folder).is_whole


def test_compaction_waits_for_no_other_writer(stored: SmallCorpus) -> None:
    with lock_directory(stored.store_folder, "another job"), pytest.raises(BusyError, match="another job"):
        compact_store(stored.store_folder)
