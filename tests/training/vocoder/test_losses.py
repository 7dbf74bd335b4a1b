"""Losses of a vocoder: nothing for equal sounds, more for worse ones, and sums over real segments only.

Shape legend: B segments, S samples.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.config.schema import DataConfig
from myxtts.features.definition import MelDefinition
from myxtts.training.vocoder.discriminators import Judgement
from myxtts.training.vocoder.losses import (
    ReconstructionLoss,
    adversarial_loss,
    discriminator_loss,
    feature_matching_loss,
)

DEFINITION = MelDefinition.from_config(DataConfig(n_fft=256, win_length=256, hop_length=64, n_mels=20))
RATE_HZ = DEFINITION.sample_rate
ALL = tf.ones(3)


def make_tones(frequency_hz: float, loudness: float = 0.2, phase: float = 0.0) -> NDArray[np.float32]:
    turns = np.arange(2048) * frequency_hz / RATE_HZ
    wave = loudness * np.sin(2 * np.pi * turns + phase) + 0.01 * np.random.default_rng(0).normal(size=2048)
    return np.tile(wave, (3, 1)).astype(np.float32)


def measure(real_BS: Any, made_BS: Any, is_real_B: Any = ALL) -> dict[str, float]:
    losses = ReconstructionLoss(DEFINITION)(tf.constant(real_BS), tf.constant(made_BS), is_real_B)
    return {name: float(loss) for name, loss in losses.items()}


def test_equal_sounds_cost_nothing() -> None:
    assert measure(make_tones(500), make_tones(500)) == pytest.approx({"mel": 0, "stft": 0}, abs=1e-5)


def test_phase_costs_little_and_pitch_and_loudness_much() -> None:
    tone = make_tones(500)
    shifted, higher, quieter = (
        measure(tone, other) for other in (make_tones(500, phase=1.5), make_tones(900), make_tones(500, 0.1))
    )
    for name in ("mel", "stft"):
        assert 3 * shifted[name] < min(higher[name], quieter[name])


def test_sound_above_the_bands_counts_too() -> None:
    quiet = make_tones(500)
    assert measure(quiet, quiet + make_tones(10_500, 0.05))["mel"] > 0.05


def test_above_the_bands_a_recording_that_ends_there_teaches_nothing() -> None:
    """Its noise ends at 7 kHz, as after resampling from 16 kHz."""
    spectrum = np.fft.rfft(make_tones(500)[0])
    spectrum[int(len(spectrum) * 7000 / (RATE_HZ / 2)) :] = 0
    limited = np.tile(np.fft.irfft(spectrum), (3, 1)).astype(np.float32)
    hiss = make_tones(10_500, 0.05) - make_tones(10_500, 0.0)
    of_limited, of_full = measure(limited, limited + hiss), measure(make_tones(500), make_tones(500) + hiss)
    assert of_limited["stft"] < 0.2 * of_full["stft"]
    # Wide bands below the edge reach above it.
    assert of_limited["mel"] < 0.7 * of_full["mel"]


def test_segments_that_fill_the_shape_count_for_nothing() -> None:
    real_BS, made_BS = make_tones(500), make_tones(700)
    whole, two = measure(real_BS, made_BS), measure(real_BS, made_BS, tf.constant([1.0, 0.0, 1.0]))
    assert two == pytest.approx({name: loss * 2 / 3 for name, loss in whole.items()}, rel=1e-5)
    assert measure(real_BS, made_BS, tf.zeros(3)) == {"mel": 0, "stft": 0}


def test_silence_has_finite_gradients() -> None:
    made_BS = tf.zeros([3, 2048])
    with tf.GradientTape() as tape:
        tape.watch(made_BS)
        losses = ReconstructionLoss(DEFINITION)(tf.zeros([3, 2048]), made_BS, ALL)
        loss = losses["mel"] + losses["stft"]
    assert np.isfinite(tape.gradient(loss, made_BS).numpy()).all()


def make_judgements(score: float, feature: float = 0.0) -> list[Judgement]:
    shapes = [(3, 5, 2, 1), (3, 7, 4, 1)]
    return [Judgement(tf.fill(shape, score), [tf.fill((*shape[:3], 6), feature)] * 2) for shape in shapes]


@pytest.mark.parametrize(("real", "made", "expected"), [(2.0, -2.0, 0.0), (0.0, 0.0, 2.0), (-1.0, 1.0, 4.0)])
def test_discriminators_pay_for_what_they_mistake(real: float, made: float, expected: float) -> None:
    loss = discriminator_loss(make_judgements(real), make_judgements(made), ALL)
    assert float(loss) == pytest.approx(3 * expected)


@pytest.mark.parametrize(("score", "expected"), [(1.5, 0.0), (0.0, 1.0), (-2.0, 3.0)])
def test_a_vocoder_pays_where_it_is_found_out(score: float, expected: float) -> None:
    assert float(adversarial_loss(make_judgements(score), ALL)) == pytest.approx(3 * expected)
    assert float(adversarial_loss(make_judgements(score), tf.constant([0.0, 1.0, 0.0]))) == pytest.approx(expected)


def test_features_cost_by_their_distance() -> None:
    loss = feature_matching_loss(make_judgements(0, feature=1.0), make_judgements(0, feature=-0.5), ALL)
    assert float(loss) == pytest.approx(3 * 1.5)
