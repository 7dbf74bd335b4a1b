"""What a session needs of whatever is trained, and nothing of what it is: the voice model or its vocoder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from myxtts.config.schema import XTTSConfig
from myxtts.runtime.plan import Plan
from myxtts.training.execution import Execution, MicroBatchMemory
from myxtts.training.run.folder import RunFolder
from myxtts.types import Say

if TYPE_CHECKING:
    from myxtts.training.learner import BaseLearner
    from myxtts.training.run.saver import Saver


class FedBatch(Protocol):
    """What a learner is given; `position` is its number in the feed."""

    @property
    def position(self) -> int: ...
    @property
    def ids(self) -> tuple[str, ...]: ...


class BatchFeed(Protocol):
    """Batches in order, and the name of what loads them."""

    @property
    def loader_name(self) -> str: ...
    def __iter__(self) -> Iterator[Any]: ...
    def note_retrace(self) -> None: ...


class PreparedTask(Protocol):
    """A learner that is ready, and how it is fed and kept. `unit` is what a row of a batch is called."""

    @property
    def config(self) -> XTTSConfig: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def total_steps(self) -> int | None: ...
    @property
    def execution(self) -> Execution: ...
    @property
    def learner(self) -> BaseLearner: ...
    @property
    def memory(self) -> MicroBatchMemory: ...
    @property
    def situation(self) -> str: ...
    @property
    def num_batches_per_epoch(self) -> int: ...
    @property
    def num_shapes(self) -> int: ...
    @property
    def unit(self) -> str: ...

    def open_feed(
        self, start: int, loader_name: str, telemetry_file: Path, say: Say
    ) -> AbstractContextManager[BatchFeed]:
        """The batches from position `start` on; `loader_name` is what loaded them before."""

    def trace(self, step: int) -> None:
        """Makes the graphs of the steps from `step` on."""

    def make_saver(self, run: RunFolder, say: Say) -> Saver:
        """What writes checkpoints and bundles."""
