"""Saves checkpoints and inference bundles in background threads, and restores the newest checkpoint after divergence.

The checkpoint with the lowest validation score is marked as the best and kept; the bundle holds its weights or the
latest ones, as `training.bundle_weights` says. `Saver` is the base of the savers of voice and vocoder.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from myxtts.config.schema import XTTSConfig
from myxtts.errors import DataError, MyXTTSError, warn_user
from myxtts.storage.json_file import is_whole_number, try_read_json
from myxtts.storage.tensor_file import Array
from myxtts.training.run.checkpoint import CheckpointFolder
from myxtts.training.run.folder import RunFolder
from myxtts.training.run.state import Best, RunState
from myxtts.types import Say

if TYPE_CHECKING:
    from myxtts.training.learner import BaseLearner


class BackgroundThread:
    """Runs one job after another in one thread.

    Use it as a context: leaving it waits for the last job, and raises its exception.
    """

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._running: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.wait()
        finally:
            self._executor.shutdown()

    def wait(self) -> None:
        """Returns when no job is running."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def start(self, job: Callable[[], None]) -> None:
        """Waits for the job before, and starts this one."""
        self.wait()
        self._running = self._executor.submit(job)


class BackgroundSaver(BackgroundThread):
    """Writes checkpoints in a background thread while training goes on.

    Arrays are copied before `save` returns. A save that comes while the last is still being written waits for it, so
    that every checkpoint asked for is written, in order, and memory holds one copy. A storage error becomes a warning;
    older checkpoints stay.
    """

    def __init__(self, checkpoints: CheckpointFolder, warn: Say = warn_user) -> None:
        super().__init__("checkpoint")
        self._checkpoints, self._warn = checkpoints, warn

    def save(
        self, step: int, arrays: Mapping[str, Array], state: Mapping[str, Any], best_score: float | None = None
    ) -> None:
        """Starts to save; with a score the checkpoint is marked as the best."""
        # Before the copies are made, so that memory never holds two of them.
        self.wait()
        copies = {name: np.array(array, copy=True, order="C") for name, array in arrays.items()}
        frozen = json.dumps(dict(state), allow_nan=False)
        self.start(partial(self._write, step, copies, frozen, best_score))

    def _write(self, step: int, arrays: dict[str, Array], state: str, best_score: float | None) -> None:
        try:
            self._checkpoints.save(step, arrays, json.loads(state))
            if best_score is not None:
                self._checkpoints.mark_best(step, best_score)
        except MyXTTSError as error:
            steps = self._checkpoints.list_steps()
            newest = str(steps[-1]) if steps else "none yet"
            self._warn(f"{error} Training continues; the last checkpoint is that of step {newest}.")


class Saver(ABC):
    """Saves checkpoints and bundles of a learner in background threads while it trains.

    Use it as a context: leaving it waits until everything is written. Subclasses build the bundle of their model.
    """

    def __init__(
        self, config: XTTSConfig, run: RunFolder, learner: BaseLearner, state: RunState, description: Path, say: Say
    ) -> None:
        """`description` is the JSON file of the bundle, whose notes say of which step it is."""
        self._config, self._learner, self._state, self._say = config, learner, state, say
        self._checkpoints = CheckpointFolder(run.checkpoints.folder, config.training.keep_checkpoints, say)
        self._saver, self._bundle_thread = BackgroundSaver(self._checkpoints, say), BackgroundThread("bundle")
        self._bundle_step = _read_bundle_step(description)
        self._score: float | None = None
        self._held = ExitStack()
        self.saved_step = run.step if run.checkpoint is not None else -1

    def __enter__(self) -> Self:
        self._held.enter_context(self._saver)
        self._held.enter_context(self._bundle_thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def load_calibration(self) -> None:
        """Loads the utterances that bundles are calibrated with, where a model needs any."""
        return

    def calibrate(self, *, is_hurried: bool = False) -> None:
        """Calibrates the present weights before validation and saving; `is_hurried` leaves out slow measurements."""
        return

    @abstractmethod
    def _start_bundle(self, step: int, arrays: Mapping[str, Array]) -> None:
        """Builds the bundle of a step and calls `_write_in_background`; `arrays` are the variables of the learner."""

    def note_score(self, score: float) -> None:
        """Notes the validation score of the present step; lower is better."""
        self._score = score

    @property
    def is_new_best(self) -> bool:
        """Whether the noted score is the lowest so far; the weights of this step should then be saved."""
        return self._score is not None and (self._state.best is None or self._score < self._state.best.score)

    def save(self) -> None:
        """Writes checkpoint and bundle of the present step in the background."""
        step, arrays = self._state.step, self._learner.state.collect()
        new_best, self._score = self._score if self.is_new_best else None, None
        if new_best is not None:
            self._state.best = Best(step=step, score=new_best)
        self._saver.save(step, arrays, self._state.to_json(), best_score=new_best)
        self.saved_step = step
        self._write_bundle(step, arrays)

    def complete_bundle(self) -> None:
        """Writes the bundle of the saved step if a kill between checkpoint and bundle left it missing."""
        self._bundle_thread.wait()
        if self._bundle_step != self._choose_bundle_step(self.saved_step):
            self._write_bundle(self.saved_step, self._learner.state.collect())

    def roll_back(self) -> int | None:
        """Restores the newest checkpoint into the learner; returns its step, or None where there is none yet."""
        self._saver.wait()
        checkpoint = self._checkpoints.load_newest()
        # The restored weights continue at another position of the feed, so that step must be saved again.
        self.saved_step = -1
        if checkpoint is None:
            return None
        self._learner.state.restore(checkpoint.arrays)
        return checkpoint.step

    def _choose_bundle_step(self, step: int) -> int:
        """Step whose weights the bundle holds when `step` is the newest: that or the best one."""
        is_best_wanted = self._config.training.bundle_weights == "best"
        return self._state.best.step if is_best_wanted and self._state.best is not None else step

    def _write_bundle(self, step: int, arrays: Mapping[str, Array]) -> None:
        """Writes the bundle of the present weights (`arrays`), or of the best checkpoint where that is wanted.

        A bundle is computed with the model, so the best weights are restored into it for a moment.
        """
        wanted = self._choose_bundle_step(step)
        if wanted == step:
            self._start_bundle(step, arrays)
            return
        self._bundle_thread.wait()
        if self._bundle_step == wanted:
            return
        self._saver.wait()
        try:
            best = self._checkpoints.load(wanted)
        except DataError as error:
            self._say(f"{error.problem} The bundle holds the weights of step {step} instead of the best ones.")
            self._start_bundle(step, arrays)
            return
        self._learner.state.restore(best.arrays)
        try:
            self._start_bundle(wanted, best.arrays)
        finally:
            self._learner.state.restore(arrays)

    def _write_in_background(self, step: int, write: Callable[[], None]) -> None:
        """Writes the bundle of a step in its thread; a storage error becomes a warning."""

        def write_or_warn() -> None:
            try:
                write()
            except MyXTTSError as error:
                self._say(f"{error} Training continues; the exported model is unchanged.")
            else:
                self._bundle_step = step

        self._bundle_thread.start(write_or_warn)

    def _make_notes(self, step: int) -> dict[str, Any]:
        """Notes on the origin of a bundle: step, run, and whether it is the best."""
        is_best = self._state.best is not None and self._state.best.step == step
        return {"step": step, "run": self._config.training.run_name, "is_best": is_best}


def _read_bundle_step(description: Path) -> int | None:
    """Step in the notes of a bundle; None where there is no bundle."""
    notes = (try_read_json(description, dict[str, Any]) or {}).get("notes")
    step = notes.get("step") if isinstance(notes, dict) else None
    return step if isinstance(step, int) and is_whole_number(step) else None
