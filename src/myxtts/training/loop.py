"""The training loop: batches of the feed through the step, with guard, log records, checkpoints and callbacks.

Order after each step: judge the result of the third newest step, callbacks, checkpoint. Every number that decides
what happens next is in `RunState`, so that a training that was killed is repeated exactly. Out of memory is recovered
from: `_attempt` makes the same step of smaller micro-batches.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.runtime.device_trace import BusySampler
from myxtts.training.callbacks import Callback, StepWindow, TrainResult
from myxtts.training.compiling import StepCompiler, plan_graphs
from myxtts.training.learner import NUM_FLAGS
from myxtts.training.micro_batches import enter_device
from myxtts.training.run.cluster_sync import ClusterSync
from myxtts.training.run.folder import TEXT_FROZEN, RunFolder
from myxtts.training.run.guard import Action, Guard
from myxtts.training.run.signals import StopRequest
from myxtts.training.run.state import RunState
from myxtts.training.schedule import TimeBudget
from myxtts.training.step import StepNumbers, StepResult, is_out_of_memory
from myxtts.training.task import PreparedTask
from myxtts.types import Say

_Outcome = TypeVar("_Outcome")
_NEXT_STOP = "after this step, and is saved"
_NEXT_STOP_OF_ALL = "within three steps, together with the other processes, and is saved"
_STEPS_IN_FLIGHT = 2
"""Steps that may be on the device before the result of an older one is needed: one that runs and one that waits."""


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
        self._switch = task.make_switch(run, self.state, say)
        self._time = TimeBudget(self.config.training.minutes, self.state.clock, self._sync)
        self._has_time_limit = self.config.training.minutes is not None
        self.total_steps: int | None = None
        """The step at which training will end, where that is known."""
        self._set_last_step()
        self._window, self._last_losses = StepWindow(), dict[str, float]()
        self._busy = BusySampler(self.plan.model_devices, 60 * self.config.training.busy_minutes, say)
        self._unread: deque[tuple[int, Future[StepNumbers], tuple[str, ...]]] = deque()
        self._reason = ""
        self._is_save_due, self._is_freeze_due, self._is_well = False, False, True
        self._is_another_stopping, self._is_freeze_wanted = False, False
        self._is_text_frozen = self.state.text_frozen_step is not None
        self._raised_flags: list[tuple[int, tuple[bool, ...]]] = []
        """Steps with flags that a process of the cluster had raised: to stop, because of a signal, to freeze."""
        self._next_stop = _NEXT_STOP if self._sync.is_alone else _NEXT_STOP_OF_ALL
        self._compiler = StepCompiler((), "", say)
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
        # Only the chief of a cluster knows the score: judging earlier than the others, it could roll back alone.
        self._is_save_due |= self._sync.is_alone and self._saver.is_new_best

    def measure_rates(self) -> dict[str, float]:
        """Time, throughput and utilisation of the steps since the last record (see `StepWindow.measure_rates`)."""
        return self._window.measure_rates(self._busy.share)

    def freeze_text(self, reason: str) -> None:
        """Freezes text encoder and prosody predictor from the next step on; `reason` is a sentence for the user."""
        is_over = self.total_steps is not None and self.step >= self.total_steps
        if self.state.text_frozen_step is None and not is_over:
            self.say(f"{reason} It is frozen from now on; the decoder continues to train.")
            self.run.metrics.append({"step": self.step, TEXT_FROZEN: True})
            self.state.text_frozen_step = self.step
            # The other processes of a cluster learn of it by a flag, and all freeze at the same step.
            self._is_freeze_due, self._is_freeze_wanted = self._sync.is_alone, True

    def request_stop(self, reason: str) -> None:
        """Ends the training after this step; `reason` is a sentence for the user."""
        self._reason = self._reason or reason

    def train(self) -> TrainResult:
        """Trains to the end; everything is saved when it returns."""
        with ExitStack() as held:
            held.enter_context(self._saver)
            self._reader = held.enter_context(ThreadPoolExecutor(1, "myxtts-results"))
            feeds = held.enter_context(ExitStack())
            feed = self._open_feed(feeds)
            if self.run.checkpoint is not None:
                # Not before: until here anything that does not fit leaves the run as it was.
                self.run.begin_session()
            # Beside the compiling, which leaves Python idle.
            calibration = self._reader.submit(self._saver.load_calibration) if self.run.is_chief else None
            held.callback(self._stop_compiling)
            self._trace_shapes()
            if calibration is not None:
                calibration.result()
            while self._run_steps(feed):
                # Batches bring durations from now on.
                feeds.close()
                feed = self._open_feed(feeds)
                self._trace_shapes()
            self._finish()
        result = self._summarize()
        for callback in self._callbacks:
            callback.on_end(self, result)
        return result

    def _open_feed(self, held: ExitStack) -> Any:
        """Opens the feed at the present position, with the loader that the run used before."""
        state = self.state
        feed = held.enter_context(
            self._task.open_feed(state.feed_position, state.loader_name, self.run.telemetry_path, self.say)
        )
        state.loader_name = feed.loader_name
        return feed

    def _restore(self) -> RunState:
        """Variables and numbers of the run's checkpoint; a fresh state where there is none."""
        checkpoint = self.run.checkpoint
        if checkpoint is None:
            return RunState(step=0, feed_position=0)
        self._learner.state.restore(checkpoint.arrays)
        state = RunState.from_json(checkpoint.state)
        if state.text_frozen_step is not None:
            self._learner.freeze()
        return state

    def _set_last_step(self) -> None:
        """Updates the last step and with it the cosine decay of the learning rate, which ends there."""
        ends = [end for end in (self._task.steps.total_steps, self._time.total_steps) if end is not None]
        self.total_steps = min(ends, default=None)
        self._learner.rate = replace(self._learner.rate, num_steps=self.total_steps)

    def _trace_shapes(self) -> None:
        """Makes the graphs that the next step needs; the others are made while steps run, where that is possible."""
        self._compiler.close()
        if not self._task.execution.is_graph or self._is_at_end():
            return
        self._request.next_stop = "as soon as the batch shape is compiled that it is working on"
        self._attempt(self._make_first_graphs)
        self._request.next_stop = self._next_stop

    def _stop_compiling(self) -> None:
        self._compiler.close()

    def _make_first_graphs(self) -> None:
        # Processes of a cluster trace together, and so stop together, after all shapes.
        is_stopping = self._has_request if self._sync.is_alone else lambda: False
        self._compiler = plan_graphs(self._task, self.step, self.state.feed_position, self.say)
        self._compiler.make_first(is_stopping)

    def _attempt(self, work: Callable[..., _Outcome], *arguments: object) -> _Outcome:
        """Calls `work`, again without the cache if a file of it fails, and with smaller micro-batches out of memory."""
        while True:
            try:
                return work(*arguments)
            except tf.errors.OpError as error:
                # A disk that is full or cannot be written is reported by the same errors as exhausted memory.
                is_full = is_out_of_memory(error)
                is_cache_given_up = self._compiler.give_up_cache(error, is_sure=not is_full)
                if not is_cache_given_up and not is_full:
                    raise
                if not is_cache_given_up:
                    self._task.refuse_smaller_in_cluster(error)
            # Outside the handler: the exception keeps the memory of the failed step alive.
            if is_cache_given_up:
                self._learner.set_micro_batches(self._learner.micro_batches)
            else:
                self._task.halve_micro_batches(self.say)

    def _run_steps(self, feed: Any) -> bool:
        """Runs steps until the end; returns whether to go on with another feed, whose batches bring durations.

        Each step starts before the results of the `_STEPS_IN_FLIGHT` before it are known, so that the device never
        waits for the host. Reading a result blocks until the device is done with everything that it was given by then,
        so a thread of its own reads, and this one gives the device the next step meanwhile.
        """
        self._request.next_stop = self._next_stop
        learner, state = self._learner, self.state
        batches, num_traces = iter(feed), learner.num_traces
        self._window = StepWindow()
        while not self._is_at_end():
            if self._is_freeze_due:
                self._is_freeze_due, self._is_text_frozen = False, True
                learner.freeze()
            if self._switch is not None and self._switch.is_due(self.total_steps):
                if self._switch_durations(self._switch):
                    return True
                # A signal may have stopped the alignment, which is then due again when the run goes on.
                continue
            started = time.perf_counter()
            taken = list(islice(batches, learner.num_batches_per_step))
            if len(taken) < learner.num_batches_per_step:
                self._reason = "All epochs are done."
                break
            wait_s = time.perf_counter() - started
            learner.raise_flags((bool(self._reason), self._request.is_requested, self._is_freeze_wanted))
            is_new = self._compiler.is_busy
            result = self._attempt(self._train_step, taken)
            state.step, state.feed_position = state.step + 1, taken[-1].position + 1
            ids = tuple(id for batch in taken for id in batch.ids if id)
            # Releases the buffers of the batches, which the feed fills again.
            del taken
            self._unread.append((state.step, self._reader.submit(result.read), ids))
            self._judge(num_left=_STEPS_IN_FLIGHT)
            self._window.add_time(time.perf_counter() - started, wait_s)
            if self._busy.is_on:
                self._busy.note_step()
            if learner.num_traces != num_traces or is_new:
                num_traces = learner.num_traces
                feed.note_retrace()
            self._after_step()
            if self._has_time_limit and self._time.note_step(state.step):
                self._set_last_step()
        return False

    def _switch_durations(self, switch: Any) -> bool:
        """Looks whether alignments are stable; returns whether durations are written and training goes on from them."""
        self._judge()
        # A rollback may have led to another step.
        if not switch.is_due(self.total_steps):
            return False
        self._request.next_stop = "as soon as the batch is aligned that it is working on"
        with enter_device(self._learner.strategy), self.use_average():
            is_written = switch.look(self._has_request)
        self._request.next_stop = _NEXT_STOP
        if is_written:
            # The graphs that are being made are of the step that searches.
            self._stop_compiling()
            switch.begin()
        return bool(is_written)

    def _train_step(self, batches: Sequence[Any]) -> StepResult:
        if not self._compiler.is_busy:
            return self._learner.train(batches, self.step)
        names = [self._task.name_graph(self.step, batch.position) for batch in batches]
        with self._compiler.use_for_step(names):
            return self._learner.train(batches, self.step)

    def _is_at_end(self) -> bool:
        """Whether the last step was made, or a stop requested; all processes of a cluster get the same answer."""
        if self.total_steps is not None and self.step >= self.total_steps:
            is_over = self.total_steps == self._time.total_steps
            end = f"The {self.config.training.minutes:g} minutes" if is_over else f"All {self.total_steps:,} steps"
            self._reason = self._reason or f"{end} are {'over' if is_over else 'done'}."
            return True
        if self._request.is_requested:
            self._reason = self._reason or f"Stopped by {self._request.name}."
        return bool(self._reason) if self._sync.is_alone else self._follow_flags()

    def _follow_flags(self) -> bool:
        """Obeys the flags that came with the results of steps; returns whether all processes stop here.

        Results may be known here and not yet in another process. All of them know those of steps so far back.
        """
        flags = [flags for step, flags in self._raised_flags if step <= self.step - _STEPS_IN_FLIGHT]
        is_stopping, self._is_another_stopping, is_freezing = map(any, zip(*flags, (False,) * NUM_FLAGS, strict=True))
        self._is_freeze_due = is_freezing and not self._is_text_frozen
        if is_stopping:
            self._reason = self._reason or "Another process of the cluster has stopped."
        return is_stopping

    def _judge(self, num_left: int = 0) -> None:
        """Waits for the results of all but the newest `num_left` steps, and carries out what the guard decides.

        The number, not the time, decides which results are known: a resumed run must judge at the same steps.
        """
        while len(self._unread) > num_left:
            step, result, ids = self._unread.popleft()
            numbers = result.result()
            self._is_well = numbers.is_finite
            if any(numbers.flags):
                self._raised_flags.append((step, numbers.flags))
            self._window.add_numbers(numbers)
            finding = self._guard.judge(step, numbers.loss, numbers.gradient_norm, self._is_well, ids)
            if finding.message:
                self.say(finding.message)
            if finding.action is Action.ROLL_BACK:
                self._roll_back()

    def _roll_back(self) -> None:
        """Restores the weights of the newest checkpoint; the feed goes on with the next batch."""
        self._unread.clear()
        self._raised_flags.clear()
        step = self._sync.take_turns(self._saver.roll_back)
        if step is None:
            self.say("There is no checkpoint yet: training continues with the present weights.")
        else:
            self.state.step = step
            self.run.metrics.drop_after(step)
            self.say(f"Restored the weights of step {step}; training continues with the next batch.")
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
        self._is_save_due |= self.step % training.checkpoint_steps == 0
        if self._is_save_due:
            self._judge()
            # Not while steps are not finite: a rollback must not restore the weights that caused it.
            if self._is_well:
                self._save()
                self._is_save_due = False

    def _record(self) -> dict[str, Any]:
        """Writes the line of metrics.jsonl about the steps since the last one."""
        record = {
            "step": self.step,
            **self._window.average(),
            "learning_rate": self._learner.rate.at(max(0, self.step - 1)),
            **self.measure_rates(),
            **(self._switch.take_numbers() if self._switch is not None else {}),
            "skipped": self.state.guard.num_skipped,
            "epoch": self.state.feed_position / self._task.num_batches_per_epoch,
            "elapsed_s": time.monotonic() - self._started,
            "traces": self._learner.num_traces,
            "compile_s": self._compiler.seconds,
        }
        self._last_losses = {name: value for name, value in self._window.average().items() if name != "gradient_norm"}
        self.run.metrics.append(record)
        self._window = StepWindow()
        return record

    def _save(self) -> None:
        """A checkpoint and a bundle of the present step, written while training goes on."""
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
