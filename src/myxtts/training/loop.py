"""The training loop: batches of the feed through the step, with guard, log records, checkpoints and callbacks.

Order after each step: judge the result of the third newest step, callbacks, checkpoint. Every number that decides
what happens next is in `RunState`, so that a training that was killed is repeated exactly. Out of memory is recovered
from: `retry_out_of_memory` cuts the same step into smaller micro-batches.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.errors import HardwareError
from myxtts.runtime.device_trace import BusySampler
from myxtts.training.callbacks import Callback, TrainResult
from myxtts.training.micro_batches import enter_device
from myxtts.training.run.cluster_sync import ClusterSync
from myxtts.training.run.folder import TEXT_FROZEN, RunFolder
from myxtts.training.run.guard import Action, Guard
from myxtts.training.run.signals import StopRequest
from myxtts.training.run.state import RunState
from myxtts.training.schedule import TimeBudget
from myxtts.training.step import StepNumbers, is_out_of_memory
from myxtts.training.task import PreparedTask
from myxtts.types import Say

_Outcome = TypeVar("_Outcome")
_NEXT_STOP = "after this step, and is saved"
_STEPS_IN_FLIGHT = 2
"""Steps that may be on the device before the result of an older one is needed: one that runs and one that waits."""
_LATEST_FREEZE = 0.8
"""Share of a run after which nothing is frozen: tracing the step again would take longer than the steps that are left
gain from it."""


class TrainingLoop:
    """Trains a task from its checkpoint, or from the start, to the end, a signal or early stopping.

    Callbacks are given the loop itself; they may use its attributes and methods without an underscore.
    """

    def __init__(
        self, task: PreparedTask, run: RunFolder, request: StopRequest, say: Say, callbacks: Sequence[Callback]
    ) -> None:
        self.config: XTTSConfig = task.config
        self.plan, self.run, self.say = task.plan, run, say
        self._task, self._request, self._callbacks = task, request, callbacks
        self._learner = task.learner
        self.model: Any = self._learner.model
        self._sync = ClusterSync(self._learner.strategy, self.plan.cluster)
        self._sync.require_same_step(run.step, run.path)
        self.state = self._restore()
        self._guard = Guard(self.state.guard, run.skipped.append)
        self._saver = task.make_saver(run, self.state, say)
        self._time = TimeBudget(self.config.training.minutes, self.state.clock, self._sync)
        self.total_steps: int | None = None
        """The step at which training will end, where that is known."""
        self._set_last_step()
        self._window, self._last_losses = StepWindow(), dict[str, float]()
        self._busy = BusySampler(self.plan.model_devices, 60 * self.config.training.busy_minutes, say)
        self._unread: deque[tuple[int, Future[StepNumbers], tuple[str, ...]]] = deque()
        self._reason = ""
        self._is_save_due, self._is_freeze_due, self._is_well = False, False, True
        self._is_another_stopping = False
        self._started = time.monotonic()

    @property
    def step(self) -> int:
        """Steps that are done."""
        return self.state.step

    @property
    def is_stopping(self) -> bool:
        """Whether a signal requested a stop, here or in another process: callbacks should skip slow work."""
        return self._request.is_requested or self._is_another_stopping

    def _has_request(self) -> bool:
        return self._request.is_requested

    def use_average(self) -> AbstractContextManager[Any]:
        """Context in which the model has its EMA weights, the ones that bundles hold."""
        return self._learner.use_average()

    def note_score(self, score: float) -> None:
        """Notes the validation score of the present step; the checkpoint with the lowest score is kept as the best."""
        self._saver.note_score(score)

    def measure_rates(self) -> dict[str, float]:
        """Time, throughput and utilisation of the steps since the last record (see `StepWindow.measure_rates`)."""
        return self._window.measure_rates(self._busy.share)

    def freeze_text(self, reason: str) -> None:
        """Freezes text encoder and prosody predictor from the next step on; `reason` is a sentence for the user."""
        is_worth_it = self.total_steps is None or self.step < _LATEST_FREEZE * self.total_steps
        if self.state.text_frozen_step is None and is_worth_it:
            self.say(f"{reason} It is frozen from now on; the decoder goes on learning.")
            self.run.metrics.append({"step": self.step, TEXT_FROZEN: True})
            self.state.text_frozen_step, self._is_freeze_due = self.step, True

    def request_stop(self, reason: str) -> None:
        """Ends the training after this step; `reason` is a sentence for the user."""
        self._reason = self._reason or reason

    def train(self) -> TrainResult:
        """Trains to the end; everything is saved when it returns."""
        with ExitStack() as held:
            held.enter_context(self._saver)
            self._reader = held.enter_context(ThreadPoolExecutor(1, "myxtts-results"))
            feed = held.enter_context(
                self._task.open_feed(
                    self.state.feed_position, self.state.loader_name, self.run.telemetry_path, self.say
                )
            )
            self.state.loader_name = feed.loader_name
            if self.run.checkpoint is not None:
                # Not before: until here anything that does not fit leaves the run as it was.
                self.run.begin_session()
            if self.run.is_chief:
                self._saver.load_calibration()
            self._trace_shapes()
            self._run_steps(feed)
            self._finish()
        result = self._summarize()
        for callback in self._callbacks:
            callback.on_end(self, result)
        return result

    def _restore(self) -> RunState:
        """Variables and numbers of the run's checkpoint; a fresh state where there is none."""
        checkpoint = self.run.checkpoint
        if checkpoint is None:
            return RunState(step=0, feed_position=0)
        self._learner.state.restore(checkpoint.arrays)
        state = RunState.from_json(checkpoint.state)
        if state.text_frozen_step is not None:
            self._learner.freeze(self.model.text_side)
        return state

    def _set_last_step(self) -> None:
        """Updates the last step and with it the cosine decay of the learning rate, which ends there."""
        ends = [end for end in (self._task.steps.total_steps, self._time.total_steps) if end is not None]
        self.total_steps = min(ends, default=None)
        self._learner.rate = replace(self._learner.rate, num_steps=self.total_steps)

    def _trace_shapes(self) -> None:
        """Traces all graphs before the first step, so that no step is slow because it is the first of its shape."""
        if not self._task.execution.is_graph or self._is_at_end():
            return
        self._request.next_stop = "as soon as the batch shape is compiled that it is working on"
        num_shapes, started = self._task.num_shapes, time.monotonic()
        verb = "Compiling" if self._task.execution.is_compiled else "Tracing"
        self.say(f"{verb} {num_shapes} batch {'shapes' if num_shapes > 1 else 'shape'} …")
        # Processes of a cluster trace together, and so stop together, after all shapes.
        is_stopping = self._has_request if self._sync.is_alone else lambda: False
        retry_out_of_memory(self._task, self.say, self._task.trace, self.step, is_stopping)
        self.say(f"{verb} took {time.monotonic() - started:.1f} s.")
        self._request.next_stop = _NEXT_STOP

    def _run_steps(self, feed: Any) -> None:
        """Runs steps until the end; each starts before the results of the `_STEPS_IN_FLIGHT` before it are known.

        The device so never waits for the host. Reading a result blocks until the device is done with everything that it
        was given by then, so a thread of its own reads, and this one gives the device the next step meanwhile.
        """
        self._request.next_stop = _NEXT_STOP
        learner, state = self._learner, self.state
        batches, num_traces = iter(feed), learner.num_traces
        self._window = StepWindow()
        while not self._is_at_end():
            if self._is_freeze_due:
                self._is_freeze_due = False
                learner.freeze(self.model.text_side)
                self._trace_shapes()
                num_traces = learner.num_traces
            started = time.perf_counter()
            taken = list(islice(batches, learner.num_batches_per_step))
            if len(taken) < learner.num_batches_per_step:
                self._reason = "All epochs are done."
                break
            wait_s = time.perf_counter() - started
            result = retry_out_of_memory(self._task, self.say, learner.train, taken, state.step)
            state.step, state.feed_position = state.step + 1, taken[-1].position + 1
            ids = tuple(id for batch in taken for id in batch.ids if id)
            # Releases the buffers of the batches, which the feed fills again.
            del taken
            self._unread.append((state.step, self._reader.submit(result.read), ids))
            self._judge(num_left=_STEPS_IN_FLIGHT)
            self._window.add_time(time.perf_counter() - started, wait_s)
            self._busy.note_step()
            if learner.num_traces != num_traces:
                num_traces = learner.num_traces
                feed.note_retrace()
            self._after_step()
            if self._time.note_step(state.step):
                self._set_last_step()

    def _is_at_end(self) -> bool:
        """Whether any process has reached its last step or been signalled; all processes get the same answer."""
        if self.total_steps is not None and self.step >= self.total_steps:
            is_over = self.total_steps == self._time.total_steps
            end = f"The {self.config.training.minutes:g} minutes" if is_over else f"All {self.total_steps:,} steps"
            self._reason = self._reason or f"{end} are {'over' if is_over else 'done'}."
        elif self._request.is_requested:
            self._reason = self._reason or f"Stopped by {self._request.name}."
        is_any_at_end, self._is_another_stopping, self._is_freeze_due = self._sync.find_any(
            bool(self._reason), self._request.is_requested, self._is_freeze_due
        )
        if is_any_at_end:
            self._reason = self._reason or "Another process of the cluster has stopped."
        return is_any_at_end

    def _judge(self, num_left: int = 0) -> None:
        """Waits for the results of all but the newest `num_left` steps, and carries out what the guard decides.

        The number, not the time, decides which results are known: a resumed run must judge at the same steps.
        """
        while len(self._unread) > num_left:
            step, result, ids = self._unread.popleft()
            numbers = result.result()
            self._is_well = numbers.is_finite
            self._window.add_numbers(numbers)
            finding = self._guard.judge(step, numbers.loss, numbers.gradient_norm, self._is_well, ids)
            if finding.message:
                self.say(finding.message)
            if finding.action is Action.ROLL_BACK:
                self._roll_back()

    def _roll_back(self) -> None:
        """Restores the weights of the newest checkpoint; the feed goes on with the next batch."""
        self._unread.clear()
        step = self._sync.take_turns(self._saver.roll_back)
        if step is None:
            self.say("There is no checkpoint yet: training goes on with the present weights.")
        else:
            self.state.step = step
            self.run.metrics.drop_after(step)
            self.say(f"Went back to the weights of step {step}; the next batch is another.")
        self._guard.note_rollback(self.step)
        self._window = StepWindow()

    def _after_step(self) -> None:
        """Logs every `log_steps`, calls the callbacks, and saves every `checkpoint_steps` or with a new best score."""
        training = self.config.training
        record = None
        if self.step % training.log_steps == 0:
            self._judge()
            record = self._record()
        for callback in self._callbacks:
            callback.on_step(self, record)
        self._is_save_due |= self.step % training.checkpoint_steps == 0 or self._saver.is_new_best
        if self._is_save_due:
            self._judge()
            # Not while steps are not finite: a rollback must not restore the weights that caused it.
            if self._is_well:
                self._save()

    def _record(self) -> dict[str, Any]:
        """Writes the line of metrics.jsonl about the steps since the last one."""
        record = {
            "step": self.step,
            **self._window.average(),
            "learning_rate": self._learner.rate.at(max(0, self.step - 1)),
            **self.measure_rates(),
            "skipped": self.state.guard.num_skipped,
            "epoch": self.state.feed_position / self._task.num_batches_per_epoch,
            "elapsed_s": time.monotonic() - self._started,
        }
        self._last_losses = {name: value for name, value in self._window.average().items() if name != "gradient_norm"}
        self.run.metrics.append(record)
        self._window = StepWindow()
        return record

    def _save(self) -> None:
        """A checkpoint and a bundle of the present step, written while training goes on."""
        self._is_save_due = False
        self._busy.drop()
        if self.step == self._saver.saved_step or not self.run.is_chief:
            return
        # Calibration, validation and samples run where the weights are: without a device they would run on the first
        # GPU, which in Multi-GPU mode prepares data.
        with enter_device(self._learner.strategy):
            # After a signal there may be little time: no validation and no samples before all is saved.
            self._saver.calibrate(is_hurried=self.is_stopping)
            for callback in self._callbacks:
                if not self.is_stopping:
                    callback.on_checkpoint(self)
        self.state.clock = self._time.read_clock()
        self._saver.save()

    def _finish(self) -> None:
        """Logs the last steps, saves them, and completes the bundle."""
        self._judge()
        if self._window.num_good:
            self._record()
        self.say(f"{self._reason} Saving step {self.step}.")
        self._save()
        if self.run.is_chief:
            self._saver.complete_bundle()

    def _summarize(self) -> TrainResult:
        best, guard = self.state.best, self.state.guard
        return TrainResult(
            run_path=self.run.path,
            bundle_path=self.run.bundle_path,
            step=self.step,
            losses=self._last_losses,
            num_skipped=guard.num_skipped,
            num_rollbacks=guard.num_rollbacks,
            best_step=best.step if best else None,
            best_score=best.score if best else None,
            seconds=time.monotonic() - self._started,
            reason=self._reason,
            is_chief=self.run.is_chief,
        )


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


def retry_out_of_memory(task: PreparedTask, say: Say, work: Callable[..., _Outcome], *arguments: object) -> _Outcome:
    """Calls `work`; while the device is out of memory, halves the micro-batch, doubles accumulation and calls it again.

    The size is stored for the next start. Not in clusters, where each process would choose another size.
    """
    while True:
        try:
            return work(*arguments)
        except tf.errors.OpError as error:
            if not is_out_of_memory(error):
                raise
            if task.plan.cluster is not None:
                raise HardwareError(
                    f"The memory of {task.plan.model_devices[0]} is exhausted, and processes that train together "
                    "cannot cut batches each by itself.",
                    next_step="Give a smaller data.batch_size or data.frame_budget to all of them.",
                ) from error
        # Outside the handler: the exception keeps the memory of the failed step alive.
        device = task.plan.model_devices[0]
        smaller = task.learner.micro_batches.halve(device)
        say(
            f"The memory of {device} is exhausted: each step is made of {smaller.accumulation} micro-batches of "
            f"{smaller.batch_size} {task.unit} from now on."
        )
        task.learner.set_micro_batches(smaller)
        task.steps.memory.remember(task.steps.situation, smaller)
