"""What a training reports: records of its steps, callbacks (`on_step`, `on_checkpoint`, `on_end`) and the progress.

Validation, samples and TensorBoard are callbacks too: `voice.validation` and `vocoder.validation`.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from myxtts.types import Say

if TYPE_CHECKING:
    from myxtts.training.loop import TrainingLoop
    from myxtts.training.step import StepNumbers

Record = Mapping[str, Any]
"""One line of metrics.jsonl: step, loss, its terms, gradient_norm, learning_rate, seconds and so on."""


@dataclass
class StepWindow:
    """Sums over the steps since the last record; those that were skipped count for time only.

    Steps are timed from the request for their batches to the next step. What lies between two steps, such as
    validation, samples and checkpoints, is only in the wall-clock time since the window was made.
    """

    seconds: float = 0.0
    wait_s: float = 0.0
    num_steps: int = 0
    num_good: int = 0
    num_utterances: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)
    started_at: float = field(default_factory=time.perf_counter)

    def add_time(self, seconds: float, wait_s: float) -> None:
        """Adds the duration of a step, and how long it waited for its batches."""
        self.seconds += seconds
        self.wait_s += wait_s
        self.num_steps += 1

    def add_numbers(self, numbers: StepNumbers) -> None:
        """The numbers of one step, read from the device."""
        if not numbers.is_finite:
            return
        self.num_good += 1
        self.num_utterances += numbers.num_real
        values = {"loss": numbers.loss, **numbers.metrics, "gradient_norm": numbers.gradient_norm}
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def average(self) -> dict[str, float]:
        """Means over the steps that were not skipped; not finite where there was none."""
        return {name: total / self.num_good for name, total in self.sums.items()} or {"loss": math.nan}

    def measure_rates(self, device_busy: float | None = None) -> dict[str, float]:
        """Time and throughput. Accelerator utilisation `au` is `device_busy`, measured on the GPU, where it is known.

        Otherwise it is `not_waiting`, the share of step time without data wait. `wall_share` is the share of the wall
        clock spent in steps, `wall_au` the same share of `au`: checkpoints, validation and samples count against both.
        """
        seconds, num_steps = max(self.seconds, 1e-9), max(1, self.num_steps)
        wall_s = max(time.perf_counter() - self.started_at, seconds)
        not_waiting = 1 - min(1.0, self.wait_s / seconds)
        au = not_waiting if device_busy is None else device_busy
        return {
            "seconds": self.seconds / num_steps,
            "utterances_per_s": self.num_utterances / seconds,
            "au": au,
            **({} if device_busy is None else {"device_busy": device_busy}),
            "not_waiting": not_waiting,
            "data_wait_s": self.wait_s / num_steps,
            "wall_seconds": wall_s / num_steps,
            "wall_utterances_per_s": self.num_utterances / wall_s,
            "wall_share": seconds / wall_s,
            "wall_au": au * seconds / wall_s,
        }


@dataclass(frozen=True)
class TrainResult:
    """Outcome of a training. `reason` is a sentence; `losses` are means over the last recorded steps."""

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


class Callback(Protocol):
    """Called in the training thread between two steps, with the loop itself; an exception ends the training."""

    def on_step(self, loop: TrainingLoop, record: Record | None) -> None:
        """Called after every step; `record` is None except every `log_steps`."""

    def on_checkpoint(self, loop: TrainingLoop) -> None:
        """Called before the weights of a step are saved: a score noted here belongs to them. Not after a signal."""

    def on_end(self, loop: TrainingLoop, result: TrainResult) -> None:
        """Called when everything is saved, also after a signal; not when the training failed."""


_LINE_EVERY_S = 10.0
"""Seconds between two lines of progress where standard error is no terminal."""
_SMOOTHING = 0.9
"""Weight of the past in the moving average of step times that the time left is computed from."""
_WIDTH_WITH_BAR = 120
"""Columns of a terminal from which there is room for a bar beside the numbers."""
_FEWEST_STEPS = 20
"""Steps of a session before the time left is estimated: the first are slower than all others."""


class ProgressDisplay:
    """Shows loss, rate, accelerator utilisation (AU), data wait and the time left. Use it as a context.

    A bar on a terminal, a plain line every few seconds elsewhere.
    """

    def __init__(self, stream: TextIO | None = None, unit: str = "utterances", say: Say | None = None) -> None:
        """`unit` is what a row of a batch is called; `say` prints lines while no bar is shown."""
        self.unit = unit
        self._say = say
        self._stream = stream if stream is not None else sys.stderr
        console = (
            Console(file=self._stream, highlight=False) if stream is not None else Console(stderr=True, highlight=False)
        )
        self._bar: Progress | None = _make_bar(console) if console.is_terminal else None
        self._task: TaskID | None = None
        self._last_line_s = time.monotonic()
        self._step_s: float | None = None
        self._first_step: int | None = None
        self._detail = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, line: str) -> None:
        """Prints a line for the user; while the bar is shown above it, so that neither garbles the other."""
        if self._bar is not None and self._bar.live.is_started:
            self._bar.console.print(line, markup=False, soft_wrap=True)
        elif self._say is not None:
            self._say(line)
        else:
            self._stream.write(f"{line}\n")

    def on_step(self, loop: TrainingLoop, record: Record | None) -> None:
        if self._first_step is None:
            self._first_step = loop.step - 1
        if record is not None:
            self._note(record, num_steps=loop.step - self._first_step)
        if self._bar is not None:
            self._move_bar(self._bar, loop)
        elif record is not None and time.monotonic() - self._last_line_s >= _LINE_EVERY_S:
            self._last_line_s = time.monotonic()
            of_total = f" of {loop.total_steps:,}" if loop.total_steps else ""
            time_left = self._describe_time_left(loop)
            self._stream.write(f"Step {loop.step:,}{of_total}: {self._detail}{', ' if time_left else ''}{time_left}\n")

    def on_checkpoint(self, loop: TrainingLoop) -> None:
        """Nothing to show: writing goes on in the background."""

    def on_end(self, loop: TrainingLoop, result: TrainResult) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _note(self, record: Record, num_steps: int) -> None:
        """Takes a record of a session that has done `num_steps` steps."""
        seconds = float(record["seconds"])
        if num_steps >= _FEWEST_STEPS:
            before_s = seconds if self._step_s is None else self._step_s
            self._step_s = _SMOOTHING * before_s + (1 - _SMOOTHING) * seconds
        basis = "GPU busy" if "device_busy" in record else "no data wait"
        self._detail = (
            f"loss {record['loss']:.3f}, {record['utterances_per_s']:.1f} {self.unit}/s, "
            f"AU {100 * record['au']:.0f} % ({basis}), data wait {1000 * record['data_wait_s']:.0f} ms, "
            f"{100 * record['wall_share']:.0f} % of the wall clock"
        )

    def _move_bar(self, bar: Progress, loop: TrainingLoop) -> None:
        if self._task is None:
            bar.start()
            self._task = bar.add_task("Training", total=loop.total_steps, detail="", time_left="")
        time_left = self._describe_time_left(loop)
        bar.update(self._task, completed=loop.step, total=loop.total_steps, detail=self._detail, time_left=time_left)

    def _describe_time_left(self, loop: TrainingLoop) -> str:
        if self._step_s is None:
            return ""
        if loop.total_steps is None:
            return f"{self._step_s:.2f} s/step"
        return f"{format_duration((loop.total_steps - loop.step) * self._step_s)} left"


class _StepColumn(ProgressColumn):
    """Steps done, of how many."""

    def render(self, task: Any) -> Text:
        return Text(f"{int(task.completed):,}" + (f"/{int(task.total):,}" if task.total else ""))


class _DetailColumn(ProgressColumn):
    """Loss, rate and waits, on one line: the column may shrink, and then the end is cut."""

    def render(self, task: Any) -> Text:
        return Text(task.fields["detail"], no_wrap=True, overflow="ellipsis")


def format_duration(seconds: float) -> str:
    """Hours and minutes where there are hours, else minutes and seconds."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes_in_hour = divmod(minutes, 60)
    return f"{hours} h {minutes_in_hour:02} min" if hours else f"{minutes}:{rest:02} min"


def _make_bar(console: Console) -> Progress:
    # Where there is little room the details are cut, not the numbers of steps and the time left.
    bars = [BarColumn(bar_width=20)] if console.width >= _WIDTH_WITH_BAR else []
    return Progress(
        TextColumn("{task.description}", table_column=Column(no_wrap=True, min_width=8)),
        *bars,
        _StepColumn(table_column=Column(no_wrap=True, min_width=9)),
        _DetailColumn(table_column=Column()),
        TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=7)),
        TextColumn("{task.fields[time_left]}", table_column=Column(no_wrap=True, min_width=13)),
        console=console,
        transient=False,
    )
