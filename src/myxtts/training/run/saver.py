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
from myxtts.storage.json_file import JsonRefusedError, is_whole_number, parse_json_object
from myxtts.storage.tensor_file import Array
from myxtts.training.run.checkpoint import CheckpointFolder
from myxtts.training.run.folder import RunFolder
from myxtts.training.run.state import Best, RunState
from myxtts.types import Say

if TYPE_CHECKING:
    from myxtts.training.learner import BaseLearner

_MAX_DESCRIPTION_BYTES = 4_000_000


class BackgroundThread:
    """Does one job after another. Use it as a context: leaving it waits for the last, and raises what that raised."""

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
    """Writes checkpoints in a thread of its own while training goes on.

    Arrays are copied before `save` returns. A save that comes while the last is still being written waits for it, so
    that every checkpoint asked for is written, in order, and memory holds one copy. What the disk refuses becomes a
    warning; the checkpoints from before stay.
    """

    def __init__(self, checkpoints: CheckpointFolder, warn: Say = warn_user) -> None:
        super().__init__("checkpoint")
        self._checkpoints, self._warn = checkpoints, warn

    def save(
        self, step: int, arrays: Mapping[str, Array], state: Mapping[str, Any], best_score: float | None = None
    ) -> None:
        """Starts to save; with a score the checkpoint is marked as the best."""
        # Before the copies are made: memory shall hold one of each.
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
            self._warn(f"{error} Training goes on; the last checkpoint is that of step {newest}.")


class Saver(ABC):
    """Saves a learner while it goes on learning. Use it as a context: leaving it waits until all is written."""

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
        """Measures what belongs to the present weights, before they are validated and saved; quickly, if hurried."""
        return

    @abstractmethod
    def _start_bundle(self, step: int, arrays: Mapping[str, Array]) -> None:
        """Calls `_write_in_background` with the bundle of a step; `arrays` are the variables that the learner has."""

    def note_score(self, score: float) -> None:
        """A validation score of the present step, lower is better."""
        self._score = score

    @property
    def is_new_best(self) -> bool:
        """Whether the score of the present step is the lowest so far, and its weights are not saved yet."""
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
        """Writes the bundle of the saved step again unless it is there: a kill may have come between the two."""
        self._bundle_thread.wait()
        if self._bundle_step != self._choose_bundle_step(self.saved_step):
            self._write_bundle(self.saved_step, self._learner.state.collect())

    def roll_back(self) -> int | None:
        """Gives the learner the weights of the newest checkpoint; its step, or None where there is none yet."""
        self._saver.wait()
        checkpoint = self._checkpoints.load_newest()
        # The same weights at another position of the feed: worth saving again.
        self.saved_step = -1
        if checkpoint is None:
            return None
        self._learner.state.restore(checkpoint.arrays)
        return checkpoint.step

    def _choose_bundle_step(self, step: int) -> int:
        """The step whose weights the bundle shall hold when `step` is the newest."""
        is_best_wanted = self._config.training.bundle_weights == "best"
        return self._state.best.step if is_best_wanted and self._state.best is not None else step

    def _write_bundle(self, step: int, arrays: Mapping[str, Array]) -> None:
        """A bundle of the present weights, which are `arrays`, or of the best ones where these are wanted."""
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
        """Starts to write the bundle of a step; what the disk refuses becomes a warning."""

        def write_or_warn() -> None:
            try:
                write()
            except MyXTTSError as error:
                self._say(f"{error} Training goes on; the bundle stays as it was.")
            else:
                self._bundle_step = step

        self._bundle_thread.start(write_or_warn)

    def _make_notes(self, step: int) -> dict[str, Any]:
        """What every bundle notes of where it came from."""
        is_best = self._state.best is not None and self._state.best.step == step
        return {"step": step, "run": self._config.training.run_name, "is_best": is_best}


def _read_bundle_step(description: Path) -> int | None:
    """The step whose weights a bundle says it holds; None where there is no bundle."""
    try:
        notes = parse_json_object(description.read_bytes()[:_MAX_DESCRIPTION_BYTES]).get("notes")
    except (OSError, JsonRefusedError):
        return None
    step = notes.get("step") if isinstance(notes, dict) else None
    return step if isinstance(step, int) and is_whole_number(step) else None
