"""A model that has learnt nothing is measured on a small store: every number is there, and is what it says."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.corpora import store_two_speakers
from tests.synthesis.small_models import DATA, write_small_bundle

from myxtts.errors import ConfigError, DataError, UsageError
from myxtts.store.reader import FeatureStore
from myxtts.synthesis.loaded_bundle import load_bundle
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.tools.evaluate import Examiner, choose_rows, refuse_foreign_store, summarize
from myxtts.tools.recognition import Mistakes, Recogniser, count_edits, count_mistakes


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> FeatureStore:
    folder = tmp_path_factory.mktemp("evaluate")
    corpus, _ = store_two_speakers(folder, DATA, seconds=1.0)
    write_small_bundle(folder / "bundle", frontend=corpus.load_frontend())
    return FeatureStore.open(folder / "store")


@pytest.fixture(scope="module")
def synthesizer(store: FeatureStore) -> Synthesizer:
    return Synthesizer(load_bundle(store.folder.parent / "bundle"))


def test_every_number_is_measured(store: FeatureStore, synthesizer: Synthesizer, tmp_path: Path) -> None:
    rows = choose_rows(store, "val", 3)
    texts = {store.id_of(row): "Words of people." for row in rows.tolist()}
    parrot = Recogniser(f"{sys.executable} -c 'print(\"words of\")' {{wav}}")
    examiner = Examiner(synthesizer, store, recogniser=parrot, texts=texts, wav_folder=tmp_path)
    evaluation, measured = examiner.examine(rows)
    assert evaluation.num_utterances == len(measured) == len(rows)
    assert np.isfinite(evaluation.mel_distance)
    assert evaluation.mel_distance > 0
    assert evaluation.length_error >= 0
    assert -1 <= evaluation.speaker_similarity <= 1
    assert evaluation.word_error == pytest.approx(1 / 3)
    assert evaluation.character_error is not None
    assert 0 < evaluation.character_error < 1
    assert len(list(tmp_path.glob("*.wav"))) == len(rows)
    again, _ = Examiner(synthesizer, store).examine(rows)
    assert again.mel_distance == evaluation.mel_distance
    assert again.word_error is None
    assert again.real_time_factor is not None
    assert again.real_time_factor > 0


def test_rows_are_spread_and_a_split_without_any_is_refused(store: FeatureStore) -> None:
    every = choose_rows(store, "train", 1000)
    some = choose_rows(store, "train", 3)
    assert set(some.tolist()) <= set(every.tolist())
    assert {some[0], some[-1]} == {every[0], every[-1]}
    with pytest.raises(DataError, match="test"):
        choose_rows(store, "test", 5)


def test_a_store_of_another_model_is_refused(store: FeatureStore, synthesizer: Synthesizer) -> None:
    loaded = synthesizer.loaded
    with pytest.raises(ConfigError, match="other mel features"):
        refuse_foreign_store(replace(loaded, mel=replace(loaded.mel, fmax=7000.0)), store)
    with pytest.raises(ConfigError, match="front end"):
        refuse_foreign_store(replace(loaded, bundle=replace(loaded.bundle, frontend_fingerprint="x")), store)


def test_times_with_graphs_in_them_do_not_count(store: FeatureStore, synthesizer: Synthesizer) -> None:
    _, measured = Examiner(synthesizer, store).examine(choose_rows(store, "val", 2))
    slow = [replace(row, took_s=None) for row in measured]
    assert summarize(slow, 0).real_time_factor is None
    timed = [replace(slow[0], took_s=0.5, duration_s=2.0), replace(slow[0], took_s=None)]
    assert summarize(timed, 0).real_time_factor == pytest.approx(0.25)


words = st.lists(st.sampled_from("abc"), max_size=8)


@pytest.mark.parametrize(
    ("one", "other", "expected"), [("kitten", "sitting", 3), ("", "abc", 3), ("abc", "", 3), ("flaw", "lawn", 2)]
)
def test_edits_are_the_fewest(one: str, other: str, expected: int) -> None:
    assert count_edits(one, other) == expected


@given(words, words, words)
def test_edits_are_a_distance(one: list[str], other: list[str], third: list[str]) -> None:
    assert count_edits(one, other) == count_edits(other, one)
    assert (count_edits(one, other) == 0) == (one == other)
    assert count_edits(one, third) <= count_edits(one, other) + count_edits(other, third)
    assert abs(len(one) - len(other)) <= count_edits(one, other) <= max(len(one), len(other))


def test_case_and_punctuation_do_not_count() -> None:
    assert count_mistakes("Don't stop, Anna!", "dont stop anna") == Mistakes(0, 3, 0, 14)
    assert count_mistakes("می‌روم؟", "میروم").num_word_edits == 0
    assert count_mistakes("one two three", "one too").num_word_edits == 2


def test_a_command_prints_the_recognised_text(tmp_path: Path) -> None:
    program = "import sys; print(sys.argv[1:])"
    recogniser = Recogniser(f"{sys.executable} -c '{program}' {{language}} '{{wav}};x'")
    assert recogniser.transcribe(tmp_path / "a b.wav", "fa").strip() == str(["fa", f"{tmp_path / 'a b.wav'};x"])


@pytest.mark.parametrize("command", ["asr", "asr '{wav}", ""])
def test_a_command_without_a_place_for_the_recording_is_refused(command: str) -> None:
    with pytest.raises(UsageError, match="command"):
        Recogniser(command)


@pytest.mark.parametrize("command", ["/nowhere/asr {wav}", f"{sys.executable} -c 'raise SystemExit(3)' {{wav}}"])
def test_a_command_that_fails_is_named(tmp_path: Path, command: str) -> None:
    with pytest.raises(ConfigError, match="failed"):
        Recogniser(command).transcribe(tmp_path / "a.wav", "en")
