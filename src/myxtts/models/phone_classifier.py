"""Phone classifier of training: which symbol of the text each frame of a log-mel belongs to.

It learns from recordings and their alignment. The decoder is then asked for spectrograms that the classifier reads as
it reads the recording (knowledge distillation, Hinton et al. 2015): a squared error alone averages over what it cannot
predict, and blurs the short onsets and stops by which words differ. Not used in synthesis.
Shape legend: B utterances, T frames, M mel bands, V symbols, W width.
"""

from __future__ import annotations

import tensorflow as tf

from myxtts.models.layers import ModelLayer, count_steps
from myxtts.types import Tensor

_WIDTH = 128
_DILATIONS = (1, 2, 4)
"""Of the layers; with five taps each they see 14 frames to either side, as long as a syllable."""
_NUM_TAPS = 5


class PhoneClassifier(ModelLayer):
    """Three convolutions over time and a linear head."""

    def __init__(self, n_mels: int, num_symbols: int) -> None:
        super().__init__()
        widths = (n_mels, *[_WIDTH] * len(_DILATIONS))
        self.kernels = [
            self.make_weight((_NUM_TAPS * width, _WIDTH), "glorot_uniform", f"kernel_{layer}")
            for layer, width in enumerate(widths[:-1])
        ]
        self.biases = [self.make_weight((_WIDTH,), "zeros", f"bias_{layer}") for layer in range(len(_DILATIONS))]
        self.head = self.make_weight((_WIDTH, num_symbols), "glorot_uniform", "head")
        self.head_bias = self.make_weight((num_symbols,), "zeros", "head_bias")

    def call(self, mel_BTM: Tensor, *, is_frozen: bool = False) -> Tensor:
        """Logits [B, T, V] of normalised frames. With `is_frozen` only the frames get a gradient, not the weights."""

        def read(weight: Tensor) -> Tensor:
            weight = self.to_compute_dtype(weight)
            return tf.stop_gradient(weight) if is_frozen else weight

        x_BTW = self.to_compute_dtype(mel_BTM)
        for kernel, bias, dilation in zip(self.kernels, self.biases, _DILATIONS, strict=True):
            x_BTW = tf.nn.gelu(_look_around(x_BTW, dilation) @ read(kernel) + read(bias), approximate=True)
        return tf.cast(x_BTW @ read(self.head) + read(self.head_bias), tf.float32)


def _look_around(x_BTW: Tensor, dilation: int) -> Tensor:
    """Joins the channels of each frame with those of its neighbours [B, T, taps * W]; zeros beyond the ends."""
    num_steps, margin = count_steps(x_BTW), dilation * (_NUM_TAPS // 2)
    padded = tf.pad(x_BTW, [[0, 0], [margin, margin], [0, 0]])
    starts = range(0, _NUM_TAPS * dilation, dilation)
    return tf.concat([padded[:, start : start + num_steps] for start in starts], axis=-1)
