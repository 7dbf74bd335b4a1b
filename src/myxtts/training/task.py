"""Interface between the training loop and what it trains: a learner, its feed of batches, its saver.

Implemented by `voice.setup` and `vocoder.setup`. Opening the data and checking the settings comes before, without
TensorFlow, in `voice.task` and `vocoder.task`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from myxtts.config.schema import XTTSConfig
from myxtts.runtime.plan import Plan
from myxtts.training.execution import Execution, MicroBatchMemory
from myxtts.training.run.folder import RunFolder
from myxtts.training.run.state import RunState
from myxtts.types import Say

if TYPE_CHECKING:
    from myxtts.training.learner import BaseLearner
    from myxtts.training.run.saver import Saver


class PreparedTask(Protocol):
    """A learner that is built. `memory` and `situation` are for the micro-batches that were found to fit its device."""

    @property
    def unit(self) -> str:
        """What a row of a batch is called."""

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

    def open_feed(self, start: int, loader_name: str, telemetry_file: Path, say: Say) -> Any:
        """A context that gives batches from position `start` on; `loader_name` is what loaded them before."""

    def trace(self, step: int) -> None:
        """Traces the graphs of the steps from `step` on."""

    def make_saver(self, run: RunFolder, state: RunState, say: Say) -> Saver:
        """Writes checkpoints and bundles."""
