"""Interface between the training loop and what it trains: a learner, its feed of batches, its saver.

Implemented by `voice.setup` and `vocoder.setup`. Opening the data and checking the settings comes before, without
TensorFlow, in `voice.task` and `vocoder.task`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from myxtts.config.schema import XTTSConfig
from myxtts.runtime.plan import Plan
from myxtts.training.execution import Execution, MicroBatchMemory
from myxtts.training.run.folder import RunFolder
from myxtts.training.run.state import RunState
from myxtts.types import Say

if TYPE_CHECKING:
    from myxtts.training.learner import BaseLearner
    from myxtts.training.run.saver import Saver


@dataclass(frozen=True)
class PreparedTask(ABC):
    """A training task whose learner is built on its devices, ready for the first step.

    `memory` stores the micro-batches that fitted into the device, keyed by `situation` (device, model, batch).
    `total_steps` is None where neither `steps` nor `epochs` limits the run.
    """

    config: XTTSConfig
    plan: Plan
    data: Any
    total_steps: int | None
    execution: Execution
    learner: BaseLearner
    memory: MicroBatchMemory
    situation: str
    unit: ClassVar[str]
    """Name of the rows of a batch in messages and progress, plural: utterances or segments."""

    @property
    def num_batches_per_epoch(self) -> int:
        return int(self.data.num_batches_per_epoch)

    @property
    @abstractmethod
    def num_shapes(self) -> int:
        """Number of distinct batch shapes; each has a graph of its own."""

    @abstractmethod
    def open_feed(self, start: int, loader_name: str, telemetry_file: Path, say: Say) -> Any:
        """Opens a context that gives batches from position `start` on.

        `loader_name` is the loader that the run used before; empty lets the feed choose one.
        """

    @abstractmethod
    def trace(self, step: int) -> None:
        """Traces the graphs of all steps from `step` on, on batches without real rows."""

    @abstractmethod
    def make_saver(self, run: RunFolder, state: RunState, say: Say) -> Saver:
        """Makes the saver that writes checkpoints and bundles of this task."""
