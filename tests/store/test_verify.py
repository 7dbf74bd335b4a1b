"""Damage of any kind is found, and repaired as long as the recordings are there."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from myxtts.config.schema import DataConfig
from myxtts.errors import BusyError, DataError
from myxtts.files import lock_directory
from myxtts.store.durations import write_durations
from myxtts.store.layout import name_generation, read_state
from myxtts.store.verify import check_before_training, verify_store
from tests.store.corpora import DATA, SmallCorpus, list_files
from tests.store.flips import choose_bit, flip_bit, flipped, list_store_files


def content_of(corpus: SmallCorpus) -> dict[str, object]:
    return {row[0]: row for row in corpus.take_snapshot()}


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
    data = DataConfig(**{**DATA.model_dump(), "store_pcm": True})
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


def assert_flips_are_repaired(corpus: SmallCorpus, num_rounds: int, most_flips: int, seed: int) -> None:
    expected = content_of(corpus)
    generator = random.Random(seed)
    for _ in range(num_rounds):
        for _ in range(generator.randint(1, most_flips)):
            flip_bit(*choose_bit(corpus.store_folder, generator))
        broken = not verify_store(corpus.store_folder).is_whole
        report = verify_store(corpus.store_folder, fix=True, num_threads=1)
        assert report.is_whole, report
        assert report.num_repaired == report.num_broken
        assert bool(report.num_broken) == broken
        assert verify_store(corpus.store_folder) == verify_store(corpus.store_folder)
        assert verify_store(corpus.store_folder).is_whole
        assert content_of(corpus) == expected


def test_single_flips_are_repaired(stored: SmallCorpus) -> None:
    assert_flips_are_repaired(stored, num_rounds=40, most_flips=1, seed=3)


@pytest.mark.soak
def test_a_thousand_single_flips_are_repaired(stored: SmallCorpus) -> None:
    assert_flips_are_repaired(stored, num_rounds=1000, most_flips=1, seed=4)


def test_many_flips_at_once_are_repaired(stored: SmallCorpus) -> None:
    expected = content_of(stored)
    generator = random.Random(5)
    for path in list_store_files(stored.store_folder):
        # Both files that describe the store at once leave nothing to repair it by.
        if path.name != "generation.json":
            flip_bit(path, generator.randrange(8 * path.stat().st_size))
    assert verify_store(stored.store_folder, fix=True).is_whole
    assert content_of(stored) == expected
    assert verify_store(stored.store_folder).is_whole


def test_repair_leaves_the_other_files_alone(stored: SmallCorpus) -> None:
    before = list_files(stored.store_folder / "generation-0001")
    order = [row[0] for row in stored.take_snapshot()]
    path = stored.store_folder / "generation-0001" / "000001.mel"
    flip_bit(path, 8 * 100)
    before["000001.mel"] = list_files(path.parent)["000001.mel"]
    report = verify_store(stored.store_folder, fix=True)
    assert (report.num_broken, report.num_repaired, report.num_unrecoverable) == (1, 1, 0)
    assert report.problems[0] == "mel of clip04: its checksum does not match"
    after = list_files(stored.store_folder / "generation-0001")
    del before["generation.json"]
    assert after.items() >= before.items()
    assert [row[0] for row in stored.take_snapshot()] == order


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "swapped", "folder"])
@pytest.mark.parametrize("name", ["000001.mel", "000001.tokens", "000001.index", "generation.json"])
def test_files_that_are_missing_or_wrong_are_found_and_repaired(stored: SmallCorpus, name: str, damage: str) -> None:
    expected = content_of(stored)
    path = stored.store_folder / "generation-0001" / name
    raw = path.read_bytes()
    path.unlink()
    if damage == "swapped":
        shutil.copy(path.with_name(name.replace("1", "2") if "1" in name else "000000.index"), path)
    elif damage == "folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes(raw[: len(raw) // 2] if damage == "cut" else b"")
    report = verify_store(stored.store_folder)
    assert report.num_broken > 0
    assert not report.is_whole
    if damage == "folder":
        path.rmdir()
    assert verify_store(stored.store_folder, fix=True).is_whole
    assert verify_store(stored.store_folder).is_whole
    assert content_of(stored) == expected


def test_a_missing_generation_is_made_again(stored: SmallCorpus) -> None:
    expected = content_of(stored)
    shutil.rmtree(stored.store_folder / "generation-0001")
    assert not verify_store(stored.store_folder).is_whole
    assert verify_store(stored.store_folder, fix=True).is_whole
    assert content_of(stored) == expected


def test_checking_changes_nothing(stored: SmallCorpus) -> None:
    flip_bit(stored.store_folder / "generation-0001" / "000001.index", 900)
    flip_bit(stored.store_folder / "store.json", 90)
    before = list_files(stored.store_folder)
    assert verify_store(stored.store_folder).num_broken == 2
    assert list_files(stored.store_folder) == before


def test_an_utterance_whose_recording_is_gone_is_counted_and_leaves(stored: SmallCorpus) -> None:
    expected = content_of(stored)
    flip_bit(stored.store_folder / "generation-0001" / "000001.mel", 8 * 100)
    flip_bit(stored.store_folder / "generation-0001" / "000001.tokens", 8 * 70)
    flip_bit(stored.store_folder / "generation-0001" / "000002.mel", 8 * 100)
    stored.audio("clip04").unlink()
    report = verify_store(stored.store_folder, fix=True)
    assert (report.num_broken, report.num_repaired, report.num_unrecoverable) == (3, 1, 1)
    assert not report.is_whole
    assert any("clip04" in problem and "no such file" in problem for problem in report.problems)
    del expected["clip04"]
    assert content_of(stored) == expected
    assert verify_store(stored.store_folder).is_whole


def test_utterances_of_a_damaged_index_whose_recordings_are_gone_are_counted(stored: SmallCorpus) -> None:
    flip_bit(stored.store_folder / "generation-0001" / "000001.index", 900)
    stored.audio("clip04").unlink()
    stored.audio("clip06").write_bytes(b"noise")
    report = verify_store(stored.store_folder, fix=True)
    assert (report.num_broken, report.num_repaired, report.num_unrecoverable) == (1, 1, 2)
    assert not report.is_whole
    assert len(stored.open_store()) == 8


def test_tokens_are_repaired_without_the_recording(stored: SmallCorpus) -> None:
    expected = content_of(stored)
    stored.audio("clip04").unlink()
    flip_bit(stored.store_folder / "generation-0001" / "000001.tokens", 8 * 70)
    assert verify_store(stored.store_folder, fix=True).is_whole
    assert content_of(stored) == expected


def test_what_was_rejected_before_is_not_counted_as_lost(corpus: SmallCorpus) -> None:
    corpus.audio("clip02").unlink()
    corpus.precompute()
    expected = content_of(corpus)
    for name in ("000000.mel", "000001.index"):
        flip_bit(corpus.store_folder / "generation-0001" / name, 900)
        report = verify_store(corpus.store_folder, fix=True)
        assert report.is_whole, report
        assert content_of(corpus) == expected


def test_repair_accepts_recordings_by_the_limits_they_were_accepted_by(corpus: SmallCorpus) -> None:
    data = DataConfig(**{**DATA.model_dump(), "min_duration_s": 0.1})
    corpus.add("clip03", seed=3, seconds=0.2, text="Of.")
    corpus.prepare(data)
    corpus.precompute(data)
    expected = content_of(corpus)
    flip_bit(corpus.store_folder / "generation-0001" / "000000.index", 900)
    assert corpus.store_folder.is_dir()
    assert verify_store(corpus.store_folder, fix=True).is_whole
    assert content_of(corpus) == expected


def test_repair_does_not_mix_tokens_of_two_front_ends(stored: SmallCorpus) -> None:
    stored.change("clip01", text="Words! Of clip?")
    stored.prepare()
    flip_bit(stored.store_folder / "generation-0001" / "000001.tokens", 8 * 70)
    flip_bit(stored.store_folder / "generation-0001" / "000002.mel", 8 * 70)
    with pytest.raises(DataError, match="text front end .* Run myxtts precompute"):
        verify_store(stored.store_folder, fix=True)
    stored.precompute()
    assert verify_store(stored.store_folder, fix=True).is_whole
    repaired = content_of(stored)
    shutil.rmtree(stored.store_folder)
    stored.precompute()
    assert content_of(stored) == repaired


def test_repair_takes_up_what_a_killed_update_left(stored: SmallCorpus) -> None:
    stored.remove("clip01")
    stored.remove("clip02")
    stored.prepare()
    stored.precompute()
    state = (stored.store_folder / "store.json").read_bytes()
    stored.remove("clip03")
    stored.prepare()
    stored.precompute()
    # As if it had been killed before its last step: the removal is there, but nothing names it yet.
    (stored.store_folder / "store.json").write_bytes(state)
    expected = content_of(stored)
    flip_bit(stored.store_folder / "generation-0001" / "000001.mel", 8 * 100)
    assert verify_store(stored.store_folder, fix=True).is_whole
    del expected["clip03"]
    assert content_of(stored) == expected
    assert verify_store(stored.store_folder).is_whole


def test_a_damaged_state_beside_an_unfinished_rebuild_restores_the_finished_store(stored: SmallCorpus) -> None:
    expected = content_of(stored)
    begun = stored.store_folder / name_generation(2)
    shutil.copytree(stored.store_folder / "generation-0001", begun)
    for path in begun.glob("00000[12].*"):
        path.unlink()
    flip_bit(stored.store_folder / "store.json", 900)
    assert verify_store(stored.store_folder, fix=True).is_whole
    assert content_of(stored) == expected
    state = read_state(stored.store_folder)
    assert state is not None
    assert state.generation == 1


def test_a_store_that_says_nothing_of_itself_is_reported(stored: SmallCorpus) -> None:
    flip_bit(stored.store_folder / "store.json", 900)
    flip_bit(stored.store_folder / "generation-0001" / "generation.json", 900)
    for fix in (False, True):
        report = verify_store(stored.store_folder, fix=fix)
        assert not report.is_whole
        assert report.num_unrecoverable == 1
        assert "--rebuild" in report.problems[-1]


def test_repair_waits_for_no_other_writer_and_checking_does_not_care(stored: SmallCorpus) -> None:
    with lock_directory(stored.store_folder, "another job"):
        assert verify_store(stored.store_folder).is_whole
        with pytest.raises(BusyError, match="another job"):
            verify_store(stored.store_folder, fix=True)


def test_there_is_nothing_to_check_without_a_store(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no finished feature store"):
        verify_store(tmp_path)


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
        with pytest.raises(DataError, match=f"{name[7:]} of clip04 is damaged.*--fix"):
            check_before_training(store, how)  # type: ignore[arg-type]
    else:
        check_before_training(store, how)  # type: ignore[arg-type]
