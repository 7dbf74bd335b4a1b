"""What to do when the device's memory is exhausted: smaller micro-batches, more of them, and remembering it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from myxtts.errors import HardwareError, StorageError, warn_user
from myxtts.files import write_atomically
from myxtts.models.strict_json import JsonRefusedError, is_whole_number, parse_json_object
from myxtts.types import Say

_MAX_FILE_BYTES = 1_000_000


@dataclass(frozen=True)
class MicroBatches:
    """How the rows of one optimiser step are cut: `accumulation` micro-batches of `batch_size` rows each."""

    batch_size: int
    accumulation: int

    def __post_init__(self) -> None:
        assert self.batch_size >= 1, f"a micro-batch of {self.batch_size} rows"
        assert self.accumulation >= 1, f"{self.accumulation} micro-batches"

    @property
    def num_rows(self) -> int:
        """Rows that a batch must be filled up to; a fill counts for nothing in the step."""
        return self.batch_size * self.accumulation

    def halve(self, device: str = "the device") -> MicroBatches:
        """Half the rows, twice the micro-batches: the same step with less memory. HardwareError when one row is left.

        Where the rows are odd the halves are rounded up.
        """
        if self.batch_size == 1:
            raise HardwareError(
                f"The memory of {device} does not suffice for a micro-batch of a single utterance.",
                next_step="Choose a smaller model (--model-size), set data.max_mel_frames lower, or free the device.",
            )
        return MicroBatches(-(-self.batch_size // 2), self.accumulation * 2)


def name_situation(device: str, model: str, asked: MicroBatches) -> str:
    """The key under which is remembered what fits: another device, model or wish must be tried anew."""
    return f"{device} | {model} | {asked.batch_size} x {asked.accumulation}"


class MicroBatchMemory:
    """A small JSON file of what was found to fit. A damaged one is as good as none."""

    def __init__(self, path: Path, warn: Say = warn_user) -> None:
        self._path, self._warn = path, warn

    def recall(self, situation: str) -> MicroBatches | None:
        entry = self._read().get(situation)
        if not isinstance(entry, dict) or set(entry) != {"batch_size", "accumulation"}:
            return None
        batch_size, accumulation = entry["batch_size"], entry["accumulation"]
        if not (is_whole_number(batch_size) and is_whole_number(accumulation) and batch_size and accumulation):
            return None
        return MicroBatches(batch_size, accumulation)

    def remember(self, situation: str, found: MicroBatches) -> None:
        """Notes what fits; a disk that refuses becomes a warning."""
        content = self._read() | {situation: asdict(found)}
        try:
            with write_atomically(self._path) as file:
                file.write(json.dumps(content, indent=1).encode())
        except StorageError as error:
            self._warn(f"{error} The micro-batch of {found.batch_size} will have to be found again next time.")

    def _read(self) -> dict[str, Any]:
        try:
            return parse_json_object(self._path.read_bytes()[:_MAX_FILE_BYTES])
        except (OSError, JsonRefusedError):
            return {}
