"""Checkpoints of a run: one sealed safetensors file each, which appears whole or not at all.

    checkpoints/
      step-000001000.safetensors    arrays, and the rest of the state as JSON in the heading
      best.json                     which of them scored best

The last few and the best are kept. A damaged one is skipped with a message, and nothing that is not finite is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

import numpy as np

from myxtts.errors import DataError, MyXTTSError, warn_user
from myxtts.storage.atomic import explain_storage_errors, sweep_temporary_files, sync_directory, write_atomically
from myxtts.storage.json_file import JsonRefusedError, is_whole_number, parse_json_object
from myxtts.storage.tensor_file import (
    Array,
    TensorFileError,
    find_non_finite,
    read_heading,
    read_tensors,
    write_tensors,
)
from myxtts.types import Say

# A thread that does one job at a time while training goes on.


class BackgroundThread:
    """Does jobs one after another. Use it as a context: leaving it waits for the last; what that raises is raised."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._running: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def wait(self) -> None:
        """Returns when nothing is being done."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.wait()
        finally:
            self._executor.shutdown()

    def _begin(self, job: Callable[[], None]) -> None:
        """Waits for the job before, and begins this one."""
        self.wait()
        self._running = self._executor.submit(job)


BEST_FILE_NAME = "best.json"
_FILE_NAME = re.compile(r"step-(\d{9,18})\.safetensors")
_FORMAT = "myxtts-checkpoint-1"
_MAX_STATE_BYTES = 1_000_000


@dataclass(frozen=True)
class Checkpoint:
    """What was saved after a step. `state` is plain JSON."""

    step: int
    arrays: dict[str, Array]
    state: dict[str, Any]


@dataclass(frozen=True)
class Best:
    """The checkpoint with the lowest score so far."""

    step: int
    score: float


class CheckpointFolder:
    """The checkpoints in a folder. Writing needs the lock of the run; reading needs nothing."""

    def __init__(self, folder: Path, keep_last: int = 3, warn: Say = warn_user) -> None:
        assert keep_last >= 1, f"{keep_last} checkpoints cannot be kept"
        self.folder = folder
        self._keep_last, self._warn = keep_last, warn

    def list_steps(self) -> list[int]:
        """The steps of which there are checkpoints, oldest first."""
        if not self.folder.is_dir():
            return []
        matches = (_FILE_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def name_file(self, step: int) -> Path:
        return self.folder / f"step-{step:09}.safetensors"

    def sweep(self) -> int:
        """Removes what a killed trainer left; gives the number of files."""
        return sweep_temporary_files(self.folder)

    def save(self, step: int, arrays: Mapping[str, Array], state: Mapping[str, Any]) -> Path:
        """Writes a checkpoint and removes those that are too old. Raises StorageError, and DataError for NaN."""
        damaged = find_non_finite(arrays)
        if damaged:
            raise DataError(
                f"The checkpoint of step {step} was not written: {', '.join(damaged[:5])} "
                f"{'is' if len(damaged) == 1 else 'are'} not finite.",
                next_step="The last checkpoint is untouched: go back to it, and lower the learning rate if need be.",
            )
        text = json.dumps(dict(state), allow_nan=False, separators=(",", ":"))
        assert len(text) <= _MAX_STATE_BYTES, f"a state of {len(text):,} bytes could not be read again"
        path = self.name_file(step)
        with write_atomically(path) as file:
            write_tensors(file, arrays, {"format": _FORMAT, "step": str(step), "state": text}, seal=True)
        self._remove_old()
        return path

    def load(self, step: int) -> Checkpoint:
        """The checkpoint of a step; raises DataError if it is damaged."""
        path = self.name_file(step)
        try:
            with path.open("rb") as file:
                heading = read_heading(file)
                arrays, _ = read_tensors(file, heading, sealed=True)
            return Checkpoint(step, arrays, _parse_state(heading.metadata, step))
        except (TensorFileError, JsonRefusedError) as error:
            raise _complain(path, str(error)) from error
        except OSError as error:
            raise _complain(path, f"it cannot be read ({error.strerror})") from error

    def load_newest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole; None where there never was one. Raises DataError if all are damaged."""
        steps = self.list_steps()
        for step in reversed(steps):
            try:
                return self.load(step)
            except DataError as error:
                last_error = error
                self._warn(f"{error.problem} It is skipped.")
        if steps:
            raise DataError(
                f"None of the {len(steps)} checkpoints in {self.folder} can be used: {last_error.problem}",
                next_step="Choose another training.run_name to begin anew, or restore the folder from a backup.",
            )
        return None

    def load_best(self) -> Checkpoint | None:
        """The best checkpoint; None where none was marked."""
        best = self.read_best()
        return self.load(best.step) if best is not None else None

    def read_best(self) -> Best | None:
        """Which checkpoint is best; raises DataError if that cannot be told."""
        path = self.folder / BEST_FILE_NAME
        try:
            fields = parse_json_object(path.read_bytes()[:_MAX_STATE_BYTES])
        except FileNotFoundError:
            return None
        except (OSError, JsonRefusedError) as error:
            raise _complain(path, str(error)) from error
        step, score = fields.get("step"), fields.get("score")
        if not isinstance(step, int) or not is_whole_number(step) or not isinstance(score, int | float):
            raise _complain(path, "it does not name a step and a score")
        return Best(step, float(score))

    def mark_best(self, step: int, score: float) -> None:
        """Makes a saved checkpoint the one that is kept as the best."""
        assert step in self.list_steps(), f"there is no checkpoint of step {step}"
        with write_atomically(self.folder / BEST_FILE_NAME) as file:
            file.write(json.dumps({"step": step, "score": score}, allow_nan=False).encode())
        self._remove_old()

    def drop_after(self, step: int) -> None:
        """Removes checkpoints that are newer than a step, which was gone back to."""
        newer = [other for other in self.list_steps() if other > step]
        best = self._find_best()
        if best is not None and best.step in newer:
            self._remove(self.folder / BEST_FILE_NAME)
        for other in reversed(newer):
            self._remove(self.name_file(other))
        self._sync()

    def _remove_old(self) -> None:
        try:
            best = self.read_best()
        except DataError as error:
            # Any of them may be the best, so all of them stay.
            self._warn(f"{error.problem} No old checkpoint is removed until a new one is marked as the best.")
            return
        kept = set(self.list_steps()[-self._keep_last :]) | ({best.step} if best else set())
        old = [step for step in self.list_steps() if step not in kept]
        for step in old:
            self._remove(self.name_file(step))
        if old:
            self._sync()

    def _find_best(self) -> Best | None:
        try:
            return self.read_best()
        except DataError:
            return None

    def _remove(self, path: Path) -> None:
        with explain_storage_errors(path, "remove"):
            path.unlink(missing_ok=True)

    def _sync(self) -> None:
        with explain_storage_errors(self.folder, "write in"):
            sync_directory(self.folder)


class BackgroundSaver(BackgroundThread):
    """Saves in a thread of its own while training goes on. Use it as a context: leaving it waits for the last save.

    Arrays are copied before `save` returns. A save that comes while the last is still being written waits for it, so
    that every checkpoint asked for is written, in order, and memory holds one copy. What the disk refuses becomes a
    warning; the checkpoints from before stay.
    """

    def __init__(self, checkpoints: CheckpointFolder, warn: Say = warn_user) -> None:
        super().__init__("checkpoint")
        self._checkpoints, self._warn = checkpoints, warn
        self.num_saved, self.num_failed = 0, 0

    def save(
        self, step: int, arrays: Mapping[str, Array], state: Mapping[str, Any], best_score: float | None = None
    ) -> float:
        """Begins to save; with a score the checkpoint is marked as the best. Gives the seconds training was held up."""
        started = monotonic()
        # Before the copies are made: memory shall hold one of each.
        self.wait()
        copies = {name: np.array(array, copy=True, order="C") for name, array in arrays.items()}
        frozen = json.dumps(dict(state), allow_nan=False)
        self._begin(partial(self._write, step, copies, frozen, best_score))
        return monotonic() - started

    def _write(self, step: int, arrays: dict[str, Array], state: str, best_score: float | None) -> None:
        try:
            self._checkpoints.save(step, arrays, json.loads(state))
            if best_score is not None:
                self._checkpoints.mark_best(step, best_score)
        except MyXTTSError as error:
            self.num_failed += 1
            self._warn(f"{error} Training goes on; the last checkpoint is that of step {self._name_newest()}.")
        else:
            self.num_saved += 1

    def _name_newest(self) -> str:
        steps = self._checkpoints.list_steps()
        return str(steps[-1]) if steps else "none yet"


def _parse_state(metadata: Mapping[str, str], step: int) -> dict[str, Any]:
    if (metadata.get("format"), metadata.get("step")) != (_FORMAT, str(step)) or "state" not in metadata:
        raise TensorFileError(f"it is no checkpoint of step {step} in the format {_FORMAT}")
    return parse_json_object(metadata["state"].encode())


def _complain(path: Path, problem: str) -> DataError:
    return DataError(
        f"The checkpoint {path} is damaged: {problem}.", next_step="Use an older one, or restore it from a backup."
    )


# Writes a bundle while training goes on, whichever part of the voice it is of.

_MAX_DESCRIPTION_BYTES = 4_000_000


class BackgroundWriter(BackgroundThread):
    """Writes a bundle in a thread of its own; what the disk refuses becomes a warning. Use it as a context.

    `step` is that of the bundle on the disk, None where there is none.
    """

    def __init__(self, description: Path, warn: Say) -> None:
        """`description` is the JSON file of the bundle, whose notes say of which step it is."""
        super().__init__("bundle")
        self._warn = warn
        self.step = _read_step(description)

    def start(self, step: int, write: Callable[[], None]) -> None:
        """Begins to write what is of this step; waits for the bundle before."""
        self._begin(partial(self._write, step, write))

    def _write(self, step: int, write: Callable[[], None]) -> None:
        try:
            write()
        except MyXTTSError as error:
            self._warn(f"{error} Training goes on; the bundle stays as it was.")
        else:
            self.step = step


def _read_step(description: Path) -> int | None:
    """The step whose weights a bundle says it holds."""
    try:
        fields = parse_json_object(description.read_bytes()[:_MAX_DESCRIPTION_BYTES])
    except (OSError, JsonRefusedError):
        return None
    notes = fields.get("notes")
    step = notes.get("step") if isinstance(notes, dict) else None
    return step if isinstance(step, int) and is_whole_number(step) else None
