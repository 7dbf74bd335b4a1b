"""Building blocks of both models: linear, norm, FiLM, ConvNeXt and transformer blocks, attention, stateless dropout.

All weights are created in the constructor. Matrix products run in the compute dtype of the Keras policy; norms, softmax
and the residual stream stay in float32. Randomness is stateless: a seed is passed to every call, and without one
nothing is dropped.

Shape legend: B utterances, T steps in time (frames or tokens), S steps that are attended to, W width, C width of a
condition, H heads, E width of a head, K latents, D width of a latent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import keras
import tensorflow as tf

from myxtts.types import Tensor

REACH = 3
"""Steps to either side that a convolution sees: a kernel of 7, as in ConvNeXt."""
EXPANSION = 3
"""Width of the hidden layer of a feed-forward network, relative to the block."""
_EPSILON = 1e-6
_RNG = "philox"
"""Named explicitly, because the default of TensorFlow differs between devices."""
_MASKED = -1e9
"""Added to attention logits of masked steps; finite, so that a row without any real step gives no NaN."""
_ROTARY_BASE = 10_000.0
"""Base of the rotary frequencies, as in RoFormer."""


@contextmanager
def use_dtype_policy(policy: str) -> Iterator[None]:
    """Layers made within the block follow this dtype policy of Keras."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


class ModelLayer(keras.layers.Layer):  # type: ignore[misc]
    """Keras layer that creates its weights in the constructor and casts its inputs explicitly."""

    def __init__(self, dtype: str | None = None) -> None:
        """`dtype` is the one to compute in; None follows the dtype policy of Keras."""
        super().__init__(autocast=False, dtype=dtype)
        self.built = True

    def make_weight(self, shape: tuple[int, ...], initializer: Any, name: str) -> Any:
        """Creates a float32 weight that is read as float32; Keras would autocast those of an outermost layer."""
        return self.add_weight(shape, initializer, dtype="float32", autocast=False, name=name)

    def to_compute_dtype(self, tensor: Tensor) -> Tensor:
        return tf.cast(tensor, self.compute_dtype)


def iterate_weights(layer: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every weight under a layer by the path of its attributes, such as `decoder.blocks.0.norm.gain`.

    Checkpoints and bundles use these names, so attributes of layers must not be renamed.
    """
    for name, value in sorted(vars(layer).items()):
        if name.startswith("_"):
            continue
        for key, item in enumerate(value) if isinstance(value, list) else [(None, value)]:
            path = f"{prefix}{name}" if key is None else f"{prefix}{name}.{key}"
            if isinstance(item, keras.Variable):
                yield path, item
            elif isinstance(item, ModelLayer):
                yield from iterate_weights(item, f"{path}.")


def fold_seed(seed_2: Tensor, number: int | Tensor) -> Tensor:
    """Derives a seed from a seed and a number; None stays None."""
    return None if seed_2 is None else tf.random.experimental.stateless_fold_in(seed_2, number, alg=_RNG)


def fold_seeds(seed_2: Tensor, count: int) -> list[Tensor]:
    """The seeds that `fold_seed` derives from the numbers below `count`, with a fraction of the operations.

    It joins a draw from the seed with the number, so that one draw serves for all.
    """
    if seed_2 is None:
        return [None] * count
    drawn = tf.random.stateless_uniform([], seed_2, None, None, tf.int32, alg=_RNG)
    return [tf.stack([drawn, number]) for number in range(count)]


def draw_uniform(seed_2: Tensor, shape: tuple[int, ...] | list[int]) -> Tensor:
    return tf.random.stateless_uniform(shape, seed_2, alg=_RNG)


def draw_normal(seed_2: Tensor, shape: tuple[int, ...] | list[int]) -> Tensor:
    return tf.random.stateless_normal(shape, seed_2, alg=_RNG)


def drop(x: Tensor, rate: float, seed_2: Tensor) -> Tensor:
    """Inverted dropout. The rate is rounded to 1/256: one random 32-bit number decides on four values."""
    if seed_2 is None or round(rate * 256) == 0:
        return x
    num_values = math.prod(x.shape)
    bits = tf.random.stateless_uniform([-(-num_values // 4)], seed_2, None, None, tf.uint32, alg=_RNG)
    bytes_ = tf.reshape(tf.bitcast(bits, tf.uint8), [-1])[:num_values]
    threshold = round(rate * 256)
    kept = tf.cast(tf.reshape(bytes_, x.shape) >= threshold, x.dtype)
    return x * kept * (256 / (256 - threshold))


def count_steps(x: Tensor, axis: int = 1) -> Any:
    """Size of an axis: a number where the shape is static, a tensor in exported graphs, which take any length."""
    return tf.shape(x)[axis] if x.shape[axis] is None else x.shape[axis]


def list_sizes(x: Tensor) -> list[Any]:
    """The shape of a tensor, for a reshape that keeps what is static of it."""
    return [count_steps(x, axis) for axis in range(len(x.shape))]


def mask_steps(lengths_B: Tensor, num_steps: int) -> Tensor:
    """1.0 for steps inside the length, 0.0 for padding, as [B, T, 1]."""
    return tf.sequence_mask(lengths_B, num_steps, tf.float32)[..., None]


class Linear(ModelLayer):
    """Dense layer over the last axis."""

    def __init__(
        self,
        num_inputs: int,
        num_outputs: int,
        *,
        use_bias: bool = True,
        starts_at_zero: bool = False,
        dtype: str | None = None,
    ) -> None:
        super().__init__(dtype)
        self._num_inputs, self._num_outputs = num_inputs, num_outputs
        initializer = "zeros" if starts_at_zero else "glorot_uniform"
        self.kernel = self.make_weight((num_inputs, num_outputs), initializer, "kernel")
        self.bias = self.make_weight((num_outputs,), "zeros", "bias") if use_bias else None

    def call(self, x: Tensor) -> Tensor:
        kernel, x = self.to_compute_dtype(self.kernel), self.to_compute_dtype(x)
        # One flat product: the gradient of a batched one would hold the kernel once per utterance.
        is_static = None not in x.shape
        product = (tf.reshape(x, [-1, self._num_inputs]) if is_static else x) @ kernel
        if self.bias is not None:
            product += self.to_compute_dtype(self.bias)
        return tf.reshape(product, [*x.shape[:-1], self._num_outputs]) if is_static else product


class Norm(ModelLayer):
    """Layer normalisation in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = self.make_weight((width,), "ones", "gain")
        self.offset = self.make_weight((width,), "zeros", "offset")

    def call(self, x: Tensor) -> Tensor:
        x = tf.cast(x, tf.float32)
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
        return centred * tf.math.rsqrt(variance + _EPSILON) * self.gain + self.offset


class Film(ModelLayer):
    """Feature-wise linear modulation (FiLM) by a condition [B, C]; the identity at the start of training."""

    def __init__(self, condition_width: int, width: int) -> None:
        super().__init__()
        self.projection = Linear(condition_width, 2 * width, starts_at_zero=True)

    def call(self, x_BTW: Tensor, condition_BC: Tensor) -> Tensor:
        scale_BW, shift_BW = tf.split(self.projection(condition_BC), 2, axis=-1)
        return x_BTW * (1 + tf.cast(scale_BW, x_BTW.dtype)[:, None]) + tf.cast(shift_BW, x_BTW.dtype)[:, None]


_NUM_ROW_GROUPS = 4
"""Groups of rows whose products are added up first; with more of them, tracing takes longer."""
_sums_by_row = ContextVar("_sums_by_row", default=False)


@contextmanager
def sum_kernel_gradients_by_row(is_on: bool) -> Iterator[None]:
    """Convolutions made within the block have the gradient of `_convolve_for_cpu`, which is for XLA on CPUs."""
    before = _sums_by_row.set(is_on)
    try:
        yield
    finally:
        _sums_by_row.reset(before)


class ShiftedConvolution(ModelLayer):
    """Depthwise convolution over time, written as a sum of shifted products, which XLA fuses into one pass."""

    def __init__(self, width: int, dilation: int = 1, reach: int = REACH) -> None:
        super().__init__()
        self._sums_by_row = _sums_by_row.get()
        self._dilation, self._num_taps = dilation, 2 * reach + 1
        initializer = keras.initializers.RandomNormal(stddev=self._num_taps**-0.5)
        self.kernel = self.make_weight((self._num_taps, width), initializer, "kernel")
        self.bias = self.make_weight((width,), "zeros", "bias")

    def call(self, x_BTW: Tensor) -> Tensor:
        num_steps, margin = count_steps(x_BTW), self._dilation * (self._num_taps // 2)
        kernel, total = self.to_compute_dtype(self.kernel), self.to_compute_dtype(self.bias)
        if self._sums_by_row and x_BTW.shape[1] is not None:
            return _convolve_for_cpu(self.to_compute_dtype(x_BTW), kernel, total, self._dilation)
        padded = tf.pad(self.to_compute_dtype(x_BTW), [[0, 0], [margin, margin], [0, 0]])
        if x_BTW.shape[1] is None:
            # Exported: one operator, where nothing would fuse the sum. Time is the innermost axis of an image: so
            # onnxruntime takes a quarter of the time.
            dilations = [1, self._dilation]
            convolved = tf.nn.depthwise_conv2d(
                padded[:, None], kernel[None, :, :, None], [1] * 4, "VALID", dilations=dilations
            )
            return convolved[:, 0] + total
        for tap in range(self._num_taps):
            start = tap * self._dilation
            total += padded[:, start : start + num_steps] * kernel[tap]
        return total


def _convolve_for_cpu(x_BTW: Tensor, kernel_KW: Tensor, bias_W: Tensor, dilation: int) -> Tensor:
    """The sum of shifted products, with a gradient that XLA turns into vector instructions of a CPU.

    The gradient of a tap is a sum of products over rows and steps. XLA writes the products of each tap to memory and
    adds them up number by number. Here those of several rows are first added up, in one loop over all channels.
    """
    num_taps, margin = kernel_KW.shape[0], dilation * (kernel_KW.shape[0] // 2)
    num_groups = math.gcd(x_BTW.shape[0], _NUM_ROW_GROUPS)

    def shift(x_BTW: Tensor) -> list[Tensor]:
        """The input of each tap."""
        padded, size = tf.pad(x_BTW, [[0, 0], [margin, margin], [0, 0]]), tf.constant(list(x_BTW.shape))
        return [tf.slice(padded, [0, tap * dilation, 0], size) for tap in range(num_taps)]

    def convolve(x_BTW: Tensor, kernel_KW: Tensor, bias_W: Tensor) -> tuple[Tensor, Callable[..., Any]]:
        inputs, taps, total_BTW = shift(x_BTW), tf.unstack(kernel_KW), bias_W
        for input_BTW, tap_W in zip(inputs, taps, strict=True):
            total_BTW += input_BTW * tap_W

        def gradient(upstream_BTW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            shifted = zip(reversed(shift(upstream_BTW)), taps, strict=True)
            in_x_BTW = tf.add_n([one_BTW * tap_W for one_BTW, tap_W in shifted])
            groups, in_taps = tf.split(upstream_BTW, num_groups), []
            for input_BTW in inputs:
                pairs = zip(tf.split(input_BTW, num_groups), groups, strict=True)
                in_taps.append(tf.reduce_sum(tf.add_n([one * group for one, group in pairs]), axis=[0, 1]))
            return in_x_BTW, tf.stack(in_taps), tf.reduce_sum(upstream_BTW, axis=[0, 1])

        return total_BTW, gradient

    return tf.custom_gradient(convolve)(x_BTW, kernel_KW, bias_W)


class FeedForward(ModelLayer):
    """Two dense layers with GELU between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wider = Linear(width, EXPANSION * width)
        self.back = Linear(EXPANSION * width, width)

    def call(self, x: Tensor) -> Tensor:
        return self.back(tf.nn.gelu(self.wider(x), approximate=True))


class ConvolutionBlock(ModelLayer):
    """ConvNeXt-style residual block; without a `condition_width` it takes no condition."""

    def __init__(
        self, width: int, *, dilation: int = 1, reach: int = REACH, condition_width: int = 0, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self._dropout = dropout
        self.convolution = ShiftedConvolution(width, dilation, reach)
        self.norm = Norm(width)
        self.film = Film(condition_width, width) if condition_width else None
        self.feed_forward = FeedForward(width)

    def call(self, x_BTW: Tensor, is_real_BT1: Tensor, condition_BC: Tensor = None, seed_2: Tensor = None) -> Tensor:
        hidden = self.norm(self.convolution(x_BTW * is_real_BT1))
        if self.film is not None:
            hidden = self.film(hidden, condition_BC)
        return x_BTW + drop(tf.cast(self.feed_forward(hidden), x_BTW.dtype), self._dropout, seed_2)


class Attention(ModelLayer):
    """Multi-head attention. With `window`, a step sees only so many steps to either side.

    `is_rotary` adds rotary position embeddings (RoPE): what counts is the distance between two steps.
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
        # No biases: attending to the zeros of an absent voice must give zeros.
        self.query = Linear(width, inner_width, use_bias=False)
        self.key = Linear(source_width, inner_width, use_bias=False)
        self.value = Linear(source_width, inner_width, use_bias=False)
        self.back = Linear(inner_width, width, use_bias=False, starts_at_zero=starts_at_zero)

    def call(self, x_BTW: Tensor, source_BSW: Tensor, is_source_real_BS1: Tensor = None) -> Tensor:
        query, key, value = (
            self._split_heads(projection(tensor))
            for projection, tensor in ((self.query, x_BTW), (self.key, source_BSW), (self.value, source_BSW))
        )
        if self._is_rotary:
            query, key = _rotate(query), _rotate(key)
        logits_BHTS = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32) * self._head_width**-0.5
        if is_source_real_BS1 is not None:
            logits_BHTS += (1 - is_source_real_BS1[:, None, None, :, 0]) * _MASKED
        if self._window is not None:
            logits_BHTS += _mask_far_steps(count_steps(x_BTW), self._window)
        weights = self.to_compute_dtype(tf.nn.softmax(logits_BHTS))
        joined = tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3])
        return self.back(tf.reshape(joined, [*list_sizes(x_BTW)[:2], self._num_heads * self._head_width]))

    def _split_heads(self, x_BTW: Tensor) -> Tensor:
        split = tf.reshape(x_BTW, [*list_sizes(x_BTW)[:2], self._num_heads, self._head_width])
        return tf.transpose(split, [0, 2, 1, 3])


def _rotate(x_BHTE: Tensor) -> Tensor:
    """Rotates each pair of channels by an angle that grows with the position. An odd last channel stays."""
    num_pairs = x_BHTE.shape[-1] // 2
    frequencies = tf.pow(_ROTARY_BASE, -tf.range(num_pairs, dtype=tf.float32) / num_pairs)
    angles = tf.cast(tf.range(count_steps(x_BHTE, 2)), tf.float32)[:, None] * frequencies
    x = tf.cast(x_BHTE, tf.float32)
    first, second, rest = x[..., :num_pairs], x[..., num_pairs : 2 * num_pairs], x[..., 2 * num_pairs :]
    cosine, sine = tf.cos(angles), tf.sin(angles)
    rotated = tf.concat([first * cosine - second * sine, first * sine + second * cosine, rest], axis=-1)
    return tf.cast(rotated, x_BHTE.dtype)


def _mask_far_steps(num_steps: int, window: int) -> Tensor:
    """Logit mask [T, S] of steps outside the window."""
    position = tf.range(num_steps)
    is_far = tf.abs(position[:, None] - position[None]) > window
    return tf.where(is_far, _MASKED, 0.0)


class TransformerBlock(ModelLayer):
    """Pre-norm self-attention and feed-forward; without a `condition_width` it takes no condition."""

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
        seeds = fold_seeds(seed_2, 2)
        x_BTW += drop(attended, self._dropout, seeds[0])
        hidden = self.norm(x_BTW)
        if self.film is not None:
            hidden = self.film(hidden, condition_BC)
        return x_BTW + drop(tf.cast(self.feed_forward(hidden), x_BTW.dtype), self._dropout, seeds[1])


class CrossAttention(ModelLayer):
    """Residual cross-attention to the latents of a voice; the identity at the start of training."""

    def __init__(self, width: int, source_width: int, num_heads: int) -> None:
        super().__init__()
        self.norm = Norm(width)
        self.attention = Attention(
            width, num_heads, source_width=source_width, inner_width=source_width, starts_at_zero=True
        )

    def call(self, x_BTW: Tensor, latents_BKD: Tensor) -> Tensor:
        return x_BTW + tf.cast(self.attention(self.norm(x_BTW), latents_BKD), x_BTW.dtype)
