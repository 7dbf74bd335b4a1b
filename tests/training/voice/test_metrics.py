"""Validation: numbers that mean what they say, a fixed set, one trace per shape, and weights that come back."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tests.models.toys import make_config, make_spec, stir_weights

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.corpus_file import open_corpus
from myxtts.corpus.prepare import Recordings, prepare_corpus
from myxtts.models.xtts import XTTS
from myxtts.store.precompute import precompute
from myxtts.training.optimizer import WeightEma
from myxtts.training.voice.losses import VoiceLoss, average_terms
from myxtts.training.voice.metrics import SCORE, Evaluator, measure_warped_distance
from myxtts.training.voice.validation_set import (
    FixedUtterance,
    choose_sentences,
    find_in_corpus,
    load_fixed_utterances,
    load_recorded,
    pack_part,
)


def make_utterance(number: int, num_frames: int = 30, speaker: int = 0, language: int = 0) -> FixedUtterance:
    generator = np.random.default_rng(number)
    return FixedUtterance(
        f"u{number}",
        generator.integers(1, 54, 5).astype(np.int32),
        generator.normal(-4, 2, (num_frames, 5)).astype(np.float32),
        speaker,
        language,
        generator.normal(-4, 2, (9, 5)).astype(np.float32),
    )


@pytest.fixture(scope="module")
def model() -> XTTS:
    made = XTTS(make_config(text_layers=1, decoder_layers=1), make_spec())
    stir_weights(made)
    return made


@pytest.fixture(scope="module")
def utterances() -> list[FixedUtterance]:
    """The last of them has fewer frames than states."""
    whole = [make_utterance(number, 22 + 5 * number, number % 3, number % 2) for number in range(9)]
    return [*whole, make_utterance(9, num_frames=2)]


@pytest.fixture(scope="module")
def evaluator(model: XTTS, utterances: list[FixedUtterance]) -> Evaluator:
    return Evaluator(model, utterances)


@pytest.fixture(scope="module")
def metrics(evaluator: Evaluator) -> dict[str, float]:
    return evaluator.evaluate()


def test_the_same_model_gets_the_same_numbers_from_one_graph(evaluator: Evaluator, metrics: dict[str, float]) -> None:
    assert all(math.isfinite(value) for value in metrics.values())
    assert evaluator.evaluate() == metrics
    assert evaluator.num_traces == 1


def test_score_is_what_a_listener_hears(metrics: dict[str, float]) -> None:
    assert metrics[SCORE] == pytest.approx(metrics["mel_distance"] + 0.25 * metrics["token_duration_error"])
    assert {"prior", "flow", "duration", "length_error", "free_mel_distance", "speaker_similarity"} <= set(metrics)
    assert -1 <= metrics["speaker_similarity"] <= 1


def test_what_cannot_be_aligned_is_counted_and_left_out(metrics: dict[str, float]) -> None:
    assert metrics["unaligned"] == 0.1
    assert math.isfinite(metrics[SCORE])


def test_losses_are_those_of_the_utterances_by_themselves(
    model: XTTS, utterances: list[FixedUtterance], metrics: dict[str, float]
) -> None:
    compute_loss = VoiceLoss(0, diagonal_steps=1)
    _, sums = compute_loss(model, pack_part(utterances), False, tf.constant(1, tf.int64))
    assert metrics["prior"] == pytest.approx(float(sums["prior"]) / 9, rel=1e-4)
    assert metrics["duration"] == pytest.approx(float(sums["duration"]) / 9, rel=1e-4)
    assert metrics["pitch"] == pytest.approx(float(sums["pitch"]) / 9, rel=1e-4)


def test_training_shows_the_same_means_of_aligned_utterances(
    model: XTTS, utterances: list[FixedUtterance], metrics: dict[str, float]
) -> None:
    _, sums = VoiceLoss(0, diagonal_steps=1)(model, pack_part(utterances), False, tf.constant(1, tf.int64))
    # A step divides by all rows, and one of these ten cannot be aligned.
    shown = average_terms({name: float(total) / len(utterances) for name, total in sums.items()})
    assert shown["unaligned"] == metrics["unaligned"]
    for name in ("prior", "duration", "pitch"):
        assert shown[name] == pytest.approx(metrics[name], rel=1e-4)
    assert average_terms({"unaligned": 1.0, "prior": 0.0}) == {"unaligned": 1.0, "prior": 0.0}


def test_a_batch_is_aligned_once(evaluator: Evaluator, metrics: dict[str, float]) -> None:
    part, _ = evaluator._groups[0]
    graph = evaluator._measure.get_concrete_function(part).graph
    # The search forward, the search back, and the Euler steps of the decoder.
    assert sum(node.type in ("While", "StatelessWhile") for node in graph.get_operations()) == 3


def test_the_speaker_loss_is_of_utterances_with_a_reference(model: XTTS, utterances: list[FixedUtterance]) -> None:
    whole = [make_utterance(number, 30, number % 3) for number in range(4)]
    without = replace(whole[0], reference_RM=whole[0].reference_RM[:0])
    alone, mixed = (Evaluator(model, some).evaluate() for some in (whole[1:], [*whole[1:], without]))
    for name in ("speaker", "speaker_accuracy"):
        assert mixed[name] == pytest.approx(alone[name], rel=1e-4)


def test_a_worse_model_scores_worse(model: XTTS, evaluator: Evaluator, metrics: dict[str, float]) -> None:
    bias = model.named_weights()["decoder.correction.bias"]
    kept = bias.numpy()
    bias.assign(kept + 5)
    worse = evaluator.evaluate()
    bias.assign(kept)
    assert worse["mel_distance"] > metrics["mel_distance"] + 2
    assert worse["prior"] == metrics["prior"]


def test_a_model_that_is_not_finite_gets_no_score(model: XTTS, evaluator: Evaluator) -> None:
    bias = model.named_weights()["decoder.correction.bias"]
    kept = bias.numpy()
    bias.assign(np.full_like(kept, np.nan))
    broken = evaluator.evaluate()
    bias.assign(kept)
    assert not math.isfinite(broken[SCORE])
    assert broken["free_mel_distance"] == math.inf


def test_averages_are_swapped_in_and_out_exactly(model: XTTS, evaluator: Evaluator, metrics: dict[str, float]) -> None:
    average = WeightEma(model.named_weights(), 0.9, tf.distribute.get_strategy())
    for variable in average.variables.values():
        variable.assign(variable * 1.1)
    weights = {name: weight.numpy() for name, weight in model.named_weights().items()}
    with average.swapped_in():
        assert evaluator.evaluate()[SCORE] != metrics[SCORE]
    assert all(np.array_equal(weight.numpy(), weights[name]) for name, weight in model.named_weights().items())
    assert evaluator.evaluate() == metrics
    assert evaluator.num_traces == 1


def test_a_share_of_the_start_is_mixed_into_the_averages_that_are_swapped_in(model: XTTS) -> None:
    weights = model.named_weights()
    start = {name: tf.Variable(np.full(weight.shape, 2.0, np.float32)) for name, weight in weights.items()}
    average = WeightEma(weights, 0.9, tf.distribute.get_strategy(), start=start, start_mix=0.25)
    before = {name: weight.numpy() for name, weight in weights.items()}
    with average.swapped_in():
        for name, weight in weights.items():
            np.testing.assert_allclose(weight.numpy(), 0.75 * before[name] + 0.5, atol=1e-6)
    assert all(np.array_equal(weight.numpy(), before[name]) for name, weight in weights.items())


def test_equal_spectrograms_are_at_no_distance_however_slow() -> None:
    mel = np.random.default_rng(0).normal(size=(20, 4))
    assert measure_warped_distance(mel, mel) == 0
    assert measure_warped_distance(np.repeat(mel, 3, axis=0), mel) == 0
    assert measure_warped_distance(mel + 1, mel) > 0
    assert measure_warped_distance(mel[:0], mel) == math.inf


@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 1000))
def test_warping_finds_the_best_of_all_paths(num_rows: int, num_columns: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    one, other = generator.normal(size=(num_rows, 2)), generator.normal(size=(num_columns, 2))

    def walk(row: int, column: int) -> float:
        cost = float(np.abs(one[row] - other[column]).mean())
        if row == column == 0:
            return 2 * cost
        ways = []
        if row:
            ways.append(walk(row - 1, column) + cost)
        if column:
            ways.append(walk(row, column - 1) + cost)
        if row and column:
            ways.append(walk(row - 1, column - 1) + 2 * cost)
        return min(ways)

    best = walk(num_rows - 1, num_columns - 1) / (num_rows + num_columns)
    assert measure_warped_distance(one, other) == pytest.approx(best)


def test_sentences_cover_languages_then_speakers() -> None:
    utterances = [make_utterance(number, speaker=speaker) for number, speaker in enumerate([0, 0, 0, 1])]
    utterances.append(make_utterance(9, language=1))
    assert [one.id for one in choose_sentences(utterances, 3)] == ["u0", "u9", "u3"]
    assert len(choose_sentences(utterances, 50)) == 5


def test_a_part_holds_the_utterances_and_rows_that_count_for_nothing() -> None:
    one = make_utterance(0, num_frames=30)
    part = pack_part([one], num_rows=2)
    assert part["mel"].shape == (2, 32, 5)
    assert part["mel_lengths"].numpy().tolist() == [30, 0]
    np.testing.assert_array_equal(part["mel"][0, :30], one.mel_TM)
    np.testing.assert_array_equal(part["tokens"][0, :5], one.tokens_N)


def test_the_fixed_set_is_the_same_every_time_and_has_texts(ljspeech: Path, tmp_path: Path) -> None:
    corpus, store = tmp_path / "corpus", tmp_path / "features"
    config = XTTSConfig(
        train_data=corpus, cache_dir=store, text_frontend="characters", batch_size=4, num_shapes=2, val_share=0.3
    )
    prepare_corpus([Recordings(ljspeech)], corpus, config.data)
    precompute(open_corpus(corpus), store, config.data)
    first = load_fixed_utterances(config, 3)
    assert len(first) == 3
    changed = config.model_copy(update={"batch_size": 7, "num_shapes": 1, "frame_budget": 2000})
    for one, other in zip(first, load_fixed_utterances(changed, 3), strict=True):
        assert one.id == other.id
        np.testing.assert_array_equal(one.mel_TM, other.mel_TM)
        np.testing.assert_array_equal(one.reference_RM, other.reference_RM)
    in_corpus = find_in_corpus(config, first)
    assert set(in_corpus) == {one.id for one in first}
    assert all("sentence" in one.text.lower() for one in in_corpus.values())
    recorded = load_recorded(config, in_corpus.values())
    for one in first:
        assert len(recorded[one.id]) == pytest.approx(one.num_frames * config.data.hop_length, abs=config.data.n_fft)
    Path(in_corpus[first[0].id].audio).unlink()
    assert set(load_recorded(config, in_corpus.values())) == {one.id for one in first[1:]}, "a lost file is left out"
