"""The numbers behind the features are those of the reference library, for any settings."""

from __future__ import annotations

import json

import librosa
import numpy as np
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from myxtts.config.schema import DataConfig
from myxtts.features.definition import (
    AudioDefinition,
    MelDefinition,
    count_longest_frames,
    count_resampled,
    count_source_frames,
    hz_to_mel,
    mel_to_hz,
)

SETTINGS = [
    {},
    {"sample_rate": 16_000, "n_fft": 1024, "hop_length": 200, "win_length": 800, "fmin": 50.0, "fmax": 7600.0},
    {"sample_rate": 44_100, "n_fft": 2048, "hop_length": 512, "win_length": 2048, "n_mels": 128, "fmax": 16_000.0},
    {"sample_rate": 48_000, "n_fft": 1024, "hop_length": 480, "win_length": 961, "n_mels": 40, "fmax": 24_000.0},
    {"n_fft": 1025, "win_length": 999, "n_mels": 20, "fmin": 900.0, "fmax": 1100.0},
]


def define(**settings: float) -> MelDefinition:
    return MelDefinition.from_config(DataConfig.model_validate(settings))


@pytest.mark.parametrize("settings", SETTINGS[:4])
def test_bands_are_those_of_the_reference(settings: dict[str, float]) -> None:
    definition = define(**settings)
    expected = librosa.filters.mel(
        sr=definition.sample_rate,
        n_fft=definition.n_fft,
        n_mels=definition.n_mels,
        fmin=definition.fmin,
        fmax=definition.fmax,
    ).T
    num_used = len(definition.filterbank)
    np.testing.assert_allclose(definition.filterbank, expected[:num_used], atol=1e-7)
    assert not expected[num_used:].any()
    assert definition.filterbank[-1].any()


@pytest.mark.parametrize("settings", SETTINGS)
def test_window_is_that_of_the_reference(settings: dict[str, float]) -> None:
    definition = define(**settings)
    expected = librosa.filters.get_window("hann", definition.win_length, fftbins=True)
    np.testing.assert_allclose(definition.window, librosa.util.pad_center(expected, size=definition.n_fft), atol=1e-7)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("num_samples", [2000, 2048, 2049, 4800, 5120])
def test_last_frame_lies_within_the_reflected_samples(settings: dict[str, float], num_samples: int) -> None:
    definition = define(**settings)
    last_start = (definition.count_frames(num_samples) - 1) * definition.hop_length
    size = definition.margin + num_samples + definition.end_margin
    assert last_start + definition.n_fft <= size < last_start + definition.n_fft + definition.hop_length


def test_mel_scale_goes_there_and_back() -> None:
    for frequency_hz in (0.0, 80.0, 999.9, 1000.0, 1000.1, 8000.0, 24_000.0):
        mel = hz_to_mel(frequency_hz)
        assert mel == pytest.approx(float(librosa.hz_to_mel(frequency_hz)))
        assert mel_to_hz(np.array([mel]))[0] == pytest.approx(frequency_hz)


def test_bands_narrower_than_the_resolution_are_empty_and_nothing_breaks() -> None:
    definition = define(**SETTINGS[4])
    assert definition.filterbank.shape[1] == 20
    assert not definition.filterbank.any(axis=0).all()


def test_definitions_survive_json() -> None:
    data = DataConfig(fmin=20.0, trim_db=30.0, loudness="peak")
    mel, audio = MelDefinition.from_config(data), AudioDefinition.from_config(data)
    assert MelDefinition(**json.loads(json.dumps(mel.to_json()))) == mel
    assert AudioDefinition(**json.loads(json.dumps(audio.to_json()))) == audio
    assert (mel.fmin, audio.trim_db, audio.loudness) == (20.0, 30.0, "peak")


RATES = st.sampled_from([8000, 11_025, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000])


@settings(max_examples=100, deadline=None)
@given(num_samples=st.integers(1, 60_000), rate=RATES, target=RATES)
def test_resampling_gives_as_many_samples_as_counted(num_samples: int, rate: int, target: int) -> None:
    resampled = soxr.resample(np.zeros(num_samples, np.float32), rate, target, quality="HQ")
    assert count_resampled(num_samples, rate, target) == (num_samples if rate == target else len(resampled))


def test_a_stream_that_does_not_say_how_long_it_is_has_no_length_but_a_longest() -> None:
    data = DataConfig(max_duration_s=2.0)
    mel = MelDefinition.from_config(data)
    assert count_source_frames(0, 44_100, mel) == 0
    assert count_source_frames(2 * 44_100, 44_100, mel) == count_longest_frames(data) == 1 + 44_100 // 256
