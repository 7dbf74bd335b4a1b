"""A run that was ended is taken up by one with the same purpose, and by no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.store.corpora import CHUNK, DATA, SmallCorpus, change_alphabet, with_changes

from myxtts.config.schema import DataConfig
from myxtts.errors import DataError
from myxtts.store.layout import name_generation
from myxtts.store.precompute import precompute


def leave_unfinished(corpus: SmallCorpus, data: DataConfig, **options: Any) -> None:
    """What a run that is ended after its first segment leaves."""

    class Ended(Exception):  # noqa: N818
        pass

    def end(num_seen: int, _: int) -> None:
        if num_seen > CHUNK:
            raise Ended

    with pytest.raises(Ended):
        corpus.precompute(data, progress=end, **options)


def test_an_unfinished_run_is_taken_up(corpus: SmallCorpus) -> None:
    leave_unfinished(corpus, DATA)
    with pytest.raises(DataError, match="no complete feature cache"):
        corpus.open_store()
    summary = corpus.precompute()
    assert (summary.num_kept, summary.num_made) == (CHUNK, 10 - CHUNK)


def test_an_unfinished_rebuild_leaves_the_old_store_and_is_taken_up(stored: SmallCorpus) -> None:
    before = stored.take_snapshot()
    other = with_changes(n_mels=40, auto_rebuild_mel_cache=True)
    leave_unfinished(stored, other)
    assert stored.take_snapshot() == before
    assert stored.precompute(other).num_kept == CHUNK
    assert stored.open_store().n_mels == 40


def test_an_unfinished_run_for_other_settings_is_not_taken_up(corpus: SmallCorpus) -> None:
    leave_unfinished(corpus, DATA)
    corpus.precompute(with_changes(n_mels=40))
    store = corpus.open_store()
    assert {store.read_mel(row).shape[1] for row in range(len(store))} == {40}


def test_an_unfinished_run_for_another_corpus_is_not_taken_up(corpus: SmallCorpus, tmp_path: Path) -> None:
    leave_unfinished(corpus, DATA)
    twin = corpus.copy(tmp_path / "twin")
    summary = precompute(twin.prepare(), corpus.store_folder, DATA, num_threads=1)
    assert (summary.num_kept, summary.num_made) == (0, 10)


def test_a_rebuild_takes_up_nothing_but_a_rebuild(stored: SmallCorpus) -> None:
    change_alphabet(stored)
    leave_unfinished(stored, DATA)
    mel = stored.store_folder / "generation-0002" / "000000.mel"
    mel.write_bytes(bytes(len(mel.read_bytes())))
    stored.precompute(rebuild=True)
    assert stored.open_store().verify_and_fix_cache().is_whole


def test_a_damaged_segment_that_was_never_finished_is_made_again(corpus: SmallCorpus) -> None:
    leave_unfinished(corpus, DATA)
    index = corpus.store_folder / name_generation(1) / "000000.index"
    index.write_bytes(index.read_bytes()[:-1])
    assert corpus.precompute().num_made == 10
    assert corpus.open_store().verify_and_fix_cache().is_whole
