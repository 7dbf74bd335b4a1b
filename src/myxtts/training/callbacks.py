"""Who may watch a training: validation, TensorBoard, samples, progress bars. A training never needs one of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from myxtts.config.schema import XTTSConfig
from myxtts.training.run.folder import RunFolder

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

    def to_json(self) -> dict[str, Any]:
        """The result for programs."""
        values = asdict(self)
        del values["is_chief"]
        paths = {"run_dir": str(values.pop("run_path")), "bundle": str(values.pop("bundle_path"))}
        return {**paths, **values, "seconds": round(self.seconds, 3)}


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


class Callback(Protocol):
    """Called in the thread that trains, between two steps; what it raises ends the training."""

    def on_step(self, view: TrainingView, record: Record | None) -> None:
        """After every step; `record` is there every `log_steps`."""

    def on_checkpoint(self, view: TrainingView) -> None:
        """Before the weights of a step are saved: a score noted here belongs to them. Not after a signal."""

    def on_end(self, view: TrainingView, result: TrainResult) -> None:
        """When everything is saved, also after a signal. Not when the training failed."""


# What a person sees of a training: a bar on a terminal, a plain line every few seconds elsewhere.

_LINE_EVERY_S = 10.0
_SMOOTHING = 0.9
_FEWEST_STEPS = 20
"""Of a session, before anything is said of the time left: the first of them are slower than all others."""


class ProgressDisplay:
    """An observer that shows loss, rate, accelerator utilisation, data wait and the time left. Use it as a context."""

    def __init__(self, stream: TextIO | None = None, unit: str = "utterances") -> None:
        """`unit` is what a row of a batch is called."""
        self._unit = unit
        self._stream = stream if stream is not None else sys.stderr
        console = Console(file=self._stream, highlight=False) if stream is not None else Console(stderr=True)
        self._bar: Progress | None = _make_bar(console) if console.is_terminal else None
        self._task: TaskID | None = None
        self._last_line_s = time.monotonic()
        self._step_s: float | None = None
        self._first_step: int | None = None
        self._detail = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def on_step(self, view: TrainingView, record: Record | None) -> None:
        if self._first_step is None:
            self._first_step = view.step - 1
        if record is not None:
            self._note(record, num_steps=view.step - self._first_step)
        if self._bar is not None:
            self._move_bar(self._bar, view)
        elif record is not None and time.monotonic() - self._last_line_s >= _LINE_EVERY_S:
            self._last_line_s = time.monotonic()
            of_total = f" of {view.total_steps:,}" if view.total_steps else ""
            rest = self._describe_rest(view)
            self._stream.write(f"Step {view.step:,}{of_total}: {self._detail}{', ' if rest else ''}{rest}\n")

    def on_checkpoint(self, view: TrainingView) -> None:
        """Nothing to show: writing goes on in the background."""

    def on_end(self, view: TrainingView, result: TrainResult) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _note(self, record: Record, num_steps: int) -> None:
        """A record of the session's first `num_steps`."""
        seconds = float(record["seconds"])
        if num_steps >= _FEWEST_STEPS:
            before_s = seconds if self._step_s is None else self._step_s
            self._step_s = _SMOOTHING * before_s + (1 - _SMOOTHING) * seconds
        self._detail = (
            f"loss {record['loss']:.3f}, {record['utterances_per_s']:.1f} {self._unit}/s, "
            f"AU {100 * record['au']:.0f} %, data wait {1000 * record['data_wait_s']:.0f} ms"
        )

    def _move_bar(self, bar: Progress, view: TrainingView) -> None:
        if self._task is None:
            bar.start()
            self._task = bar.add_task("Training", total=view.total_steps, detail="", rest="")
        rest = self._describe_rest(view)
        bar.update(self._task, completed=view.step, total=view.total_steps, detail=self._detail, rest=rest)

    def _describe_rest(self, view: TrainingView) -> str:
        if self._step_s is None:
            return ""
        if view.total_steps is None:
            return f"{self._step_s:.2f} s/step"
        return f"{format_duration((view.total_steps - view.step) * self._step_s)} left"


class _StepColumn(ProgressColumn):
    """Steps done, of how many."""

    def render(self, task: Any) -> Text:
        return Text(f"{int(task.completed):,}" + (f"/{int(task.total):,}" if task.total else ""))


def format_duration(seconds: float) -> str:
    """Hours and minutes where there are hours, else minutes and seconds."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes_in_hour = divmod(minutes, 60)
    return f"{hours} h {minutes_in_hour:02} min" if hours else f"{minutes}:{rest:02} min"


def _make_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        _StepColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[rest]}"),
        console=console,
        transient=False,
    )
