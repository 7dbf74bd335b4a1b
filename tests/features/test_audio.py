"""What is done to samples before their spectrogram is taken: each step does its part, and can be switched off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from myxtts.features.audio import level_samples, process_samples, trim_silence
from myxtts.features.definition import AudioDefinition

MakeClip = Callable[..., NDArray[np.float32]]

RATE_HZ = 22050
NOTHING = AudioDefinition(RATE_HZ, trim_silence=False, trim_db=38.0, loudness="none", loudness_target=0.06)
MARGIN = int(0.05 * RATE_HZ)
BLOCK = int(0.01 * RATE_HZ)


def make_sine(frequency_hz: float, seconds: float, rate_hz: int = RATE_HZ) -> NDArray[np.float32]:
    return (0.5 * np.sin(2 * np.pi * frequency_hz * np.arange(int(seconds * rate_hz)) / rate_hz)).astype(np.float32)


def measure_rms(samples: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))


def surround_by_noise(sound: NDArray[np.float32], before: int, after: int, level: float) -> NDArray[np.float32]:
    generator = np.random.default_rng(0)
    noise = [generator.normal(0, level, count).astype(np.float32) for count in (before, after)]
    return np.concatenate([noise[0], sound, noise[1]])


def test_with_everything_switched_off_samples_stay_as_they_are(make_clip: MakeClip) -> None:
    clip = surround_by_noise(make_clip(1.0), RATE_HZ, RATE_HZ, 1e-5)
    wave = process_samples(clip, RATE_HZ, NOTHING)
    np.testing.assert_array_equal(wave.samples, clip)
    assert wave.rate == RATE_HZ


@pytest.mark.parametrize("num_channels", [1, 2, 6])
def test_channels_are_averaged(make_clip: MakeClip, num_channels: int) -> None:
    channels = np.stack([make_clip(0.5, seed=seed) for seed in range(num_channels)], axis=1)
    wave = process_samples(channels, RATE_HZ, NOTHING)
    np.testing.assert_allclose(wave.samples, channels.mean(axis=1), atol=1e-7)
    assert wave.samples.dtype == np.float32


def test_channels_that_cancel_out_leave_silence(make_clip: MakeClip) -> None:
    clip = make_clip(0.5)
    definition = replace(NOTHING, trim_silence=True, loudness="rms")
    wave = process_samples(np.stack([clip, -clip], axis=1), RATE_HZ, definition)
    assert len(wave.samples) == len(clip)
    assert not wave.samples.any()


@pytest.mark.parametrize("source_rate_hz", [8000, 16_000, 24_000, 44_100, 48_000, 96_000, 192_000])
@pytest.mark.parametrize("seconds", [0.31, 1.5])
def test_resampling_keeps_length_pitch_and_level(source_rate_hz: int, seconds: float) -> None:
    wave = process_samples(make_sine(440.0, seconds, source_rate_hz), source_rate_hz, NOTHING)
    assert wave.rate == RATE_HZ
    assert len(wave.samples) == pytest.approx(int(seconds * source_rate_hz) * RATE_HZ / source_rate_hz, abs=1)
    middle = wave.samples[2000:-2000]
    phase = np.exp(-2j * np.pi * 440.0 * np.arange(len(middle)) / RATE_HZ) * np.hanning(len(middle))
    amplitude = 2 * abs(np.dot(middle, phase)) / np.hanning(len(middle)).sum()
    assert amplitude == pytest.approx(0.5, rel=0.01)


def test_resampling_removes_what_the_lower_rate_cannot_hold() -> None:
    wave = process_samples(make_sine(15_000.0, 1.0, 48_000), 48_000, NOTHING)
    assert measure_rms(wave.samples[1000:-1000]) < 1e-4


@pytest.mark.parametrize(("before_s", "after_s"), [(0.5, 0.7), (0.0, 1.0), (1.0, 0.0), (0.02, 0.03)])
def test_silence_is_cut_and_speech_stays_with_a_margin(make_clip: MakeClip, before_s: float, after_s: float) -> None:
    speech = make_clip(1.0)
    before, after = int(before_s * RATE_HZ), int(after_s * RATE_HZ)
    trimmed = trim_silence(surround_by_noise(speech, before, after, 1e-4), RATE_HZ, 38.0)
    num_extra = len(trimmed) - len(speech)
    most = min(before, MARGIN + BLOCK) + min(after, MARGIN + BLOCK)
    assert min(before, MARGIN - BLOCK) + min(after, MARGIN - BLOCK) <= num_extra <= most
    starts = np.flatnonzero(trimmed[: MARGIN + 2 * BLOCK] == speech[0])
    assert any((trimmed[start : start + len(speech)] == speech).all() for start in starts)


def test_quiet_ends_of_speech_stay_and_quieter_noise_goes(make_clip: MakeClip) -> None:
    sound = np.concatenate([0.1 * make_sine(200, 0.5), make_sine(200, 0.5), 0.001 * make_sine(200, 0.5)])
    assert len(trim_silence(sound, RATE_HZ, 38.0)) == pytest.approx(1.05 * RATE_HZ, abs=2 * BLOCK)
    assert len(trim_silence(sound, RATE_HZ, 12.0)) == pytest.approx(0.6 * RATE_HZ, abs=2 * BLOCK)
    assert len(trim_silence(sound, RATE_HZ, 90.0)) == len(sound)


@given(
    num_samples=st.integers(1, 5000),
    loud_start=st.integers(0, 5000),
    loud_length=st.integers(0, 500),
    trim_db=st.floats(0.1, 120.0),
)
@settings(max_examples=200, deadline=None)
def test_trimming_never_leaves_nothing(num_samples: int, loud_start: int, loud_length: int, trim_db: float) -> None:
    samples = np.random.default_rng(num_samples).normal(0, 1e-3, num_samples).astype(np.float32)
    samples[loud_start : loud_start + loud_length] *= 500
    trimmed = trim_silence(samples, RATE_HZ, trim_db)
    assert len(trimmed) >= min(num_samples, BLOCK)
    assert np.shares_memory(trimmed, samples)


@pytest.mark.parametrize("num_samples", [1, BLOCK, 2 * BLOCK - 1, RATE_HZ])
def test_silence_alone_is_not_trimmed(num_samples: int) -> None:
    silence = np.zeros(num_samples, np.float32)
    assert len(trim_silence(silence, RATE_HZ, 38.0)) == num_samples


@pytest.mark.parametrize("gain", [0.01, 1.0, 3.0])
def test_rms_is_brought_to_the_target(make_clip: MakeClip, gain: float) -> None:
    definition = replace(NOTHING, loudness="rms", loudness_target=0.06)
    levelled = level_samples(make_clip(1.0) * np.float32(gain), definition)
    assert measure_rms(levelled) == pytest.approx(0.06, rel=1e-3)


@pytest.mark.parametrize("gain", [0.01, 1.0, 3.0])
def test_peak_is_brought_to_the_target(make_clip: MakeClip, gain: float) -> None:
    definition = replace(NOTHING, loudness="peak", loudness_target=0.7)
    levelled = level_samples(-make_clip(1.0) * np.float32(gain), definition)
    assert np.abs(levelled).max() == pytest.approx(0.7, rel=1e-5)


@pytest.mark.parametrize("loudness", ["rms", "peak"])
def test_peak_limits_the_gain(loudness: Literal["rms", "peak"]) -> None:
    click = np.full(RATE_HZ, 0.001, np.float32)
    click[5000] = -0.5
    definition = replace(NOTHING, loudness=loudness, loudness_target=1.0)
    levelled = level_samples(click, definition)
    assert np.abs(levelled).max() == pytest.approx(0.99, rel=1e-5)
    np.testing.assert_allclose(levelled, click * 1.98, rtol=1e-5)


def test_no_loudness_leaves_the_level_alone(make_clip: MakeClip) -> None:
    clip = make_clip(0.5) * np.float32(2.5)
    np.testing.assert_array_equal(level_samples(clip, NOTHING), clip)


@pytest.mark.parametrize("loudness", ["rms", "peak", "none"])
@pytest.mark.parametrize("level", [0.0, 1e-42, 1e-30, 1e-9])
def test_silence_stays_silence_at_any_setting(loudness: Literal["rms", "peak", "none"], level: float) -> None:
    almost_nothing = np.full(3000, level, np.float32)
    levelled = level_samples(almost_nothing, replace(NOTHING, loudness=loudness))
    np.testing.assert_array_equal(levelled, almost_nothing)


def test_trimming_comes_before_the_level(make_clip: MakeClip) -> None:
    definition = replace(NOTHING, trim_silence=True, loudness="rms")
    clip = surround_by_noise(make_clip(1.0), 2 * RATE_HZ, 2 * RATE_HZ, 1e-5)
    wave = process_samples(clip, RATE_HZ, definition)
    assert wave.duration_s == pytest.approx(1.1, abs=0.02)
    assert measure_rms(wave.samples) == pytest.approx(0.06, rel=1e-3)
