"""Flow-matching decoder: predicts the clean log-mel from a noisy one (x-prediction), conditioned on time and voice.

Along x_t = (1 - t) noise + t clean. Two frames are stacked per step; the output is a correction of the mean spectrogram
that the text encoder predicts.
`PhoneClassifier` is a second judge of its output in training.
Shape legend: B utterances, T frames, S states, M mel bands, H channels of a state, W width, P pairs of frames,
V symbols.
"""

# ruff: noqa: N815 - fields carry the shape of their tensors

from __future__ import annotations

import math
from typing import NamedTuple

import tensorflow as tf

from myxtts.config.model import ModelConfig
from myxtts.models.layers import (
    ConvolutionBlock,
    CrossAttention,
    Linear,
    ModelLayer,
    Norm,
    TransformerBlock,
    count_steps,
    list_sizes,
)
from myxtts.models.pitch import Pitch
from myxtts.models.reference_encoder import Voice
from myxtts.models.text_encoder import LAYERS_PER_LOOK, TextStates, count_hidden_channels
from myxtts.types import Tensor

STACKED_FRAMES = 2
"""Frames per decoder step: halves the length of sequences."""
DILATIONS = (1, 1, 2, 2, 4, 1)
"""Dilations of successive convolution blocks, repeated if there are more blocks."""
ATTENTION_WINDOW = 32
"""Stacked frames to either side that attention sees: within a training crop, so that long utterances look no
different."""
LEAST_REMAINING_TIME = 0.1
"""Floor of 1 - t in the loss, which would explode near the clean end of the path."""
_NUM_TIME_FEATURES = 64
_TIME_SCALE = 1000.0
"""Flow time runs from 0 to 1; times 1000 it fits the frequencies of a sinusoidal embedding (1 to 1/1000)."""

_CLASSIFIER_WIDTH = 128
_CLASSIFIER_DILATIONS = (1, 2, 4)
"""Of the phone classifier's layers; with five taps each they see 14 frames to either side, as long as a syllable."""
_NUM_TAPS = 5


class FrameInputs(NamedTuple):
    """Text conditioning by frame. `position_BT2` is the position within the state, and its log length."""

    means_BTM: Tensor
    hidden_BTH: Tensor
    position_BT2: Tensor
    pitch_BT2: Tensor
    is_real_BT1: Tensor


def make_frame_inputs(
    states: TextStates, pitch: Pitch, durations_BS: Tensor, state_BT: Tensor, frame_BT: Tensor, is_real_BT1: Tensor
) -> FrameInputs:
    """Repeats states and their pitch over their frames (length regulator).

    `frame_BT` are the numbers of the frames inside their utterance, and `state_BT` their states.
    """
    lengths_BS = tf.cast(durations_BS, tf.float32)
    starts_BS = tf.cumsum(lengths_BS, axis=1, exclusive=True)
    about_BT2 = tf.gather(tf.stack([starts_BS, lengths_BS], axis=-1), state_BT, batch_dims=1)
    length_BT = tf.maximum(about_BT2[..., 1], 1.0)
    position_BT = tf.clip_by_value((tf.cast(frame_BT, tf.float32) + 0.5 - about_BT2[..., 0]) / length_BT, 0.0, 1.0)
    return FrameInputs(
        # Stop-gradient: only the prior loss trains the means; the decoder loss would pull them away from mean spectra.
        tf.stop_gradient(tf.gather(states.means_BSM, state_BT, batch_dims=1)) * is_real_BT1,
        tf.gather(states.hidden_BSH, state_BT, batch_dims=1) * is_real_BT1,
        tf.stack([position_BT, tf.math.log(length_BT)], axis=-1) * is_real_BT1,
        tf.gather(pitch.to_inputs(), state_BT, batch_dims=1) * is_real_BT1,
        is_real_BT1,
    )


class FlowDecoder(ModelLayer):
    """Predicts the clean spectrogram [B, T, M]; T must be even.

    Blocks of convolutions or transformers, conditioned by FiLM on flow time and speaker embedding, with a
    cross-attention to the latents of the voice after every LAYERS_PER_LOOK blocks.
    """

    def __init__(self, config: ModelConfig, n_mels: int) -> None:
        super().__init__()
        width, voice_width = config.decoder_width, config.reference_width
        condition_width = max(8, width // 4)
        self.time_in = Linear(_NUM_TIME_FEATURES, condition_width)
        self.time_out = Linear(condition_width, condition_width)
        self.voice = Linear(voice_width, condition_width, use_bias=False)
        num_inputs = 2 * n_mels + count_hidden_channels(config) + 4
        self.stem = Linear(STACKED_FRAMES * num_inputs, width)
        self.blocks = [_make_block(config, layer, condition_width) for layer in range(config.decoder_layers)]
        num_looks = config.decoder_layers // LAYERS_PER_LOOK
        self.looks = [CrossAttention(width, voice_width, config.attention_heads) for _ in range(num_looks)]
        self.norm = Norm(width)
        self.correction = Linear(width, STACKED_FRAMES * n_mels, starts_at_zero=True)

    def call(self, noisy_BTM: Tensor, inputs: FrameInputs, time_B: Tensor, voice: Voice) -> Tensor:
        is_real_BP1 = inputs.is_real_BT1[:, ::STACKED_FRAMES]
        condition = self.time_out(tf.nn.silu(self.time_in(describe_time(time_B)))) + self.voice(voice.vector_BD)
        condition_BC = tf.nn.silu(condition)
        seen = [
            noisy_BTM * inputs.is_real_BT1,
            inputs.means_BTM,
            inputs.hidden_BTH,
            inputs.position_BT2,
            inputs.pitch_BT2,
        ]
        x_BPW = tf.cast(self.stem(_stack(tf.concat(seen, axis=-1))), tf.float32)
        for layer, block in enumerate(self.blocks):
            x_BPW = block(x_BPW, is_real_BP1, condition_BC)
            if layer % LAYERS_PER_LOOK == LAYERS_PER_LOOK - 1:
                x_BPW = self.looks[layer // LAYERS_PER_LOOK](x_BPW, voice.latents_BKD)
        correction = tf.cast(self.correction(self.norm(x_BPW)), tf.float32)
        return inputs.means_BTM + tf.reshape(correction, list_sizes(noisy_BTM))


def describe_time(time_B: Tensor) -> Tensor:
    """Sinusoidal embedding of the flow time."""
    num_frequencies = _NUM_TIME_FEATURES // 2
    frequencies = tf.exp(-math.log(_TIME_SCALE) * tf.range(num_frequencies, dtype=tf.float32) / num_frequencies)
    angles = _TIME_SCALE * time_B[:, None] * frequencies
    return tf.concat([tf.sin(angles), tf.cos(angles)], axis=-1)


def _stack(x_BTW: Tensor) -> Tensor:
    """Joins the channels of each pair of frames: [B, T, W] to [B, P, 2 W]."""
    num_frames, width = count_steps(x_BTW), x_BTW.shape[2]
    assert tf.is_tensor(num_frames) or num_frames % STACKED_FRAMES == 0, f"{num_frames} frames do not make pairs"
    return tf.reshape(x_BTW, [x_BTW.shape[0], num_frames // STACKED_FRAMES, STACKED_FRAMES * width])


def _make_block(config: ModelConfig, layer: int, condition_width: int) -> ConvolutionBlock | TransformerBlock:
    width = config.decoder_width
    if config.block == "convolution":
        dilation = DILATIONS[layer % len(DILATIONS)]
        return ConvolutionBlock(width, dilation=dilation, condition_width=condition_width)
    return TransformerBlock(
        width, config.attention_heads, window=ATTENTION_WINDOW, condition_width=condition_width, dropout=0.0
    )


class PhoneClassifier(ModelLayer):
    """Which symbol of the text each frame of a log-mel belongs to: three convolutions over time and a linear head.

    It learns from recordings and their alignment. The decoder is then asked for spectrograms that the classifier reads
    as it reads the recording (knowledge distillation, Hinton et al. 2015): a squared error alone averages over what it
    cannot predict, and blurs the short onsets and stops by which words differ. Not used in synthesis.
    """

    def __init__(self, n_mels: int, num_symbols: int) -> None:
        super().__init__()
        widths = (n_mels, *[_CLASSIFIER_WIDTH] * len(_CLASSIFIER_DILATIONS))
        self.kernels = [
            self.make_weight((_NUM_TAPS * width, _CLASSIFIER_WIDTH), "glorot_uniform", f"kernel_{layer}")
            for layer, width in enumerate(widths[:-1])
        ]
        self.biases = [
            self.make_weight((_CLASSIFIER_WIDTH,), "zeros", f"bias_{layer}")
            for layer in range(len(_CLASSIFIER_DILATIONS))
        ]
        self.head = self.make_weight((_CLASSIFIER_WIDTH, num_symbols), "glorot_uniform", "head")
        self.head_bias = self.make_weight((num_symbols,), "zeros", "head_bias")

    def call(self, mel_BTM: Tensor, *, is_frozen: bool = False) -> Tensor:
        """Logits [B, T, V] of normalised frames. With `is_frozen` only the frames get a gradient, not the weights."""

        def read(weight: Tensor) -> Tensor:
            weight = self.to_compute_dtype(weight)
            return tf.stop_gradient(weight) if is_frozen else weight

        x_BTW = self.to_compute_dtype(mel_BTM)
        for kernel, bias, dilation in zip(self.kernels, self.biases, _CLASSIFIER_DILATIONS, strict=True):
            x_BTW = tf.nn.gelu(_look_around(x_BTW, dilation) @ read(kernel) + read(bias), approximate=True)
        return tf.cast(x_BTW @ read(self.head) + read(self.head_bias), tf.float32)


def _look_around(x_BTW: Tensor, dilation: int) -> Tensor:
    """Joins the channels of each frame with those of its neighbours [B, T, taps * W]; zeros beyond the ends."""
    num_steps, margin = count_steps(x_BTW), dilation * (_NUM_TAPS // 2)
    padded = tf.pad(x_BTW, [[0, 0], [margin, margin], [0, 0]])
    starts = range(0, _NUM_TAPS * dilation, dilation)
    return tf.concat([padded[:, start : start + num_steps] for start in starts], axis=-1)
