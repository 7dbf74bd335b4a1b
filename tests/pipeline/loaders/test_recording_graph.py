"""Sound is made ready in the graph as it is on the host: the same samples stay, at the same level."""

from __future__ import annotations

import os

import numpy as np
import pytest
import soxr
import tensorflow as tf
from numpy.typing import NDArray
from tests.conftest import synthesize_clip
from tests.pipeline.recordings import DATA

from myxtts.config.schema import DataConfig
from myxtts.features.audio import level_samples, trim_silence
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.features.mel import HostMel
from myxtts.pipeline.loaders import recording_graph
from myxtts.pipeline.loaders.recording_graph import GraphResampler

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def make_sounds() -> dict[str, NDArray[np.float32]]:
    voice, pause = synthesize_clip(0.9, 4), np.zeros(7000, np.float32)
    return {
        "voice": voice,
        "voice between pauses": np.concatenate([pause, voice, pause]),
        "voice that fades": voice * np.linspace(1, 0, len(voice), dtype=np.float32) ** 4,
        "loud voice": voice / np.abs(voice).max(),
        "one click": np.concatenate([pause, np.ones(3, np.float32), pause]),
        "silence": pause,
        "next to nothing": pause + np.float32(2.0**-26),
        "less than two blocks": voice[:300],
        "less than one block": voice[:100],
    }


@pytest.mark.parametrize("name", make_sounds())
@pytest.mark.parametrize("trim_db", [20.0, 38.0, 60.0])
def test_graph_trims_the_same_samples(name: str, trim_db: float) -> None:
    samples = make_sounds()[name]
    expected = trim_silence(samples, DATA.sample_rate, trim_db)
    trimmed = recording_graph.trim_silence(tf.constant(samples), DATA.sample_rate, trim_db).numpy()
    np.testing.assert_array_equal(trimmed, expected)


@pytest.mark.parametrize("name", make_sounds())
@pytest.mark.parametrize("loudness", ["rms", "peak", "none"])
@pytest.mark.parametrize("target", [0.06, 0.9])
def test_graph_brings_sound_to_the_same_level(name: str, loudness: str, target: float) -> None:
    data = DATA.model_copy(update={"loudness": loudness, "loudness_target": target})
    definition, samples = AudioDefinition.from_config(data), make_sounds()[name]
    levelled = recording_graph.level_samples(tf.constant(samples), definition).numpy()
    np.testing.assert_allclose(levelled, level_samples(samples, definition), rtol=1e-5, atol=1e-12)


os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


TARGET_HZ = 22_050
# Mean and largest error in log-mel against soxr. A band that the sound leaves to the filter's slope shows the most.
TOLERANCES = {16_000: (5e-4, 0.04), 24_000: (2e-5, 0.03), 44_100: (1e-5, 5e-4), 48_000: (2e-5, 0.01)}
MEL = HostMel(MelDefinition.from_config(DataConfig()))


def resample(samples: NDArray[np.float32], rate_hz: int, target_hz: int = TARGET_HZ) -> NDArray[np.float32]:
    resampled: NDArray[np.float32] = GraphResampler(rate_hz, target_hz)(tf.constant(samples)).numpy()
    return resampled


def make_sounds_resample_graph(rate_hz: int) -> dict[str, NDArray[np.float32]]:
    noise = np.random.default_rng(0).normal(0, 0.1, int(1.3 * rate_hz)).astype(np.float32)
    return {"voice": synthesize_clip(1.7, 1, rate_hz), "noise": noise}


@pytest.mark.parametrize("rate_hz", TOLERANCES)
def test_spectrogram_agrees_with_that_of_soxr(rate_hz: int) -> None:
    mean, largest = TOLERANCES[rate_hz]
    for name, samples in make_sounds_resample_graph(rate_hz).items():
        expected = soxr.resample(samples, rate_hz, TARGET_HZ, quality="HQ")
        error = np.abs(MEL(resample(samples, rate_hz)) - MEL(expected))
        assert error.mean() < mean, name
        assert error.max() < largest, name


@pytest.mark.parametrize(
    ("rate_hz", "target_hz"), [(8000, 22_050), (96_000, 22_050), (11_025, 22_050), (48_000, 16_000)]
)
def test_other_rates_are_served_as_well(rate_hz: int, target_hz: int) -> None:
    samples = synthesize_clip(1.0, 2, rate_hz)
    expected = soxr.resample(samples, rate_hz, target_hz, quality="HQ")
    resampled = resample(samples, rate_hz, target_hz)
    assert len(resampled) == len(expected)
    # soxr begins with a step of its own; the first samples differ.
    np.testing.assert_allclose(resampled[10:], expected[10:], atol=2e-4)


@pytest.mark.parametrize("rate_hz", [*TOLERANCES, 8000, 22_051])
def test_any_number_of_samples_becomes_as_many_as_with_soxr(rate_hz: int) -> None:
    resampler = tf.function(GraphResampler(rate_hz, TARGET_HZ), input_signature=[tf.TensorSpec([None], tf.float32)])
    generator = np.random.default_rng(0)
    for num_samples in [1, 2, 255, 256, *range(9990, 10_010), *generator.integers(1, 100_000, 20).tolist()]:
        samples = generator.normal(0, 0.1, num_samples).astype(np.float32)
        expected = soxr.resample(samples, rate_hz, TARGET_HZ, quality="HQ")
        assert len(resampler(samples)) == len(expected), num_samples


@pytest.mark.parametrize("rate_hz", TOLERANCES)
def test_a_tone_keeps_its_place_and_level_across_blocks(rate_hz: int) -> None:
    # Away from both ends, where the tone begins and stops at once.
    middle = slice(2000, -2000)
    time_in, time_out = np.arange(2 * rate_hz) / rate_hz, np.arange(2 * TARGET_HZ) / TARGET_HZ
    for frequency_hz in (50.0, 1000.0, 0.9 * min(rate_hz, TARGET_HZ) / 2):
        tone = np.sin(2 * np.pi * frequency_hz * time_in + 0.3).astype(np.float32)
        expected = np.sin(2 * np.pi * frequency_hz * time_out + 0.3)
        np.testing.assert_allclose(resample(tone, rate_hz)[middle], expected[middle], atol=3e-5)


@pytest.mark.parametrize("rate_hz", [44_100, 48_000])
def test_what_the_lower_rate_cannot_hold_vanishes(rate_hz: int) -> None:
    for frequency_hz in (11_100.0, 15_000.0, 0.49 * rate_hz):
        tone = np.sin(2 * np.pi * frequency_hz * np.arange(2 * rate_hz) / rate_hz).astype(np.float32)
        assert np.abs(resample(tone, rate_hz)[2000:-2000]).max() < 3e-5


def test_sound_up_to_the_first_and_last_sample_is_kept() -> None:
    impulses = np.zeros(48_000, np.float32)
    impulses[[0, -1]] = 1.0
    expected = soxr.resample(impulses, 48_000, TARGET_HZ, quality="HQ")
    resampled = resample(impulses, 48_000)
    np.testing.assert_allclose(resampled[2:], expected[2:], atol=1e-3)
    np.testing.assert_allclose(resampled[:2], expected[:2], rtol=0.2)
