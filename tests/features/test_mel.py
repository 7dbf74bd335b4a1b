"""Host spectrograms: equal to the reference library's, whatever the settings, the length and the thread."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import librosa
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from myxtts.features.audio import process_samples
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.features.mel import HostMel

MakeClip = Callable[..., NDArray[np.float32]]

# sample_rate, n_fft, hop_length, win_length, n_mels, fmin, fmax
DEFINITIONS = {
    "22050 Hz, the default": (22_050, 1024, 256, 1024, 80, 0.0, 8000.0),
    "22050 Hz, to the top": (22_050, 2048, 300, 1200, 100, 20.0, 11_025.0),
    "22050 Hz, short frames": (22_050, 512, 128, 400, 40, 80.0, 7600.0),
    "16000 Hz, hop does not divide": (16_000, 1024, 200, 800, 80, 50.0, 7600.0),
    "24000 Hz": (24_000, 1024, 256, 1024, 80, 0.0, 12_000.0),
    "44100 Hz": (44_100, 2048, 512, 2048, 128, 20.0, 16_000.0),
    "48000 Hz, hop does not divide": (48_000, 2048, 480, 1920, 80, 0.0, 24_000.0),
    "hop as long as the window": (22_050, 1024, 1000, 1000, 64, 0.0, 8000.0),
    "transform of odd length": (22_050, 1025, 256, 1001, 80, 0.0, 8000.0),
    "fewer bands than groups": (22_050, 1024, 256, 1024, 3, 0.0, 8000.0),
}
LOG_FLOOR = 1e-5
SMALL = MelDefinition(8000, 64, 16, 64, 8, 0.0, 4000.0, LOG_FLOOR)
SMALL_MEL = HostMel(SMALL)


def define(name: str) -> MelDefinition:
    return MelDefinition(*DEFINITIONS[name], LOG_FLOOR)


def compute_reference(samples: NDArray[np.float32], definition: MelDefinition) -> NDArray[np.float32]:
    with warnings.catch_warnings():
        # Recordings shorter than a frame are meant here.
        warnings.filterwarnings("ignore", message="n_fft=.* is too large")
        mel: NDArray[np.float32] = librosa.feature.melspectrogram(
            y=samples,
            sr=definition.sample_rate,
            n_fft=definition.n_fft,
            hop_length=definition.hop_length,
            win_length=definition.win_length,
            n_mels=definition.n_mels,
            fmin=definition.fmin,
            fmax=definition.fmax,
            power=1.0,
            pad_mode="reflect",
            htk=False,
            norm="slaney",
        )
    return np.log(np.maximum(mel.T, definition.log_floor))


@pytest.mark.parametrize("name", DEFINITIONS)
@pytest.mark.parametrize("seconds", [0.3, 1.7])
def test_spectrogram_is_that_of_the_reference(make_clip: MakeClip, name: str, seconds: float) -> None:
    definition = define(name)
    samples = make_clip(seconds, rate_hz=definition.sample_rate)
    mel = HostMel(definition)(samples)
    assert mel.dtype == np.float32
    np.testing.assert_allclose(mel, compute_reference(samples, definition), rtol=0, atol=1e-4)


@pytest.mark.parametrize("source_rate_hz", [16_000, 22_050, 24_000, 44_100, 48_000])
def test_resampled_recording_has_the_spectrogram_of_the_reference(make_clip: MakeClip, source_rate_hz: int) -> None:
    # Resampling from below leaves the top bands empty, where both sides hold rounding errors: the bands end before.
    definition = MelDefinition(22_050, 1024, 256, 1024, 80, 0.0, 7500.0, LOG_FLOOR)
    audio = AudioDefinition(22_050, False, 38.0, "none", 0.06)
    samples = process_samples(make_clip(1.0, rate_hz=source_rate_hz), source_rate_hz, audio).samples
    mel = HostMel(definition)(samples)
    np.testing.assert_allclose(mel, compute_reference(samples, definition), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_shortest_recording_that_can_be_reflected(make_clip: MakeClip, name: str) -> None:
    definition = define(name)
    samples = make_clip(1.0, rate_hz=definition.sample_rate)[: definition.min_samples]
    mel = HostMel(definition)(samples)
    expected = compute_reference(samples, definition)
    assert len(mel) == definition.count_frames(len(samples))
    # Where the transform is of odd length the reference stops one frame earlier.
    assert len(mel) - len(expected) in ((0,) if definition.n_fft % 2 == 0 else (0, 1))
    np.testing.assert_allclose(mel[: len(expected)], expected, rtol=0, atol=1e-4)


def test_one_sample_less_cannot_be_reflected() -> None:
    with pytest.raises(AssertionError):
        SMALL_MEL(np.zeros(SMALL.min_samples - 1, np.float32))


def test_every_frame_of_an_odd_transform_is_made_of_the_recording(make_clip: MakeClip) -> None:
    definition = define("transform of odd length")
    samples = make_clip(1.0)[: 40 * definition.hop_length]
    fresh, used = HostMel(definition), HostMel(definition)
    used(make_clip(2.0, seed=5) * 100)
    np.testing.assert_array_equal(used(samples), fresh(samples))


@given(num_samples=st.integers(SMALL.min_samples, 4000), level=st.sampled_from([0.0, 1e-6, 0.1, 1.0, 1e4]))
@hypothesis_settings(max_examples=200, deadline=None)
def test_any_length_and_level_gives_whole_frames_of_finite_values(num_samples: int, level: float) -> None:
    samples = np.random.default_rng(num_samples).normal(0, level, num_samples).astype(np.float32)
    mel = SMALL_MEL(samples)
    assert mel.shape == (1 + num_samples // 16, 8) == (SMALL.count_frames(num_samples), SMALL.n_mels)
    assert np.isfinite(mel).all()
    assert (mel >= np.nextafter(np.log(np.float32(LOG_FLOOR)), -np.inf, dtype=np.float32)).all()


@given(num_samples=st.integers(SMALL.min_samples, 4000), seed=st.integers(0, 1000))
@hypothesis_settings(max_examples=50, deadline=None)
def test_length_and_earlier_calls_do_not_change_values(num_samples: int, seed: int) -> None:
    samples = np.random.default_rng(seed).normal(0, 0.1, num_samples).astype(np.float32)
    SMALL_MEL(np.full(4000, 7, np.float32))
    np.testing.assert_allclose(SMALL_MEL(samples), compute_reference(samples, SMALL), rtol=0, atol=1e-4)


@pytest.mark.parametrize("num_frames", [640, 641, 1281, 3000])
def test_long_recordings_have_no_seams(num_frames: int) -> None:
    samples = np.random.default_rng(0).normal(0, 0.1, (num_frames - 1) * SMALL.hop_length).astype(np.float32)
    mel = SMALL_MEL(samples)
    assert len(mel) == num_frames
    np.testing.assert_allclose(mel, compute_reference(samples, SMALL), rtol=0, atol=1e-4)


@pytest.mark.parametrize("num_samples", [513, 22_050, 22_528])
def test_silence_is_exactly_the_logarithm_of_the_floor(num_samples: int) -> None:
    mel = HostMel(define("22050 Hz, the default"))(np.zeros(num_samples, np.float32))
    np.testing.assert_array_equal(mel, np.log(np.float32(LOG_FLOOR)))


def test_results_of_two_calls_do_not_share_memory(make_clip: MakeClip) -> None:
    compute = HostMel(define("22050 Hz, the default"))
    first = compute(make_clip(1.0))
    kept = first.copy()
    compute(make_clip(1.0, seed=1))
    np.testing.assert_array_equal(first, kept)


def test_several_threads_give_bit_equal_results(make_clip: MakeClip) -> None:
    compute = HostMel(define("22050 Hz, the default"))
    clips = [make_clip(0.3 + 0.2 * number, seed=number) for number in range(16)]
    expected = [compute(clip) for clip in clips]
    start = Barrier(4)

    def run(_: int) -> list[Any]:
        start.wait()
        return [compute(clip) for clip in clips for _ in range(3)]

    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(run, range(4)):
            for number, result in enumerate(results):
                np.testing.assert_array_equal(result, expected[number // 3])
