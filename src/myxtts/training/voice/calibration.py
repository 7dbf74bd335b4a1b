"""Calibrates synthesis on held-out utterances: the length factor of durations and the modulation filter of log-mels.

On training utterances, which the model has memorised, it would measure too short durations and too little smoothing.
Shape legend: B utterances, S states, T frames, M mel bands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.config.schema import XTTSConfig
from myxtts.errors import DataError
from myxtts.models.modulation import design_taps, measure_modulation
from myxtts.models.prosody import calibrate_length_factor, compute_frames
from myxtts.models.xtts import XTTS
from myxtts.training.voice.validation_set import FixedUtterance, load_fixed_utterances, pack_part

NUM_TIMED = 64
"""Utterances from which the length factor is measured."""
NUM_SYNTHESIZED = 4
"""Utterances that are synthesised for the modulation spectrum: one or two thousand frames, in many bands."""
_FEWEST_HELD_OUT = 8
"""With fewer held-out utterances the training split is used instead."""


class Calibration:
    """A fixed set of utterances, and the graphs that measure a model on them."""

    def __init__(self, config: XTTSConfig) -> None:
        utterances = _load_utterances(config)
        self._real_frames = [float(utterance.num_frames) for utterance in utterances]
        self._timed_part = {name: tensor for name, tensor in pack_part(utterances).items() if name != "mel"}
        chosen = utterances[:NUM_SYNTHESIZED]
        self._real_modulation = measure_modulation(utterance.mel_TM for utterance in chosen)
        self._synthesized_part = pack_part(chosen)
        self._predict = tf.function(_predict_lengths, autograph=False)
        self._synthesize = tf.function(_synthesize, autograph=False)

    def measure_length_factor(self, model: XTTS) -> float:
        """Ratio of real to predicted total length, with the present weights and no factor."""
        return calibrate_length_factor(self._predict(model, self._timed_part).numpy().tolist(), self._real_frames)

    def measure_taps(self, model: XTTS) -> NDArray[np.float32]:
        """Designs the FIR filter that gives synthesised log-mels the modulation spectrum of the recordings."""
        mel_BTM, lengths_B = self._synthesize(model, self._synthesized_part)
        synthesized = [mel_TM[:length] for mel_TM, length in zip(mel_BTM.numpy(), lengths_B.numpy(), strict=True)]
        return design_taps(self._real_modulation, measure_modulation(synthesized))


def _load_utterances(config: XTTSConfig) -> list[FixedUtterance]:
    """Held-out utterances, or some of the training split where too few or none are held out."""
    try:
        held_out = load_fixed_utterances(config, NUM_TIMED, "val")
    except DataError:
        held_out = []
    return held_out if len(held_out) >= _FEWEST_HELD_OUT else load_fixed_utterances(config, NUM_TIMED, "train")


def _predict_lengths(model: XTTS, part: Mapping[str, Any]) -> Any:
    """Predicted frames of each utterance [B], without a length factor."""
    _, states = model.encode_part(part)
    log_frames_BS = model.predict_prosody(states, part["token_lengths"]).log_frames_BS
    return tf.reduce_sum(compute_frames(log_frames_BS, states.is_state_BS, 1.0), axis=1)


def _synthesize(model: XTTS, part: Mapping[str, Any]) -> tuple[Any, Any]:
    """Unfiltered log-mels with predicted durations, and their lengths, cut off at the longest recording."""
    voice, states = model.encode_part(part)
    spoken, num_frames = model.time_text(states, part["token_lengths"]), part["mel"].shape[1]
    mel_BTM = model.decode(spoken, voice, num_frames=num_frames, is_filtered=False)
    return mel_BTM, tf.minimum(spoken.mel_lengths_B, num_frames)
