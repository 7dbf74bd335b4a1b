"""Interface between the training loop and what it trains: a learner, its feed of batches, its saver.

`Trainer` makes an `OpenTask` without TensorFlow: errors of the user are reported before the seconds that loading it
takes. `voice.setup` or `vocoder.setup` then makes a `PreparedTask` of it; both call `plan_steps`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from myxtts.config.schema import XTTSConfig
from myxtts.errors import HardwareError
from myxtts.runtime.hardware import Hardware
from myxtts.runtime.plan import Plan
from myxtts.training.callbacks import Callback
from myxtts.training.execution import (
    Device,
    Execution,
    MicroBatches,
    MicroBatchMemory,
    choose_execution,
    name_situation,
)
from myxtts.training.run.folder import RunFolder
from myxtts.training.run.state import RunState
from myxtts.training.schedule import guess_total_steps
from myxtts.types import Say

if TYPE_CHECKING:
    from myxtts.training.compiling import StepGraph
    from myxtts.training.learner import BaseLearner
    from myxtts.training.run.saver import Saver
    from myxtts.training.voice.validation import ValidationCallback


@dataclass(frozen=True)
class OpenTask:
    """Settings, plan and opened data (`TrainingData` or `VocoderData`) of a training.

    `origin` is the bundle whose weights it begins with (--init-from). The discriminators of a vocoder join after
    `num_warm_steps`; None is for the usual number, or that of the run.
    """

    config: XTTSConfig
    plan: Plan
    hardware: Hardware
    data: Any
    origin: Any = None
    num_warm_steps: int | None = None


@dataclass(frozen=True)
class StepPlan:
    """How the steps of a run are made: their number, execution and micro-batches.

    `memory` stores the micro-batches that fitted into the device, keyed by `situation` (device, model, batch).
    `total_steps` is None where neither `steps` nor `epochs` limits the run.
    """

    total_steps: int | None
    execution: Execution
    micro_batches: MicroBatches
    memory: MicroBatchMemory
    situation: str


def plan_steps(
    task: OpenTask, device: Device, asked: MicroBatches, model_name: str, num_shapes: int, run: RunFolder, say: Say
) -> StepPlan:
    """Plans the steps of a task, and reports why.

    Where the micro-batches `asked` for did not fit in an earlier session, smaller ones are chosen; not in a cluster,
    whose processes must choose alike.
    """
    training, plan = task.config.training, task.plan
    total_steps = training.count_steps(task.data.num_batches_per_epoch)
    expected_steps = guess_total_steps(total_steps, training.minutes)
    execution = choose_execution(training, device, total_steps=expected_steps, num_shapes=num_shapes)
    for line in execution.reasons:
        say(line)
    memory = MicroBatchMemory(run.micro_batches_path, say)
    situation = name_situation(plan.name_model_devices(task.hardware), model_name, asked)
    micro_batches = memory.choose(situation, asked) if plan.cluster is None else asked
    return StepPlan(total_steps, execution, micro_batches, memory, situation)


@dataclass(frozen=True)
class PreparedTask(ABC):
    """A training task whose learner is built on its devices, ready for the first step."""

    config: XTTSConfig
    plan: Plan
    data: Any
    steps: StepPlan
    learner: BaseLearner
    unit: ClassVar[str]
    """Name of the rows of a batch in messages and progress, plural: utterances or segments."""
    validation: ClassVar[type[ValidationCallback]]

    @property
    def execution(self) -> Execution:
        return self.steps.execution

    @property
    def num_batches_per_epoch(self) -> int:
        return int(self.data.num_batches_per_epoch)

    @abstractmethod
    def open_feed(self, start: int, loader_name: str, telemetry_file: Path, say: Say) -> Any:
        """Opens a context that gives batches from position `start` on.

        `loader_name` is the loader that the run used before; empty lets the feed choose one.
        """

    @abstractmethod
    def list_graphs(self, step: int, position: int) -> list[StepGraph]:
        """The graphs of all steps from `step` and the batch at `position` on, in the order in which they are needed."""

    @abstractmethod
    def name_graph(self, step: int, position: int) -> str:
        """Name of the graph of a step that trains on the batch at this position."""

    def make_switch(self, run: RunFolder, state: RunState, say: Say) -> Any:
        """Makes the switch from searched to written durations; None for tasks without one."""
        return None

    @abstractmethod
    def make_saver(self, run: RunFolder, state: RunState, say: Say) -> Saver:
        """Makes the saver that writes checkpoints and bundles of this task."""

    def make_callbacks(self) -> list[Callback]:
        """Makes the callbacks that validate, stop early, freeze the text side, write samples and TensorBoard."""
        return [self.validation.from_config(self.config)]

    def refuse_smaller_in_cluster(self, error: Exception) -> None:
        """Raises HardwareError in a cluster, where each process would choose another size of micro-batches."""
        if self.plan.cluster is not None:
            raise HardwareError(
                f"The memory of {self.plan.model_devices[0]} is exhausted, and processes that train together cannot "
                "cut batches each by itself.",
                next_step="Give a smaller data.batch_size or data.frame_budget to all of them.",
            ) from error

    def halve_micro_batches(self, say: Say) -> None:
        """Halves the micro-batch and doubles accumulation; the size is stored for the next start."""
        device = self.plan.model_devices[0]
        smaller = self.learner.micro_batches.halve(device)
        say(
            f"Out of memory on {device}: each step uses {smaller.accumulation} micro-batches of "
            f"{smaller.batch_size} {self.unit} from now on."
        )
        self.learner.set_micro_batches(smaller)
        self.steps.memory.remember(self.steps.situation, smaller)
