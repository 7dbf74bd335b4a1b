"""Keeps the voice model: its bundle has what was calibrated on known utterances, and the voices of the corpus."""

from __future__ import annotations

from collections.abc import Mapping

from myxtts.config.schema import XTTSConfig
from myxtts.models.tensor_file import Array
from myxtts.training.bundle_writer import BundleWriter
from myxtts.training.calibration import Calibration
from myxtts.training.corpus_voices import CorpusVoices, load_corpus_voices
from myxtts.training.keeper import Keeper
from myxtts.training.learner import Learner
from myxtts.training.run import RunFolder
from myxtts.training.state import select_synthesis_weights
from myxtts.training.training_data import TrainingData
from myxtts.types import Say


class VoiceKeeper(Keeper):
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
