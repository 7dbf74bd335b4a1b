"""Damage of any kind is found, by checking and before training."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.store.corpora import SmallCorpus, list_files, small_segments, with_changes
from tests.store.flips import choose_bit, flip_bit, flipped

from myxtts.errors import BusyError, DataError
from myxtts.storage.atomic import lock_directory
from myxtts.store.durations import write_durations
from myxtts.store.update import compact_store
from myxtts.store.verify import check_before_training, verify_store


def assert_every_flip_is_found(corpus: SmallCorpus, num_flips: int, seed: int) -> None:
    expected = corpus.take_snapshot()
    generator = random.Random(seed)
    missed, wrong = [], []
    for _ in range(num_flips):
        path, bit = choose_bit(corpus.store_folder, generator)
        with flipped(path, bit):
            if verify_store(corpus.store_folder).is_whole:
                missed.append((path.name, bit))
            try:
                store = corpus.open_store()
                check_before_training(store, "full")
                found = [store.read_mel(row).tobytes() for row in range(len(store))]
            except DataError:
                continue
            if found != [row[5]["mel"] for row in expected]:
                wrong.append((path.name, bit))
    assert missed == []
    assert wrong == []
    assert corpus.take_snapshot() == expected


def make_varied_store(corpus: SmallCorpus) -> None:
    """A store with every kind of part, and with records that later segments replaced."""
    data = with_changes(cache_waveforms=True)
    corpus.precompute(data)
    store = corpus.open_store()
    durations = {}
    for row in range(0, 10, 3):
        values = np.zeros(store.entry(row, "tokens").length, np.int32)
        values[0] = store.entry(row, "mel").length
        durations[store.id_of(row)] = values
    write_durations(corpus.store_folder, durations)


def test_every_flipped_bit_is_found(corpus: SmallCorpus) -> None:
    make_varied_store(corpus)
    assert verify_store(corpus.store_folder).is_whole
    assert_every_flip_is_found(corpus, num_flips=300, seed=1)


@pytest.mark.soak
def test_ten_thousand_flipped_bits_are_found(corpus: SmallCorpus) -> None:
    make_varied_store(corpus)
    assert_every_flip_is_found(corpus, num_flips=10_000, seed=2)


def test_checking_changes_nothing(stored: SmallCorpus) -> None:
    flip_bit(stored.store_folder / "generation-0001" / "000001.index", 900)
    flip_bit(stored.store_folder / "store.json", 90)
    before = list_files(stored.store_folder)
    assert verify_store(stored.store_folder).num_broken == 2
    assert list_files(stored.store_folder) == before


def test_checking_while_a_writer_replaces_the_store_finds_nothing_broken(stored: SmallCorpus) -> None:
    is_done = threading.Event()
    reports = []

    def keep_checking() -> None:
        while not is_done.is_set():
            reports.append(verify_store(stored.store_folder))

    checker = threading.Thread(target=keep_checking)
    checker.start()
    with small_segments(3):
        for _ in range(30):
            compact_store(stored.store_folder)
    is_done.set()
    checker.join()
    assert len(reports) > 3
    assert all(report.is_whole for report in reports)


def test_a_store_that_says_nothing_of_itself_is_reported(stored: SmallCorpus) -> None:
    flip_bit(stored.store_folder / "store.json", 900)
    flip_bit(stored.store_folder / "generation-0001" / "generation.json", 900)
    for fix in (False, True):
        report = verify_store(stored.store_folder, fix=fix)
        assert not report.is_whole
        assert report.num_unrecoverable == 1
        assert "cache rebuild" in report.problems[-1]


def test_repair_waits_for_no_other_writer_and_checking_does_not_care(stored: SmallCorpus) -> None:
    with lock_directory(stored.store_folder, "another job"):
        assert verify_store(stored.store_folder).is_whole
        with pytest.raises(BusyError, match="another job"):
            verify_store(stored.store_folder, fix=True)


@pytest.mark.parametrize("fix", [False, True])
def test_there_is_nothing_to_check_without_a_store(tmp_path: Path, fix: bool) -> None:
    with pytest.raises(DataError, match="no complete feature cache"):
        verify_store(tmp_path / "nowhere", fix=fix)
    assert not (tmp_path / "nowhere").exists()


def test_the_opened_store_verifies_itself(stored: SmallCorpus) -> None:
    flip_bit(stored.store_folder / "generation-0001" / "000001.mel", 8 * 100)
    report = stored.open_store().verify_and_fix_cache(fix=True)
    assert (report.num_broken, report.num_repaired, report.num_unrecoverable) == (1, 1, 0)
    assert report.num_checked >= 31
    assert stored.open_store().verify_and_fix_cache().is_whole


@pytest.mark.parametrize(("how", "is_found"), [("off", False), ("sampled", True), ("full", True)])
@pytest.mark.parametrize("name", ["000001.mel", "000001.tokens"])
def test_damage_is_found_before_training(stored: SmallCorpus, name: str, how: str, is_found: bool) -> None:
    check_before_training(stored.open_store(), how)  # type: ignore[arg-type]
    flip_bit(stored.store_folder / "generation-0001" / name, 8 * 70)
    store = stored.open_store()
    if is_found:
        with pytest.raises(DataError, match=f"{name[7:]} of clip04 is damaged.*cache repair"):
            check_before_training(store, how)  # type: ignore[arg-type]
    else:
        check_before_training(store, how)  # type: ignore[arg-type]
