"""A store belongs to its corpus by content: not by the spelling of a path, nor by the place of the files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.store.corpora import DATA, SmallCorpus

from myxtts.corpus.corpus_file import Corpus, open_corpus
from myxtts.errors import DataError
from myxtts.store.layout import read_state
from myxtts.store.precompute import precompute
from myxtts.store.update import CorpusChanges, compare_corpus, find_changes


def changes_of(stored: SmallCorpus, corpus: Corpus) -> CorpusChanges:
    state = read_state(stored.store_folder)
    assert state is not None
    return find_changes(stored.store_folder, state, corpus)


def test_the_same_corpus_is_known_by_every_path(
    stored: SmallCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(stored.folder / "corpus")
    shutil.copytree(stored.folder / "corpus", tmp_path / "small" / "copy")
    relative = Path(os.path.relpath(stored.folder / "corpus"))
    for path in (relative, stored.folder / "corpus", tmp_path / "link", tmp_path / "small" / "copy"):
        assert not changes_of(stored, open_corpus(path))


def test_changes_are_counted(stored: SmallCorpus) -> None:
    stored.add("clip20", seed=20)
    stored.remove("clip01")
    stored.add("clip02", seed=99)
    stored.change("clip03", text="Other words.")
    changes = changes_of(stored, stored.prepare())
    assert changes == CorpusChanges(num_same=7, num_added=1, num_changed=2, num_removed=1)
    assert str(changes) == "1 added, 2 changed, 1 removed"


def test_a_corpus_prepared_again_elsewhere_is_the_same(stored: SmallCorpus, tmp_path: Path) -> None:
    twin = stored.copy(tmp_path / "twin")
    corpus = twin.prepare()
    (corpus.file).write_bytes(corpus.file.read_bytes().replace(b'"seconds": 5.5', b'"seconds": 5.4'))
    assert changes_of(stored, open_corpus(corpus.file)) == CorpusChanges(num_same=10)


def test_a_copy_that_has_grown_is_the_same_but_one_that_has_lost_is_not(stored: SmallCorpus, tmp_path: Path) -> None:
    twin = stored.copy(tmp_path / "twin")
    twin.add("clip20", seed=20)
    assert changes_of(stored, twin.prepare()) == CorpusChanges(num_same=10, num_added=1)
    twin.remove("clip03")
    with pytest.raises(DataError, match="another corpus"):
        changes_of(stored, twin.prepare())
    # Where the corpus of the store is gone, this one is taken for the same, moved and changed.
    shutil.rmtree(stored.folder / "corpus")
    assert changes_of(stored, open_corpus(twin.folder / "corpus")).num_removed == 1


def test_another_corpus_of_the_same_ids_is_refused(stored: SmallCorpus, tmp_path: Path) -> None:
    other = stored.copy(tmp_path / "other")
    for number, id in enumerate(list(other.lines)):
        other.add(id, seed=50 + number)
    with pytest.raises(DataError, match="another corpus") as caught:
        changes_of(stored, other.prepare())
    assert "--cache-dir" in caught.value.next_step
    shutil.rmtree(stored.folder / "corpus")
    with pytest.raises(DataError, match="another corpus"):
        precompute(open_corpus(other.folder / "corpus"), stored.store_folder, DATA, num_threads=1)


def test_rejected_recordings_are_no_change_once_they_were_tried(stored: SmallCorpus) -> None:
    stored.audio("clip05").write_bytes(b"noise")
    stored.precompute(rebuild=True)
    corpus = open_corpus(stored.folder / "corpus")
    assert compare_corpus(stored.open_store(), corpus).num_added == 1
    assert not changes_of(stored, corpus)
