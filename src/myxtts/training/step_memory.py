"""Memory of a training step of the voice model, calculated from the configuration and the longest batch shape.

    bytes = state + waiting batches + max(update, cast weights + rows x bytes of a row)

A row is one utterance. Its bytes are the activations that the backward pass reads again: for each block its steps
(tokens, pairs of frames) times its width times the values that are kept per step and channel. When the weights are
updated, no activation is left: the larger of the two counts.
The constants are read off XLA's buffer assignment for GPUs, which has the exact memory of a compiled step: at 800
frames and 128 tokens it allocates 493 MiB for 32 rows of `small` in bfloat16, and 743 MiB in float32.
`tests/training/test_step_memory.py` compares with these, and compiles a step at two batch sizes.
No TensorFlow: a batch size is chosen before it is loaded.
Shape legend: B rows, N tokens, T frames, S states, M mel bands.
"""

from __future__ import annotations

from dataclasses import dataclass

from myxtts.config.model import ModelConfig
from myxtts.config.schema import XTTSConfig
from myxtts.pipeline.order import Shape
from myxtts.pipeline.splits import count_reference_frames

FLOAT32_BYTES, BFLOAT16_BYTES = 4, 2

_STATE_COPIES = 4
"""Float32 copies of the parameters that stay on the device: weights, two moments of AdamW, EMA."""
_UPDATE_COPIES = 2
"""Float32 copies during the update: the packed gradient, and the pieces that it is packed from."""
_ACCUMULATOR_COPIES = 1
"""Float32 copies that stay with gradient accumulation."""
_BATCHES_IN_FLIGHT = 2
"""Batches of steps that have been started; those of `data.prefetch_buffer_size` wait behind them."""

_KEPT_IN_CONVOLUTION, _KEPT_IN_TRANSFORMER = 8, 13
"""Values per step and channel that a block keeps in the compute dtype: the hidden layer of the feed-forward network
before and after GELU (2 x 3), its input, and the input of the convolution; or of the attention: query, key, value,
result, and the inputs of the projections."""
_RESIDUALS_PER_DROPOUT, _DROPOUT_BYTES = 1, 1
"""Per step and channel: a float32 copy of the residual stream for each addition to it (one without dropout), and a
random byte."""
_KEPT_IN_LOOK = 2
"""Values in the compute dtype per step and channel that a cross-attention to the voice keeps."""
_KEPT_WEIGHTS = 2
"""Copies of the attention weights [heads, steps, steps] in the compute dtype."""
_SCORES, _SEARCHED_SCORES, _PITCHES = 2, 6, 2
"""Float32 copies of the alignment scores [T, S] and of the F0 candidates of all frames [T, 96] that exist at once,
before the decoder runs. The search in chunks has its paths in int64, 17 for each state and 16 frames, twice."""

_PACKING = 1.15
"""XLA places all buffers of a step in one allocation, with gaps of up to 9 % between them; the rest are small buffers
that are not counted here."""

_STATES_PER_TOKEN, _STACKED_FRAMES, _STACKED_REFERENCE_FRAMES = 2, 2, 4
_LAYERS_PER_LOOK, _PROSODY_LAYERS, _EXPANSION, _F0_CANDIDATES = 3, 2, 3, 96
"""As in `models`, whose modules cannot be imported without TensorFlow."""


@dataclass(frozen=True)
class StepMemory:
    """Bytes on one device: `state` stays, `update` and `cast_weights` are parts of a step, `row` is an utterance.

    `waiting_row` are the inputs of an utterance in all batches that are on the device.
    """

    state: int
    update: int
    cast_weights: int
    row: int
    waiting_row: int

    def measure(self, num_rows: int) -> int:
        """Bytes of a step of so many rows."""
        in_step = max(self.update, self.cast_weights + num_rows * self.row)
        return self.state + num_rows * self.waiting_row + in_step

    def count_rows(self, budget_bytes: int) -> int:
        """The most rows that fit into a budget; 0 if none does."""
        by_activations = (budget_bytes - self.state - self.cast_weights) // (self.row + self.waiting_row)
        by_update = (budget_bytes - self.state - self.update) // self.waiting_row
        return max(0, min(by_activations, by_update))


def estimate_memory(config: XTTSConfig, longest: Shape, compute_bytes: int) -> StepMemory:
    """Memory of a compiled step on batches of the longest shape, by the bytes of the compute dtype."""
    num_parameters = count_parameters(config.model, config.data.n_mels)
    is_accumulated = config.training.gradient_accumulation_steps > 1
    num_kept = _STATE_COPIES + (_ACCUMULATOR_COPIES if is_accumulated else 0)
    num_batches = _BATCHES_IN_FLIGHT + config.data.prefetch_buffer_size
    return StepMemory(
        state=FLOAT32_BYTES * num_kept * num_parameters,
        update=FLOAT32_BYTES * _UPDATE_COPIES * num_parameters,
        cast_weights=0 if compute_bytes == FLOAT32_BYTES else compute_bytes * num_parameters,
        row=estimate_row_bytes(config, longest, compute_bytes),
        waiting_row=num_batches * _measure_inputs(config, longest),
    )


def _measure_inputs(config: XTTSConfig, shape: Shape) -> int:
    """Bytes of the log-mels of an utterance and of its reference in a batch; labels are a hundredth of that."""
    num_frames = shape.num_frames + count_reference_frames(config.data)
    return FLOAT32_BYTES * num_frames * config.data.n_mels


def estimate_row_bytes(config: XTTSConfig, shape: Shape, compute_bytes: int) -> int:
    """Bytes of the activations of one utterance at the end of the forward pass, where most of them exist."""
    model, frames = config.model, shape.num_frames
    tokens, states = shape.num_tokens, _STATES_PER_TOKEN * shape.num_tokens
    pairs = config.training.crop_frames // _STACKED_FRAMES
    n_mels, num_reference_frames = config.data.n_mels, count_reference_frames(config.data)
    stacks = -(-num_reference_frames // _STACKED_REFERENCE_FRAMES)
    text = model.text_layers * _measure_block(model, tokens, model.text_width, compute_bytes)
    text += _PROSODY_LAYERS * _measure_convolution(tokens, _count_hidden_channels(model), compute_bytes)
    text += (model.text_layers // _LAYERS_PER_LOOK) * _measure_look(model, tokens, model.text_width, compute_bytes)
    reference = model.reference_layers * _measure_convolution(stacks, model.reference_width, compute_bytes)
    reference += _measure_transformer(model, stacks, model.reference_width, compute_bytes)
    decoder = model.decoder_layers * _measure_block(model, pairs, model.decoder_width, compute_bytes, num_dropouts=0)
    num_looks = model.decoder_layers // _LAYERS_PER_LOOK
    decoder += num_looks * _measure_look(model, pairs, model.decoder_width, compute_bytes)
    decoder += compute_bytes * _STACKED_FRAMES * pairs * _count_decoder_inputs(model, n_mels)
    num_scores = _SCORES if config.training.durations == "stored" else _SEARCHED_SCORES
    alignment = FLOAT32_BYTES * frames * (num_scores * states + _PITCHES * _F0_CANDIDATES)
    mels = FLOAT32_BYTES * frames * n_mels + compute_bytes * num_reference_frames * n_mels
    outputs = FLOAT32_BYTES * states * (n_mels + _count_hidden_channels(model))
    # The scores are not needed any more when the decoder runs.
    return int(_PACKING * (mels + reference + text + outputs + max(alignment, decoder)))


def _measure_block(
    model: ModelConfig, steps: int, width: int, compute_bytes: int, num_dropouts: int | None = None
) -> int:
    """Bytes of a block of the text encoder or, without dropout, of the decoder."""
    if model.block == "convolution":
        return _measure_convolution(steps, width, compute_bytes, 1 if num_dropouts is None else num_dropouts)
    return _measure_transformer(model, steps, width, compute_bytes, 2 if num_dropouts is None else num_dropouts)


def _measure_convolution(steps: int, width: int, compute_bytes: int, num_dropouts: int = 1) -> int:
    return steps * width * (compute_bytes * _KEPT_IN_CONVOLUTION + _measure_residuals(num_dropouts))


def _measure_transformer(model: ModelConfig, steps: int, width: int, compute_bytes: int, num_dropouts: int = 2) -> int:
    values = steps * width * (compute_bytes * _KEPT_IN_TRANSFORMER + _measure_residuals(num_dropouts))
    return values + compute_bytes * _KEPT_WEIGHTS * model.attention_heads * steps**2


def _measure_residuals(num_dropouts: int) -> int:
    return FLOAT32_BYTES * max(1, _RESIDUALS_PER_DROPOUT * num_dropouts) + _DROPOUT_BYTES * num_dropouts


def _measure_look(model: ModelConfig, steps: int, width: int, compute_bytes: int) -> int:
    per_step = compute_bytes * _KEPT_IN_LOOK * width
    per_step += compute_bytes * _KEPT_WEIGHTS * (model.reference_width + model.attention_heads * model.num_latents)
    return steps * per_step


def _count_hidden_channels(model: ModelConfig) -> int:
    """Channels of a state, and the width of the prosody predictor."""
    return max(8, 2 * model.text_width // 5)


def _count_decoder_inputs(model: ModelConfig, n_mels: int) -> int:
    """Channels of a frame at the input of the decoder: noisy and mean log-mel, state, position and F0."""
    return 2 * n_mels + _count_hidden_channels(model) + 4


def count_parameters(model: ModelConfig, n_mels: int) -> int:
    """Parameters of the matrices; embeddings, biases and norms are a hundredth of them."""
    text, voice, decoder = model.text_width, model.reference_width, model.decoder_width
    hidden = _count_hidden_channels(model)
    feed_forward, attention = 2 * _EXPANSION, 4
    # FiLM takes a condition of a quarter of the width, and gives a scale and a shift: width / 4 x 2 width.
    film = 0.5
    per_block = feed_forward + film if model.block == "convolution" else feed_forward + attention + 2 * film
    count = per_block * (model.text_layers * text**2 + model.decoder_layers * decoder**2)
    for width, layers in ((text, model.text_layers), (decoder, model.decoder_layers)):
        count += (layers // _LAYERS_PER_LOOK) * 2 * voice * (width + voice)
    count += text * _STATES_PER_TOKEN * (n_mels + hidden) + text * hidden + _PROSODY_LAYERS * feed_forward * hidden**2
    count += decoder * _STACKED_FRAMES * (_count_decoder_inputs(model, n_mels) + n_mels)
    # Convolution blocks, a transformer block, the resampler and the projection of two vectors to one.
    count += ((model.reference_layers + 2) * feed_forward + 2 * attention + 2) * voice**2
    count += _STACKED_REFERENCE_FRAMES * n_mels * voice
    return int(count)
