"""The filter over time: it gives back what was smoothed away, and leaves alone what it should."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from myxtts.models.modulation import NUM_TAPS, design_taps, filter_frames, make_neutral_taps, measure_modulation

Floats = NDArray[np.float32]
BLUR = (0.1, 0.8, 0.1)


def make_mel(num_frames: int = 400, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(-4, 2, (num_frames, 6)).astype(np.float32)


def blur(mel_TM: Floats) -> Floats:
    padded = np.pad(mel_TM, ((1, 1), (0, 0)), mode="edge")
    return sum(weight * padded[place : place + len(mel_TM)] for place, weight in enumerate(BLUR))  # type: ignore[return-value]


def apply(mel_TM: Floats, taps_K: Floats) -> Floats:
    filtered: Floats = filter_frames(tf.constant(mel_TM[None]), tf.constant([len(mel_TM)]), taps_K)[0].numpy()
    return filtered


def test_what_was_blurred_moves_again_as_it_did() -> None:
    sharp = make_mel()
    blurred = blur(sharp)
    real, spoken = measure_modulation([sharp]), measure_modulation([blurred])
    assert real is not None
    assert spoken is not None
    restored = measure_modulation([apply(blurred, design_taps(real, spoken))])
    assert restored is not None
    before, after = np.log(spoken[1:] / real[1:]), np.log(restored[1:] / real[1:])
    assert np.abs(before).max() > 0.9
    assert np.abs(after).max() < 0.25


def test_a_still_sound_and_a_sharp_one_stay_as_they_are() -> None:
    taps = design_taps(measure_modulation([make_mel()]), measure_modulation([blur(make_mel())]))
    still = np.full((30, 6), -3.0, np.float32)
    np.testing.assert_allclose(apply(still, taps), still, atol=1e-5)
    np.testing.assert_array_equal(apply(make_mel(), make_neutral_taps()), make_mel())
    power = measure_modulation([make_mel()])
    assert power is not None
    np.testing.assert_allclose(design_taps(power, 4 * power), make_neutral_taps(), atol=1e-6)


@given(st.floats(0, 1e9), st.integers(0, 99))
def test_the_filter_never_more_than_doubles_a_movement(scale: float, seed: int) -> None:
    power = np.random.default_rng(seed).random(33)
    taps = design_taps(power, scale * power)
    gains = np.abs(np.fft.rfft(taps, 64))
    assert gains.max() < 2.2
    assert taps.sum() == pytest.approx(1.0, abs=1e-5)


def test_nothing_comes_in_from_behind_the_end() -> None:
    taps = design_taps(measure_modulation([make_mel()]), measure_modulation([blur(make_mel())]))
    alone = apply(make_mel(50), taps)
    behind = np.concatenate([make_mel(50), np.full((30, 6), 99.0, np.float32)])
    padded = filter_frames(tf.constant(behind[None]), tf.constant([50]), taps)[0, :50].numpy()
    np.testing.assert_array_equal(padded, alone)


@pytest.mark.parametrize("mels", [[], [make_mel(63)], [np.full((80, 6), np.nan, np.float32)]])
def test_without_enough_to_measure_nothing_is_filtered(mels: list[Floats]) -> None:
    taps = design_taps(measure_modulation([make_mel()]), measure_modulation(mels))
    np.testing.assert_array_equal(taps, make_neutral_taps())
    assert len(taps) == NUM_TAPS
