"""A cloned voice gets average spectrum and F0 of its recording, and an embedding that counters the model's error."""

from __future__ import annotations

import numpy as np
import pytest

from myxtts.config.schema import DataConfig
from myxtts.features.definition import MelDefinition
from myxtts.features.mel import HostMel
from myxtts.models.pitch_combs import measure_f0_range
from myxtts.synthesis.cloning import choose_calibration, correct_embedding, design_equalizer, match_f0
from myxtts.synthesis.voices import SpeakerEmbedding
from myxtts.types import Floats

N_MELS = 40
MEL = MelDefinition.from_config(DataConfig())
BAND_HZ = MEL.band_hz.tolist()
TILT = np.linspace(-0.5, 0.5, N_MELS).astype(np.float32)


def make_speech(seed: int, num_frames: int = 400) -> Floats:
    return np.random.default_rng(seed).normal(-4.0, 0.5, (num_frames, N_MELS)).astype(np.float32)


def test_what_the_model_draws_too_dull_is_brightened() -> None:
    gains = design_equalizer([make_speech(0) + TILT], [make_speech(1)])
    assert gains.dtype == np.float32
    np.testing.assert_allclose(gains[5:-5], TILT[5:-5], atol=0.1)
    assert abs(float(gains.mean())) < 0.05


def test_the_same_spectrum_is_left_as_it_is_at_any_level() -> None:
    speech = make_speech(0)
    np.testing.assert_allclose(design_equalizer([speech + 2.0], [speech]), 0.0, atol=1e-5)


def test_pauses_do_not_count() -> None:
    speech, pause = make_speech(0), np.full((300, N_MELS), -11.5, np.float32)
    pause[:, 10:] += np.linspace(0, 1, N_MELS - 10)
    plain = design_equalizer([speech + TILT], [make_speech(1)])
    np.testing.assert_allclose(design_equalizer([speech + TILT, pause], [make_speech(1)]), plain, atol=1e-5)


def test_a_missing_band_is_not_copied_in_full() -> None:
    telephone = make_speech(0)
    telephone[:, 25:] = -11.5
    gains = design_equalizer([telephone], [make_speech(1)])
    assert gains.min() >= -1.2
    assert gains.max() <= 1.2


def sing(*tones_hz: float, tone_s: float = 0.3) -> Floats:
    """Log-mel of a buzzing voice that holds one tone after another."""
    hz = np.repeat(tones_hz, int(tone_s * MEL.sample_rate))
    phase = 2 * np.pi * np.cumsum(hz) / MEL.sample_rate
    harmonics = np.sum([np.sin(number * phase) / number for number in range(1, 20)], axis=0)
    return HostMel(MEL)((0.1 * harmonics).astype(np.float32))


def apply(change_2: Floats | None, f0: float) -> float:
    assert change_2 is not None
    return float(change_2[0] * f0 + change_2[1])


@pytest.mark.parametrize("hz", [95.0, 140.0, 240.0])
def test_predicted_f0_is_moved_to_that_of_the_recording(hz: float) -> None:
    recorded, drawn = sing(hz), sing(1.15 * hz)
    found = measure_f0_range([drawn], BAND_HZ)
    assert found is not None
    assert found.mean == pytest.approx(3 * np.log2(1.15 * hz / 180), abs=0.1)
    change = match_f0([recorded], [drawn], BAND_HZ)
    assert apply(change, found.mean) == pytest.approx(3 * np.log2(hz / 180), abs=0.1)


def test_f0_is_moved_by_half_an_octave_at_most() -> None:
    change = match_f0([sing(300.0)], [sing(100.0)], BAND_HZ)
    low = 3 * np.log2(100 / 180)
    assert apply(change, low) == pytest.approx(low + 1.5, abs=0.1)


def test_silence_says_nothing_about_f0() -> None:
    silence, speech = np.full((200, MEL.n_mels), -11.5, np.float32), sing(120.0)
    assert match_f0([silence], [speech], BAND_HZ) is None
    assert match_f0([speech], [silence], BAND_HZ) is None
    assert match_f0([speech], [speech], BAND_HZ[::8]) is None, "bands that resolve no harmonics"


def test_texts_are_in_the_language_of_the_voice_if_the_project_has_some() -> None:
    assert choose_calibration(("de", "en", "fa"), "fa")[0] == "fa"
    assert choose_calibration(("de", "en"), "")[0] == "en"
    assert choose_calibration(("de", "nl"), "nl") == ("nl", ["1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12."])


def test_a_voice_that_the_model_draws_towards_another_is_asked_for_beyond_itself() -> None:
    generator = np.random.default_rng(3)
    recorded, other = (
        SpeakerEmbedding(
            generator.normal(size=16).astype(np.float32), generator.normal(size=(4, 16)).astype(np.float32)
        )
        for _ in range(2)
    )

    def speak(asked: SpeakerEmbedding) -> SpeakerEmbedding:
        """What a model says that mixes each voice with one it knows better."""
        return SpeakerEmbedding(0.6 * asked.vector + 0.4 * other.vector, 0.6 * asked.latents + 0.4 * other.latents)

    corrected = correct_embedding(recorded, speak(recorded))
    assert speak(corrected).compare(recorded) > speak(recorded).compare(recorded) + 0.02
    assert corrected.vector.dtype == corrected.latents.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(corrected.vector), np.linalg.norm(recorded.vector), rtol=1e-5)
    np.testing.assert_allclose(correct_embedding(recorded, recorded).vector, recorded.vector, rtol=1e-5)
