"""From predicted durations of states to whole frames: stretched, at least one each, rounded so that no time is lost.

Shape legend: B utterances, S states.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from myxtts.errors import DataError
from myxtts.types import Tensor

_MAX_LOG_FRAMES = 6.0
"""No state lasts longer than about 400 frames; beyond that an exponential only shows that something is wrong."""

_SANE_FACTORS = (0.5, 2.0)


def compute_frames(log_frames_BS: Tensor, is_state_BS: Tensor, factor: Tensor) -> Tensor:
    """Lengths of states in fractions of frames, at least one frame each."""
    frames = tf.exp(tf.minimum(log_frames_BS, _MAX_LOG_FRAMES)) * factor
    return tf.where(is_state_BS, tf.maximum(frames, 1.0), 0.0)


def round_frames(frames_BS: Tensor) -> Tensor:
    """Whole frames whose running sum stays within half a frame of the exact one."""
    ends_BS = tf.cast(tf.floor(tf.cumsum(frames_BS, axis=1) + 0.5), tf.int32)
    return ends_BS - tf.pad(ends_BS[:, :-1], [[0, 0], [1, 0]])


def calibrate_length_factor(predicted_frames: Sequence[float], real_frames: Sequence[float]) -> float:
    """By how much predicted lengths of utterances must grow so that together they last as long as the real ones.

    The exponential of a mean logarithm is too short whenever durations vary.
    """
    predicted, real = float(sum(predicted_frames)), float(sum(real_frames))
    if len(predicted_frames) != len(real_frames) or not (predicted > 0 and real > 0):
        raise DataError(
            f"A length factor cannot be found from {len(predicted_frames)} predicted and {len(real_frames)} real "
            f"lengths that sum to {predicted:g} and {real:g} frames.",
            next_step="Calibrate on some utterances of the training split, after some steps of training.",
        )
    lowest, highest = _SANE_FACTORS
    return min(max(real / predicted, lowest), highest)
