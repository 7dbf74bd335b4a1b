"""What a session leaves on the disk: checkpoints to go on from, the best of them, and the bundle to speak with."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self

from myxtts.config.schema import XTTSConfig
from myxtts.runtime.plan import Plan
from myxtts.training.bundle_writer import BundleWriter, LengthCalibration
from myxtts.training.checkpoint import BackgroundSaver, Best, CheckpointFolder, Warn
from myxtts.training.learner import Learner
from myxtts.training.run import RunFolder
from myxtts.training.state import Progress, select_synthesis_weights
from myxtts.training.training_data import TrainingData


class Keeper:
    """Saves a learner while it goes on learning. Use it as a context: leaving it waits until all is written."""

    def __init__(self, config: XTTSConfig, run: RunFolder, data: TrainingData, learner: Learner, say: Warn) -> None:
        self._config, self._learner = config, learner
        self._checkpoints = CheckpointFolder(run.checkpoints.folder, config.training.keep_checkpoints, say)
        self._saver = BackgroundSaver(self._checkpoints, say)
        self._writer = BundleWriter(run.bundle_path, config, learner.model.spec, data.frontend, data.frontend_file, say)
        self._calibration: LengthCalibration | None = None
        self._best: Best | None = None
        self._score: float | None = None
        self._held = ExitStack()
        self.saved_step = -1

    def __enter__(self) -> Self:
        self._held.enter_context(self._saver)
        self._held.enter_context(self._writer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def take_up(self, progress: Progress) -> None:
        """The training goes on from a checkpoint with this progress."""
        if progress.best_step is not None and progress.best_score is not None:
            self._best = Best(progress.best_step, progress.best_score)
        self.saved_step = progress.step

    def load_calibration(self, plan: Plan, loader_name: str) -> None:
        """Loads the utterances that the length factor is found from."""
        self._calibration = LengthCalibration(self._config, plan, loader_name)

    def note_score(self, score: float) -> None:
        """A score of the present step, lower is better."""
        self._score = score

    @property
    def is_new_best(self) -> bool:
        """Whether the score of the present step is the lowest so far, and its weights are not saved yet."""
        return self._score is not None and (self._best is None or self._score < self._best.score)

    def find_best(self, step: int) -> Best | None:
        """The best checkpoint, where `step` is the present one and about to be saved."""
        return Best(step, self._score) if self.is_new_best and self._score is not None else self._best

    def save(self, progress: Progress) -> None:
        """Writes checkpoint and bundle of the present weights in the background."""
        assert self._calibration is not None, "nothing to calibrate with"
        with self._learner.use_average() as model:
            factor = self._calibration.measure(model)
        self._learner.model.set_length_factor(factor)
        arrays = self._learner.state.collect()
        score = self._score if self.is_new_best else None
        self._best, self._score = self.find_best(progress.step), None
        self._saver.save(progress.step, arrays, progress.to_json(), best_score=score)
        notes = {"step": progress.step, "run": self._config.training.run_name}
        self._writer.write(select_synthesis_weights(arrays), notes)
        self.saved_step = progress.step

    def go_back(self) -> int | None:
        """Gives the learner the weights of the newest checkpoint; its step, or None where there is none yet."""
        self._saver.wait()
        checkpoint = self._checkpoints.load_newest()
        # The same weights at another place of the feed: worth saving again.
        self.saved_step = -1
        if checkpoint is None:
            return None
        self._learner.state.restore(checkpoint.arrays)
        return checkpoint.step
