"""Speaker encoder: maps a reference log-mel to a speaker embedding [D] and K latents that the decoder attends to.

The latents come from a perceiver resampler; no transcript is needed. `SpeakerClassifier` is an additive-margin softmax
(CosFace) over the training speakers.
Shape legend: B utterances, R frames of the reference, Q stacks of frames, M mel bands, D width of a voice, K latents.
"""

# ruff: noqa: N815 - fields carry the shape of their tensors

from __future__ import annotations

from typing import NamedTuple

import keras
import tensorflow as tf

from myxtts.config.model import ModelConfig
from myxtts.models.layers import (
    Attention,
    ConvolutionBlock,
    FeedForward,
    Linear,
    ModelLayer,
    Norm,
    TransformerBlock,
    count_steps,
    fold_seeds,
    mask_steps,
)
from myxtts.types import Tensor

STACKED_FRAMES = 4
"""Frames per encoder step: a voice does not change within 50 ms, and self-attention costs a sixteenth."""

_DILATIONS = (1, 2, 4)
"""Dilations of successive convolution blocks, repeated if there are more blocks."""
_COSINE_SCALE = 16.0
_COSINE_MARGIN = 0.1
"""Scale s and margin m of CosFace (Wang et al., 2018): logits are s (cos - m) for the right speaker, s cos else."""


class Voice(NamedTuple):
    """Speaker embedding and latents. Zeros mean no voice (the unconditional case of classifier-free guidance)."""

    vector_BD: Tensor
    latents_BKD: Tensor


def drop_voice(voice: Voice, is_kept_B: Tensor) -> Voice:
    """Zeroes the voice of the rows that are not kept."""
    kept_B1 = tf.cast(is_kept_B, tf.float32)[:, None]
    return Voice(voice.vector_BD * kept_B1, voice.latents_BKD * kept_B1[..., None])


class ReferenceEncoder(ModelLayer):
    """Convolution blocks, self-attention, and a perceiver resampler with learnt queries."""

    def __init__(self, config: ModelConfig, n_mels: int) -> None:
        super().__init__()
        width, heads = config.reference_width, config.attention_heads
        self.stem = Linear(STACKED_FRAMES * n_mels, width)
        self.convolutions = [
            ConvolutionBlock(width, dilation=_DILATIONS[layer % len(_DILATIONS)], dropout=config.dropout)
            for layer in range(config.reference_layers)
        ]
        self.attention = TransformerBlock(width, heads, dropout=config.dropout)
        self.norm = Norm(width)
        # As large as the normalised keys: smaller queries would all attend to the same frames.
        initializer = keras.initializers.RandomNormal(stddev=1.0)
        self.queries = self.make_weight((config.num_latents, width), initializer, "queries")
        self.resampler = Attention(width, heads)
        self.latent_norm = Norm(width)
        self.latent_feed_forward = FeedForward(width)
        self.voice_norm = Norm(width)
        self.vector = Linear(2 * width, width)
        self.vector_norm = Norm(width)

    def call(self, mel_BRM: Tensor, lengths_B: Tensor, seed_2: Tensor = None) -> Voice:
        """Encodes a normalised reference log-mel; rows without frames get zeros."""
        x_BQD, is_real_BQ1 = self._stack_frames(mel_BRM, lengths_B)
        *seeds, last_seed_2 = fold_seeds(seed_2, len(self.convolutions) + 1)
        for block, block_seed_2 in zip(self.convolutions, seeds, strict=True):
            x_BQD = block(x_BQD, is_real_BQ1, seed_2=block_seed_2)
        x_BQD = self.norm(self.attention(x_BQD, is_real_BQ1, seed_2=last_seed_2))
        num_rows = x_BQD.shape[0]
        latents = tf.tile(tf.convert_to_tensor(self.queries)[None], [num_rows, 1, 1])
        latents += tf.cast(self.resampler(latents, x_BQD, is_real_BQ1), tf.float32)
        latents += tf.cast(self.latent_feed_forward(self.latent_norm(latents)), tf.float32)
        latents = self.voice_norm(latents)
        num_real_B1 = tf.maximum(tf.reduce_sum(is_real_BQ1, axis=1), 1.0)
        mean_BD = tf.reduce_sum(x_BQD * is_real_BQ1, axis=1) / num_real_B1
        vector = self.vector_norm(self.vector(tf.concat([mean_BD, tf.reduce_mean(latents, axis=1)], axis=-1)))
        return drop_voice(Voice(vector, latents), lengths_B > 0)

    def _stack_frames(self, mel_BRM: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Projects stacks of 4 frames, padding masked; returns features [B, Q, D] and the mask [B, Q, 1]."""
        num_frames, n_mels = count_steps(mel_BRM), mel_BRM.shape[2]
        num_stacks = (num_frames + STACKED_FRAMES - 1) // STACKED_FRAMES
        masked = mel_BRM * mask_steps(lengths_B, num_frames)
        padded = tf.pad(masked, [[0, 0], [0, num_stacks * STACKED_FRAMES - num_frames], [0, 0]])
        stacked = self.stem(tf.reshape(padded, [mel_BRM.shape[0], num_stacks, STACKED_FRAMES * n_mels]))
        num_real_B = (lengths_B + STACKED_FRAMES - 1) // STACKED_FRAMES
        return tf.cast(stacked, tf.float32), mask_steps(num_real_B, num_stacks)


class SpeakerClassifier(ModelLayer):
    """Additive-margin softmax over the training speakers; not used in synthesis."""

    def __init__(self, width: int, num_speakers: int) -> None:
        super().__init__()
        initializer = keras.initializers.RandomNormal(stddev=1.0)
        self.centres = self.make_weight((num_speakers, width), initializer, "centres")

    def call(self, vector_BD: Tensor, speaker_B: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy, and whether the nearest centre is the right one, by row."""
        centres = tf.math.l2_normalize(tf.convert_to_tensor(self.centres), axis=-1)
        # Without epsilon the gradient of a row without a voice, all zeros, would be NaN.
        cosines_BS = tf.math.l2_normalize(vector_BD, axis=-1, epsilon=1e-6) @ tf.transpose(centres)
        is_speaker_BS = tf.one_hot(speaker_B, centres.shape[0])
        logits = _COSINE_SCALE * (cosines_BS - _COSINE_MARGIN * is_speaker_BS)
        loss_B = tf.nn.softmax_cross_entropy_with_logits(is_speaker_BS, logits)
        is_right_B = tf.argmax(cosines_BS, axis=-1, output_type=tf.int32) == speaker_B
        return loss_B, tf.cast(is_right_B, tf.float32)
