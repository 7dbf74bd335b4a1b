"""A power loss behind any operation of a writer leaves the old store or the new one, and no half file."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.corpora import SmallCorpus, change_alphabet, make_small_corpus, small_segments
from tests.store.disk import record_disk
from tests.store.flips import flip_bit

from myxtts.storage.atomic import TEMPORARY_SUFFIX, write_atomically
from myxtts.store.update import compact_store
from myxtts.store.verify import verify_store


def make_first(corpus: SmallCorpus) -> Callable[[], object]:
    corpus.store_folder.mkdir()
    return corpus.precompute


def make_update(corpus: SmallCorpus) -> Callable[[], object]:
    corpus.precompute()
    corpus.add("fresh", seed=100)
    corpus.add("clip03", seed=101)
    corpus.remove("clip08")
    corpus.prepare()
    return corpus.precompute


def make_tokens(corpus: SmallCorpus) -> Callable[[], object]:
    corpus.precompute()
    change_alphabet(corpus)
    return corpus.precompute


def make_compaction(corpus: SmallCorpus) -> Callable[[], object]:
    make_update(corpus)()

    def compact() -> None:
        with small_segments(3):
            compact_store(corpus.store_folder)

    return compact


def make_repair(corpus: SmallCorpus) -> Callable[[], object]:
    corpus.precompute()
    flip_bit(corpus.store_folder / "generation-0001" / "000000.mel", 8 * 100)
    flip_bit(corpus.store_folder / "generation-0001" / "000001.tokens", 3)
    return lambda: verify_store(corpus.store_folder, fix=True, num_threads=1)


CHANGES = {
    "first": make_first,
    "update": make_update,
    "tokens": make_tokens,
    "compaction": make_compaction,
    "repair": make_repair,
}


def lose_power_often(corpus: SmallCorpus, change: str, num_losses: int, seed: int) -> None:
    run = CHANGES[change](corpus)
    has_store = (corpus.store_folder / "store.json").exists()
    # The damage that a repair begins with is content too, and counts as the old store.
    before = corpus.take_snapshot() if has_store else None
    with record_disk(corpus.store_folder) as disk:
        run()
    after = corpus.take_snapshot()
    assert len(disk.events) > 15
    generator = random.Random(seed)
    for _ in range(num_losses):
        num_events = generator.randint(0, len(disk.events))
        unsafe = disk.lose_power(num_events, generator)
        assert [name for name in unsafe if not name.endswith(TEMPORARY_SUFFIX)] == [], num_events
        if (corpus.store_folder / "store.json").exists():
            found = corpus.take_snapshot()
            assert found in (before, after), num_events
        else:
            assert before is None, num_events
        run()
        assert corpus.take_snapshot() == after, num_events
        assert verify_store(corpus.store_folder).is_whole


@pytest.mark.parametrize("change", CHANGES)
def test_power_loss_leaves_the_old_store_or_the_new(tmp_path: Path, change: str) -> None:
    lose_power_often(make_small_corpus(tmp_path / "corpus"), change, num_losses=15, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("change", CHANGES)
def test_five_hundred_power_losses_leave_the_old_store_or_the_new(tmp_path: Path, change: str) -> None:
    lose_power_often(make_small_corpus(tmp_path / "corpus"), change, num_losses=500, seed=2)


def test_a_finished_store_survives_a_power_loss(tmp_path: Path) -> None:
    corpus = make_small_corpus(tmp_path / "corpus")
    corpus.store_folder.mkdir()
    with record_disk(corpus.store_folder) as disk:
        corpus.precompute()
    expected = corpus.take_snapshot()
    for seed in range(10):
        disk.lose_power(len(disk.events), random.Random(seed))
        assert corpus.take_snapshot() == expected


def test_the_model_notices_a_file_that_was_not_fsynced(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    with record_disk(folder) as disk:
        with write_atomically(folder / "good") as file:
            file.write(b"good")
        (folder / "half").write_bytes(b"bad")
        (folder / "half").rename(folder / "bad")
    found = {name for seed in range(20) for name in disk.lose_power(len(disk.events), random.Random(seed))}
    assert found == {"half", "bad"}
    assert (folder / "good").read_bytes() == b"good"
