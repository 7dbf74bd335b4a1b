"""Keeps the vocoder: checkpoints with its critics, and a bundle of the averaged weights alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from myxtts.config.schema import XTTSConfig
from myxtts.features.definition import MelDefinition
from myxtts.models.tensor_file import Array
from myxtts.models.vocoder_bundle import VOCODER_DESCRIPTION_NAME, VocoderBundle, write_vocoder_bundle
from myxtts.training.background_writer import BackgroundWriter
from myxtts.training.keeper import Keeper
from myxtts.training.run import RunFolder
from myxtts.training.state import select_synthesis_weights
from myxtts.training.vocoder_learner import VocoderLearner
from myxtts.types import Say


class VocoderKeeper(Keeper):
    def __init__(
        self, config: XTTSConfig, run: RunFolder, learner: VocoderLearner, definition: MelDefinition, say: Say
    ) -> None:
        writer = BackgroundWriter(run.bundle_path / VOCODER_DESCRIPTION_NAME, say)
        super().__init__(config, run, learner, writer, say)
        self._folder, self._definition = run.bundle_path, definition

    def _write_present(self, step: int, arrays: Mapping[str, Array]) -> None:
        weights = select_synthesis_weights(arrays)
        bundle = VocoderBundle(
            mel=dict(self._definition.to_json()),
            config=dict(self._learner.model.config.to_json()),
            weights={name: np.asarray(array, np.float32) for name, array in weights.items()},
            notes={"step": step, **self._describe(step)},
        )
        self._writer.start(step, lambda: write_vocoder_bundle(self._folder, bundle))
