"""Measures what synthesis must make up for: how much too short a model speaks, and which movements it smooths away.

On held-out utterances, because a model knows what it was trained on too well: calibrated on those it would speak too
fast and too blurred.
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
"""Utterances that the length factor is found from."""
NUM_SPOKEN = 4
"""Utterances that are spoken to see how they move: a thousand frames or two, in many bands."""
_FEWEST_HELD_OUT = 8


class Calibration:
    """A few utterances, always the same."""

    def __init__(self, config: XTTSConfig) -> None:
        utterances = _load_utterances(config)
        self._real_frames = [float(utterance.num_frames) for utterance in utterances]
        self._timed_part = {name: tensor for name, tensor in pack_part(utterances).items() if name != "mel"}
        spoken = utterances[:NUM_SPOKEN]
        self._real_modulation = measure_modulation(utterance.mel_TM for utterance in spoken)
        self._spoken_part = pack_part(spoken)
        self._predict = tf.function(_predict_lengths, autograph=False)
        self._speak = tf.function(_speak_again, autograph=False)

    def measure_length_factor(self, model: XTTS) -> float:
        """By how much durations that the model predicts with its present weights must be stretched."""
        return calibrate_length_factor(self._predict(model, self._timed_part).numpy().tolist(), self._real_frames)

    def measure_taps(self, model: XTTS) -> NDArray[np.float32]:
        """The filter that makes the model's speech move as the recordings do."""
        mel_BTM, lengths_B = self._speak(model, self._spoken_part)
        spoken = [mel_TM[:length] for mel_TM, length in zip(mel_BTM.numpy(), lengths_B.numpy(), strict=True)]
        return design_taps(self._real_modulation, measure_modulation(spoken))


def _load_utterances(config: XTTSConfig) -> list[FixedUtterance]:
    """Held-out utterances, or some of the training split where too few or none are held out."""
    try:
        held_out = load_fixed_utterances(config, NUM_TIMED, "val")
    except DataError:
        held_out = []
    return held_out if len(held_out) >= _FEWEST_HELD_OUT else load_fixed_utterances(config, NUM_TIMED, "train")


def _predict_lengths(model: XTTS, part: Mapping[str, Any]) -> Any:
    """Frames of each utterance [B] as predicted, without a length factor."""
    voice = model.encode_voice(part["reference"], part["reference_lengths"])
    states = model.encode_text(part["tokens"], part["token_lengths"], part["language"], voice)
    log_frames_BS = model.predict_prosody(states, part["token_lengths"]).log_frames_BS
    return tf.reduce_sum(compute_frames(log_frames_BS, states.is_state_BS, 1.0), axis=1)


def _speak_again(model: XTTS, part: Mapping[str, Any]) -> tuple[Any, Any]:
    """The utterances as synthesis would say them, but for the filter, and their lengths, cut off at the longest."""
    voice = model.encode_voice(part["reference"], part["reference_lengths"])
    text = part["tokens"], part["token_lengths"], part["language"]
    spoken, num_frames = model.predict_durations(*text, voice), part["mel"].shape[1]
    mel_BTM = model.decode(spoken, voice, num_frames=num_frames, is_filtered=False)
    return mel_BTM, tf.minimum(spoken.mel_lengths_B, num_frames)
