"""Sound made from a spectrogram has that spectrogram, its pitch, its length and quiet ends."""

from __future__ import annotations

from dataclasses import replace
from threading import BrokenBarrierError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.conftest import synthesize_clip

from myxtts.config.schema import DataConfig
from myxtts.features.definition import MelDefinition
from myxtts.features.griffin_lim import GriffinLim
from myxtts.features.mel import HostMel

DEFINITION = MelDefinition.from_config(DataConfig())
BIN_HZ = DEFINITION.sample_rate / DEFINITION.n_fft
OTHER = replace(DEFINITION, sample_rate=16_000, n_fft=600, win_length=500, hop_length=160, n_mels=40, fmin=50.0)
ODD = replace(DEFINITION, n_fft=257, win_length=256, hop_length=100, n_mels=20)


def make_tone(frequency_hz: float, seconds: float = 1.0) -> NDArray[np.float32]:
    time_s = np.arange(int(seconds * DEFINITION.sample_rate)) / DEFINITION.sample_rate
    return np.asarray(0.3 * np.sin(2 * np.pi * frequency_hz * time_s), np.float32)


def measure_distance(mel_TM: NDArray[np.float32], samples: NDArray[np.float32], definition: MelDefinition) -> float:
    """Mean absolute difference of log-mel values; ends are left out, where the definition reflects the sound."""
    made_TM = HostMel(definition)(samples)[: len(mel_TM)]
    return float(np.abs(made_TM - mel_TM)[2:-2].mean())


def find_loudest_hz(samples: NDArray[np.float32]) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(spectrum.argmax() * DEFINITION.sample_rate / len(samples))


@pytest.mark.parametrize("frequency_hz", [110.0, 233.0, 440.0, 850.0])
def test_a_tone_keeps_its_pitch(frequency_hz: float) -> None:
    samples = GriffinLim(DEFINITION)(HostMel(DEFINITION)(make_tone(frequency_hz)))
    assert abs(find_loudest_hz(samples) - frequency_hz) < BIN_HZ


def test_a_sweep_is_followed() -> None:
    rate = DEFINITION.sample_rate
    time_s = np.arange(2 * rate) / rate
    sweep = np.asarray(0.3 * np.sin(2 * np.pi * (200 * time_s + 200 * time_s**2)), np.float32)
    samples = GriffinLim(DEFINITION)(HostMel(DEFINITION)(sweep))
    for second in (0.25, 0.75, 1.25, 1.75):
        around = slice(int((second - 0.05) * rate), int((second + 0.05) * rate))
        assert abs(find_loudest_hz(samples[around]) - (200 + 400 * second)) < 2 * BIN_HZ


@pytest.mark.parametrize("definition", [DEFINITION, OTHER, ODD])
def test_the_spectrogram_of_the_sound_is_the_one_given(definition: MelDefinition) -> None:
    clip = synthesize_clip(seed=3, rate_hz=definition.sample_rate)
    mel_TM = HostMel(definition)(clip)
    assert measure_distance(mel_TM, GriffinLim(definition)(mel_TM), definition) < 0.12


def test_more_iterations_come_closer() -> None:
    mel_TM = HostMel(DEFINITION)(synthesize_clip(seed=5))
    distances = [
        measure_distance(mel_TM, GriffinLim(DEFINITION, num_iterations=number)(mel_TM), DEFINITION)
        for number in (1, 8, 48)
    ]
    assert distances[0] > 1.3 * distances[1] > 1.3 * 1.3 * distances[2]


def test_the_same_seed_gives_the_same_samples_and_another_one_others() -> None:
    mel_TM = HostMel(DEFINITION)(synthesize_clip(seed=2, seconds=0.3))
    speak = GriffinLim(DEFINITION, num_iterations=4)
    first = speak(mel_TM, seed=7)
    np.testing.assert_array_equal(first, speak(mel_TM, seed=7))
    np.testing.assert_array_equal(first, GriffinLim(DEFINITION, num_iterations=4)(mel_TM.copy(), seed=7))
    assert np.abs(first - speak(mel_TM, seed=8)).max() > 0.01


@pytest.mark.parametrize("definition", [DEFINITION, OTHER, ODD, replace(DEFINITION, hop_length=8)])
@pytest.mark.parametrize("num_frames", [1, 64, 65, 193])
def test_the_number_of_threads_does_not_change_the_samples(definition: MelDefinition, num_frames: int) -> None:
    mel_TM = np.random.default_rng(0).normal(-4, 2, (num_frames, definition.n_mels)).astype(np.float32)
    one, *others = (GriffinLim(definition, num_iterations=10, num_threads=count)(mel_TM) for count in (1, 2, 3))
    for other in others:
        np.testing.assert_array_equal(one, other)


def test_an_error_in_one_thread_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def fail_for_the_second(*_: object) -> NDArray[np.complex64]:
        made.append(0)
        if len(made) > 9:
            raise MemoryError
        return np.zeros((64, len(DEFINITION.filterbank)), np.complex64)

    monkeypatch.setattr("myxtts.features.griffin_lim._Sound.analyze", fail_for_the_second)
    with pytest.raises((MemoryError, BrokenBarrierError)):
        GriffinLim(DEFINITION, num_threads=2)(np.zeros((128, DEFINITION.n_mels), np.float32))


@settings(max_examples=40)
@given(num_frames=st.integers(0, 200), definition=st.sampled_from([DEFINITION, OTHER, ODD]), seed=st.integers(0, 99))
def test_every_frame_gives_one_hop_of_finite_samples(num_frames: int, definition: MelDefinition, seed: int) -> None:
    mel_TM = np.random.default_rng(seed).uniform(-12, 2, (num_frames, definition.n_mels)).astype(np.float32)
    given_TM = mel_TM.copy()
    samples = GriffinLim(definition, num_iterations=10)(mel_TM)
    assert samples.shape == (num_frames * definition.hop_length,)
    assert samples.dtype == np.float32
    assert np.isfinite(samples).all()
    np.testing.assert_array_equal(mel_TM, given_TM)


def test_frames_stay_in_their_place() -> None:
    """A burst is where it was, to a fraction of a hop."""
    clip = np.zeros(DEFINITION.sample_rate, np.float32)
    clip[9000:9600] = make_tone(700)[:600]
    samples = GriffinLim(DEFINITION)(HostMel(DEFINITION)(clip))
    energy = samples**2
    centre = (energy * np.arange(len(samples))).sum() / energy.sum()
    assert abs(centre - 9300) < DEFINITION.hop_length / 2


@pytest.mark.filterwarnings("error")
def test_values_that_were_never_heard_give_finite_samples_without_a_warning() -> None:
    mel_TM = np.random.default_rng(0).normal(0, 100, (20, DEFINITION.n_mels)).astype(np.float32)
    assert np.isfinite(GriffinLim(DEFINITION)(mel_TM)).all()


def test_silence_stays_silent() -> None:
    mel_TM = np.full((50, DEFINITION.n_mels), np.log(DEFINITION.log_floor), np.float32)
    assert np.abs(GriffinLim(DEFINITION)(mel_TM)).max() < 1e-4


def test_ends_do_not_click() -> None:
    # Reflected where it starts, a cosine goes on as if nothing had happened.
    cosine = make_tone(441, seconds=1.2)[round(DEFINITION.sample_rate / 441 / 4) :]
    samples = GriffinLim(DEFINITION)(HostMel(DEFINITION)(cosine))
    steepest = np.abs(np.diff(samples[4000:-4000])).max()
    with_silence = np.pad(samples, 100)
    assert np.abs(np.diff(with_silence))[:400].max() < 1.2 * steepest
    assert np.abs(np.diff(with_silence))[-400:].max() < 1.2 * steepest
    assert max(abs(samples[0]), abs(samples[-1])) < 1e-3
