"""A model small enough to test, and batches for it.

Shape legend: B utterances, N tokens, T frames, M mel bands, R frames of the reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from myxtts.config.model import ModelConfig
from myxtts.models.spec import ModelSpec

N_MELS = 5
NUM_SINGLES = 3


def make_config(block: str = "convolution", **changes: Any) -> ModelConfig:
    values: dict[str, Any] = {
        "block": block,
        "text_width": 16,
        "text_layers": 3,
        "decoder_width": 16,
        "decoder_layers": 3,
        "attention_heads": 2,
        "reference_width": 8,
        "reference_layers": 1,
        "num_latents": 2,
    }
    return ModelConfig(**{**values, **changes})


def make_spec(num_speakers: int = 3, factor_sizes: tuple[int, ...] = (9, 2, 3)) -> ModelSpec:
    return ModelSpec(
        factor_sizes=factor_sizes,
        single_state_symbols=NUM_SINGLES,
        n_mels=N_MELS,
        languages=("en", "fa"),
        speakers=tuple(f"speaker {number}" for number in range(num_speakers)),
        mel_mean=tuple(-4.0 - 0.1 * band for band in range(N_MELS)),
        mel_deviation=2.0,
        frame_rate_hz=86.0,
        band_hz=tuple(100.0 * (1 + band) for band in range(N_MELS)),
    )


def make_part(
    spec: ModelSpec,
    mel_lengths: list[int],
    token_lengths: list[int],
    *,
    num_frames: int = 40,
    num_tokens: int = 8,
    num_reference_frames: int = 12,
    padding: float = -11.5,
    seed: int = 0,
) -> dict[str, Any]:
    """Utterances of given lengths; what lies behind them is `padding`. Each utterance is the same in any shape."""
    num_rows = len(mel_lengths)
    mel_BTM = np.full((num_rows, num_frames, spec.n_mels), padding, np.float32)
    reference_BRM = np.full((num_rows, num_reference_frames, spec.n_mels), padding, np.float32)
    tokens_BN = np.zeros((num_rows, num_tokens), np.int32)
    reference_lengths = [0 if length == 0 else 5 + row % 4 for row, length in enumerate(mel_lengths)]
    for row, (num_real, num_symbols) in enumerate(zip(mel_lengths, token_lengths, strict=True)):
        generator = np.random.default_rng((seed, row))
        tokens_BN[row, :num_symbols] = generator.integers(1, np.prod(spec.factor_sizes), num_symbols)
        mel_BTM[row, :num_real] = generator.normal(-4, 2, (num_real, spec.n_mels))
        reference_BRM[row, : reference_lengths[row]] = generator.normal(-4, 2, (reference_lengths[row], spec.n_mels))
    return {
        "tokens": tf.constant(tokens_BN),
        "token_lengths": tf.constant(token_lengths, tf.int32),
        "mel": tf.constant(mel_BTM),
        "mel_lengths": tf.constant(mel_lengths, tf.int32),
        "speaker": tf.constant(np.arange(num_rows) % len(spec.speakers), tf.int32),
        "language": tf.constant(np.arange(num_rows) % len(spec.languages), tf.int32),
        "reference": tf.constant(reference_BRM),
        "reference_lengths": tf.constant(reference_lengths, tf.int32),
    }


def stir_weights(model: Any, seed: int = 0) -> None:
    """Gives every weight something to say: what begins at zero would hide mistakes behind it."""
    generator = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign(variable.numpy() + generator.normal(0, 0.2, variable.shape).astype(np.float32))
