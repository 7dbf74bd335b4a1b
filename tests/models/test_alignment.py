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


def search_frames(scores: Any, is_state: Any, lengths: Any) -> Any:
    return search_alignment(scores, is_state, lengths)


def search_chunks(scores: Any, is_state: Any, lengths: Any) -> Any:
    return search_alignment(scores, is_state, lengths, is_chunked=True)


search_compiled = tf.function(search_frames, autograph=False, jit_compile=True)
# Compiled by itself, in a graph that is not.
search_in_chunks = tf.function(search_chunks, autograph=False)
MANY_ROWS, MANY_FRAMES, MANY_PLACES = 256, 37, 16
"""One shape for all searches in chunks, which take seconds to compile: two whole chunks and a rest."""


def search_both(scores: Any, is_state: Any, lengths: Any) -> list[Any]:
    """Results of both searches for rows that are padded to that shape."""
    num_rows, num_frames, num_places = scores.shape
    rest = (MANY_ROWS - num_rows, MANY_FRAMES - num_frames, MANY_PLACES - num_places)
    padded = [
        tf.constant(np.pad(array, [(0, rest[axis]) for axis in axes]))
        for array, axes in ((scores, (0, 1, 2)), (is_state, (0, 2)), (lengths, (0,)))
    ]
    return [search(*padded) for search in (search_compiled, search_in_chunks)]


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


def draw_rows(generator: np.random.Generator) -> tuple[Any, Any, Any]:
    """Scores of many rows: of any size, of few different values so that many paths are equally good, or nearly so."""
    shape = (MANY_ROWS, MANY_FRAMES, MANY_PLACES)
    scores = generator.normal(0, 1, shape) * 10.0 ** generator.integers(-4, 5, (MANY_ROWS, 1, 1))
    kind = generator.integers(0, 4, (MANY_ROWS, 1, 1))
    scores = np.where(kind == 1, generator.integers(-2, 1, shape), scores)
    scores = np.where(kind == 2, 1e4 + 1e-3 * generator.integers(0, 3, shape), scores)
    num_tokens = generator.integers(0, MANY_PLACES // 2 + 1, (MANY_ROWS, 1))
    is_second = generator.random((MANY_ROWS, MANY_PLACES // 2)) < 0.6
    is_state = np.stack([np.ones_like(is_second), is_second], axis=2).reshape(MANY_ROWS, MANY_PLACES)
    is_state &= np.arange(MANY_PLACES) < 2 * num_tokens
    return scores.astype(np.float32), is_state, generator.integers(0, MANY_FRAMES + 1, MANY_ROWS).astype(np.int32)


def test_chunks_give_the_same_path_as_frame_by_frame() -> None:
    """Among thousands of rows, with ties, of any length: from less than a chunk to several with a rest."""
    generator, num_aligned = np.random.default_rng(0), 0
    for _ in range(16):
        rows = draw_rows(generator)
        by_frame, by_chunk = search_both(*rows)
        is_aligned = by_frame.is_aligned_B.numpy()
        np.testing.assert_array_equal(is_aligned, by_chunk.is_aligned_B)
        is_frame = is_aligned[:, None] & (np.arange(MANY_FRAMES) < rows[2][:, None])
        np.testing.assert_array_equal(by_frame.state_BT.numpy()[is_frame], by_chunk.state_BT.numpy()[is_frame])
        durations = [found.durations_BS.numpy()[is_aligned] for found in (by_frame, by_chunk)]
        np.testing.assert_array_equal(*durations)
        num_aligned += int(np.count_nonzero(is_aligned))
    assert num_aligned > 2000


def test_of_equal_paths_the_one_in_later_states_is_taken() -> None:
    scores = np.zeros((1, MANY_FRAMES, MANY_PLACES), np.float32)
    for found in search_both(scores, np.arange(MANY_PLACES)[None] < 4, np.array([20], np.int32)):
        assert found.state_BT[0, :20].numpy().tolist() == [0, 1, 2] + [3] * 17


def test_totals_are_exact() -> None:
    """A gain of 1 at one frame decides, though the totals are 37 million: sums of float32 would lose it."""
    scores = np.full((1, MANY_FRAMES, 2), -1e6, np.float32)
    scores[0, :20, 0] += 1
    scores[0, 20:, 1] += 1
    for found in search_both(scores, np.ones((1, 2), bool), np.array([MANY_FRAMES], np.int32)):
        assert found.durations_BS[0, :2].numpy().tolist() == [20, MANY_FRAMES - 20]


def test_what_lies_behind_an_utterance_does_not_matter() -> None:
    scores = np.random.default_rng(0).normal(0, 1, (1, MANY_FRAMES, MANY_PLACES)).astype(np.float32)
    spoiled = scores.copy()
    spoiled[:, 20:], spoiled[:, :, 5:] = np.nan, np.inf
    is_state, lengths = np.arange(MANY_PLACES)[None] < 5, np.array([20], np.int32)
    for whole, found in zip(*(search_both(one, is_state, lengths) for one in (scores, spoiled)), strict=True):
        np.testing.assert_array_equal(whole.state_BT[0, :20], found.state_BT[0, :20])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_spoils_only_its_row_which_still_gets_a_path(value: float) -> None:
    """The loss of such a row is not finite either: it has the same mean or the same frame in it."""
    scores = np.random.default_rng(0).normal(0, 1, (2, MANY_FRAMES, MANY_PLACES)).astype(np.float32)
    spoiled = scores.copy()
    spoiled[0, 3, 2] = value
    is_state, lengths = np.arange(MANY_PLACES)[None].repeat(2, 0) < 5, np.array([20, 20], np.int32)
    for whole, found in zip(*(search_both(one, is_state, lengths) for one in (scores, spoiled)), strict=True):
        np.testing.assert_array_equal(found.state_BT[1, :20], whole.state_BT[1, :20])
        assert set(np.diff(found.state_BT[0, :20])) <= {0, 1}
        assert (found.durations_BS.numpy()[0, :5] > 0).all()


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


@pytest.mark.parametrize(
    ("search", "trips"), [(search_frames, ["699", "700"]), (search_chunks, ["44", "44"])], ids=["frames", "chunks"]
)
def test_xla_knows_how_often_all_loops_run(search: Any, trips: list[str]) -> None:
    """A GPU asks the host after every iteration of a loop whose number of iterations is not known."""
    arguments = (tf.zeros([2, 700, 12]), tf.ones([2, 12], tf.bool), tf.constant([700, 500]))
    compiled = tf.function(search, autograph=False, jit_compile=True).experimental_get_compiler_ir(*arguments)(
        stage="optimized_hlo"
    )
    loops = [line for line in compiled.splitlines() if " while(" in line]
    assert len(loops) == len(trips)
    assert sorted(re.findall(r'"known_trip_count":{"n":"(\d+)"', "".join(loops))) == trips
