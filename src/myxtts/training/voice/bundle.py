"""The bundle of a run: what synthesis loads, written beside each checkpoint with the averaged weights.

Shape legend: B utterances, N tokens, R reference frames, M mel bands.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from myxtts.config.schema import XTTSConfig
from myxtts.errors import MyXTTSError
from myxtts.models.bundle import BUNDLE_FILE_NAME, VOCODER_FILE_NAME, Bundle, refuse_foreign_vocoder, write_bundle
from myxtts.models.spec import ModelSpec
from myxtts.models.vocoder_bundle import VocoderBundle, find_vocoder, put_into
from myxtts.storage.tensor_file import Array
from myxtts.text.frontend import FrontEnd
from myxtts.training.run.checkpoint import BackgroundWriter
from myxtts.training.run.folder import RunFolder
from myxtts.training.run.saver import Saver
from myxtts.training.run.state import select_synthesis_weights
from myxtts.training.voice.calibration import Calibration
from myxtts.training.voice.data import TrainingData, describe_sound
from myxtts.training.voice.learner import Learner
from myxtts.training.voice.speaker_voices import CorpusVoices, load_corpus_voices
from myxtts.types import Say

GRIFFIN_LIM = "griffin_lim"


class BundleWriter(BackgroundWriter):
    """Writes the bundle of a voice model. A neural vocoder that was put into it stays there."""

    def __init__(
        self, folder: Path, config: XTTSConfig, spec: ModelSpec, frontend: FrontEnd, frontend_file: Path, warn: Say
    ) -> None:
        super().__init__(folder / BUNDLE_FILE_NAME, warn)
        self._folder, self._config, self._spec = folder, config, spec
        self._frontend, self._fingerprint = frontend_file.read_bytes(), frontend.fingerprint()
        self._vocoder = self._find_vocoder()

    def write(self, step: int, weights: Mapping[str, Array], notes: Mapping[str, Any]) -> None:
        """Begins to write the weights of a step; waits for the bundle before. The arrays must not change any more."""
        mel, audio = describe_sound(self._config)
        bundle = Bundle(
            model_config=self._config.model,
            model_spec=self._spec.to_json(),
            mel=mel,
            audio=audio,
            frontend=self._frontend,
            frontend_fingerprint=self._fingerprint,
            vocoder={"name": GRIFFIN_LIM, "mel": mel},
            weights={name: np.asarray(array, np.float32) for name, array in weights.items()},
            notes={"step": step, **notes},
        )
        if self._vocoder is not None:
            bundle = put_into(bundle, self._vocoder)
        self.start(step, lambda: write_bundle(self._folder, bundle))

    def _find_vocoder(self) -> VocoderBundle | None:
        if not (self._folder / VOCODER_FILE_NAME).is_file():
            return None
        try:
            vocoder = find_vocoder(self._folder)
            refuse_foreign_vocoder(describe_sound(self._config)[0], vocoder.describe())
        except MyXTTSError as error:
            self._warn(f"{error.problem} The bundle goes on without its neural vocoder.")
            return None
        return vocoder


# Keeps the voice model: its bundle has what was calibrated on known utterances, and the voices of the corpus.


class VoiceSaver(Saver):
    def __init__(self, config: XTTSConfig, run: RunFolder, data: TrainingData, learner: Learner, say: Say) -> None:
        writer = BundleWriter(run.bundle_path, config, learner.model.spec, data.frontend, data.frontend_file, say)
        super().__init__(config, run, learner, writer, say)
        self._data, self._bundle_writer = data, writer
        self._calibration: Calibration | None = None
        self._voices: CorpusVoices | None = None

    def load_calibration(self) -> None:
        """Loads the utterances that are calibrated on, and those that voices are heard in."""
        self._calibration = Calibration(self._config)
        self._voices = load_corpus_voices(self._config, self._data)

    def calibrate(self, *, is_hurried: bool = False) -> None:
        assert self._calibration is not None, "nothing to calibrate with"
        with self._learner.use_average() as model:
            model.set_length_factor(self._calibration.measure_length_factor(model))
            if not is_hurried:
                model.set_modulation_taps(self._calibration.measure_taps(model))

    def _write_present(self, step: int, arrays: Mapping[str, Array]) -> None:
        assert self._voices is not None, "no voices were loaded"
        with self._learner.use_average() as model:
            voices = self._voices.describe(model)
        self._bundle_writer.write(step, select_synthesis_weights(arrays), {**self._describe(step), "voices": voices})
