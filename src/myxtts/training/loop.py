"""One session of a training: from a fresh model or a checkpoint, step by step, to the end, a signal or a full stop.

All numbers that decide what happens next are in `Progress`, so that a session that was killed is repeated exactly.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.errors import HardwareError
from myxtts.training.callbacks import Callback, TrainResult
from myxtts.training.run.cluster_sync import ClusterSync
from myxtts.training.run.folder import TEXT_FROZEN, RunFolder
from myxtts.training.run.guard import Action, Guard
from myxtts.training.run.signals import StopRequest
from myxtts.training.run.state import Progress
from myxtts.training.schedule import TimeBudget
from myxtts.training.step import StepResult
from myxtts.training.task import BatchFeed, FedBatch, PreparedTask
from myxtts.types import Say

# Steps that fit into the device's memory: what does not fit is cut into smaller micro-batches for the same step.

_Outcome = TypeVar("_Outcome")


class FittingSteps:
    """Does the work of a learner again, in smaller pieces, whenever memory is exhausted."""

    def __init__(self, prepared: PreparedTask, say: Say) -> None:
        self._prepared, self._say = prepared, say
        self._device = prepared.plan.model_devices[0]

    def run(self, work: Callable[[], _Outcome]) -> _Outcome:
        """Halves the micro-batches until the device has room for them, and remembers what it had room for."""
        while True:
            try:
                return work()
            except tf.errors.ResourceExhaustedError as error:
                self._refuse_in_cluster(error)
            # Not in the handler: as long as the error is held, so is the memory of the step that failed.
            self._halve()

    def _refuse_in_cluster(self, error: tf.errors.ResourceExhaustedError) -> None:
        if self._prepared.plan.cluster is not None:
            raise HardwareError(
                f"The memory of {self._device} is exhausted, and processes that train together cannot cut batches each "
                "by itself.",
                next_step="Give a smaller data.batch_size or data.frame_budget to all of them.",
            ) from error

    def _halve(self) -> None:
        learner = self._prepared.learner
        smaller = learner.micro_batches.halve(self._device)
        self._say(
            f"The memory of {self._device} is exhausted: each step is made of "
            f"{smaller.accumulation} micro-batches of {smaller.batch_size} {self._prepared.unit} from now on."
        )
        learner.set_micro_batches(smaller)
        self._prepared.memory.remember(self._prepared.situation, smaller)


# The numbers of the steps since the last record, and what a line of metrics.jsonl says of them.


@dataclass(frozen=True)
class StepNumbers:
    """What one step gave, read from the device. `metrics` are the terms of the loss and the like."""

    step: int
    loss: float
    metrics: Mapping[str, float]
    gradient_norm: float
    num_real: float
    is_finite: bool


@dataclass
class StepWindow:
    """Sums over some steps; those that were skipped count for time only."""

    seconds: float = 0.0
    wait_s: float = 0.0
    num_steps: int = 0
    num_good: int = 0
    num_utterances: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)

    def add_time(self, seconds: float, wait_s: float) -> None:
        self.seconds += seconds
        self.wait_s += wait_s
        self.num_steps += 1

    def add_numbers(self, numbers: StepNumbers) -> None:
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

    def describe(self, step: int, learning_rate: float, skipped: int, epoch: float, elapsed_s: float) -> dict[str, Any]:
        """The record. Accelerator utilisation is the share of time in which the step did not wait for data."""
        seconds = max(self.seconds, 1e-9)
        return {
            "step": step,
            **self.average(),
            "learning_rate": learning_rate,
            "seconds": self.seconds / max(1, self.num_steps),
            "utterances_per_s": self.num_utterances / seconds,
            "au": 1 - min(1.0, self.wait_s / seconds),
            "data_wait_s": self.wait_s / max(1, self.num_steps),
            "skipped": skipped,
            "epoch": epoch,
            "elapsed_s": elapsed_s,
        }


_TEXT_REST_STEP = "text_rest_step"
_LATEST_REST = 0.8
"""Of a run: later, making the step anew would take longer than what is left gains from it."""
_Unread = tuple[int, StepResult, tuple[str, ...]]
"""A step that was started: its number, what it will have given, and the ids of its utterances."""


class TrainingLoop:
    """Trains a learner that is ready, and is what observers see of it."""

    def __init__(
        self,
        prepared: PreparedTask,
        run: RunFolder,
        request: StopRequest,
        say: Say,
        observers: Sequence[Callback],
    ) -> None:
        self.config: XTTSConfig = prepared.config
        self.plan, self.total_steps, self.run = prepared.plan, prepared.total_steps, run
        self._prepared, self._request, self._say, self._observers = prepared, request, say, observers
        self._learner = prepared.learner
        self.model: Any = self._learner.model
        self._guard = Guard(run.skipped.append)
        self._keeper, self._fitting = prepared.make_saver(run, say), FittingSteps(prepared, say)
        self.step, self._position = 0, 0
        self._tuning: dict[str, Any] = {}
        self._window, self._last_losses = StepWindow(), dict[str, float]()
        self._unread: _Unread | None = None
        self._reason = ""
        self._is_save_due, self._is_rest_due, self._is_well = False, False, True
        self._agreement = ClusterSync(self._learner.strategy, self.plan.cluster)
        self._is_another_stopping = False
        self._time = self._measure_time()
        self._started = time.monotonic()

    @property
    def is_stopping(self) -> bool:
        return self._request.is_requested or self._is_another_stopping

    def say(self, line: str) -> None:
        self._say(line)

    def use_average(self) -> AbstractContextManager[Any]:
        return self._learner.use_average()

    def note_score(self, score: float) -> None:
        self._keeper.note_score(score)

    def rest_text(self, reason: str) -> None:
        is_worth_it = self.total_steps is None or self.step < _LATEST_REST * self.total_steps
        if _TEXT_REST_STEP not in self._tuning and is_worth_it:
            self._say(f"{reason} It rests from now on; the decoder goes on learning.")
            self.run.metrics.append({"step": self.step, TEXT_FROZEN: True})
            self._tuning[_TEXT_REST_STEP], self._is_rest_due = self.step, True

    def request_stop(self, reason: str) -> None:
        self._reason = self._reason or reason

    def train(self) -> TrainResult:
        """Trains to the end; everything is saved when it returns."""
        self._take_up()
        with ExitStack() as held:
            held.enter_context(self._keeper)
            loader_name = self._tuning.get("loader_name", "")
            feed = held.enter_context(
                self._prepared.open_feed(self._position, loader_name, self.run.telemetry_path, self._say)
            )
            self._tuning["loader_name"] = feed.loader_name
            if self.run.is_chief:
                self._keeper.load_calibration()
            self._trace_shapes()
            self._loop(feed)
            self._finish()
        result = self._summarize()
        for observer in self._observers:
            observer.on_end(self, result)
        return result

    def _take_up(self) -> None:
        checkpoint = self.run.checkpoint
        self._agreement.require_same_step(self.run.step, self.run.path)
        if checkpoint is None:
            return
        self._learner.state.restore(checkpoint.arrays)
        progress = Progress.from_json(checkpoint.state)
        self.step, self._position, self._tuning = progress.step, progress.feed_position, progress.tuning
        self._time = self._measure_time()
        self._use_time()
        if _TEXT_REST_STEP in self._tuning:
            self._learner.rest(self.model.text_side)
        self._keeper.take_up(progress)
        self._guard.restore(progress.guard)

    def _measure_time(self) -> TimeBudget:
        return TimeBudget(self.config.training.minutes, self._tuning, self._agreement)

    def _use_time(self) -> None:
        """Lets the learning rate fall towards the step at which the minutes will be over."""
        ends = [end for end in (self._prepared.total_steps, self._time.total_steps) if end is not None]
        self.total_steps = min(ends, default=None)
        self._learner.rate = replace(self._learner.rate, num_steps=self.total_steps)

    def _trace_shapes(self) -> None:
        """Makes all graphs before the first step, so that no step is slow because it is the first of its shape."""
        if not self._prepared.execution.is_graph or self._is_at_end():
            return
        num_shapes, started = self._prepared.num_shapes, time.monotonic()
        verb = "Compiling" if self._prepared.execution.is_compiled else "Tracing"
        self._say(f"{verb} {num_shapes} batch {'shapes' if num_shapes > 1 else 'shape'} …")
        self._fitting.run(lambda: self._prepared.trace(self.step))
        self._say(f"{verb} took {time.monotonic() - started:.1f} s.")

    def _loop(self, feed: BatchFeed) -> None:
        batches, num_traces = iter(feed), self._learner.num_traces
        while not self._is_at_end():
            if self._is_rest_due:
                self._rest_text()
                num_traces = self._learner.num_traces
            started = time.perf_counter()
            taken = self._take(batches)
            if len(taken) < self._learner.num_batches_per_step:
                self._reason = "All epochs are done."
                break
            wait_s = time.perf_counter() - started
            self._train_step(taken)
            self._window.add_time(time.perf_counter() - started, wait_s)
            del taken
            if self._learner.num_traces != num_traces:
                num_traces = self._learner.num_traces
                feed.note_retrace()
            self._after_step()
            if self._time.note_step(self.step):
                self._use_time()

    def _is_at_end(self) -> bool:
        if self.total_steps is not None and self.step >= self.total_steps:
            is_over = self.total_steps == self._time.total_steps
            end = f"The {self.config.training.minutes:g} minutes" if is_over else f"All {self.total_steps:,} steps"
            self._reason = self._reason or f"{end} are {'over' if is_over else 'done'}."
        elif self._request.is_requested:
            self._reason = self._reason or f"Stopped by {self._request.name}."
        is_any_at_end, self._is_another_stopping, self._is_rest_due = self._agreement.find_any(
            bool(self._reason), self._request.is_requested, self._is_rest_due
        )
        if is_any_at_end:
            self._reason = self._reason or "Another process of the cluster has stopped."
        return is_any_at_end

    def _rest_text(self) -> None:
        """Makes the step anew, without the text side. A session that is resumed at this step does the same."""
        self._is_rest_due = False
        self._learner.rest(self.model.text_side)
        self._trace_shapes()

    def _take(self, batches: Iterator[FedBatch]) -> list[FedBatch]:
        taken: list[FedBatch] = []
        while len(taken) < self._learner.num_batches_per_step:
            batch = next(batches, None)
            if batch is None:
                break
            taken.append(batch)
        return taken

    def _train_step(self, batches: list[FedBatch]) -> None:
        """Starts a step, and reads the one before it: so the device need not wait for the host."""
        result = self._fitting.run(lambda: self._learner.train(batches, self.step))
        self.step, self._position = self.step + 1, batches[-1].position + 1
        ids = tuple(id for batch in batches for id in batch.ids if id)
        before, self._unread = self._unread, (self.step, result, ids)
        self._judge(before)

    def _judge(self, unread: _Unread | None) -> None:
        """Reads a step's numbers, which waits for the device, and does what the guard says."""
        if unread is None:
            return
        step, result, ids = unread
        values = tf.nest.map_structure(lambda tensor: tensor.numpy().item(), result)
        numbers = StepNumbers(step, *values)
        self._is_well = numbers.is_finite
        self._window.add_numbers(numbers)
        verdict = self._guard.judge(step, numbers.loss, numbers.gradient_norm, numbers.is_finite, ids)
        if verdict.message:
            self._say(verdict.message)
        if verdict.action is Action.ROLL_BACK:
            self._roll_back()

    def _roll_back(self) -> None:
        """Back to the weights of the newest checkpoint, and on with the next batch."""
        self._unread = None
        step = self._agreement.take_turns(self._keeper.go_back)
        if step is None:
            self._say("There is no checkpoint yet: training goes on with the present weights.")
        else:
            self.step = step
            self.run.metrics.drop_after(step)
            self._say(f"Went back to the weights of step {step}; the next batch is another.")
        self._guard.note_rollback(self.step)
        self._window = StepWindow()

    def _after_step(self) -> None:
        training = self.config.training
        record = None
        if self.step % training.log_steps == 0:
            self._judge_last()
            record = self._record()
        for observer in self._observers:
            observer.on_step(self, record)
        self._is_save_due |= self.step % training.checkpoint_steps == 0 or self._keeper.is_new_best
        if self._is_save_due:
            self._judge_last()
            # Not in a row of bad steps: what may have to be gone back from must not be what is gone back to.
            if self._is_well:
                self._save()

    def _judge_last(self) -> None:
        last, self._unread = self._unread, None
        self._judge(last)

    def _record(self) -> dict[str, Any]:
        record = self._window.describe(
            self.step,
            self._learner.rate.at(max(0, self.step - 1)),
            self._guard.num_skipped,
            self._position / self._prepared.num_batches_per_epoch,
            time.monotonic() - self._started,
        )
        self._last_losses = {name: value for name, value in self._window.average().items() if name != "gradient_norm"}
        self.run.metrics.append(record)
        self._window = StepWindow()
        return record

    def _save(self) -> None:
        """A checkpoint and a bundle of the present step, written while training goes on."""
        self._is_save_due = False
        if self.step == self._keeper.saved_step or not self.run.is_chief:
            return
        # Whoever sends a signal may not wait for long: nothing is validated or spoken before all is saved.
        self._keeper.calibrate(is_hurried=self.is_stopping)
        for observer in self._observers:
            if not self.is_stopping:
                observer.on_checkpoint(self)
        self._keeper.save(self._describe_progress())

    def _finish(self) -> None:
        self._judge_last()
        if self._window.num_good:
            self._record()
        self._say(f"{self._reason} Saving step {self.step}.")
        self._save()
        if self.run.is_chief:
            self._keeper.complete_bundle()

    def _describe_progress(self) -> Progress:
        micro_batches = self._learner.micro_batches
        best = self._keeper.find_best(self.step)
        return Progress(
            step=self.step,
            feed_position=self._position,
            num_skipped=self._guard.num_skipped,
            num_rollbacks=self._guard.num_rollbacks,
            best_step=best.step if best else None,
            best_score=best.score if best else None,
            micro_batch_size=micro_batches.batch_size,
            accumulation=micro_batches.accumulation,
            tuning=self._tuning | self._time.describe(),
            guard=self._guard.to_json(),
        )

    def _summarize(self) -> TrainResult:
        best = self._keeper.find_best(self.step)
        return TrainResult(
            run_path=self.run.path,
            bundle_path=self.run.bundle_path,
            step=self.step,
            losses=self._last_losses,
            num_skipped=self._guard.num_skipped,
            num_rollbacks=self._guard.num_rollbacks,
            best_step=best.step if best else None,
            best_score=best.score if best else None,
            seconds=time.monotonic() - self._started,
            reason=self._reason,
            is_chief=self.run.is_chief,
        )
