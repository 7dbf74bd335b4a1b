"""Finds by how much predicted durations must be stretched, from utterances whose real lengths are known.

Held-out ones, because a model predicts what it was trained on too well: calibrated on those it would speak too fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.errors import DataError
from myxtts.models.duration import calibrate_length_factor, compute_frames
from myxtts.models.xtts import XTTS
from myxtts.training.validation_set import FixedUtterance, load_fixed_utterances, pack_part

NUM_CALIBRATED = 64
"""Utterances that the length factor is found from."""
_FEWEST_HELD_OUT = 8


class LengthCalibration:
    """A few utterances, always the same."""

    def __init__(self, config: XTTSConfig) -> None:
        utterances = _load_utterances(config)
        self._real_frames = [float(utterance.num_frames) for utterance in utterances]
        self._part = {name: tensor for name, tensor in pack_part(utterances).items() if name != "mel"}
        self._measure = tf.function(_predict_lengths, autograph=False)

    def measure(self, model: XTTS) -> float:
        """The length factor of a model with its present weights."""
        return calibrate_length_factor(self._measure(model, self._part).numpy().tolist(), self._real_frames)


def _load_utterances(config: XTTSConfig) -> list[FixedUtterance]:
    """Held-out utterances, or some of the training split where too few or none are held out."""
    try:
        held_out = load_fixed_utterances(config, NUM_CALIBRATED, "val")
    except DataError:
        held_out = []
    return held_out if len(held_out) >= _FEWEST_HELD_OUT else load_fixed_utterances(config, NUM_CALIBRATED, "train")


def _predict_lengths(model: XTTS, part: Mapping[str, Any]) -> Any:
    """Frames of each utterance [B] as predicted, without a length factor."""
    voice = model.encode_voice(part["reference"], part["reference_lengths"])
    states = model.encode_text(part["tokens"], part["token_lengths"], part["language"], voice)
    log_frames_BS = model.predict_prosody(states, part["token_lengths"]).log_frames_BS
    return tf.reduce_sum(compute_frames(log_frames_BS, states.is_state_BS, 1.0), axis=1)
