"""How long and how high each state is spoken, predicted from features that this cannot change.

Shape legend: B utterances, N tokens, S states (2N), W width.
"""

# ruff: noqa: N815 - fields carry the shape of their tensors

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from myxtts.config.model_config import ModelConfig
from myxtts.models.blocks import ConvolutionBlock, Linear, ModelLayer, Norm, Tensor, fold_seed
from myxtts.models.pitch import Pitch
from myxtts.models.text_encoder import STATES_PER_TOKEN

NUM_LAYERS = 2


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
        width = config.text_width
        self.blocks = [ConvolutionBlock(width, dropout=config.dropout) for _ in range(NUM_LAYERS)]
        self.norm = Norm(width)
        self.log_frames = Linear(width, STATES_PER_TOKEN)
        self.height = Linear(width, STATES_PER_TOKEN)
        self.voicing = Linear(width, STATES_PER_TOKEN)

    def call(self, features_BNW: Tensor, is_real_BN1: Tensor, seed_2: Tensor = None) -> Prosody:
        x_BNW = tf.stop_gradient(features_BNW)
        for layer, block in enumerate(self.blocks):
            x_BNW = block(x_BNW, is_real_BN1, seed_2=fold_seed(seed_2, layer))
        x_BNW = self.norm(x_BNW)
        num_states = STATES_PER_TOKEN * features_BNW.shape[1]
        heads = (self.log_frames, self.height, self.voicing)
        return Prosody(*(tf.reshape(tf.cast(head(x_BNW), tf.float32), [-1, num_states]) for head in heads))


def measure_pitch_error(predicted: Prosody, real: Pitch, is_counted_BS: Tensor) -> Tensor:
    """How wrong heights of voiced states and voicings of all are, as a value [B, S]."""
    height_error_BS = real.voicing * tf.square(predicted.height_BS - real.height)
    voicing_error_BS = tf.nn.sigmoid_cross_entropy_with_logits(real.voicing, predicted.voicing_logit_BS)
    return tf.where(is_counted_BS, height_error_BS + voicing_error_BS, 0.0)
