"""What a session leaves on the disk: checkpoints to go on from, the best of them, and the bundle to speak with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from myxtts.config.schema import XTTSConfig
from myxtts.errors import DataError
from myxtts.storage.tensor_file import Array
from myxtts.training.learner import BaseLearner
from myxtts.training.run.checkpoint import BackgroundSaver, BackgroundWriter, Best, CheckpointFolder
from myxtts.training.run.folder import RunFolder
from myxtts.training.run.state import Progress
from myxtts.types import Say


class Saver(ABC):
    """Saves a learner while it goes on learning. Use it as a context: leaving it waits until all is written.

    What a bundle holds is said by those who keep a certain model.
    """

    def __init__(self, config: XTTSConfig, run: RunFolder, learner: BaseLearner, writer: BackgroundWriter, say: Say):
        self._config, self._learner, self._writer, self._say = config, learner, writer, say
        self._checkpoints = CheckpointFolder(run.checkpoints.folder, config.training.keep_checkpoints, say)
        self._saver = BackgroundSaver(self._checkpoints, say)
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

    def load_calibration(self) -> None:
        """Loads what bundles are made with, where anything is."""
        return

    def calibrate(self, *, is_hurried: bool = False) -> None:
        """Measures what belongs to the present weights, before they are judged and saved; quickly, if hurried."""
        return

    @abstractmethod
    def _write_present(self, step: int, arrays: Mapping[str, Array]) -> None:
        """Begins to write the bundle of a step, whose weights are `arrays` and those that the learner has."""

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
        arrays = self._learner.state.collect()
        score = self._score if self.is_new_best else None
        self._best, self._score = self.find_best(progress.step), None
        self._saver.save(progress.step, arrays, progress.to_json(), best_score=score)
        self.saved_step = progress.step
        self._write_bundle(progress.step, arrays)

    def complete_bundle(self) -> None:
        """Writes the bundle of the saved step anew unless it is there: a kill may have come between the two."""
        self._writer.wait()
        if self._writer.step != self._choose_bundle_step(self.saved_step):
            self._write_bundle(self.saved_step, self._learner.state.collect())

    def _choose_bundle_step(self, step: int) -> int:
        """The step whose weights the bundle shall hold when `step` is the newest."""
        is_best_wanted = self._config.training.bundle_weights == "best"
        return self._best.step if is_best_wanted and self._best is not None else step

    def _write_bundle(self, step: int, arrays: Mapping[str, Array]) -> None:
        """A bundle of the present weights, which are `arrays`, or of the best ones where these are wanted."""
        wanted = self._choose_bundle_step(step)
        if wanted == step:
            self._write_present(step, arrays)
            return
        self._writer.wait()
        if self._writer.step == wanted:
            return
        self._saver.wait()
        try:
            best = self._checkpoints.load(wanted)
        except DataError as error:
            self._say(f"{error.problem} The bundle holds the weights of step {step} instead of the best ones.")
            self._write_present(step, arrays)
            return
        self._learner.state.restore(best.arrays)
        try:
            self._write_present(wanted, best.arrays)
        finally:
            self._learner.state.restore(arrays)

    def _describe(self, step: int) -> dict[str, Any]:
        """What every bundle notes of where it came from."""
        is_best = self._best is not None and self._best.step == step
        return {"run": self._config.training.run_name, "is_best": is_best}

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
