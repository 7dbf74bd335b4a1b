"""Text encoder: token ids to features of tokens, and to the mean log-mel of each state that frames are aligned to.

As in an HMM each phone has two states, its first and its second part; specials and punctuation have one. States lie on
a grid of two per token, with a hole where a token has only one.
Shape legend: B utterances, N tokens, S states (2N), W width, M mel bands, H channels for the decoder, C condition.
"""

# ruff: noqa: N815 - fields carry the shape of their tensors

from __future__ import annotations

from typing import NamedTuple

import keras
import tensorflow as tf

from myxtts.config.model import ModelConfig
from myxtts.models.layers import (
    REACH,
    ConvolutionBlock,
    CrossAttention,
    Linear,
    ModelLayer,
    Norm,
    TransformerBlock,
    count_steps,
    drop,
    fold_seeds,
    mask_steps,
)
from myxtts.models.reference_encoder import Voice
from myxtts.models.spec import ModelSpec
from myxtts.types import Tensor

STATES_PER_TOKEN = 2
"""Positions per token on the grid of states; the second is a hole for specials and punctuation."""
LAYERS_PER_LOOK = 3
"""Blocks per cross-attention to the latents of the voice."""
_EMBEDDING_DEVIATION = 0.3
"""Standard deviation of initial embeddings, and the scale of language embeddings."""


class TextStates(NamedTuple):
    """Output of the text encoder: features of tokens; mean log-mel, decoder channels and mask of states."""

    features_BNW: Tensor
    means_BSM: Tensor
    hidden_BSH: Tensor
    is_state_BS: Tensor


def unpack_factors(ids_BN: Tensor, sizes: tuple[int, ...]) -> list[Tensor]:
    """Unpacks token ids into their factors, the first being the most significant digit."""
    factors = []
    for size in reversed(sizes):
        factors.append(ids_BN % size)
        ids_BN = ids_BN // size
    return factors[::-1]


def find_states(tokens_BN: Tensor, lengths_B: Tensor, spec: ModelSpec) -> Tensor:
    """Mask [B, S] of the grid positions that are states."""
    symbols_BN = unpack_factors(tokens_BN, spec.factor_sizes)[0]
    is_real_BN = tf.sequence_mask(lengths_B, count_steps(tokens_BN))
    pair = tf.stack([is_real_BN, is_real_BN & (symbols_BN >= spec.single_state_symbols)], axis=-1)
    return tf.reshape(pair, [tokens_BN.shape[0], STATES_PER_TOKEN * count_steps(tokens_BN)])


def count_hidden_channels(config: ModelConfig) -> int:
    """Number of decoder channels of a state, beside its mean spectrum."""
    return max(8, 2 * config.text_width // 5)


class TextEncoder(ModelLayer):
    """Sum of factor and language embeddings, then blocks that are conditioned on the voice (FiLM, cross-attention)."""

    def __init__(self, config: ModelConfig, spec: ModelSpec) -> None:
        super().__init__()
        self._spec, self._dropout = spec, config.dropout
        width, voice_width = config.text_width, config.reference_width
        self._width = width
        initializer = keras.initializers.RandomNormal(stddev=_EMBEDDING_DEVIATION)
        self.embeddings = [
            self.make_weight((size, width), initializer, f"factor_{number}")
            for number, size in enumerate(spec.factor_sizes)
        ]
        self.languages = self.make_weight((len(spec.languages), width), initializer, "languages")
        condition_width = max(8, width // 4)
        self.condition = Linear(voice_width, condition_width)
        self.blocks = [_make_block(config, reach, condition_width) for reach in spread_context(config)]
        num_looks = config.text_layers // LAYERS_PER_LOOK
        self.looks = [CrossAttention(width, voice_width, config.attention_heads) for _ in range(num_looks)]
        self.norm = Norm(width)
        self._num_hidden = count_hidden_channels(config)
        # All means begin equal, so that at first only the diagonal prior decides about the alignment.
        self.means = Linear(width, STATES_PER_TOKEN * spec.n_mels, starts_at_zero=True)
        self.hidden = Linear(width, STATES_PER_TOKEN * self._num_hidden)

    def call(
        self, tokens_BN: Tensor, lengths_B: Tensor, language_B: Tensor, voice: Voice, seed_2: Tensor = None
    ) -> TextStates:
        num_tokens = count_steps(tokens_BN)
        is_real_BN1 = mask_steps(lengths_B, num_tokens)
        condition_BC = tf.nn.silu(self.condition(voice.vector_BD))
        *seeds, first_seed_2 = fold_seeds(seed_2, len(self.blocks) + 1)
        x_BNW = drop(self._embed(tokens_BN, language_B), self._dropout, first_seed_2)
        for layer, block in enumerate(self.blocks):
            x_BNW = block(x_BNW, is_real_BN1, condition_BC, seeds[layer])
            if layer % LAYERS_PER_LOOK == LAYERS_PER_LOOK - 1:
                x_BNW = self.looks[layer // LAYERS_PER_LOOK](x_BNW, voice.latents_BKD)
        features_BNW = self.norm(x_BNW) * is_real_BN1
        num_states = STATES_PER_TOKEN * num_tokens
        means = tf.reshape(self.means(features_BNW), [tokens_BN.shape[0], num_states, self._spec.n_mels])
        hidden = tf.reshape(self.hidden(features_BNW), [tokens_BN.shape[0], num_states, self._num_hidden])
        is_state_BS = find_states(tokens_BN, lengths_B, self._spec)
        return TextStates(features_BNW, tf.cast(means, tf.float32), tf.cast(hidden, tf.float32), is_state_BS)

    def _embed(self, tokens_BN: Tensor, language_B: Tensor) -> Tensor:
        """Sum of the factor embeddings and the language embedding [B, N, W]."""
        factors = unpack_factors(tokens_BN, self._spec.factor_sizes)
        tables = [tf.convert_to_tensor(table) for table in self.embeddings]
        embedded = tf.add_n([tf.gather(table, ids) for table, ids in zip(tables, factors, strict=True)])
        # Normalised, so that no language dominates, to the initial norm of a factor embedding.
        strength = _EMBEDDING_DEVIATION * self._width**0.5
        languages = tf.math.l2_normalize(tf.convert_to_tensor(self.languages), axis=-1) * strength
        return embedded + tf.gather(languages, language_B)[:, None]


def spread_context(config: ModelConfig) -> list[int | None]:
    """Receptive field of each layer to either side, None for the default of its kind; first layers get the remainder.

    With a wide context the encoder recognises the sentences of a small corpus and memorises them (overfitting): its
    predictions for a token do not transfer to new sentences.
    """
    num_layers = config.text_layers
    if config.text_context is None:
        return [None] * num_layers
    least, num_farther = divmod(config.text_context, num_layers)
    return [least + (layer < num_farther) for layer in range(num_layers)]


def _make_block(config: ModelConfig, reach: int | None, condition_width: int) -> ConvolutionBlock | TransformerBlock:
    width, dropout = config.text_width, config.dropout
    if config.block == "convolution":
        reach = REACH if reach is None else reach
        return ConvolutionBlock(width, reach=reach, condition_width=condition_width, dropout=dropout)
    return TransformerBlock(
        width, config.attention_heads, window=reach, condition_width=condition_width, dropout=dropout
    )
