"""A small corpus, made once and copied for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.corpora import SmallCorpus, make_small_corpus


@pytest.fixture(scope="session")
def pristine_corpus(tmp_path_factory: pytest.TempPathFactory) -> SmallCorpus:
    return make_small_corpus(tmp_path_factory.mktemp("corpus") / "small")


@pytest.fixture
def corpus(pristine_corpus: SmallCorpus, tmp_path: Path) -> SmallCorpus:
    """Ten prepared utterances, without a store."""
    return pristine_corpus.copy(tmp_path / "small")


@pytest.fixture
def stored(corpus: SmallCorpus) -> SmallCorpus:
    """Ten utterances with a store of three segments."""
    corpus.precompute()
    return corpus
