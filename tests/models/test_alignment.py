"""The search finds the best of all monotonic paths, in plain and compiled graphs alike, and never stumbles.

Shape legend: B utterances, T frames, S states.
"""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from myxtts.models.alignment import expand_durations, score_diagonal, score_states, search_alignment, split_durations

NUM_FRAMES, NUM_PLACES = 9, 8

search_plainly = tf.function(search_alignment, autograph=False)
search_compiled = tf.function(search_alignment, autograph=False, jit_compile=True)


@st.composite
def problems(draw: Any) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.int32]]:
    """Scores, states and lengths of two utterances: tokens with one or two states, possibly more states than frames."""
    seed = draw(st.integers(0, 2**32 - 1))
    generator = np.random.default_rng(seed)
    scores = generator.normal(0, draw(st.sampled_from([0.1, 1.0, 100.0])), (2, NUM_FRAMES, NUM_PLACES))
    is_state = np.zeros((2, NUM_PLACES), bool)
    lengths = np.zeros(2, np.int32)
    for row in range(2):
        for token in range(draw(st.integers(0, NUM_PLACES // 2))):
            is_state[row, 2 * token : 2 * token + 1 + draw(st.integers(0, 1))] = True
        lengths[row] = draw(st.integers(0, NUM_FRAMES))
    return scores.astype(np.float32), is_state, lengths


def find_best_by_force(scores_TS: NDArray[np.float32], states: list[int], num_frames: int) -> tuple[float, list[int]]:
    """The best total score over every way to cut the frames into as many runs as there are states, and its path."""
    best, best_path = -np.inf, []
    for cuts in combinations(range(1, num_frames), len(states) - 1):
        edges = [0, *cuts, num_frames]
        path = [state for place, state in enumerate(states) for _ in range(edges[place], edges[place + 1])]
        total = float(sum(np.float64(scores_TS[frame, state]) for frame, state in enumerate(path)))
        if total > best:
            best, best_path = total, path
    return best, best_path


@given(problems())
@settings(max_examples=60)
def test_the_path_is_the_best_of_all(problem: tuple[Any, Any, Any]) -> None:
    scores, is_state, lengths = problem
    found = search_plainly(tf.constant(scores), tf.constant(is_state), tf.constant(lengths))
    for row in range(2):
        states = np.flatnonzero(is_state[row]).tolist()
        is_possible = 0 < len(states) <= lengths[row]
        assert bool(found.is_aligned_B[row]) == is_possible
        if is_possible:
            best, path = find_best_by_force(scores[row], states, int(lengths[row]))
            assert found.state_BT[row, : lengths[row]].numpy().tolist() == path, best
            assert found.durations_BS[row].numpy().tolist() == np.bincount(path, minlength=NUM_PLACES).tolist()


@given(problems())
@settings(max_examples=20)
def test_compiled_and_plain_graphs_agree(problem: tuple[Any, Any, Any]) -> None:
    tensors = [tf.constant(array) for array in problem]
    for plain, compiled in zip(search_plainly(*tensors), search_compiled(*tensors), strict=True):
        np.testing.assert_array_equal(plain, compiled)


def test_what_lies_behind_an_utterance_does_not_matter() -> None:
    generator = np.random.default_rng(0)
    scores = generator.normal(0, 1, (1, NUM_FRAMES, NUM_PLACES)).astype(np.float32)
    is_state = tf.constant([[True] * 5 + [False] * 3])
    spoiled = scores.copy()
    spoiled[:, 7:], spoiled[:, :, 5:] = np.nan, np.inf
    paths = [search_plainly(tf.constant(values), is_state, tf.constant([7])).state_BT for values in (scores, spoiled)]
    np.testing.assert_array_equal(paths[0][:, :7], paths[1][:, :7])


def test_the_diagonal_alone_gives_even_durations() -> None:
    is_state = tf.constant([[True, True, True, False, True, True, False, False]])
    lengths = tf.constant([10])
    scores = score_diagonal(is_state, lengths, 12)
    durations = search_alignment(scores, is_state, lengths).durations_BS.numpy()[0].tolist()
    assert durations == [2, 2, 2, 0, 2, 2, 0, 0]


def test_scores_order_states_as_the_gaussian_does() -> None:
    generator = np.random.default_rng(1)
    mel, means = generator.normal(0, 1, (2, 4, 3)), generator.normal(0, 1, (2, 6, 3))
    expected = -0.5 * ((mel[:, :, None] - means[:, None]) ** 2).sum(-1)
    found = score_states(tf.constant(mel, tf.float32), tf.constant(means, tf.float32)).numpy()
    np.testing.assert_allclose(found - found[..., :1], expected - expected[..., :1], atol=1e-5)


def test_scores_pass_no_gradient() -> None:
    means = tf.Variable(tf.ones([1, 2, 3]))
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(score_states(tf.ones([1, 4, 3]), means))
    assert tape.gradient(total, means) is None


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_durations_spread_over_frames(durations: list[int]) -> None:
    expected = [state for state, length in enumerate(durations) for _ in range(length)]
    found = expand_durations(tf.constant([durations]), 24).numpy()[0].tolist()
    assert found == expected + [len(durations) - 1] * (24 - len(expected))


def test_given_durations_are_parted_where_the_search_would_part_them() -> None:
    generator = np.random.default_rng(2)
    is_state = tf.constant([[True, True, True, False, True, True, False, False]])
    for _ in range(20):
        scores = tf.constant(generator.normal(0, 1, (1, NUM_FRAMES, NUM_PLACES)), tf.float32)
        searched = search_plainly(scores, is_state, tf.constant([8]))
        parted = split_durations(searched.token_durations_BN, scores, is_state, tf.constant([8]))
        np.testing.assert_array_equal(searched.durations_BS, parted.durations_BS)
        np.testing.assert_array_equal(searched.state_BT[:, :8], parted.state_BT[:, :8])
        assert parted.is_aligned_B.numpy().all()


@pytest.mark.parametrize("durations", [[3, 1, 2, 0], [9, 9, 9, 9], [0, 0, 0, 0]])
def test_given_durations_that_do_not_fill_the_utterance_are_not_taken(durations: list[int]) -> None:
    scores, is_state = tf.zeros([1, NUM_FRAMES, NUM_PLACES]), tf.ones([1, NUM_PLACES], tf.bool)
    parted = split_durations(tf.constant([durations]), scores, is_state, tf.constant([8]))
    assert not parted.is_aligned_B.numpy().any()


def test_a_token_of_one_frame_keeps_it_in_its_first_state() -> None:
    scores, is_state = tf.zeros([1, NUM_FRAMES, NUM_PLACES]), tf.ones([1, NUM_PLACES], tf.bool)
    parted = split_durations(tf.constant([[1, 0, 5, 2]]), scores, is_state, tf.constant([8]))
    durations = parted.durations_BS.numpy()[0].tolist()
    assert durations[:4] == [1, 0, 0, 0]
    assert [sum(durations[4:6]), *durations[6:]] == [5, 1, 1]


def test_xla_knows_how_often_both_loops_run() -> None:
    """A GPU asks the host after every iteration of a loop whose number of iterations is not known."""
    arguments = (tf.zeros([2, 700, 12]), tf.ones([2, 12], tf.bool), tf.constant([700, 500]))
    compiled = search_compiled.experimental_get_compiler_ir(*arguments)(stage="optimized_hlo")
    loops = [line for line in compiled.splitlines() if " while(" in line]
    assert len(loops) == 2
    assert sorted(re.findall(r'"known_trip_count":{"n":"(\d+)"', "".join(loops))) == ["699", "700"]
