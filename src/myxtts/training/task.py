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
    """A task whose learner is built. `memory` keeps the micro-batches that fit the device, by `situation`."""

    config: XTTSConfig
    plan: Plan
    data: Any
    total_steps: int | None
    execution: Execution
    learner: BaseLearner
    memory: MicroBatchMemory
    situation: str
    unit: ClassVar[str]
    """What a row of a batch is called."""

    @property
    def num_batches_per_epoch(self) -> int:
        return int(self.data.num_batches_per_epoch)

    @property
    @abstractmethod
    def num_shapes(self) -> int:
        """Batch shapes, each of which has a graph."""

    @abstractmethod
    def open_feed(self, start: int, loader_name: str, telemetry_file: Path, say: Say) -> Any:
        """A context that gives batches from position `start` on; `loader_name` is what loaded them before."""

    @abstractmethod
    def trace(self, step: int) -> None:
        """Traces the graphs of the steps from `step` on."""

    @abstractmethod
    def make_saver(self, run: RunFolder, state: RunState, say: Say) -> Saver:
        """Writes checkpoints and bundles."""
