"""Monotonic alignment search (Glow-TTS, Kim et al., 2020) in the graph: the Viterbi path of frames through states.

A path begins in the first state, ends in the last, and leaves none out. The grid of states may have single holes, which
paths step over. One loop over frames, with all states at once; float32, without a gradient.
Both loops count up to a constant and have no `maximum_iterations`, which would be a second condition: only then XLA
knows their number of iterations, and a GPU runs them without asking the host after each one.
Shape legend: B utterances, T frames, N tokens, S states, M mel bands.
"""

# ruff: noqa: N802, N815 - fields carry the shape of their tensors

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from myxtts.models.text_encoder import STATES_PER_TOKEN
from myxtts.types import Tensor

_IMPOSSIBLE = -1e9
"""Score of a state that no whole path can pass at a frame; finite, so that sums and differences stay finite."""
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
    return tf.reduce_sum(tf.reshape(durations_BS, [-1, durations_BS.shape[1] // STATES_PER_TOKEN, 2]), axis=-1)


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


def search_alignment(scores_BTS: Tensor, is_state_BS: Tensor, mel_lengths_B: Tensor) -> Alignment:
    """Viterbi search: the path with the highest total score. Needs at least as many frames as states."""
    num_states_B = tf.reduce_sum(tf.cast(is_state_BS, tf.int32), axis=1)
    is_aligned_B = (num_states_B <= mel_lengths_B) & (num_states_B > 0)
    is_moved_TBS = _search_forward(scores_BTS, is_state_BS, mel_lengths_B)
    state_BT = _trace_back(is_moved_TBS, is_state_BS, mel_lengths_B)
    return Alignment(_count_frames(state_BT, mel_lengths_B, is_state_BS.shape[1]), state_BT, is_aligned_B)


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


def _search_forward(scores_BTS: Tensor, is_state_BS: Tensor, mel_lengths_B: Tensor) -> Tensor:
    """Forward pass of Viterbi: for each frame and state whether its best path came from the state before.

    Masks are computed frame by frame: for all frames at once they would not fit into the cache.
    """
    num_frames = scores_BTS.shape[1]
    is_after_hole_BS = ~_shift(is_state_BS, 1, True)
    first_BS = _rank_states(is_state_BS)
    num_after_BS = tf.reduce_sum(tf.cast(is_state_BS, tf.int32), axis=1, keepdims=True) - 1 - first_BS
    last_BS = mel_lengths_B[:, None] - 1 - num_after_BS

    def score(frame: Tensor) -> Tensor:
        """Scores of a frame; a state counts only if enough frames are left before and after it for the other states."""
        is_reachable_BS = is_state_BS & (first_BS <= frame) & (frame <= last_BS)
        return tf.where(is_reachable_BS, scores_BTS[:, frame], _IMPOSSIBLE)

    def advance(frame: Tensor, best_BS: Tensor, moves: tf.TensorArray) -> tuple[Tensor, Tensor, tf.TensorArray]:
        before = tf.where(is_after_hole_BS, _shift(best_BS, 2, _IMPOSSIBLE), _shift(best_BS, 1, _IMPOSSIBLE))
        moves = moves.write(frame, before > best_BS)
        return frame + 1, tf.maximum(best_BS, before) + score(frame), moves

    moves = tf.TensorArray(tf.bool, num_frames, element_shape=is_state_BS.shape)
    moves = moves.write(0, tf.zeros_like(is_state_BS))
    start = (tf.constant(1), score(tf.constant(0)), moves)
    _, _, moves = tf.while_loop(lambda frame, *_: frame < num_frames, advance, start)
    return moves.stack()


def _trace_back(is_moved_TBS: Tensor, is_state_BS: Tensor, mel_lengths_B: Tensor) -> Tensor:
    """Backward pass of Viterbi: follows the recorded moves from the last state to the first."""
    num_frames, _, num_states = is_moved_TBS.shape
    position_S = tf.range(num_states)
    last_B = tf.reduce_max(tf.where(is_state_BS, position_S, 0), axis=1)
    num_back_BS = tf.where(_shift(is_state_BS, 1, True), 1, 2)

    def retreat(num_done: Tensor, state_B: Tensor, path: tf.TensorArray) -> tuple[Tensor, Tensor, tf.TensorArray]:
        frame = num_frames - 1 - num_done
        path = path.write(frame, state_B)
        num_back_B = tf.gather(tf.where(is_moved_TBS[frame], num_back_BS, 0), state_B, batch_dims=1)
        return num_done + 1, tf.where(frame < mel_lengths_B, tf.maximum(state_B - num_back_B, 0), state_B), path

    start = (tf.constant(0), last_B, tf.TensorArray(tf.int32, num_frames, element_shape=last_B.shape))
    _, _, path = tf.while_loop(lambda num_done, *_: num_done < num_frames, retreat, start)
    return tf.transpose(path.stack())


def expand_durations(durations_BS: Tensor, num_frames: int) -> Tensor:
    """The state of each frame [B, T]; frames behind the last state get the last position of the grid."""
    ends_BS = tf.cumsum(durations_BS, axis=1)
    is_over_BTS = ends_BS[:, None] <= tf.range(num_frames)[:, None]
    state_BT = tf.reduce_sum(tf.cast(is_over_BTS, tf.int32), axis=2)
    return tf.minimum(state_BT, durations_BS.shape[1] - 1)


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
