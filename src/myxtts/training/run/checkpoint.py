"""Checkpoints of a run: one safetensors file with a checksum each, written to a temporary name and then renamed.

    checkpoints/
      step-000001000.safetensors    variables as arrays, and the `RunState` as JSON in the heading
      best.json                     the step with the best validation score, and that score

The last few and the best are kept. A damaged one is skipped with a message, and nothing that is not finite is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from myxtts.errors import DataError, refuse, warn_user
from myxtts.storage.atomic import explain_storage_errors, sweep_temporary_files, sync_directory, write_atomically
from myxtts.storage.json_file import parse_json_object, read_json, write_json
from myxtts.storage.regular_file import explain_read_errors
from myxtts.storage.tensor_file import Array, TensorFileError, find_non_finite, load_tensors, write_tensors
from myxtts.training.run.state import Best
from myxtts.types import Say

CHECKPOINTS_FOLDER_NAME = "checkpoints"
BEST_FILE_NAME = "best.json"
_FILE_NAME = re.compile(r"step-(\d{9,18})\.safetensors")
"""At least nine digits, so that names sort like steps."""
_FORMAT = "myxtts-checkpoint-1"
"""Written into the heading; another value is refused."""
_MAX_STATE_BYTES = 1_000_000
"""Limit of the JSON in the heading, which is read before anything is known about the file."""
_OLDER = "Use an older one, or restore it from a backup."


@dataclass(frozen=True)
class Checkpoint:
    """Variables and state saved after a step. `state` is the JSON of a `RunState`."""

    step: int
    arrays: dict[str, Array]
    state: dict[str, Any]


class CheckpointFolder:
    """The checkpoints in a folder. Writing requires the lock of the run; reading does not."""

    def __init__(self, folder: Path, keep_last: int = 3, warn: Say = warn_user) -> None:
        assert keep_last >= 1, f"{keep_last} checkpoints cannot be kept"
        self.folder = folder
        self._keep_last, self._warn = keep_last, warn

    def list_steps(self) -> list[int]:
        """Steps that have a checkpoint, oldest first; whether it is whole is not checked."""
        if not self.folder.is_dir():
            return []
        matches = (_FILE_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def name_file(self, step: int) -> Path:
        return self.folder / f"step-{step:09}.safetensors"

    def sweep(self) -> int:
        """Removes temporary files of a killed trainer; returns their number."""
        return sweep_temporary_files(self.folder)

    def save(self, step: int, arrays: Mapping[str, Array], state: Mapping[str, Any]) -> Path:
        """Writes a checkpoint and removes old ones. Raises StorageError, and DataError for NaN and infinity."""
        damaged = find_non_finite(arrays)
        if damaged:
            raise DataError(
                f"The checkpoint of step {step} was not written: {', '.join(damaged[:5])} "
                f"{'is' if len(damaged) == 1 else 'are'} NaN or infinite.",
                next_step="The last checkpoint is intact: resume from it, if necessary with a lower learning rate.",
            )
        text = json.dumps(dict(state), allow_nan=False, separators=(",", ":"))
        assert len(text) <= _MAX_STATE_BYTES, f"a state of {len(text):,} bytes could not be read again"
        path = self.name_file(step)
        with write_atomically(path) as file:
            write_tensors(file, arrays, {"format": _FORMAT, "step": str(step), "state": text}, seal=True)
        self._remove_old()
        return path

    def load(self, step: int) -> Checkpoint:
        """Reads the checkpoint of a step; raises DataError if it is damaged."""
        path = self.name_file(step)
        with explain_read_errors(lambda reason: refuse(f"The checkpoint {path}", reason, _OLDER)):
            arrays, metadata = load_tensors(path)
            return Checkpoint(step, arrays, _parse_state(metadata, step))

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
                next_step="Start a new run with --run-name NAME, or restore the folder from a backup.",
            )
        return None

    def read_best(self) -> Best | None:
        """Reads best.json; None where there is none. Raises DataError if it is damaged."""
        try:
            return read_json(self.folder / BEST_FILE_NAME, Best, next_step=_OLDER)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def mark_best(self, step: int, score: float) -> None:
        """Writes best.json, which protects the checkpoint of this step from removal."""
        assert step in self.list_steps(), f"there is no checkpoint of step {step}"
        write_json(self.folder / BEST_FILE_NAME, {"step": step, "score": score})
        self._remove_old()

    def drop_after(self, step: int) -> None:
        """Removes checkpoints newer than `step`, after training resumed from an older one."""
        newer = [other for other in self.list_steps() if other > step]
        try:
            best = self.read_best()
        except DataError:
            best = None  # It stays: `_remove_old` reports it with the next checkpoint.
        if best is not None and best.step in newer:
            self._remove(self.folder / BEST_FILE_NAME)
        for other in reversed(newer):
            self._remove(self.name_file(other))
        self._sync()

    def _remove_old(self) -> None:
        """Removes all but the last `keep_last` checkpoints and the best one."""
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

    def _remove(self, path: Path) -> None:
        with explain_storage_errors(path, "remove"):
            path.unlink(missing_ok=True)

    def _sync(self) -> None:
        with explain_storage_errors(self.folder, "write in"):
            sync_directory(self.folder)


def _parse_state(metadata: Mapping[str, str], step: int) -> dict[str, Any]:
    if (metadata.get("format"), metadata.get("step")) != (_FORMAT, str(step)) or "state" not in metadata:
        raise TensorFileError(f"it is no checkpoint of step {step} in the format {_FORMAT}")
    return parse_json_object(metadata["state"].encode())
