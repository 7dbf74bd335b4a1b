"""Calibration: on what was not trained on, and with what belongs to the weights as they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from tests.models.toys import make_config, make_spec, stir_weights
from tests.training.voice.test_metrics import make_utterance

from myxtts.config.schema import XTTSConfig
from myxtts.errors import DataError
from myxtts.models.modulation import make_neutral_taps
from myxtts.models.xtts import XTTS
from myxtts.training.voice import bundle
from myxtts.training.voice.bundle import Calibration
from myxtts.training.voice.validation_set import FixedUtterance, pack_part


@pytest.fixture(scope="module")
def model() -> XTTS:
    made = XTTS(make_config(text_layers=1, decoder_layers=1), make_spec())
    stir_weights(made)
    return made


def plant_utterances(monkeypatch: pytest.MonkeyPatch, **splits: list[FixedUtterance]) -> None:
    def load(_config: XTTSConfig, num_utterances: int, split: str) -> list[FixedUtterance]:
        if not splits[split]:
            raise DataError("Nothing is held out.", next_step="Hold something out.")
        return splits[split][:num_utterances]

    monkeypatch.setattr(bundle, "load_fixed_utterances", load)


@pytest.mark.parametrize("num_held_out", [0, 7, 9])
def test_lengths_are_calibrated_on_what_was_not_trained_on(
    num_held_out: int, model: XTTS, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_out, trained = [make_utterance(n, 60) for n in range(num_held_out)], [make_utterance(50, 30)]
    plant_utterances(monkeypatch, val=held_out, train=trained)
    used = held_out if num_held_out == 9 else trained
    part = pack_part(used)
    model.set_length_factor(1.0)
    voice = model.encode_voice(part["reference"], part["reference_lengths"])
    spoken = model.predict_durations(part["tokens"], part["token_lengths"], part["language"], voice)
    ratio = sum(one.num_frames for one in used) / float(tf.reduce_sum(spoken.mel_lengths_B))
    factor = Calibration(XTTSConfig()).measure_length_factor(model)
    assert factor == pytest.approx(min(max(ratio, 0.5), 2.0), rel=0.02)


def test_the_filter_makes_up_for_what_the_decoder_smooths(model: XTTS, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings of loud noise move more than anything that a decoder makes of them."""
    recorded = [make_utterance(number, 90) for number in range(9)]
    plant_utterances(monkeypatch, val=[replace(one, mel_TM=4 * one.mel_TM) for one in recorded])
    model.set_modulation_taps(make_neutral_taps())
    model.set_length_factor(20.0)
    known = Calibration(XTTSConfig())
    taps = known.measure_taps(model)
    assert taps[len(taps) // 2] > 1.2
    model.set_modulation_taps(taps)
    np.testing.assert_array_equal(known.measure_taps(model), taps)
    model.set_modulation_taps(make_neutral_taps())
