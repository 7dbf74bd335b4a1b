"""What is damaged is made anew as long as its recording is there; the rest stays, and losses are counted."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from tests.store.corpora import SmallCorpus, change_alphabet, content_of, list_files, with_changes
from tests.store.flips import choose_bit, flip_bit, list_store_files

from myxtts.errors import DataError
from myxtts.store.layout import name_generation, read_state
from myxtts.store.verify import verify_store


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
    data = with_changes(min_duration_s=0.1)
    corpus.add("clip03", seed=3, seconds=0.2, text="Of.")
    corpus.prepare(data)
    corpus.precompute(data)
    expected = content_of(corpus)
    flip_bit(corpus.store_folder / "generation-0001" / "000000.index", 900)
    assert corpus.store_folder.is_dir()
    assert verify_store(corpus.store_folder, fix=True).is_whole
    assert content_of(corpus) == expected


def test_repair_finds_a_corpus_that_has_moved(stored: SmallCorpus, tmp_path: Path) -> None:
    twin = stored.copy(tmp_path / "twin")
    shutil.rmtree(stored.folder)
    flip_bit(twin.store_folder / "generation-0001" / "000001.index", 900)
    with pytest.raises(DataError, match=r"small/corpus/corpus\.jsonl.*--train-data"):
        verify_store(twin.store_folder, fix=True)
    assert verify_store(twin.store_folder, fix=True, corpus=twin.folder / "corpus").is_whole
    flip_bit(twin.store_folder / "generation-0001" / "000002.index", 900)
    # It has learnt the new place.
    assert verify_store(twin.store_folder, fix=True).is_whole
    assert len(twin.open_store()) == 10


def test_repair_does_not_mix_tokens_of_two_front_ends(stored: SmallCorpus) -> None:
    change_alphabet(stored)
    flip_bit(stored.store_folder / "generation-0001" / "000001.tokens", 8 * 70)
    flip_bit(stored.store_folder / "generation-0001" / "000002.mel", 8 * 70)
    with pytest.raises(DataError, match=r"text front end .* Run myxtts precompute"):
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
