"""Who may watch a training: validation, TensorBoard, samples, progress bars. A training never needs one of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from myxtts.config.schema import XTTSConfig
from myxtts.training.run import RunFolder

Record = Mapping[str, Any]
"""What a line of metrics.jsonl holds: step, loss, its terms, gradient_norm, learning_rate, seconds and so on."""


@dataclass(frozen=True)
class TrainResult:
    """How a training ended. `reason` is a sentence; `losses` are means over the last recorded steps."""

    run_path: Path
    bundle_path: Path
    step: int
    losses: dict[str, float]
    num_skipped: int
    num_rollbacks: int
    best_step: int | None
    best_score: float | None
    seconds: float
    reason: str
    is_chief: bool = True
    """Whether this process wrote the run: of several that train one model only one does."""


class TrainingView(Protocol):
    """What an observer may see of a training, and ask of it."""

    config: XTTSConfig
    run: RunFolder
    model: Any
    """The XTTS that is being trained."""
    plan: Any
    """The runtime Plan: what `open_batches` is to be given, so that a validation feed uses the same devices."""
    total_steps: int | None
    """The step at which training will end, where that is known."""

    step: int
    """Steps that are done."""

    @property
    def is_stopping(self) -> bool:
        """Whether a signal asked for an end: what takes long is better left out now."""

    def say(self, line: str) -> None:
        """Tells the user something."""

    def use_average(self) -> AbstractContextManager[Any]:
        """The model with its averaged weights, which synthesis will use, as long as the block lasts."""

    def note_score(self, score: float) -> None:
        """A score of the present step, lower is better; where it is the lowest, the step's checkpoint is kept."""

    def rest_text(self, reason: str) -> None:
        """Lets the text side of the voice be as it is from the next step on, with a sentence that says why."""

    def request_stop(self, reason: str) -> None:
        """Asks for an end of the training after this step, with a sentence that says why."""


class Observer(Protocol):
    """Called in the thread that trains, between two steps; what it raises ends the training."""

    def on_step(self, view: TrainingView, record: Record | None) -> None:
        """After every step; `record` is there every `log_steps`."""

    def on_checkpoint(self, view: TrainingView) -> None:
        """Before the weights of a step are saved: a score noted here belongs to them. Not after a signal."""

    def on_end(self, view: TrainingView, result: TrainResult) -> None:
        """When everything is saved, also after a signal. Not when the training failed."""
