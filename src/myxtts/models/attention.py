"""Attention: among the steps of one sequence, and from a sequence to the latents of a voice.

Shape legend: B utterances, T steps, S steps of what is attended to, W width, H heads, E width of a head, C condition.
"""

from __future__ import annotations

import tensorflow as tf

from myxtts.models.blocks import FeedForward, Film, Linear, ModelLayer, Norm, drop, fold_seed
from myxtts.types import Tensor

_MASKED = -1e9
_ROTARY_BASE = 10_000.0


class Attention(ModelLayer):
    """Several heads; softmax in float32. With `window`, a step sees only so many steps to either side.

    `is_rotary` turns queries and keys by their position, so that what counts is the distance between two steps.
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        *,
        source_width: int | None = None,
        inner_width: int | None = None,
        window: int | None = None,
        is_rotary: bool = False,
        starts_at_zero: bool = False,
    ) -> None:
        super().__init__()
        inner_width, source_width = inner_width or width, source_width or width
        assert inner_width % num_heads == 0, f"{num_heads} heads do not divide {inner_width}"
        self._num_heads, self._head_width = num_heads, inner_width // num_heads
        self._window, self._is_rotary = window, is_rotary
        # No biases: where the voice is nothing, nothing is what attending to it gives.
        self.query = Linear(width, inner_width, use_bias=False)
        self.key = Linear(source_width, inner_width, use_bias=False)
        self.value = Linear(source_width, inner_width, use_bias=False)
        self.back = Linear(inner_width, width, use_bias=False, starts_at_zero=starts_at_zero)

    def call(self, x_BTW: Tensor, source_BSW: Tensor, is_source_real_BS1: Tensor = None) -> Tensor:
        query, key, value = (
            self._part_heads(projection(tensor))
            for projection, tensor in ((self.query, x_BTW), (self.key, source_BSW), (self.value, source_BSW))
        )
        if self._is_rotary:
            query, key = _rotate(query), _rotate(key)
        logits_BHTS = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32) * self._head_width**-0.5
        if is_source_real_BS1 is not None:
            logits_BHTS += (1 - is_source_real_BS1[:, None, None, :, 0]) * _MASKED
        if self._window is not None:
            logits_BHTS += _mask_far_steps(x_BTW.shape[1], self._window)
        weights = self.to_compute_dtype(tf.nn.softmax(logits_BHTS))
        joined = tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3])
        return self.back(tf.reshape(joined, [-1, x_BTW.shape[1], self._num_heads * self._head_width]))

    def _part_heads(self, x_BTW: Tensor) -> Tensor:
        parted = tf.reshape(x_BTW, [-1, x_BTW.shape[1], self._num_heads, self._head_width])
        return tf.transpose(parted, [0, 2, 1, 3])


def _rotate(x_BHTE: Tensor) -> Tensor:
    """Turns each pair of channels by an angle that grows with the position. An odd last channel stays."""
    num_pairs = x_BHTE.shape[-1] // 2
    speeds = tf.pow(_ROTARY_BASE, -tf.range(num_pairs, dtype=tf.float32) / num_pairs)
    angles = tf.range(x_BHTE.shape[2], dtype=tf.float32)[:, None] * speeds
    x = tf.cast(x_BHTE, tf.float32)
    first, second, rest = x[..., :num_pairs], x[..., num_pairs : 2 * num_pairs], x[..., 2 * num_pairs :]
    cosine, sine = tf.cos(angles), tf.sin(angles)
    turned = tf.concat([first * cosine - second * sine, first * sine + second * cosine, rest], axis=-1)
    return tf.cast(turned, x_BHTE.dtype)


def _mask_far_steps(num_steps: int, window: int) -> Tensor:
    position = tf.range(num_steps)
    is_far = tf.abs(position[:, None] - position[None]) > window
    return tf.where(is_far, _MASKED, 0.0)


class TransformerBlock(ModelLayer):
    """Pre-norm self-attention and feed-forward; `condition_width` of 0 means that it takes no condition."""

    def __init__(
        self, width: int, num_heads: int, *, window: int | None = None, condition_width: int = 0, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self._dropout = dropout
        self.attention_norm, self.norm = Norm(width), Norm(width)
        self.attention_film = Film(condition_width, width) if condition_width else None
        self.film = Film(condition_width, width) if condition_width else None
        self.attention = Attention(width, num_heads, window=window, is_rotary=True)
        self.feed_forward = FeedForward(width)

    def call(self, x_BTW: Tensor, is_real_BT1: Tensor, condition_BC: Tensor = None, seed_2: Tensor = None) -> Tensor:
        hidden = self.attention_norm(x_BTW)
        if self.attention_film is not None:
            hidden = self.attention_film(hidden, condition_BC)
        attended = tf.cast(self.attention(hidden, hidden, is_real_BT1), x_BTW.dtype)
        x_BTW += drop(attended, self._dropout, fold_seed(seed_2, 0))
        hidden = self.norm(x_BTW)
        if self.film is not None:
            hidden = self.film(hidden, condition_BC)
        return x_BTW + drop(tf.cast(self.feed_forward(hidden), x_BTW.dtype), self._dropout, fold_seed(seed_2, 1))


class CrossAttention(ModelLayer):
    """A residual look at the latents of a voice; changes nothing at the start of training."""

    def __init__(self, width: int, source_width: int, num_heads: int) -> None:
        super().__init__()
        self.norm = Norm(width)
        self.attention = Attention(
            width, num_heads, source_width=source_width, inner_width=source_width, starts_at_zero=True
        )

    def call(self, x_BTW: Tensor, latents_BKD: Tensor) -> Tensor:
        return x_BTW + tf.cast(self.attention(self.norm(x_BTW), latents_BKD), x_BTW.dtype)
