"""The vocoder and its discriminators: exact transforms, shapes, precision, names of weights, and that they learn.

Shape legend: B batch, S samples, T frames, M mel bands, F frequencies.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.errors import DataError
from myxtts.models.discriminators import DiscriminatorConfig, Discriminators
from myxtts.models.fourier import InverseTransform, make_hann_window, measure_magnitude
from myxtts.models.layers import iterate_weights
from myxtts.models.vocoder import Vocoder, VocoderConfig

CONFIG = VocoderConfig(n_mels=6, n_fft=64, hop_length=16, win_length=64, width=16, num_blocks=2)
CRITICS = DiscriminatorConfig(channels=4, max_channels=8, periods=(2, 3), resolutions=(64, 128))


@pytest.fixture(autouse=True)
def _same_weights() -> Iterator[None]:
    keras.utils.set_random_seed(1)
    yield
    keras.config.set_dtype_policy("float32")


def make_mel(num_items: int = 2, num_frames: int = 12, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(-5, 2, (num_items, num_frames, CONFIG.n_mels)).astype(np.float32)


def make_noise(num_samples: int, num_items: int = 2) -> NDArray[np.float32]:
    return np.random.default_rng(5).normal(0, 0.1, (num_items, num_samples)).astype(np.float32)


def take_spectrum(samples_BS: NDArray[np.float32], n_fft: int, hop_length: int, win_length: int) -> NDArray[Any]:
    """Spectra of frames centred on every hop, with silence around: plain numpy, nothing of the code under test."""
    padded = np.pad(samples_BS, [(0, 0), (n_fft // 2, n_fft)])
    phase = 2 * np.pi * np.arange(win_length) / win_length
    start = (n_fft - win_length) // 2
    window = np.pad(0.5 - 0.5 * np.cos(phase), (start, n_fft - win_length - start))
    num_frames = samples_BS.shape[1] // hop_length
    frames = [padded[:, t * hop_length : t * hop_length + n_fft] * window for t in range(num_frames)]
    return np.fft.rfft(np.stack(frames, axis=1))


@pytest.mark.parametrize(
    ("n_fft", "hop_length", "win_length"), [(1024, 256, 1024), (64, 16, 64), (60, 16, 50), (63, 20, 63), (64, 8, 32)]
)
def test_the_inverse_transform_gives_back_the_sound(n_fft: int, hop_length: int, win_length: int) -> None:
    samples_BS = make_noise(20 * hop_length)
    spectrum_BTF = take_spectrum(samples_BS, n_fft, hop_length, win_length)
    inverse = InverseTransform(n_fft, hop_length, win_length)
    made_BS = inverse(tf.constant(spectrum_BTF.real), tf.constant(spectrum_BTF.imag)).numpy()
    assert made_BS.dtype == np.float32
    np.testing.assert_allclose(made_BS, samples_BS, atol=1e-5)


def test_hops_as_long_as_frames_still_give_every_sample() -> None:
    spectrum_BTF = take_spectrum(make_noise(320), 64, 64, 64)
    made_BS = InverseTransform(64, 64, 64)(tf.constant(spectrum_BTF.real), tf.constant(spectrum_BTF.imag)).numpy()
    assert made_BS.shape == (2, 320)
    assert np.isfinite(made_BS).all()


def test_magnitudes_are_those_of_the_frames_inside() -> None:
    samples_BS = make_noise(640)
    frames_BTN = np.stack([samples_BS[:, start : start + 64] for start in range(0, 640 - 63, 16)], axis=1)
    expected_BTF = np.abs(np.fft.rfft(frames_BTN * make_hann_window(64, 64)))
    np.testing.assert_allclose(measure_magnitude(tf.constant(samples_BS), 64, 16), expected_BTF, atol=1e-4)


@pytest.mark.parametrize("num_frames", [1, 2, 12])
def test_every_frame_gives_one_hop_of_samples(num_frames: int) -> None:
    samples_BS = Vocoder(CONFIG)(make_mel(3, num_frames)).numpy()
    assert samples_BS.shape == (3, num_frames * CONFIG.hop_length)
    assert samples_BS.dtype == np.float32


def test_extreme_spectrograms_give_finite_sound() -> None:
    mel_BTM = np.stack([np.full((8, 6), value, np.float32) for value in (-100.0, 100.0, 1e6)])
    vocoder = Vocoder(CONFIG)
    bias = dict(iterate_weights(vocoder))["head.bias"]
    bias.assign(tf.fill(bias.shape, 1e4))
    assert np.isfinite(vocoder(mel_BTM).numpy()).all()


def test_sound_depends_only_on_frames_near_it() -> None:
    vocoder, mel_BTM = Vocoder(CONFIG), make_mel(1, 60)
    changed_BTM = mel_BTM.copy()
    changed_BTM[:, 40] += 3
    difference = np.abs(vocoder(changed_BTM).numpy() - vocoder(mel_BTM).numpy())[0].reshape(60, CONFIG.hop_length)
    heard = np.flatnonzero(difference.max(axis=1) > 0)
    # Three frames for the first layer and for each of two blocks, and two of overlap.
    assert 40 - 11 <= heard.min() <= 38
    assert 41 <= heard.max() <= 40 + 11


def test_rows_do_not_touch_each_other() -> None:
    vocoder, mel_BTM = Vocoder(CONFIG), make_mel(3)
    np.testing.assert_allclose(vocoder(mel_BTM).numpy()[1:2], vocoder(mel_BTM[1:2]).numpy(), atol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_graphs_agree_with_eager_calls(jit_compile: bool) -> None:
    vocoder, mel_BTM = Vocoder(CONFIG), make_mel()
    in_graph = tf.function(vocoder, jit_compile=jit_compile, autograph=False)
    np.testing.assert_allclose(in_graph(tf.constant(mel_BTM)).numpy(), vocoder(mel_BTM).numpy(), atol=1e-4)


def test_half_precision_stays_close_and_gives_float32() -> None:
    whole = Vocoder(CONFIG)
    keras.config.set_dtype_policy("mixed_bfloat16")
    half = Vocoder(CONFIG)
    copy_weights(whole, half)
    assert all(weight.dtype == "float32" for _, weight in iterate_weights(half))
    expected, made = whole(make_mel()).numpy(), half(make_mel())
    assert made.dtype == tf.float32
    difference = np.abs(made.numpy() - expected)
    assert difference.max() > 0
    assert difference.mean() < 0.1 * np.abs(expected).mean()


def copy_weights(source: Any, target: Any) -> None:
    values = {name: weight.numpy() for name, weight in iterate_weights(source)}
    for name, weight in iterate_weights(target):
        weight.assign(values.pop(name))
    assert not values


@pytest.mark.parametrize("make", [lambda: Vocoder(CONFIG), lambda: Discriminators(CRITICS)])
def test_named_weights_are_all_there_is(make: Any) -> None:
    first, second = make(), make()
    assert len(dict(iterate_weights(first))) == len(first.weights) > 5
    copy_weights(first, second)
    sounds = make_mel() if isinstance(first, Vocoder) else make_noise(640)
    for made, expected in zip(tf.nest.flatten(second(sounds)), tf.nest.flatten(first(sounds)), strict=True):
        np.testing.assert_array_equal(made.numpy(), expected.numpy())


def test_the_same_seed_makes_the_same_weights() -> None:
    first = [weight.numpy() for weight in Vocoder(CONFIG).weights]
    keras.utils.set_random_seed(1)
    second = [weight.numpy() for weight in Vocoder(CONFIG).weights]
    assert all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


def test_training_lowers_the_loss_and_reaches_every_weight() -> None:
    vocoder, mel_BTM, samples_BS = Vocoder(CONFIG), make_mel(2, 16), make_noise(256)
    target_BTF = measure_magnitude(samples_BS, 64, 16)
    optimizer = keras.optimizers.Adam(3e-3)
    losses = []
    for _ in range(5):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.abs(measure_magnitude(vocoder(mel_BTM), 64, 16) - target_BTF))
        weights = [variable.value for variable in vocoder.trainable_variables]
        gradients = tape.gradient(loss, weights)
        assert all(gradient is not None and np.abs(gradient).max() > 0 for gradient in gradients)
        optimizer.apply(gradients, vocoder.trainable_variables)
        losses.append(float(loss))
    assert losses[-1] < 0.9 * losses[0]


def test_sizes_have_the_weights_they_claim() -> None:
    mel = {"n_mels": 80, "n_fft": 1024, "hop_length": 256, "win_length": 1024}
    sizes = [
        sum(int(np.prod(w.shape)) for w in Vocoder(c).weights)
        for c in (VocoderConfig.tiny(**mel), VocoderConfig(**mel))
    ]
    assert 1e6 < sizes[0] < 2e6
    assert 9e6 < sizes[1] < 11e6


def test_a_description_comes_back_as_it_was() -> None:
    assert VocoderConfig.from_json(CONFIG.to_json()) == CONFIG


@pytest.mark.parametrize(
    "change",
    [
        {"width": 0}, {"width": 10**9}, {"width": "16"}, {"width": True}, {"n_fft": 16}, {"win_length": 8}, {"more": 1},
        {"num_blocks": 2.0},
    ],
)  # fmt: skip
def test_a_description_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="vocoder's description"):
        VocoderConfig.from_json({**CONFIG.to_json(), **change})


@pytest.mark.parametrize("data", [None, [], {}, {"width": 16}])
def test_what_is_no_description_is_refused(data: object) -> None:
    with pytest.raises(DataError, match="description cannot be used"):
        VocoderConfig.from_json(data)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_each_discriminator_gives_scores_and_features_in_float32(policy: str) -> None:
    keras.config.set_dtype_policy(policy)
    judgements = Discriminators(CRITICS)(make_noise(640, num_items=3))
    assert len(judgements) == 4
    for verdict in judgements:
        assert len(verdict.features) == 4
        assert all(
            tensor.dtype == tf.float32 and tensor.shape[0] == 3 for tensor in (verdict.scores, *verdict.features)
        )


@pytest.mark.parametrize("config", [replace(CRITICS, periods=()), replace(CRITICS, resolutions=())])
def test_discriminators_of_either_kind_learn_to_tell_two_sounds_apart(config: DiscriminatorConfig) -> None:
    noise = make_noise(640, num_items=4)
    tone = np.tile(np.sin(np.arange(640) * 0.3), (4, 1)).astype(np.float32) * 0.1
    discriminators, optimizer = Discriminators(config), keras.optimizers.Adam(3e-3)

    @tf.function(autograph=False)
    def train() -> Any:
        with tf.GradientTape() as tape:
            pairs = zip(discriminators(tone), discriminators(noise), strict=True)
            loss = tf.add_n([tf.reduce_mean(tf.nn.relu(1 - a.scores) + tf.nn.relu(1 + b.scores)) for a, b in pairs])
        gradients = tape.gradient(loss, [variable.value for variable in discriminators.trainable_variables])
        optimizer.apply(gradients, discriminators.trainable_variables)
        return loss

    optimizer.build(discriminators.trainable_variables)
    losses = [float(train()) for _ in range(30)]
    assert losses[-1] < 0.7 * losses[0]


def test_magnitudes_and_phases_are_not_rounded_to_bfloat16() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    vocoder = Vocoder(CONFIG)
    vocoder.envelope.kernel.assign(np.random.default_rng(3).normal(0, 0.1, vocoder.envelope.kernel.shape))
    for values in vocoder.predict_spectrum(tf.constant(make_mel())):
        rounded = tf.cast(tf.cast(values, tf.bfloat16), tf.float32)
        assert tf.reduce_mean(tf.cast(values == rounded, tf.float32)) < 0.1
