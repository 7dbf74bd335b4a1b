"""Monotonic alignment search (Glow-TTS, Kim et al., 2020) in the graph: the Viterbi path of frames through states.

A path begins in the first state, ends in the last, and leaves none out. The grid of states may have single holes, which
paths step over. There is no gradient. Two searches find the same path to the bit:

- frame by frame: a loop over T frames and a loop back, the least work; for CPUs.
- in chunks of 16 frames: all chunks at once, then two loops over the T / 16 chunks; 17 times the work in a twelfth of
  the iterations; for GPUs, where each iteration costs the start of several kernels.

Scores become integers first. Sums of integers are exact in any order, so both searches compare the same numbers.
All loops count up to a constant and have no `maximum_iterations`, which would be a second condition: only then XLA
knows their number of iterations, and a GPU runs them without asking the host after each one.
Shape legend: B utterances, T frames, N tokens, S states, M mel bands, C chunks, K frames of a chunk, D moves in it.
"""

# ruff: noqa: N802, N815 - fields carry the shape of their tensors

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import tensorflow as tf

from myxtts.models.layers import count_steps
from myxtts.models.text_encoder import STATES_PER_TOKEN
from myxtts.types import Tensor

_TOTAL_BITS = 29
"""Totals of paths are between minus and plus 2 to this power."""
_IMPOSSIBLE = -5 * 2 ** (_TOTAL_BITS - 1)
"""Added to the total of a path that does not begin in the first state: below that of any other, and within int32."""
_CHUNK_FRAMES = 16
"""Frames of a chunk. With more, the chunks take longer (each frame of a chunk reads and writes 17 numbers for each
state of each chunk); with fewer, the two loops over chunks do."""
_DIAGONAL_STRENGTH = 5.0
"""Strength of the diagonal prior. In an utterance of five seconds a frame that is 20 frames off the diagonal pays 5:
enough to decide while all states are alike, little beside a wrong phone (tens). Ten times as much kept the search from
finding anything for hundreds of steps. Speech deviates like a random walk: the penalty is the square divided by the
length."""


class Alignment(NamedTuple):
    """Frames per state, and the state of each frame. Rows that are not aligned (too few frames) are undefined."""

    durations_BS: Tensor
    state_BT: Tensor
    is_aligned_B: Tensor

    @property
    def token_durations_BN(self) -> Tensor:
        return sum_by_token(self.durations_BS)


def sum_by_token(durations_BS: Tensor) -> Tensor:
    """Frames per token [B, N]: the sum over its two states."""
    return tf.reduce_sum(tf.reshape(durations_BS, [-1, count_steps(durations_BS) // STATES_PER_TOKEN, 2]), axis=-1)


def score_states(mel_BTM: Tensor, means_BSM: Tensor) -> Tensor:
    """Log-likelihood [B, T, S] of frames under unit Gaussians around the means, up to a constant of each frame."""
    mel_BTM, means_BSM = tf.stop_gradient(mel_BTM), tf.stop_gradient(means_BSM)
    product = tf.matmul(mel_BTM, means_BSM, transpose_b=True)
    return product - 0.5 * tf.reduce_sum(tf.square(means_BSM), axis=-1)[:, None]


def score_diagonal(is_state_BS: Tensor, mel_lengths_B: Tensor, num_frames: int) -> Tensor:
    """Diagonal prior [B, T, S]: a penalty that grows with the distance from the straight path."""
    rank_BS = _rank_states(is_state_BS)
    num_states_B1 = tf.maximum(tf.reduce_sum(tf.cast(is_state_BS, tf.float32), axis=1, keepdims=True), 1.0)
    position_BS = (tf.cast(rank_BS, tf.float32) + 0.5) / num_states_B1
    time_T = tf.range(num_frames, dtype=tf.float32) + 0.5
    time_BT = time_T / tf.cast(tf.maximum(mel_lengths_B, 1), tf.float32)[:, None]
    strength_B = _DIAGONAL_STRENGTH * tf.cast(mel_lengths_B, tf.float32)
    return -strength_B[:, None, None] * tf.square(time_BT[:, :, None] - position_BS[:, None])


def search_alignment(
    scores_BTS: Tensor,
    is_state_BS: Tensor,
    mel_lengths_B: Tensor,
    *,
    is_chunked: bool = False,
    is_compiled: bool = False,
) -> Alignment:
    """Viterbi search: the path with the highest total score. Needs at least as many frames as states.

    Of paths with equal scores it takes the one that is in later states, compared from the last frame on. `is_chunked`
    is faster on GPUs and slower on CPUs, with the same result; it is always compiled with XLA, and the other search if
    `is_compiled`, or within a compiled graph. Scores of real frames and states must be finite: where one is not, the
    path of its row is any path.
    """
    num_states_B = tf.reduce_sum(tf.cast(is_state_BS, tf.int32), axis=1)
    is_aligned_B = (num_states_B <= mel_lengths_B) & (num_states_B > 0)
    search = _search_chunks if is_chunked else _search_frames
    if is_chunked or is_compiled:
        search = _compile_once(search) if tf.executing_eagerly() else _compile(search)
    state_BT = search(scores_BTS, is_state_BS, mel_lengths_B)
    return Alignment(_count_frames(state_BT, mel_lengths_B, is_state_BS.shape[1]), state_BT, is_aligned_B)


def _compile(search: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Any:
    """The search as a compiled part of a graph: small operations in loops cost far more when run one by one.

    Each graph gets its own: the name of a function counts what was traced before it, and graphs whose names differ from
    one process to the next are compiled again.
    """
    return tf.function(search, autograph=False, jit_compile=True)


_compile_once = cache(_compile)
"""For eager calls, which would otherwise compile every time."""


def _count_frames(state_BT: Tensor, mel_lengths_B: Tensor, num_states: int) -> Tensor:
    """Number of frames [B, S] of each state on the path."""
    num_rows, num_frames = state_BT.shape
    is_frame_BT = tf.sequence_mask(mel_lengths_B, num_frames, tf.int32)
    place_BT = state_BT + num_states * tf.range(num_rows)[:, None]
    counts = tf.math.unsorted_segment_sum(
        tf.reshape(is_frame_BT, [-1]), tf.reshape(place_BT, [-1]), num_rows * num_states
    )
    return tf.reshape(counts, [num_rows, num_states])


def _rank_states(is_state_BS: Tensor) -> Tensor:
    """Number of states before each position of the grid, holes not counted."""
    return tf.cumsum(tf.cast(is_state_BS, tf.int32), axis=1, exclusive=True)


def _shift(values_BS: Tensor, num_positions: int, fill: float | bool) -> Tensor:
    """Shifts values to later positions by `num_positions`, filling the start."""
    return tf.pad(values_BS[:, :-num_positions], [[0, 0], [num_positions, 0]], constant_values=fill)


def _choose_scales(scores_BTS: Tensor, is_state_BS: Tensor, mel_lengths_B: Tensor) -> Tensor:
    """Scales of fixed point [B], powers of two, by which all totals stay below 2 to the power of `_TOTAL_BITS`."""
    is_frame_BT1 = tf.sequence_mask(mel_lengths_B, scores_BTS.shape[1])[..., None]
    # Over frames first, which CPUs do for many states at once.
    largest_BS = tf.reduce_max(tf.where(is_frame_BT1, tf.abs(scores_BTS), 0.0), axis=1)
    largest_B = tf.reduce_max(tf.where(is_state_BS, largest_BS, 0.0), axis=1) * tf.cast(mel_lengths_B, tf.float32)
    # Bits 23 to 30 of a float32 are its exponent plus 127.
    exponent_B = tf.bitwise.right_shift(tf.bitcast(largest_B, tf.int32), 23)
    scale_exponent_B = _TOTAL_BITS + 253 - tf.clip_by_value(exponent_B, _TOTAL_BITS, 255)
    return tf.bitcast(tf.bitwise.left_shift(scale_exponent_B, 23), tf.float32)


def _to_integers(scores: Tensor, scale: Tensor, is_counted: Tensor) -> Tensor:
    """Scores in fixed point; 0 where they are not counted or not finite."""
    is_counted &= tf.abs(scores) < float("inf")
    return tf.cast(tf.round(tf.where(is_counted, scores * scale, 0.0)), tf.int32)


def _search_frames(scores_BTS: Tensor, is_state_BS: Tensor, mel_lengths_B: Tensor) -> Tensor:
    """The state of each frame [B, T], by a loop over all frames and a loop back."""
    return _trace_back(_search_forward(scores_BTS, is_state_BS, mel_lengths_B), is_state_BS, mel_lengths_B)


def _search_forward(scores_BTS: Tensor, is_state_BS: Tensor, mel_lengths_B: Tensor) -> Tensor:
    """Forward pass of Viterbi: for each frame and state whether its best path came from the state before.

    Integer scores are computed frame by frame: for all frames at once they would not fit into the cache.
    """
    num_frames = scores_BTS.shape[1]
    is_after_hole_BS = ~_shift(is_state_BS, 1, True)
    scale_B1 = _choose_scales(scores_BTS, is_state_BS, mel_lengths_B)[:, None]

    def score(frame: Tensor) -> Tensor:
        return _to_integers(scores_BTS[:, frame], scale_B1, is_state_BS & (frame < mel_lengths_B)[:, None])

    def advance(frame: Tensor, best_BS: Tensor, moves: tf.TensorArray) -> tuple[Tensor, Tensor, tf.TensorArray]:
        before = tf.where(is_after_hole_BS, _shift(best_BS, 2, _IMPOSSIBLE), _shift(best_BS, 1, _IMPOSSIBLE))
        moves = moves.write(frame, before > best_BS)
        return frame + 1, tf.maximum(best_BS, before) + score(frame), moves

    moves = tf.TensorArray(tf.bool, num_frames, element_shape=is_state_BS.shape)
    moves = moves.write(0, tf.zeros_like(is_state_BS))
    is_first_BS = is_state_BS & (_rank_states(is_state_BS) == 0)
    start = (tf.constant(1), tf.where(is_first_BS, 0, _IMPOSSIBLE) + score(tf.constant(0)), moves)
    _, _, moves = tf.while_loop(lambda frame, *_: frame < num_frames, advance, start)
    return moves.stack()


def _trace_back(is_moved_TBS: Tensor, is_state_BS: Tensor, mel_lengths_B: Tensor) -> Tensor:
    """Backward pass of Viterbi: follows the recorded moves from the last state to the first."""
    num_frames = is_moved_TBS.shape[0]
    last_B = tf.reduce_max(tf.where(is_state_BS, tf.range(is_state_BS.shape[1]), 0), axis=1)
    num_back_BS = tf.where(_shift(is_state_BS, 1, True), 1, 2)

    def retreat(num_done: Tensor, state_B: Tensor, path: tf.TensorArray) -> tuple[Tensor, Tensor, tf.TensorArray]:
        frame = num_frames - 1 - num_done
        path = path.write(frame, state_B)
        num_back_B = tf.gather(tf.where(is_moved_TBS[frame], num_back_BS, 0), state_B, batch_dims=1)
        return num_done + 1, tf.where(frame < mel_lengths_B, tf.maximum(state_B - num_back_B, 0), state_B), path

    start = (tf.constant(0), last_B, tf.TensorArray(tf.int32, num_frames, element_shape=last_B.shape))
    _, _, path = tf.while_loop(lambda num_done, *_: num_done < num_frames, retreat, start)
    return tf.transpose(path.stack())


def _search_chunks(scores_BTS: Tensor, is_state_BS: Tensor, mel_lengths_B: Tensor) -> Tensor:
    """The state of each frame [B, T], by a search in all chunks at once and two loops over the chunks.

    States are numbered without holes meanwhile, so that every move is by one.
    """
    num_frames = scores_BTS.shape[1]
    # Position of each state: the number of positions with at most so many states up to them.
    num_until_BS = tf.cumsum(tf.cast(is_state_BS, tf.int32), axis=1)
    position_BS = tf.reduce_sum(
        tf.cast(num_until_BS[:, None] <= tf.range(is_state_BS.shape[1])[:, None], tf.int32), axis=2
    )
    position_BS = tf.minimum(position_BS, is_state_BS.shape[1] - 1)
    paths_DCBS = _search_within_chunks(scores_BTS, is_state_BS, position_BS, mel_lengths_B)
    moves_CBS = _join_chunks(paths_DCBS)
    last_B = tf.maximum(num_until_BS[:, -1] - 1, 0)
    rank_BT = _trace_chunks(moves_CBS, last_B)[:, :num_frames]
    return tf.gather(position_BS, rank_BT, batch_dims=1)


def _search_within_chunks(
    scores_BTS: Tensor, is_state_BS: Tensor, position_BS: Tensor, mel_lengths_B: Tensor
) -> Tensor:
    """The best path [D, C, B, S] through each chunk that ends in state s after d moves.

    It is one int64: the total score in the upper bits, and the complement of the moves in the lowest K, one bit a
    frame, the last frame highest. Of two paths the larger number is the better one: with equal scores the one that
    stays where the other moves, from the last frame on.
    """
    num_rows, num_frames, num_states = scores_BTS.shape
    num_chunks = -(-num_frames // _CHUNK_FRAMES)
    scale_B11 = _choose_scales(scores_BTS, is_state_BS, mel_lengths_B)[:, None, None]
    is_counted_BTS = (
        tf.sequence_mask(mel_lengths_B, num_frames)[..., None]
        & tf.gather(is_state_BS, position_BS, batch_dims=1)[:, None]
    )
    scores_BTS = tf.gather(scores_BTS, tf.broadcast_to(position_BS[:, None], scores_BTS.shape), batch_dims=2)
    exact_BTS = _to_integers(scores_BTS, scale_B11, is_counted_BTS)
    padded_BTS = tf.pad(exact_BTS, [[0, 0], [0, num_chunks * _CHUNK_FRAMES - num_frames], [0, 0]])
    chunked = tf.reshape(padded_BTS, [num_rows, num_chunks, _CHUNK_FRAMES, num_states])
    scores_KCBS = tf.transpose(chunked, [2, 1, 0, 3])
    frame_CK = tf.reshape(tf.range(num_chunks * _CHUNK_FRAMES), [num_chunks, _CHUNK_FRAMES])
    # The first frame is in the first state, and a path stays in its last state behind the utterance.
    can_move_KCB = (tf.transpose(frame_CK)[..., None] < mel_lengths_B) & (tf.transpose(frame_CK)[..., None] > 0)
    impossible = tf.constant(_IMPOSSIBLE * 2**_CHUNK_FRAMES, tf.int64)
    paths_DCBS = tf.fill([1, num_chunks, num_rows, num_states], tf.constant(2**_CHUNK_FRAMES - 1, tf.int64))
    for place in range(_CHUNK_FRAMES):
        # With each frame one move more is possible.
        stayed = tf.pad(paths_DCBS, [[0, 1], [0, 0], [0, 0], [0, 0]], constant_values=impossible)
        moved = tf.pad(paths_DCBS[..., :-1], [[1, 0], [0, 0], [0, 0], [1, 0]], constant_values=impossible)
        moved = tf.where(can_move_KCB[place][..., None], moved - 2**place, impossible)
        paths_DCBS = tf.maximum(stayed, moved) + tf.cast(scores_KCBS[place], tf.int64) * 2**_CHUNK_FRAMES
    return paths_DCBS


def _join_chunks(paths_DCBS: Tensor) -> Tensor:
    """Viterbi over chunks: the moves [C, B, S] within each chunk of the best path that ends it in state s, as bits."""
    num_moves, num_chunks, num_rows, num_states = paths_DCBS.shape
    lowest_bits = 2**_CHUNK_FRAMES - 1
    impossible = tf.constant(_IMPOSSIBLE * 2**_CHUNK_FRAMES, tf.int64)

    def join(chunk: Tensor, total_BS: Tensor, moves: tf.TensorArray) -> tuple[Tensor, Tensor, tf.TensorArray]:
        padded = tf.pad(total_BS, [[0, 0], [num_moves, 0]], constant_values=impossible)
        # A path with d moves that ends in state s began in state s - d.
        begin_DBS = tf.stack([padded[:, num_moves - move :][:, :num_states] for move in range(num_moves)])
        best_BS = tf.reduce_max(begin_DBS + paths_DCBS[:, chunk], axis=0)
        complement_BS = tf.bitwise.bitwise_and(best_BS, tf.constant(lowest_bits, tf.int64))
        moves = moves.write(chunk, lowest_bits - tf.cast(complement_BS, tf.int32))
        return chunk + 1, best_BS - complement_BS, moves

    start_S = tf.where(tf.range(num_states) == 0, tf.constant(0, tf.int64), impossible)
    moves = tf.TensorArray(tf.int32, num_chunks, element_shape=[num_rows, num_states])
    start = (tf.constant(0), tf.broadcast_to(start_S, [num_rows, num_states]), moves)
    _, _, moves = tf.while_loop(lambda chunk, *_: chunk < num_chunks, join, start)
    return moves.stack()


def _trace_chunks(moves_CBS: Tensor, last_B: Tensor) -> Tensor:
    """Follows the moves back from the last state, chunk by chunk; the state of each frame [B, C * K] follows."""
    num_chunks, num_rows, _ = moves_CBS.shape

    def retreat(num_done: Tensor, end_B: Tensor, ends: tf.TensorArray) -> tuple[Tensor, Tensor, tf.TensorArray]:
        chunk = num_chunks - 1 - num_done
        num_moves_B = _count_bits(tf.gather(moves_CBS[chunk], end_B, batch_dims=1))
        return num_done + 1, tf.maximum(end_B - num_moves_B, 0), ends.write(chunk, end_B)

    start = (tf.constant(0), last_B, tf.TensorArray(tf.int32, num_chunks, element_shape=[num_rows]))
    _, _, ends = tf.while_loop(lambda num_done, *_: num_done < num_chunks, retreat, start)
    ends_CB = ends.stack()
    # A frame is as many states before the end of its chunk as there are moves between the two.
    moves_CB = tf.gather(moves_CBS, ends_CB, batch_dims=2)
    behind_CBK = tf.bitwise.right_shift(moves_CB[..., None], tf.range(1, _CHUNK_FRAMES + 1))
    rank_CBK = tf.maximum(ends_CB[..., None] - _count_bits(behind_CBK), 0)
    return tf.reshape(tf.transpose(rank_CBK, [1, 0, 2]), [num_rows, -1])


def _count_bits(values: Tensor) -> Tensor:
    return tf.cast(tf.raw_ops.PopulationCount(x=values), tf.int32)


def expand_durations(durations_BS: Tensor, num_frames: int) -> Tensor:
    """The state of each frame [B, T]; frames behind the last state get the last position of the grid."""
    ends_BS = tf.cumsum(durations_BS, axis=1)
    is_over_BTS = ends_BS[:, None] <= tf.range(num_frames)[:, None]
    state_BT = tf.reduce_sum(tf.cast(is_over_BTS, tf.int32), axis=2)
    return tf.minimum(state_BT, count_steps(durations_BS) - 1)


def split_durations(durations_BN: Tensor, scores_BTS: Tensor, is_state_BS: Tensor, mel_lengths_B: Tensor) -> Alignment:
    """Alignment with given token durations (stored ones): searches only the boundary between the two states of a token.

    The boundary maximises the summed score difference of the first and second state, one cumulative sum and argmax.
    """
    num_rows, num_frames, num_states = scores_BTS.shape
    ends_BN = tf.cumsum(durations_BN, axis=1)
    frame_T = tf.range(num_frames)
    token_BT = expand_durations(durations_BN, num_frames)
    pairs_BTN2 = tf.reshape(scores_BTS, [num_rows, num_frames, num_states // 2, 2])
    pair_BT2 = tf.gather(pairs_BTN2, token_BT, batch_dims=2)
    gain_BT = tf.cumsum(pair_BT2[..., 0] - pair_BT2[..., 1], axis=1)
    # The first state ends at any frame of the token but the last, so that both states have one.
    is_inside_BNT = (frame_T >= (ends_BN - durations_BN)[..., None]) & (frame_T < ends_BN[..., None] - 1)
    last_BN = tf.argmax(tf.where(is_inside_BNT, gain_BT[:, None], -float("inf")), axis=-1, output_type=tf.int32)
    first_BN = last_BN + 1 - (ends_BN - durations_BN)
    is_double_BN = is_state_BS[:, 1::2] & (durations_BN > 1)
    first_BN = tf.where(is_double_BN, first_BN, durations_BN)
    durations_BS = tf.reshape(tf.stack([first_BN, durations_BN - first_BN], axis=-1), [num_rows, num_states])
    is_aligned_B = (tf.reduce_sum(durations_BN, axis=1) == mel_lengths_B) & (mel_lengths_B > 0)
    return Alignment(durations_BS, expand_durations(durations_BS, num_frames), is_aligned_B)
