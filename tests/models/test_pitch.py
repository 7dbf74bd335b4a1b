"""Pitch as spectrograms show it: of tones with known pitch, of noise, by frame and by state."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from myxtts.config.data import DataConfig
from myxtts.features.definition import MelDefinition
from myxtts.features.mel import HostMel
from myxtts.models.pitch import Pitch, PitchTracker, average_by_state, refine_f0
from myxtts.models.pitch_combs import measure_f0_range
from myxtts.models.vocoder import make_pulses

MEL = MelDefinition.from_config(DataConfig())
TRACKER = PitchTracker(MEL.band_hz.tolist())
SECONDS = 0.7


def sing(pitch_hz: float | NDArray[np.float64], formant_hz: float = 500.0) -> NDArray[np.float32]:
    """A mel spectrogram [1, T, M] of harmonics under an envelope with one formant."""
    times = np.arange(int(SECONDS * MEL.sample_rate)) / MEL.sample_rate
    phase = 2 * np.pi * np.cumsum(np.broadcast_to(pitch_hz, times.shape)) / MEL.sample_rate
    mean_hz = float(np.mean(pitch_hz))
    orders = np.arange(1, int(5000 / mean_hz))
    levels = 0.05 / (1 + ((orders * mean_hz - formant_hz) / 300) ** 2) + 0.002
    sound = (levels[:, None] * np.sin(orders[:, None] * phase)).sum(axis=0)
    noise = 1e-4 * np.random.default_rng(0).standard_normal(len(times))
    return HostMel(MEL)((sound + noise).astype(np.float32))[None]


def to_hz(f0: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(180 * 2 ** (f0 / 3), np.float32)


def measure(mel: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    pitch = TRACKER.measure(tf.constant(mel), tf.constant([mel.shape[1]]))
    return to_hz(pitch.f0.numpy()[0]), pitch.voicing.numpy()[0]


@settings(max_examples=25, deadline=None)
@given(st.floats(95, 330), st.floats(300, 900))
def test_the_pitch_of_a_sung_tone_is_found(pitch_hz: float, formant_hz: float) -> None:
    found_hz, voicing = measure(sing(pitch_hz, formant_hz))
    inside = slice(5, -5)
    assert np.median(voicing[inside]) > 0.5
    assert np.median(np.abs(np.log2(found_hz[inside] / pitch_hz))) < 1 / 12


@pytest.mark.parametrize("pitch_hz", [110.0, 173.5, 290.0])
def test_between_candidates_the_pitch_is_found_to_one_percent(pitch_hz: float) -> None:
    """Candidates are 1.8 % apart."""
    found_hz, voicing = TRACKER.track_hz(tf.constant(sing(pitch_hz)))
    assert np.median(voicing) > 0.5
    assert np.median(np.abs(found_hz.numpy()[0, 5:-5] / pitch_hz - 1)) < 0.01


@settings(max_examples=15, deadline=None)
@given(st.floats(80, 380), st.floats(0.94, 1.06))
def test_the_waveform_tells_the_pitch_to_a_fifth_of_a_percent(pitch_hz: float, error: float) -> None:
    samples_BS = 0.1 * make_pulses(tf.fill([1, 40], pitch_hz), MEL.sample_rate, MEL.hop_length)
    refined_hz = refine_f0(tf.fill([1, 40], pitch_hz * error), samples_BS, MEL.sample_rate).numpy()[0, 4:-4]
    assert np.median(np.abs(refined_hz / pitch_hz - 1)) < 0.002


def test_without_a_period_in_the_waveform_the_pitch_stays_as_it_was() -> None:
    noise_BS = tf.constant(np.random.default_rng(2).standard_normal((1, 40 * MEL.hop_length)), tf.float32)
    refined_hz = refine_f0(tf.fill([1, 40], 200.0), noise_BS, MEL.sample_rate).numpy()
    assert np.mean(refined_hz == 200) > 0.9
    np.testing.assert_array_equal(refine_f0(tf.fill([1, 40], 200.0), 0 * noise_BS, MEL.sample_rate), 200)


def test_a_glide_is_followed() -> None:
    wanted_hz = np.linspace(160, 260, int(SECONDS * MEL.sample_rate))
    found_hz, _ = measure(sing(wanted_hz))
    at_frames = wanted_hz[np.minimum(np.arange(len(found_hz)) * MEL.hop_length, len(wanted_hz) - 1)]
    assert np.mean(np.abs(np.log2(found_hz / at_frames))[5:-5] < 1 / 12) > 0.9


def test_without_tensorflow_mean_and_spread_of_f0_are_the_same() -> None:
    num_frames = int(SECONDS * MEL.sample_rate)
    mels = [sing(np.linspace(first_hz, last_hz, num_frames)) for first_hz, last_hz in ((110, 160), (150, 120))]
    pitches = [TRACKER.measure(tf.constant(mel), tf.constant([mel.shape[1]])) for mel in mels]
    f0, voicing = (np.concatenate([part.numpy()[0] for part in parts]) for parts in zip(*pitches, strict=True))
    mean = np.average(f0, weights=voicing)
    found = measure_f0_range([mel[0] for mel in mels], MEL.band_hz.tolist())
    assert found is not None
    assert found.deviation > 0.2
    assert found.mean == pytest.approx(mean, abs=0.01)
    assert found.deviation == pytest.approx(np.sqrt(np.average((f0 - mean) ** 2, weights=voicing)), abs=0.01)


def test_noise_has_no_voice() -> None:
    noise = 0.05 * np.random.default_rng(1).standard_normal(int(SECONDS * MEL.sample_rate))
    _, voicing = measure(HostMel(MEL)(noise.astype(np.float32))[None])
    assert np.median(voicing) < 0.25


def test_padding_changes_nothing_and_has_no_voice_whatever_it_holds() -> None:
    mel = sing(200.0)
    padded = np.pad(mel, [(0, 0), (0, 9), (0, 0)], constant_values=np.nan)
    alone, beside = (TRACKER.measure(tf.constant(m), tf.constant([mel.shape[1]])) for m in (mel, padded))
    num_frames = mel.shape[1]
    np.testing.assert_array_equal(beside.f0[:, :num_frames], alone.f0)
    np.testing.assert_array_equal(beside.voicing[:, num_frames:], 0)
    np.testing.assert_array_equal(beside.f0[:, num_frames:], 0)


def test_bands_that_are_too_coarse_show_no_voice() -> None:
    pitch = PitchTracker([100.0, 900.0, 3000.0]).measure(tf.ones([1, 4, 3]), tf.constant([4]))
    assert not np.any(pitch.voicing)


def test_a_state_is_as_high_as_its_voiced_frames() -> None:
    frames = Pitch(tf.constant([[1.0, 3.0, 9.0, 5.0, 7.0]]), tf.constant([[1.0, 1.0, 0.0, 0.5, 0.8]]))
    state = average_by_state(frames, tf.constant([[0, 0, 0, 2, 2]]), 3, tf.constant([4]))
    assert state.f0.numpy()[0] == pytest.approx([2.0, 0.0, 5.0])
    assert state.voicing.numpy()[0] == pytest.approx([2 / 3, 0.0, 0.5])
    assert state.to_inputs().numpy()[0, 2] == pytest.approx([2.5, 0.5])
