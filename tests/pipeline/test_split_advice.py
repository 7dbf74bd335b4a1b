"""What a data GPU costs or gains: the formulas at their edges, and words that name the numbers."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from myxtts.pipeline.split_advice import MeasuredTimes, compare_split, estimate_exchange_s

times_s = st.floats(1e-4, 10.0)
counts = st.integers(1, 16)


@given(step_s=times_s, feature_s=times_s, exchange_s=st.floats(0, 1.0))
def test_two_cards_follow_the_formula(step_s: float, feature_s: float, exchange_s: float) -> None:
    advice = compare_split(MeasuredTimes(step_s, feature_s), 1, exchange_s)
    assert advice.split_rate == pytest.approx(1 / max(step_s, feature_s))
    assert advice.parallel_rate == pytest.approx(2 / (step_s + feature_s + exchange_s))


@given(step_s=times_s, feature_s=times_s, exchange_s=st.floats(0, 1.0))
def test_split_of_two_cards_wins_only_if_the_sides_differ_by_less_than_the_exchange(
    step_s: float, feature_s: float, exchange_s: float
) -> None:
    winner = compare_split(MeasuredTimes(step_s, feature_s), 1, exchange_s).winner
    assume(winner != "neither")
    assert (winner == "split") == (abs(step_s - feature_s) < exchange_s)


@given(step_s=times_s, feature_s=times_s, load_s=st.floats(0, 10.0), num=counts, exchange_s=st.floats(0, 1.0))
def test_gain_is_the_ratio_of_the_rates_and_never_negative(
    step_s: float, feature_s: float, load_s: float, num: int, exchange_s: float
) -> None:
    advice = compare_split(MeasuredTimes(step_s, feature_s, load_s), num, exchange_s)
    faster = max(advice.split_rate, advice.parallel_rate)
    slower = min(advice.split_rate, advice.parallel_rate)
    assert advice.gain_percent == pytest.approx(100 * (faster / slower - 1))
    assert advice.gain_percent >= 0
    leader = "split" if advice.split_rate == faster else "data-parallel"
    assert advice.winner == (leader if advice.gain_percent >= 1 else "neither")


@given(step_s=times_s, num=counts)
def test_card_without_work_is_better_used_for_training(step_s: float, num: int) -> None:
    """With next to no features and a free exchange, one card more trains in proportion."""
    advice = compare_split(MeasuredTimes(step_s, step_s * 1e-9), num, 0.0)
    assert advice.winner == "data-parallel"
    assert advice.gain_percent == pytest.approx(100 / num, rel=1e-6)


@given(step_s=times_s, feature_s=times_s, num=counts, more_s=st.floats(0.0, 1.0), exchange_s=st.floats(0, 1.0))
def test_dearer_exchange_speaks_for_the_split(
    step_s: float, feature_s: float, num: int, more_s: float, exchange_s: float
) -> None:
    times = MeasuredTimes(step_s, feature_s)
    cheap, dear = (compare_split(times, num, exchange_s + extra_s) for extra_s in (0.0, more_s))
    assert dear.split_rate == cheap.split_rate
    assert dear.parallel_rate <= cheap.parallel_rate


@given(compute_s=times_s, feature_s=times_s, num=counts, exchange_s=st.floats(0, 1.0))
def test_exchange_that_a_step_includes_is_not_counted_twice(
    compute_s: float, feature_s: float, num: int, exchange_s: float
) -> None:
    without = compare_split(MeasuredTimes(compute_s, feature_s), num, exchange_s)
    within = compare_split(MeasuredTimes(compute_s + exchange_s, feature_s), num, exchange_s, exchange_s)
    assert within.parallel_rate == pytest.approx(without.parallel_rate)


@given(step_s=times_s, feature_s=times_s, num=counts)
def test_slow_host_makes_both_ways_equal(step_s: float, feature_s: float, num: int) -> None:
    load_s = 3 * (step_s + feature_s)
    advice = compare_split(MeasuredTimes(step_s, feature_s, load_s), num, 0.0)
    assert advice.winner == "neither"
    assert advice.split_rate == advice.parallel_rate == 1 / load_s
    assert "set by loading on the host" in advice.sentences[0]


@given(gradient_bytes=st.integers(1, 10**10), num=st.integers(2, 64))
def test_exchange_grows_with_the_number_of_cards_up_to_twice_the_gradient(gradient_bytes: int, num: int) -> None:
    few, more = (estimate_exchange_s(gradient_bytes, n) for n in (num, num + 1))
    assert estimate_exchange_s(gradient_bytes, 1) == 0
    assert few < more < 2 * gradient_bytes / 1e9


def test_sentences_name_the_numbers_and_the_next_step() -> None:
    exchange_s = estimate_exchange_s(400_000_000, 2)
    advice = compare_split(MeasuredTimes(step_s=0.2, feature_s=0.05), 1, exchange_s)
    text = " ".join(advice.sentences)
    for part in ("50 ms on the data GPU", "200 ms on the model GPU", "5 batches a second", "set by the model"):
        assert part in text
    for part in ("same 2 cards", "about 6.9", "40 ms to exchange", "38 % more", "training.multi_gpu"):
        assert part in text
    gained = compare_split(MeasuredTimes(0.2, 0.19), 1, exchange_s=0.1)
    assert "the split gains 22 %" in gained.sentences[1]
    assert "no difference" in compare_split(MeasuredTimes(0.2, 0.2), 1, exchange_s=0.0).sentences[1]
    assert "3 model GPUs" in compare_split(MeasuredTimes(0.2, 0.1), 3, 0.01).sentences[0]
