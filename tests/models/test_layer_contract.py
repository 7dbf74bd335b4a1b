"""One contract for every layer: shapes, named weights, 16 bits, no leak from padding, and learning.

Shape legend: B utterances, T steps, W width, C condition, D width of a voice, K latents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tests.models.toys import N_MELS, make_config, make_spec, stir_weights

from myxtts.models.decoder import FlowDecoder, FrameInputs
from myxtts.models.layers import (
    Attention,
    ConvolutionBlock,
    CrossAttention,
    FeedForward,
    Film,
    Linear,
    Norm,
    ShiftedConvolution,
    TransformerBlock,
    drop,
    fold_seed,
    fold_seeds,
    iterate_weights,
    mask_steps,
    sum_kernel_gradients_by_row,
)
from myxtts.models.prosody import ProsodyPredictor
from myxtts.models.reference_encoder import ReferenceEncoder, SpeakerClassifier, Voice
from myxtts.models.text_encoder import TextEncoder, count_hidden_channels

WIDTH, VOICE_WIDTH = 16, 8
LENGTHS = [6, 9]
DECODER_INPUTS = 2 * N_MELS + count_hidden_channels(make_config()) + 4
NUM_STEPS = 10
Tensor = Any


@dataclass(frozen=True)
class Case:
    """How a layer is made, and what it makes of a sequence [B, T, W] with lengths: tensors along time, and others."""

    make: Callable[[], Any]
    run: Callable[[Any, Tensor, Tensor], tuple[list[Tensor], list[Tensor]]]
    width: int = WIDTH


def make_vector(width: int, seed: int = 1) -> Tensor:
    return tf.constant(np.random.default_rng(seed).normal(0, 1, (len(LENGTHS), width)), tf.float32)


def make_voice() -> Voice:
    return Voice(make_vector(VOICE_WIDTH), tf.stack([make_vector(VOICE_WIDTH, 2), make_vector(VOICE_WIDTH, 3)], axis=1))


def run_plainly(layer: Any, x: Tensor, lengths: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    return [layer(x)], []


def run_block(layer: Any, x: Tensor, lengths: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    return [layer(x, mask_steps(lengths, x.shape[1]), make_vector(4))], []


def run_masked_convolution(layer: Any, x: Tensor, lengths: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    return [layer(x * mask_steps(lengths, x.shape[1]))], []


def run_attention(layer: Any, x: Tensor, lengths: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    return [layer(x, x, mask_steps(lengths, x.shape[1]))], []


def run_reference_encoder(layer: Any, x: Tensor, lengths: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    return [], list(layer(x, lengths))


def run_text_encoder(layer: Any, x: Tensor, lengths: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    tokens = tf.cast(tf.abs(x[..., 0]) * 1000, tf.int32) % 54
    states = layer(tokens, lengths, tf.constant([0, 1]), make_voice())
    by_token = [tf.reshape(states[place], [2, x.shape[1], -1]) for place in (1, 2)]
    return [states.features_BNW, *by_token, tf.cast(tf.reshape(states.is_state_BS, [2, -1, 2]), tf.float32)], []


def run_prosody_predictor(layer: Any, x: Tensor, lengths: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    return [tf.reshape(values, [2, -1, 2]) for values in layer(x, mask_steps(lengths, x.shape[1]))], []


def run_decoder(layer: Any, x: Tensor, lengths: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    is_real = mask_steps(lengths, x.shape[1])
    noisy, *rest = tf.split(x, [N_MELS, N_MELS, DECODER_INPUTS - 2 * N_MELS - 4, 2, 2], axis=-1)
    means, hidden, place, pitch = (part * is_real for part in rest)
    inputs = FrameInputs(means, hidden, place, pitch, is_real)
    return [layer(noisy, inputs, tf.constant([0.2, 0.8]), make_voice())], []


CASES = {
    "linear": Case(lambda: Linear(WIDTH, 6), run_plainly),
    "norm": Case(lambda: Norm(WIDTH), run_plainly),
    "film": Case(lambda: Film(4, WIDTH), lambda layer, x, _: ([layer(x, make_vector(4))], [])),
    "feed forward": Case(lambda: FeedForward(WIDTH), run_plainly),
    "shifted convolution": Case(lambda: ShiftedConvolution(WIDTH, dilation=2), run_masked_convolution),
    "convolution block": Case(lambda: ConvolutionBlock(WIDTH, dilation=2, condition_width=4), run_block),
    "attention": Case(lambda: Attention(WIDTH, 2), run_attention),
    "rotary attention": Case(lambda: Attention(WIDTH, 2, is_rotary=True), run_attention),
    "windowed attention": Case(lambda: Attention(WIDTH, 2, window=2), run_attention),
    "transformer block": Case(lambda: TransformerBlock(WIDTH, 2, condition_width=4), run_block),
    "cross attention": Case(
        lambda: CrossAttention(WIDTH, VOICE_WIDTH, 2), lambda layer, x, _: ([layer(x, make_voice().latents_BKD)], [])
    ),
    "reference encoder": Case(lambda: ReferenceEncoder(make_config(), WIDTH), run_reference_encoder),
    "speaker classifier": Case(
        lambda: SpeakerClassifier(WIDTH, 3), lambda layer, x, _: ([], [layer(x[:, 0], tf.constant([0, 2]))[0]])
    ),
    "text encoder": Case(lambda: TextEncoder(make_config(), make_spec()), run_text_encoder),
    "text transformer": Case(lambda: TextEncoder(make_config("transformer"), make_spec()), run_text_encoder),
    "prosody predictor": Case(lambda: ProsodyPredictor(make_config()), run_prosody_predictor),
    "decoder": Case(lambda: FlowDecoder(make_config(), N_MELS), run_decoder, DECODER_INPUTS),
    "decoding transformer": Case(lambda: FlowDecoder(make_config("transformer"), N_MELS), run_decoder, DECODER_INPUTS),
}


def make_sequence(width: int, num_steps: int = NUM_STEPS, padding: float = 0.0) -> Tensor:
    """Rows that are the same up to their lengths, whatever follows."""
    x = np.full((len(LENGTHS), num_steps, width), padding, np.float32)
    for row, length in enumerate(LENGTHS):
        x[row, :length] = np.random.default_rng(row).normal(0, 1, (length, width))
    return tf.constant(x)


def make_stirred(case: Case, seed: int = 0) -> Any:
    layer = case.make()
    stir_weights(layer, seed)
    return layer


def keep_real(outputs: tuple[list[Tensor], list[Tensor]]) -> list[Any]:
    along_time, others = outputs
    parts = [output[row, :length].numpy() for output in along_time for row, length in enumerate(LENGTHS)]
    return [*parts, *(output.numpy() for output in others)]


def run_case(case: Case, layer: Any, **shape: Any) -> list[Any]:
    return keep_real(case.run(layer, make_sequence(case.width, **shape), tf.constant(LENGTHS)))


@contextmanager
def compute_in_16_bits() -> Iterator[None]:
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy("float32")


@pytest.mark.parametrize("name", CASES)
def test_padding_does_not_leak(name: str) -> None:
    case = CASES[name]
    layer = make_stirred(case)
    expected = run_case(case, layer)
    for shape in ({"padding": 7.0}, {"num_steps": NUM_STEPS + 6}, {"num_steps": NUM_STEPS + 6, "padding": -7.0}):
        for found, wanted in zip(run_case(case, layer, **shape), expected, strict=True):
            np.testing.assert_allclose(found, wanted, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_weights_travel_by_name(name: str) -> None:
    case = CASES[name]
    source, target = make_stirred(case, 1), make_stirred(case, 2)
    stored = {key: weight.numpy() for key, weight in iterate_weights(source)}
    weights = dict(iterate_weights(target))
    assert list(weights) == list(stored)
    assert len({id(weight) for weight in weights.values()}) == len(weights) == len(target.variables)
    for key, weight in weights.items():
        weight.assign(stored[key])
    for found, wanted in zip(run_case(case, target), run_case(case, source), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", CASES)
def test_16_bits_stay_close(name: str) -> None:
    case = CASES[name]
    exact = make_stirred(case)
    with compute_in_16_bits():
        layer = case.make()
    for weight, same in zip(layer.variables, exact.variables, strict=True):
        assert weight.dtype == "float32"
        weight.assign(same)
    for found, wanted in zip(run_case(case, layer), run_case(case, exact), strict=True):
        scale = max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(np.asarray(found, np.float32), wanted, atol=0.06 * scale)


@pytest.mark.parametrize("name", CASES)
def test_a_step_of_learning_helps(name: str) -> None:
    case = CASES[name]
    layer = make_stirred(case)
    x, lengths = make_sequence(case.width), tf.constant(LENGTHS)

    def measure() -> Tensor:
        outputs = [output for group in case.run(layer, x, lengths) for output in group]
        return tf.add_n([tf.reduce_mean(tf.square(output - 0.5)) for output in outputs])

    values = [variable.value for variable in layer.trainable_variables]
    with tf.GradientTape() as tape:
        before = measure()
    gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(before, values)]
    norm = tf.linalg.global_norm(gradients)
    assert norm > 0
    for value, gradient in zip(values, gradients, strict=True):
        value.assign_sub(1e-3 * gradient / norm)
    assert measure() < before


@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("num_rows", [1, 3, 8])
def test_a_convolution_and_its_gradients_are_what_keras_makes_of_it(by_row: bool, num_rows: int) -> None:
    with sum_kernel_gradients_by_row(by_row):
        layer = ShiftedConvolution(WIDTH, dilation=2)
    oracle = keras.layers.DepthwiseConv1D(7, padding="same", dilation_rate=2)
    x = tf.random.stateless_normal([num_rows, 20, WIDTH], [1, 2])
    oracle(x)
    oracle.set_weights([layer.kernel.numpy()[..., None], layer.bias.numpy()])
    found, wanted = (_differentiate(convolution, x) for convolution in (layer, oracle))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(tf.squeeze(one), tf.squeeze(other), atol=1e-4)


def _differentiate(convolution: Any, x: Any) -> list[Any]:
    """Output, and gradients of its sum of squares: of the input, of the kernel and of the bias."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = convolution(x)
        loss = tf.reduce_sum(tf.square(output))
    return [output, *tape.gradient(loss, [x, *(variable.value for variable in convolution.trainable_variables)])]


def test_a_window_hides_what_is_far() -> None:
    layer = Attention(WIDTH, 2, window=2)
    x = make_sequence(WIDTH)
    changed = tf.concat([x[:, :9], x[:, 9:] + 5], axis=1)
    before, after = layer(x, x), layer(changed, changed)
    np.testing.assert_allclose(before[:, :7], after[:, :7], atol=1e-6)
    assert not np.allclose(before[:, 7], after[:, 7], atol=1e-6)


def test_a_voice_without_frames_is_no_voice() -> None:
    voice = make_stirred(CASES["reference encoder"])(make_sequence(WIDTH, padding=3.0), tf.constant([0, 9]))
    assert not voice.vector_BD[0].numpy().any()
    assert not voice.latents_BKD[0].numpy().any()
    assert voice.vector_BD[1].numpy().any()


def test_dropout_keeps_the_mean_and_follows_its_seed() -> None:
    x = tf.ones([50, 40, 11])
    dropped = drop(x, 0.1, tf.constant([1, 2])).numpy()
    assert dropped.mean() == pytest.approx(1.0, abs=0.01)
    assert (dropped == 0).mean() == pytest.approx(0.1, abs=0.01)
    np.testing.assert_array_equal(dropped, drop(x, 0.1, tf.constant([1, 2])))
    assert (dropped != drop(x, 0.1, tf.constant([1, 3])).numpy()).any()
    np.testing.assert_array_equal(drop(x, 0.1, None), x)


def test_seeds_derived_together_are_those_derived_one_by_one() -> None:
    seed_2 = tf.constant([7, -3])
    together, single = fold_seeds(seed_2, 3), [fold_seed(seed_2, number) for number in range(3)]
    np.testing.assert_array_equal(together, single)
    assert fold_seeds(None, 2) == [None, None]
