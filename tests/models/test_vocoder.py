"""The vocoder and its discriminators: exact transforms, shapes, precision, names of weights, and that they learn.

Shape legend: B batch, S samples, T frames, M mel bands, F frequencies.
"""

from __future__ import annotations

import json
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

from myxtts.config.data import DataConfig
from myxtts.errors import DataError
from myxtts.features.definition import MelDefinition
from myxtts.features.mel import HostMel
from myxtts.models.fourier import ForwardTransform, InverseTransform, make_hann_window, measure_magnitude
from myxtts.models.layers import iterate_weights
from myxtts.models.vocoder import Source, Vocoder, VocoderConfig, make_pulses
from myxtts.training.vocoder.discriminators import DiscriminatorConfig, Discriminators

CONFIG = VocoderConfig(n_mels=6, n_fft=64, hop_length=16, win_length=64, width=16, num_blocks=2)
MEL = MelDefinition.from_config(DataConfig())
WITH_SOURCE = VocoderConfig(
    **{name: getattr(MEL, name) for name in ("n_mels", "n_fft", "hop_length", "win_length", "sample_rate")},
    width=16,
    num_blocks=2,
    band_hz=tuple(MEL.band_hz.tolist()),
)
CRITICS = DiscriminatorConfig(channels=4, max_channels=8, periods=(2, 3), resolutions=(64, 128))


@pytest.fixture(autouse=True)
def _same_weights() -> Iterator[None]:
    keras.utils.set_random_seed(1)
    yield
    keras.config.set_dtype_policy("float32")


def make_vocoder(config: VocoderConfig = CONFIG) -> Vocoder:
    """With the bands of the usual spectrograms where the sizes agree, else with equal bands side by side."""
    if config.n_mels == MEL.n_mels:
        return Vocoder(config, MEL.filterbank)
    return Vocoder(config, np.repeat(np.eye(config.n_mels, dtype=np.float32), 4, axis=0))


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
def test_the_transforms_are_those_of_numpy_and_give_back_the_sound(
    n_fft: int, hop_length: int, win_length: int
) -> None:
    samples_BS = make_noise(20 * hop_length)
    spectrum_BTF = take_spectrum(samples_BS, n_fft, hop_length, win_length)
    forward = ForwardTransform(n_fft, hop_length, win_length)
    inverse = InverseTransform(n_fft, hop_length, win_length)
    for made_BTF, expected_BTF in zip(forward(samples_BS), (spectrum_BTF.real, spectrum_BTF.imag), strict=True):
        np.testing.assert_allclose(made_BTF, expected_BTF, atol=1e-4)
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
    samples_BS = make_vocoder()(make_mel(3, num_frames)).numpy()
    assert samples_BS.shape == (3, num_frames * CONFIG.hop_length)
    assert samples_BS.dtype == np.float32


def test_extreme_spectrograms_give_finite_sound() -> None:
    mel_BTM = np.stack([np.full((8, 6), value, np.float32) for value in (-100.0, 100.0, 1e6)])
    vocoder = make_vocoder()
    bias = dict(iterate_weights(vocoder))["head.bias"]
    bias.assign(tf.fill(bias.shape, 1e4))
    assert np.isfinite(vocoder(mel_BTM).numpy()).all()


def test_sound_depends_only_on_frames_near_it() -> None:
    vocoder, mel_BTM = make_vocoder(), make_mel(1, 60)
    changed_BTM = mel_BTM.copy()
    changed_BTM[:, 40] += 3
    difference = np.abs(vocoder(changed_BTM).numpy() - vocoder(mel_BTM).numpy())[0].reshape(60, CONFIG.hop_length)
    heard = np.flatnonzero(difference.max(axis=1) > 0)
    # Three frames for the first layer and for each of two blocks, and two of overlap.
    assert 40 - 11 <= heard.min() <= 38
    assert 41 <= heard.max() <= 40 + 11


def test_rows_do_not_touch_each_other() -> None:
    vocoder, mel_BTM = make_vocoder(), make_mel(3)
    np.testing.assert_allclose(vocoder(mel_BTM).numpy()[1:2], vocoder(mel_BTM[1:2]).numpy(), atol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_graphs_agree_with_eager_calls(jit_compile: bool) -> None:
    vocoder, mel_BTM = make_vocoder(), make_mel()
    in_graph = tf.function(vocoder, jit_compile=jit_compile, autograph=False)
    np.testing.assert_allclose(in_graph(tf.constant(mel_BTM)).numpy(), vocoder(mel_BTM).numpy(), atol=1e-4)


def test_half_precision_stays_close_and_gives_float32() -> None:
    whole = make_vocoder()
    keras.config.set_dtype_policy("mixed_bfloat16")
    half = make_vocoder()
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


@pytest.mark.parametrize("make", [make_vocoder, lambda: Discriminators(CRITICS)])
def test_named_weights_are_all_there_is(make: Any) -> None:
    first, second = make(), make()
    assert len(dict(iterate_weights(first))) == len(first.weights) > 5
    copy_weights(first, second)
    sounds = make_mel() if isinstance(first, Vocoder) else make_noise(640)
    for made, expected in zip(tf.nest.flatten(second(sounds)), tf.nest.flatten(first(sounds)), strict=True):
        np.testing.assert_array_equal(made.numpy(), expected.numpy())


def test_the_same_seed_makes_the_same_weights() -> None:
    first = [weight.numpy() for weight in make_vocoder().weights]
    keras.utils.set_random_seed(1)
    second = [weight.numpy() for weight in make_vocoder().weights]
    assert all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


def test_training_lowers_the_loss_and_reaches_every_weight() -> None:
    vocoder, mel_BTM, samples_BS = make_vocoder(), make_mel(2, 16), make_noise(256)
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


@pytest.mark.parametrize("config", [CONFIG, WITH_SOURCE])
def test_a_description_comes_back_as_it_was(config: VocoderConfig) -> None:
    assert VocoderConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_a_description_of_earlier_vocoders_has_no_source() -> None:
    earlier = {name: value for name, value in CONFIG.to_json().items() if name not in ("sample_rate", "band_hz")}
    assert VocoderConfig.from_json(earlier) == CONFIG
    assert not CONFIG.has_source


@pytest.mark.parametrize("change", [{"band_hz": [100.0, 200.0]}, {"sample_rate": 0}])
def test_a_source_needs_a_rate_and_the_centre_of_every_band(change: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="vocoder's description"):
        VocoderConfig.from_json({**WITH_SOURCE.to_json(), **change})


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


@pytest.mark.parametrize("hz", [90.0, 187.3, 351.0])
def test_pulses_have_power_one_and_all_harmonics_of_f0_to_the_end_of_a_long_sentence(hz: float) -> None:
    num_frames, rate_hz, hop = 2000, 16_000, 128
    pulses_S = make_pulses(tf.fill([1, num_frames], hz), rate_hz, hop).numpy()[0]
    assert np.mean(pulses_S**2) == pytest.approx(1, abs=0.02)
    last_S = pulses_S[-rate_hz:]
    spectrum_F = np.abs(np.fft.rfft(last_S * np.hanning(len(last_S))))
    harmonics = np.arange(1, int(0.98 * rate_hz / 2 / hz) + 1) * hz
    near = np.zeros(len(spectrum_F), bool)
    for harmonic in harmonics:
        around = slice(int(harmonic) - 2, int(harmonic) + 4)
        near[around] = True
        assert spectrum_F[around].max() > 0.3 * spectrum_F.max()
    assert spectrum_F[~near].max() < 0.02 * spectrum_F.max()


def sing(hz: float) -> NDArray[np.float32]:
    """Samples [1, S] of 40 frames of pulses."""
    pulses_BS = make_pulses(tf.fill([1, 40], hz), MEL.sample_rate, MEL.hop_length)
    return np.asarray(0.05 * pulses_BS, np.float32)


def take_mel(samples_BS: NDArray[np.float32]) -> Any:
    return tf.constant(HostMel(MEL)(samples_BS[0])[None, :40])


def test_the_source_has_the_f0_of_the_spectrogram_or_the_one_that_is_given() -> None:
    vocoder, mel_BTM = make_vocoder(WITH_SOURCE), take_mel(sing(210.0))
    source = vocoder.track(mel_BTM)
    assert np.median(source.hz) == pytest.approx(210, rel=0.01)
    assert np.median(source.voicing) > 0.9
    own_BS, same_BS = vocoder.filter_source(mel_BTM).numpy(), vocoder.filter_source(mel_BTM, source).numpy()
    np.testing.assert_array_equal(own_BS, same_BS)
    other_BS = vocoder.filter_source(mel_BTM, Source(source.hz * 1.5, source.voicing, source.noise_start)).numpy()
    assert np.abs(other_BS - own_BS).max() > 0.01 * np.abs(own_BS).max()


def test_a_correction_brings_the_bands_nearer_to_the_spectrogram() -> None:
    """Before training the filters know nothing of the spectrogram."""
    vocoder, mel_BTM = make_vocoder(WITH_SOURCE), take_mel(sing(210.0))
    before, after = (
        np.abs(HostMel(MEL)(samples_BS.numpy()[0])[5:35] - mel_BTM[0, 5:35]).mean()
        for samples_BS in (vocoder.filter_source(mel_BTM), vocoder(mel_BTM))
    )
    assert after < 0.5 * before


def test_bands_that_are_too_coarse_for_f0_give_noise_and_no_error() -> None:
    coarse = replace(WITH_SOURCE, n_mels=4, band_hz=(200.0, 900.0, 2000.0, 5000.0))
    mel_BTM = tf.zeros([1, 6, 4])
    assert np.isfinite(make_vocoder(coarse)(mel_BTM).numpy()).all()
    assert not make_vocoder(coarse).track(mel_BTM).voicing.numpy().any()


def test_a_vocoder_with_a_source_learns_a_voice_at_one_f0_and_speaks_it_at_another() -> None:
    samples_BS = sing(210.0)
    mel_BTM, target_BTF = take_mel(samples_BS), measure_magnitude(samples_BS, 512, 128)
    vocoder, optimizer = make_vocoder(WITH_SOURCE), keras.optimizers.Adam(5e-3)

    @tf.function(autograph=False)
    def train() -> Any:
        with tf.GradientTape() as tape:
            made_BTF = measure_magnitude(vocoder.filter_source(mel_BTM), 512, 128)
            loss = tf.reduce_mean(tf.abs(tf.math.log(made_BTF + 0.01) - tf.math.log(target_BTF + 0.01)))
        gradients = tape.gradient(loss, [variable.value for variable in vocoder.trainable_variables])
        assert all(gradient is not None for gradient in gradients)
        optimizer.apply(gradients, vocoder.trainable_variables)
        return loss

    optimizer.build(vocoder.trainable_variables)
    losses = [float(train()) for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]
    made_S = vocoder(take_mel(sing(150.0))).numpy()[0, 1024:-1024]
    spectrum_F = np.abs(np.fft.rfft(made_S * np.hanning(len(made_S)), MEL.sample_rate))
    assert 140 < 60 + np.argmax(spectrum_F[60:200]) < 160


def test_magnitudes_and_phases_are_not_rounded_to_bfloat16() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    vocoder = make_vocoder()
    vocoder.envelope.kernel.assign(np.random.default_rng(3).normal(0, 0.1, vocoder.envelope.kernel.shape))
    for values in vocoder.predict_spectrum(tf.constant(make_mel()), ForwardTransform(64, 16, 64)):
        rounded = tf.cast(tf.cast(values, tf.bfloat16), tf.float32)
        assert tf.reduce_mean(tf.cast(values == rounded, tf.float32)) < 0.1
