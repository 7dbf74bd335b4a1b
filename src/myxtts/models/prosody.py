"""How long and how high each state is spoken, predicted from features that this cannot change.

Shape legend: B utterances, N tokens, S states (2N), W width of features, V width in here.
"""

# ruff: noqa: N815 - fields carry the shape of their tensors

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from myxtts.config.model_config import ModelConfig
from myxtts.models.blocks import ConvolutionBlock, Linear, ModelLayer, Norm, fold_seed
from myxtts.models.pitch import Pitch
from myxtts.models.text_encoder import STATES_PER_TOKEN
from myxtts.types import Tensor

NUM_LAYERS = 2
_DROPOUT_FACTOR, _MAX_DROPOUT = 2.5, 0.5
"""A rhythm is learnt by heart long before a sound is: more of it must be kept from the predictor, and it is narrow."""


class Prosody(NamedTuple):
    """Log frames of each state [B, S], its height and the logit of its voicing."""

    log_frames_BS: Tensor
    height_BS: Tensor
    voicing_logit_BS: Tensor

    @property
    def pitch(self) -> Pitch:
        return Pitch(self.height_BS, tf.sigmoid(self.voicing_logit_BS))


class ProsodyPredictor(ModelLayer):
    """What it learns does not reach the text encoder, which would come to serve it instead of the spectrum."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = max(8, 2 * config.text_width // 5)
        dropout = min(_DROPOUT_FACTOR * config.dropout, _MAX_DROPOUT)
        self.stem = Linear(config.text_width, width)
        self.blocks = [ConvolutionBlock(width, dropout=dropout) for _ in range(NUM_LAYERS)]
        self.norm = Norm(width)
        self.log_frames = Linear(width, STATES_PER_TOKEN)
        self.height = Linear(width, STATES_PER_TOKEN)
        self.voicing = Linear(width, STATES_PER_TOKEN)

    def call(self, features_BNW: Tensor, is_real_BN1: Tensor, seed_2: Tensor = None) -> Prosody:
        x_BNV = tf.cast(self.stem(tf.stop_gradient(features_BNW)), tf.float32)
        for layer, block in enumerate(self.blocks):
            x_BNV = block(x_BNV, is_real_BN1, seed_2=fold_seed(seed_2, layer))
        x_BNV = self.norm(x_BNV)
        num_states = STATES_PER_TOKEN * features_BNW.shape[1]
        heads = (self.log_frames, self.height, self.voicing)
        return Prosody(*(tf.reshape(tf.cast(head(x_BNV), tf.float32), [-1, num_states]) for head in heads))


def measure_pitch_error(predicted: Prosody, real: Pitch, is_counted_BS: Tensor) -> Tensor:
    """How wrong heights of voiced states and voicings of all are, as a value [B, S]."""
    height_error_BS = real.voicing * tf.square(predicted.height_BS - real.height)
    voicing_error_BS = tf.nn.sigmoid_cross_entropy_with_logits(real.voicing, predicted.voicing_logit_BS)
    return tf.where(is_counted_BS, height_error_BS + voicing_error_BS, 0.0)
