"""Voices that were never recorded: higher or lower as a whole, reference and utterance alike, and nothing else."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tests.models.toys import make_part, make_spec
from tests.training.voice.test_losses import LENGTHS, measure

from myxtts.config.schema import DataConfig
from myxtts.features.definition import MelDefinition
from myxtts.training.voice.augment import UNCHANGED_SHARE, VocalTractPerturbation

FURTHEST = 0.2
BAND_HZ = tuple(MelDefinition.from_config(DataConfig()).band_hz)
NUM_ROWS = 400


def make_tones(hz: float, num_frames: int = 2) -> dict[str, Any]:
    """Rows of a spectrogram with one peak, in a part of its own."""
    distance_M = np.log(np.asarray(BAND_HZ) / hz) / 0.1
    spectrum_M = np.maximum(np.exp(-0.5 * distance_M**2), 1e-6).astype(np.float32)
    mel = np.tile(spectrum_M, (NUM_ROWS, num_frames, 1))
    return {"mel": tf.constant(mel), "reference": tf.constant(mel[:, :1]), "tokens": tf.zeros([NUM_ROWS, 3], tf.int32)}


def warp(part: dict[str, Any], seed: int = 0) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    warped, is_warped_B = VocalTractPerturbation(BAND_HZ, FURTHEST).warp(part, tf.constant([seed, 1]))
    return warped, is_warped_B.numpy()


@pytest.mark.parametrize("hz", [700.0, 2000.0, 4000.0])
def test_peaks_move_by_up_to_the_furthest_factor_to_both_sides(hz: float) -> None:
    warped, is_warped_B = warp(make_tones(hz))
    bands_M = np.asarray(BAND_HZ)
    weights_BM = warped["mel"].numpy()[:, 0] ** 4
    factors_B = np.exp((weights_BM * np.log(bands_M)).sum(axis=1) / weights_BM.sum(axis=1)) / hz
    assert factors_B.max() == pytest.approx(1 + FURTHEST, rel=0.02)
    assert factors_B.min() == pytest.approx(1 / (1 + FURTHEST), rel=0.02)
    assert factors_B[~is_warped_B] == pytest.approx(1.0, rel=0.01)


def test_about_half_of_the_utterances_keep_their_voice_exactly() -> None:
    part = make_tones(1000.0)
    warped, is_warped_B = warp(part)
    is_kept_B = (warped["mel"].numpy() == part["mel"].numpy()).all(axis=(1, 2))
    assert (is_kept_B == ~is_warped_B).all()
    # One of the 17 amounts is none.
    assert is_kept_B.mean() == pytest.approx(UNCHANGED_SHARE + (1 - UNCHANGED_SHARE) / 17, abs=0.1)


def test_a_reference_changes_as_its_utterance_does_and_nothing_else_changes() -> None:
    part = make_tones(1000.0)
    warped, _ = warp(part)
    np.testing.assert_array_equal(warped["reference"][:, 0], warped["mel"][:, 0])
    assert warped["tokens"] is part["tokens"]
    assert warped.keys() == part.keys()


def test_the_same_seed_changes_voices_alike_and_another_does_not() -> None:
    part = make_tones(1000.0)
    (one, _), (same, _), (other, _) = warp(part), warp(part), warp(part, seed=1)
    np.testing.assert_array_equal(one["mel"], same["mel"])
    assert (one["mel"].numpy() != other["mel"].numpy()).any()


def test_what_is_alike_in_all_bands_stays_as_it_is() -> None:
    flat = {name: tf.fill([8, 5, len(BAND_HZ)], -3.0) for name in ("mel", "reference")}
    warped, _ = warp(flat)
    np.testing.assert_allclose(warped["mel"], flat["mel"], rtol=1e-6)


def test_a_loss_is_measured_on_changed_voices_only_while_training() -> None:
    part = make_part(make_spec(), *LENGTHS)
    assert measure(part, voice_augmentation=0.3)[1]["prior"] != measure(part)[1]["prior"]
    assert measure(part, training=False, voice_augmentation=0.3) == measure(part, training=False)


def test_a_changed_voice_is_not_taken_for_its_speaker() -> None:
    part = make_part(make_spec(), *LENGTHS)
    found = set()
    for step in range(6):
        sums = measure(part, step=step, voice_augmentation=0.3)[1]
        by_row = [measure(part | hide_references_but(row, part), step=step)[1]["speaker"] for row in range(3)]
        choices = list(product((0, 1), repeat=3))
        distances = [abs(sums["speaker"] - np.dot(choice, by_row)) for choice in choices]
        assert min(distances) < 1e-4
        assert "speaker_accuracy" not in sums
        found.add(choices[int(np.argmin(distances))])
    assert len(found) > 2


def hide_references_but(row: int, part: dict[str, Any]) -> dict[str, Any]:
    return {"reference_lengths": part["reference_lengths"] * tf.one_hot(row, 3, dtype=tf.int32)}


def test_utterances_that_keep_their_voice_do_not_pass_through_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs multiply in TF32, which rounds; here the matrix that should change nothing changes a lot."""
    perturbation = VocalTractPerturbation(BAND_HZ, FURTHEST)
    monkeypatch.setattr(perturbation, "_warps_KMM", 2 * perturbation._warps_KMM)
    part = make_tones(1000.0)
    warped, is_warped_B = perturbation.warp(part, tf.constant([0, 1]))
    kept_B = ~is_warped_B.numpy()
    np.testing.assert_array_equal(warped["mel"].numpy()[kept_B], part["mel"].numpy()[kept_B])
