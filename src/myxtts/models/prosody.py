"""Duration and F0 predictor: log frames, F0 and voicing of each state, and rounding durations to whole frames.

It sees text features behind a stop-gradient, so that its loss does not shape the text encoder.
Shape legend: B utterances, N tokens, S states (2N), W width of features, V width of the predictor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from myxtts.config.model import ModelConfig
from myxtts.errors import DataError
from myxtts.models.layers import ConvolutionBlock, Linear, ModelLayer, Norm, count_steps, fold_seeds
from myxtts.models.pitch import Pitch
from myxtts.models.text_encoder import STATES_PER_TOKEN
from myxtts.types import Tensor

# ruff: noqa: N815 - fields carry the shape of their tensors

NUM_LAYERS = 2
"""Convolution blocks of the predictor."""
_DROPOUT_FACTOR, _MAX_DROPOUT = 2.5, 0.5
"""More dropout than elsewhere, and a narrow network: durations overfit long before spectrograms do."""
_MAX_LOG_FRAMES = 6.0
"""exp(6) is about 400 frames for one state; a larger prediction only shows that something is wrong."""
_SANE_FACTORS = (0.5, 2.0)
"""Limits of the length factor, against predictions that are far off."""


class Prosody(NamedTuple):
    """Log frames, F0 (in the unit of `Pitch`) and the logit of the voicing of each state [B, S]."""

    log_frames_BS: Tensor
    f0_BS: Tensor
    voicing_logit_BS: Tensor

    @property
    def pitch(self) -> Pitch:
        """Predicted F0 and voicing probability, as the decoder takes them."""
        return Pitch(self.f0_BS, tf.sigmoid(self.voicing_logit_BS))


class ProsodyPredictor(ModelLayer):
    """Two convolution blocks and a linear head for each output."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = max(8, 2 * config.text_width // 5)
        dropout = min(_DROPOUT_FACTOR * config.dropout, _MAX_DROPOUT)
        self.stem = Linear(config.text_width, width)
        self.blocks = [ConvolutionBlock(width, dropout=dropout) for _ in range(NUM_LAYERS)]
        self.norm = Norm(width)
        self.log_frames = Linear(width, STATES_PER_TOKEN)
        # The F0 head; bundles and checkpoints name weights after attributes, so it keeps this name.
        self.height = Linear(width, STATES_PER_TOKEN)
        self.voicing = Linear(width, STATES_PER_TOKEN)

    def call(self, features_BNW: Tensor, is_real_BN1: Tensor, seed_2: Tensor = None) -> Prosody:
        x_BNV = tf.cast(self.stem(tf.stop_gradient(features_BNW)), tf.float32)
        for block, block_seed_2 in zip(self.blocks, fold_seeds(seed_2, len(self.blocks)), strict=True):
            x_BNV = block(x_BNV, is_real_BN1, seed_2=block_seed_2)
        x_BNV = self.norm(x_BNV)
        num_states = STATES_PER_TOKEN * count_steps(features_BNW)
        heads = (self.log_frames, self.height, self.voicing)
        return Prosody(
            *(tf.reshape(tf.cast(head(x_BNV), tf.float32), [features_BNW.shape[0], num_states]) for head in heads)
        )


def compute_frames(log_frames_BS: Tensor, is_state_BS: Tensor, factor: Tensor) -> Tensor:
    """Durations of states in fractional frames, scaled by `factor`, at least one frame each; 0 for holes."""
    frames = tf.exp(tf.minimum(log_frames_BS, _MAX_LOG_FRAMES)) * factor
    return tf.where(is_state_BS, tf.maximum(frames, 1.0), 0.0)


def round_frames(frames_BS: Tensor) -> Tensor:
    """Rounds durations to whole frames so that the running sum stays within half a frame of the exact one."""
    ends_BS = tf.cast(tf.floor(tf.cumsum(frames_BS, axis=1) + 0.5), tf.int32)
    return ends_BS - tf.pad(ends_BS[:, :-1], [[0, 0], [1, 0]])


def calibrate_length_factor(predicted_frames: Sequence[float], real_frames: Sequence[float]) -> float:
    """Ratio of real to predicted total length, by which synthesis scales durations.

    The exponential of a mean logarithm is too short whenever durations vary (Jensen's inequality).
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
