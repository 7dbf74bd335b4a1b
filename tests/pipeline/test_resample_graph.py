"""Resampling in the graph gives what soxr gives on the host, as far as a spectrogram can tell."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import soxr
import tensorflow as tf
from numpy.typing import NDArray
from tests.conftest import synthesize_clip

from myxtts.config.schema import DataConfig
from myxtts.features.definition import MelDefinition
from myxtts.features.mel import HostMel
from myxtts.pipeline.resample_graph import GraphResampler

TARGET_HZ = 22_050
# Mean and largest error in log-mel against soxr. A band that the sound leaves to the filter's slope shows the most.
TOLERANCES = {16_000: (5e-4, 0.04), 24_000: (2e-5, 0.03), 44_100: (1e-5, 5e-4), 48_000: (2e-5, 0.01)}
MEL = HostMel(MelDefinition.from_config(DataConfig()))


def resample(samples: NDArray[np.float32], rate_hz: int, target_hz: int = TARGET_HZ) -> NDArray[np.float32]:
    resampled: NDArray[np.float32] = GraphResampler(rate_hz, target_hz)(tf.constant(samples)).numpy()
    return resampled


def make_sounds(rate_hz: int) -> dict[str, NDArray[np.float32]]:
    noise = np.random.default_rng(0).normal(0, 0.1, int(1.3 * rate_hz)).astype(np.float32)
    return {"voice": synthesize_clip(1.7, 1, rate_hz), "noise": noise}


@pytest.mark.parametrize("rate_hz", TOLERANCES)
def test_spectrogram_agrees_with_that_of_soxr(rate_hz: int) -> None:
    mean, largest = TOLERANCES[rate_hz]
    for name, samples in make_sounds(rate_hz).items():
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
