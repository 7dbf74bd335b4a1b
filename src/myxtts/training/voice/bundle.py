"""Saver of the voice model: writes its bundle, with calibration and the speaker embeddings of the corpus.

The bundle is the folder that synthesis loads: EMA weights, spec, front end, and a vocoder that was attached to the run.
Its format is in `models.bundle`. Synthesis is calibrated on held-out utterances: the length factor of durations and the
modulation filter of log-mels. On training utterances, which the model has memorised, it would measure too short
durations and too little smoothing.
Shape legend: B utterances, S states, T frames, M mel bands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.config.schema import XTTSConfig
from myxtts.errors import DataError, MyXTTSError
from myxtts.models.bundle import BUNDLE_FILE_NAME, VOCODER_FILE_NAME, Bundle, refuse_foreign_vocoder, write_bundle
from myxtts.models.modulation import design_taps, measure_modulation
from myxtts.models.prosody import calibrate_length_factor, compute_frames
from myxtts.models.vocoder_bundle import VocoderBundle, find_vocoder, put_into
from myxtts.models.xtts import XTTS
from myxtts.storage.json_file import is_number
from myxtts.storage.tensor_file import Array
from myxtts.training.run.folder import RunFolder
from myxtts.training.run.saver import Saver
from myxtts.training.run.state import RunState, select_synthesis_weights
from myxtts.training.voice.data import TrainingData, describe_sound, summarize_data
from myxtts.training.voice.learner import Learner
from myxtts.training.voice.speaker_voices import CorpusVoices, load_corpus_voices
from myxtts.training.voice.validation_set import FixedUtterance, load_fixed_utterances, pack_part
from myxtts.types import Say

GRIFFIN_LIM = "griffin_lim"
"""Name of the vocoder of a bundle that has no neural one."""
NUM_TIMED = 64
"""Utterances from which the length factor is measured."""
NUM_SYNTHESIZED = 4
"""Utterances that are synthesised for the modulation spectrum: one or two thousand frames, in many bands."""
_FEWEST_HELD_OUT = 8
"""With fewer held-out utterances the training split is used instead."""


class VoiceSaver(Saver):
    """Checkpoints and bundles of the voice model; keeps a vocoder that was attached to the bundle of the run.

    Until there is one, bundles have `vocoder`, that of the model of --init-from.
    """

    def __init__(
        self,
        config: XTTSConfig,
        run: RunFolder,
        data: TrainingData,
        learner: Learner,
        state: RunState,
        say: Say,
        vocoder: VocoderBundle | None = None,
    ) -> None:
        super().__init__(config, run, learner, state, run.bundle_path / BUNDLE_FILE_NAME, say)
        self._data, self._folder, self._metrics = data, run.bundle_path, run.metrics
        self._frontend = data.frontend_file.read_bytes()
        self._vocoder = self._find_vocoder() or vocoder
        self._calibration: Calibration | None = None
        self._voices: CorpusVoices | None = None

    def load_calibration(self) -> None:
        """Loads the utterances for calibration, and the reference clips of the speakers."""
        self._calibration = Calibration(self._config)
        self._voices = load_corpus_voices(self._config, self._data)

    def calibrate(self, *, is_hurried: bool = False) -> None:
        """Sets length factor and modulation filter for the EMA weights; hurried, only the length factor.

        The filter needs synthesised utterances, which takes longer.
        """
        assert self._calibration is not None, "nothing to calibrate with"
        with self._learner.use_average() as model:
            model.set_length_factor(self._calibration.measure_length_factor(model))
            if not is_hurried:
                model.set_modulation_taps(self._calibration.measure_taps(model))

    def _start_bundle(self, step: int, arrays: Mapping[str, Array]) -> None:
        """Encodes the speakers of the corpus with the EMA weights, and writes the bundle in the background."""
        assert self._voices is not None, "no voices were loaded"
        with self._learner.use_average() as model:
            voices = self._voices.describe(model)
        mel, audio = describe_sound(self._config)
        bundle = Bundle(
            model_config=self._config.model,
            model_spec=self._learner.model.spec.to_json(),
            mel=mel,
            audio=audio,
            frontend=self._frontend,
            frontend_fingerprint=self._data.frontend.fingerprint(),
            vocoder={"name": GRIFFIN_LIM, "mel": mel},
            weights=select_synthesis_weights(arrays, self._config.training.start_mix),
            notes={**self._make_notes(step), **self._describe_training(step), "voices": voices},
        )
        if self._vocoder is not None:
            bundle = put_into(bundle, self._vocoder)
        self._write_in_background(step, lambda: write_bundle(self._folder, bundle))

    def _describe_training(self, step: int) -> dict[str, Any]:
        """What the card of the bundle says of its training: the data, and the scores of a validation at this step."""
        lines = [line for line in self._metrics.read() if line.get("step") == step and "validation" in line]
        numbers = lines[-1]["validation"] if lines else {}
        scores = {"scores": {name: value for name, value in numbers.items() if is_number(value)}} if numbers else {}
        return {"trained_on": summarize_data(self._data.utterances, self._data.order.rows), **scores}

    def _find_vocoder(self) -> VocoderBundle | None:
        """Neural vocoder in the bundle of this run; None, with a message, if it cannot be used any more."""
        if not (self._folder / VOCODER_FILE_NAME).is_file():
            return None
        try:
            vocoder = find_vocoder(self._folder)
            refuse_foreign_vocoder(describe_sound(self._config)[0], vocoder.describe())
        except MyXTTSError as error:
            self._say(f"{error.problem} The model is saved without its neural vocoder.")
            return None
        return vocoder


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
