"""Observes a training loop from outside: what the host dispatches, reads and copies in every step, and where.

`LoopWatch` observes any loop whose steps are calls of one function; `watch_training` runs the real `TrainingLoop` of a
task for a few steps, in a temporary run folder. Nothing is taken from settings: operations are counted as TensorFlow
dispatches them, reads as they happen, devices as tensors report them. Used by `diagnose` and `profile`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from myxtts.runtime.plan import Mode
from myxtts.tools.step_graph import StepGraph, read_step_graph

if TYPE_CHECKING:
    from myxtts.training.callbacks import Callback, Record, TrainResult
    from myxtts.training.loop import TrainingLoop
    from myxtts.training.run.folder import RunFolder
    from myxtts.training.task import PreparedTask

_NUM_WATCHED_STEPS = 16
"""Steps of the real loop; in the second half results are read slowly, to see whether the host runs ahead."""
_NUM_EAGER_STEPS = 4
"""Steps of a loop whose step runs operation by operation, which is slow."""
_READ_DELAY_S = 0.05
"""Time that reading a result takes there, as if the device were still computing."""
_READS = ("numpy", "__array__", "__float__", "__int__", "__bool__", "__index__")
"""Methods of a tensor that copy it to the host, and so wait until the device has computed it."""
_MAX_NAMES = 4


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """What one step of a loop does, as medians over the watched steps.

    `num_eager_ops` counts operations that Python dispatched, a call of a `tf.function` as one; `num_host_reads` tensors
    that the training thread waited for; `num_steps_ahead` earlier steps whose results were not known when a step began,
    None where no result was read; `num_copies` the copies of a batch to the device, None where they cannot be seen.
    `num_new_graphs` were traced during `num_steps` steps. `elsewhere` names tensors and variables that are not on the
    device of the model. `wall_share` is the share of the wall clock that was spent in steps.
    """

    num_steps: int
    num_eager_ops: float = 1.0
    eager_kinds: tuple[str, ...] = ()
    num_host_reads: float = 0.0
    num_steps_ahead: float | None = None
    num_new_graphs: int = 0
    num_copies: float | None = None
    elsewhere: tuple[str, ...] = ()
    graph: StepGraph = field(default_factory=StepGraph)
    wall_share: float = 1.0
    interval_s: float = 0.0


@dataclass(slots=True)
class _StepNotes:
    """Notes on one step, from its call to the call of the next."""

    started_at: float
    num_ahead: int | None
    ops: Counter[str] = field(default_factory=Counter)
    functions: set[str] = field(default_factory=set)
    num_reads: int = 0
    has_pause: bool = False
    elsewhere: set[str] = field(default_factory=set)


class LoopWatch:
    """Context that observes calls of a step function, made with `wrap`, and the thread that makes them.

    `devices` are those of the model, as TensorFlow names them, such as `/GPU:0`.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self._devices = tuple(device.strip("/").removeprefix("device:") for device in devices)
        self._steps: list[_StepNotes] = []
        self._results: dict[int, Any] = {}
        self._num_results = self._num_read = 0
        self._copies: list[int] = []
        self._known: set[str] = set()
        self._thread: int | None = None
        self.is_slow = False
        """Whether reading a result of a step shall take long, as on a device that is still computing."""
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> LoopWatch:
        import tensorflow as tf

        for name in _READS:
            self._patch_read(name)
        wait = tf.test.experimental.sync_devices
        tf.test.experimental.sync_devices = self._count_wait(wait)
        self._undo.append(lambda: setattr(tf.test.experimental, "sync_devices", wait))
        return self

    def __exit__(self, *_: object) -> None:
        while self._undo:
            self._undo.pop()()

    def wrap(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the step, observed; the thread of its first call is taken for the training thread."""

        def observed(*arguments: Any, **options: Any) -> Any:
            self._begin_step()
            result = step(*arguments, **options)
            self._note_result(result)
            return result

        return observed

    def note_pause(self) -> None:
        """Leaves the present step out of the medians: something else than training runs before the next one."""
        if self._steps:
            self._steps[-1].has_pause = True

    def _begin_step(self) -> None:
        from tensorflow.python.eager import context
        from tensorflow.python.framework import op_callbacks

        if self._thread is None:
            self._thread = threading.get_ident()
            self._known = set(context.context().list_function_names())
            op_callbacks.add_op_callback(self._note_op)
            self._undo.append(lambda: op_callbacks.remove_op_callback(self._note_op))
        ahead = self._num_results - self._num_read if self.is_slow and self._num_results else None
        self._steps.append(_StepNotes(time.perf_counter(), ahead))

    def _note_result(self, result: Any) -> None:
        """Remembers the tensors of a result by identity; they are kept, so that no other gets the same."""
        import tensorflow as tf

        tensors = [one for one in tf.nest.flatten(result) if isinstance(one, tf.Tensor)]
        if tensors:
            self._results.update({id(one): one for one in tensors})
            self._num_results += 1

    def _note_op(
        self, kind: Any, inputs: Any, _attributes: Any, _outputs: Any, op_name: Any = None, graph: Any = None
    ) -> None:
        """Callback of TensorFlow for every operation of this thread; those of a graph under construction do not run."""
        if graph is not None:
            return
        notes = self._steps[-1]
        name = kind.decode() if isinstance(kind, bytes) else str(kind)
        notes.ops[name] += 1
        from tensorflow.python.eager import context

        if context.context().has_function(name):
            notes.functions.add(name)
            notes.elsewhere.update(self._find_elsewhere(inputs))

    def _find_elsewhere(self, inputs: Any) -> Iterator[str]:
        """Yields tensors and variables that a function of the step takes from another device than the model's."""
        for tensor in inputs:
            is_variable = tensor.dtype.name == "resource"
            # A tensor of integers may be assigned to a GPU and yet lie in the memory of the host.
            place = tensor.device if is_variable else tensor.backing_device
            is_small = not is_variable and tensor.shape.rank == 0
            if place and not is_small and not place.endswith(self._devices):
                short = place.rpartition("device:")[2]
                yield f"{'a variable' if is_variable else f'{tensor.dtype.name}{list(tensor.shape)}'} on {short}"

    def _count_wait(self, wait: Callable[[], None]) -> Callable[[], None]:
        def counted() -> None:
            if threading.get_ident() == self._thread:
                self._steps[-1].num_reads += 1
            wait()

        return counted

    def _patch_read(self, name: str) -> None:
        import tensorflow as tf

        owner = next((base for base in type(tf.constant(0)).__mro__ if name in vars(base)), None)
        if owner is None:
            return
        original = vars(owner)[name]

        def read(tensor: Any, *arguments: Any, **options: Any) -> Any:
            is_result = id(tensor) in self._results
            if threading.get_ident() == self._thread:
                self._steps[-1].num_reads += 1
            elif is_result and self.is_slow:
                time.sleep(_READ_DELAY_S)
            value = original(tensor, *arguments, **options)
            if is_result and self._results.pop(id(tensor), None) is not None:
                self._num_read += 1
            return value

        setattr(owner, name, read)
        self._undo.append(lambda: setattr(owner, name, original))

    @contextmanager
    def count_copies(self) -> Iterator[None]:
        """Counts the operations of the feed's transfer stage: each copies a tensor of a batch to the device."""
        from tensorflow.python.framework import op_callbacks

        from myxtts.pipeline import stages

        original, counted = stages._pass_through, threading.local()

        def count(*_: Any, graph: Any = None, **__: Any) -> None:
            counted.num_ops = getattr(counted, "num_ops", 0) + (graph is None)

        def pass_through(stage: Any, passed: Any) -> Any:
            if stage.name != "transfer":
                return original(stage, passed)
            # Callbacks belong to a thread. Removing one here would switch those of other threads off, so it stays until
            # the thread ends with the feed.
            op_callbacks.add_op_callback(count)
            before = getattr(counted, "num_ops", 0)
            passed = original(stage, passed)
            self._copies.append(getattr(counted, "num_ops", 0) - before)
            return passed

        with patch.object(stages, "_pass_through", pass_through):
            yield

    def summarize(self, wall_share: float = 1.0) -> LoopFacts:
        """Returns the medians. The first step, which assigns what later ones count on, and the last are left out."""
        steps = [one for one in self._steps[1:-1] if not one.has_pause] or self._steps
        # A pause waits for all results, so the steps behind it have none before them.
        aheads = [
            one.num_ahead
            for number, one in enumerate(self._steps)
            if one.num_ahead is not None
            and not any(before.has_pause for before in self._steps[max(0, number - 2) : number])
        ]
        kinds = Counter(name for one in steps for name in one.ops)
        functions = {name for one in steps for name in one.functions}
        newest = steps[-1].functions if steps else set()
        starts = [one.started_at for one in self._steps]
        intervals = [later - earlier for earlier, later in pairwise(starts[1:])]
        return LoopFacts(
            num_steps=len(steps),
            num_eager_ops=float(median(one.ops.total() for one in steps)) if steps else 0.0,
            eager_kinds=tuple(name for name, _ in kinds.most_common(_MAX_NAMES)),
            num_host_reads=float(median(one.num_reads for one in steps)) if steps else 0.0,
            num_steps_ahead=float(median(aheads)) if aheads and self._num_read else None,
            num_new_graphs=len(functions - self._known),
            num_copies=float(median(self._copies)) if self._copies else None,
            elsewhere=tuple(sorted({name for one in steps for name in one.elsewhere})[:_MAX_NAMES]),
            graph=read_step_graph(newest),
            wall_share=wall_share,
            interval_s=float(median(intervals)) if intervals else 0.0,
        )


class _EnoughError(Exception):
    """Ends the watched training without saving it."""


class _Conductor:
    """Callback of the loop: reads slowly in the second half, notes the wall-clock share before it, and ends."""

    def __init__(self, watch: LoopWatch, num_steps: int, do_after_step: Callable[[], None]) -> None:
        self._watch, self._num_steps, self._do_after_step = watch, num_steps, do_after_step
        self.wall_share = 1.0

    def on_step(self, loop: TrainingLoop, record: Record | None) -> None:
        if loop.step <= self._num_steps // 2:
            self._do_after_step()
        if loop.step == self._num_steps // 2:
            # Not from here on: the delay would count as part of the steps.
            self.wall_share = loop.measure_rates()["wall_share"]
            self._watch.is_slow = True
        if loop.step >= self._num_steps:
            raise _EnoughError

    def on_checkpoint(self, loop: TrainingLoop) -> None:
        self._watch.note_pause()

    def on_end(self, loop: TrainingLoop, result: TrainResult) -> None:
        """Not reached: the training is ended by an exception."""


def watch_training(
    prepared: PreparedTask, run: RunFolder, callbacks: Sequence[Callback], on_step: Callable[[], None] = lambda: None
) -> LoopFacts:
    """Runs the real training loop of a task for a few steps and returns what it did; nothing is saved at the end.

    `callbacks` validate and synthesise samples. They, and checkpoints, only run where they are so frequent that some
    fall into the first half of these steps. `on_step` is called after each step of that half.
    """
    from myxtts.runtime.strategy import translate_plan
    from myxtts.training.loop import TrainingLoop
    from myxtts.training.run.signals import StopRequest

    training, plan = prepared.config.training, prepared.plan
    num_steps = _NUM_WATCHED_STEPS if prepared.execution.is_graph else _NUM_EAGER_STEPS
    devices = plan.model_devices if plan.mode is Mode.CPU else translate_plan(plan).model_devices
    has_pauses = training.checkpoint_steps <= num_steps // 2 or 0 < training.sample_steps <= num_steps // 2
    seldom: dict[str, Any] = {f"training.{key}": None for key in ("minutes", "epochs", "steps")}
    seldom |= {"training.log_steps": 10**9}
    if not has_pauses:
        seldom |= {"training.checkpoint_steps": 10**9, "training.sample_steps": 0}
    task = replace(
        prepared, config=prepared.config.model_copy(update=seldom), steps=replace(prepared.steps, total_steps=None)
    )
    learner: Any = prepared.learner
    with LoopWatch(devices) as watch, watch.count_copies():
        conductor = _Conductor(watch, num_steps, on_step)
        loop = TrainingLoop(
            task, run, StopRequest(), lambda _line: None, (*(callbacks if has_pauses else ()), conductor)
        )
        with patch.object(learner, "train", watch.wrap(learner.train)):
            try:
                loop.train()
            except _EnoughError:
                return watch.summarize(conductor.wall_share)
    raise AssertionError("the training ended before it was watched")
