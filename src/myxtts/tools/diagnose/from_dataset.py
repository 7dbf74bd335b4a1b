"""Measures any `tf.data.Dataset` together with a training step for `diagnose`.

`examine_dataset` runs the full loop first, while the step has not yet traced the shapes, so that retracing is seen;
then loading, step and stages alone, then trials of changes that need no code of the user: `tf.function`, trimmed
batches, thread pool, prefetch, repeat. Also holds what `from_config` shares: emulated step, padding and eager ops.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from myxtts.runtime.hardware import count_cpus
from myxtts.runtime.timing import time_calls
from myxtts.tools.diagnose import dataset_probe, timing
from myxtts.tools.diagnose.advice import TRIED_DEPTH
from myxtts.tools.diagnose.causes import MUCH_PADDING
from myxtts.tools.diagnose.evidence import USUAL_PADDING, Evidence, LoopTimes, StageTime, StepFacts, Trials
from myxtts.tools.emulate import StepTime
from myxtts.tools.watch_loop import LoopWatch

MANY_EAGER_OPS = 25
"""Operations per step from which a step counts as eager; a `tf.function` counts as one operation."""
_TRACING_ERRORS = (AttributeError, TypeError, ValueError, NotImplementedError, RuntimeError)
"""Raised by steps that cannot be traced, as by `.numpy()` or Python branches on tensors."""
_GRAPH_SHARE, _OP_S = 0.3, 15e-6
"""Estimate for such a step: a graph saves `_OP_S` seconds of dispatch per operation, but never more than 70 %."""
_LEAST_WIDTH = 8
"""Columns below which an array is not searched for padding: it is hardly a sequence."""


class EmulatedStep:
    """Sleeps for the nominal step time: like an accelerator, it takes time but no core of the host.

    It answers what `from_config` asks of a real step, too: it has no parameters and nothing to examine.
    """

    is_emulated, is_graph, num_parameters, batches_per_step = True, True, 0, 1

    def __init__(self, step_time: StepTime) -> None:
        self.step_time = step_time

    def examine(self) -> None:
        return None

    def try_double_batch(self) -> None:
        return None

    def __call__(self, batch: Any) -> None:
        num_frames = 0
        if self.step_time.per_frame_s:
            main = find_main_array(batch)
            num_frames = 0 if main is None else int(main.shape[0]) * int(main.shape[1])
        time.sleep(self.step_time.of(num_frames))


def find_main_array(batch: Any) -> Any:
    """Returns the largest array of rank 2 or more, or None."""
    wide = [array for array in timing.list_arrays(batch) if len(array.shape) >= 2]
    return max(wide, key=lambda array: int(np.prod(array.shape)), default=None)


def count_eager_ops(step: timing.Work, batch: Any) -> int:
    """Counts the operations that one call of the step dispatches from Python; a `tf.function` counts as one."""
    from tensorflow.python.framework import op_callbacks

    num_ops = 0

    def count(
        _kind: Any, _inputs: Any, _attributes: Any, _outputs: Any, op_name: Any = None, graph: Any = None
    ) -> None:
        nonlocal num_ops
        num_ops += graph is None

    op_callbacks.add_op_callback(count)
    try:
        step(batch)
    finally:
        op_callbacks.remove_op_callback(count)
    return num_ops


def try_as_graph(step: timing.Work, batches: Sequence[Any], eager_s: float, num_ops: int) -> float:
    """Returns the seconds of the step as a `tf.function`, or an estimate if it cannot be traced."""
    import tensorflow as tf

    try:
        return timing.time_step(tf.function(step, autograph=False), batches)
    except (*_TRACING_ERRORS, tf.errors.OpError):
        return max(_GRAPH_SHARE * eager_s, eager_s - num_ops * _OP_S)


def measure_padding(batches: Sequence[Any]) -> float | None:
    """Returns the share of padding in the main array of the batches; None where it cannot be detected."""
    num_real, num_all = 0, 0
    for batch in batches:
        lengths, width = find_lengths(batch)
        if lengths is None:
            return None
        num_real, num_all = num_real + int(lengths.sum()), num_all + len(lengths) * width
    return 1 - num_real / num_all if num_all else None


def find_lengths(batch: Any) -> tuple[Any, int]:
    """Returns the real length of each row, and the padded width; (None, 0) where padding cannot be detected.

    Uses `mel` and `mel_lengths` if the batch has them. Otherwise the constant tail of each row counts as padding.
    """
    mel, told = _look_up(batch, "mel"), _look_up(batch, "mel_lengths")
    if mel is not None and told is not None:
        return np.asarray(told), int(mel.shape[1])
    main = find_main_array(batch)
    if main is None or int(main.shape[1]) < _LEAST_WIDTH or getattr(main.dtype, "name", "") == "string":
        return None, 0
    values = np.asarray(main).reshape(int(main.shape[0]), int(main.shape[1]), -1)
    # Padding is a run of columns equal to the last one.
    differs = (values != values[:, -1:, :]).any(axis=2)
    lengths = np.where(differs.any(axis=1), values.shape[1] - np.argmax(differs[:, ::-1], axis=1), 0)
    if not differs.any():
        return None, 0
    # The last column always equals itself: a tail of one column is no padding.
    has_no_tail = lengths >= values.shape[1] - 1
    return np.where(has_no_tail, values.shape[1], lengths), values.shape[1]


def _look_up(batch: Any, name: str) -> Any:
    return batch.get(name) if isinstance(batch, dict) else getattr(batch, name, None)


def trim_batch(batch: Any, width: int, num_columns: int) -> Any:
    """Cuts every array of `width` columns to `num_columns`; integer vectors are taken as lengths and clipped."""

    def trim(array: Any) -> Any:
        shape = array.shape
        if len(shape) >= 2 and int(shape[1]) == width:
            return array[:, :num_columns]
        is_lengths = len(shape) == 1 and "int" in getattr(array.dtype, "name", "")
        return np.minimum(np.asarray(array), num_columns) if is_lengths else array

    return timing.map_arrays(batch, trim)


def try_trimmed(step: timing.Work, batches: Sequence[Any], padding: float, padding_after: float) -> float | None:
    """Times the step on batches cut to the width that bucketing by length would give; None if padding is unknown.

    The number of real frames is kept: new width = width * (1 - padding) / (1 - padding_after).
    """
    trimmed = []
    for batch in batches:
        lengths, width = find_lengths(batch)
        if lengths is None:
            return None
        num_columns = int(np.clip(round(width * (1 - padding) / (1 - padding_after)), 1, width))
        trimmed.append(trim_batch(batch, width, num_columns))
    return timing.time_step(step, trimmed, num_rounds=3)


def make_step(step_s: float | StepTime | None, step: Callable[[Any], Any] | None) -> timing.Work:
    """Returns the step to measure, an emulated one of `step_s` where none is given."""
    return step if step is not None else EmulatedStep(StepTime.make(step_s or 0.0))


MANY_THREADS_PER_CORE = 2
"""Threads per core above which a run with fewer threads is tried."""
_NUM_SAMPLES = 6
"""Batches kept in memory to time the step alone and to measure padding."""
_NOTICEABLE_SHARE, _NEARLY_ENOUGH = 0.05, 1.5
"""A deeper prefetch is tried if waits exceed the first, a share of the interval, and loading takes less than the second
times the step: a buffer cannot make up for a lack of throughput."""
_TAKING_SHARE = 0.2
"""Quantile of the waits for batches in memory that stands for the cost of taking one."""
_MEMORY_LIMITS = timing.Limits(12, 3.0)
_NUM_WATCHED = 6
"""Calls of a user's step that are observed."""


def examine_dataset(
    source: dataset_probe.DatasetSource, step: timing.Work, transfer: timing.Work | None, limits: timing.Limits
) -> Evidence:
    """Measures the full loop first, while shapes are still new to the step, then each stage alone."""
    is_emulated = isinstance(step, EmulatedStep)
    links = dataset_probe.list_chain(source.dataset)
    loop = timing.run_calmly(partial(timing.run_together, source, step, transfer), limits)
    alone = timing.run_calmly(partial(timing.run_alone, source), limits)
    samples = timing.take_samples(source, _NUM_SAMPLES)
    moved = [transfer(batch) for batch in samples] if transfer is not None else samples
    step_s = timing.time_step(step, moved)
    in_memory = timing.run_together(source.keep_in_memory(samples[0]), step, transfer, _MEMORY_LIMITS)
    trials, num_eager_ops = try_step(step, is_emulated, moved, step_s)
    num_threads = dataset_probe.count_threads(links, source.dataset)

    def try_out(changed: dataset_probe.DatasetSource) -> float:
        return timing.run_calmly(partial(timing.run_together, changed, step, transfer), limits).interval_s

    trials = replace(trials, **_try_from_outside(source, loop, alone, num_threads, try_out))
    stages = dataset_probe.time_stages(links, float(alone.alone_s.mean()), samples[0])
    return Evidence(
        subject="dataset",
        loop=loop,
        alone_s=alone.alone_s,
        step_s=step_s,
        take_s=float(np.quantile(in_memory.waits_s, _TAKING_SHARE)),
        stages=(*stages, *_time_last_stages(samples, transfer, step_s)),
        machine=alone.machine,
        is_step_emulated=is_emulated,
        python_functions=dataset_probe.find_python_functions(source.dataset),
        num_threads=num_threads,
        buffer_depth=dataset_probe.find_read_ahead(links),
        epoch_length=source.epoch_length,
        epoch_stall_s=alone.epoch_stall_s,
        padding=measure_padding(samples),
        num_eager_ops=num_eager_ops,
        step_facts=None if is_emulated else watch_step(step, moved),
        trials=trials,
    )


def watch_step(step: timing.Work, batches: Sequence[Any]) -> StepFacts:
    """Calls a user's step a few times and returns what it does; a foreign loop cannot be seen, only its step."""
    import tensorflow as tf

    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    names = gpus or [device.name for device in tf.config.list_logical_devices("CPU")]
    with LoopWatch(names) as watch:
        observed = watch.wrap(step)
        for number in range(_NUM_WATCHED):
            observed(batches[number % len(batches)])
    main = find_main_array(batches[0])
    num_frames = int(main.shape[1]) if main is not None else 0
    return StepFacts(watch.summarize(), is_gpu=bool(gpus), num_frames=num_frames)


def _try_from_outside(
    source: dataset_probe.DatasetSource,
    loop: LoopTimes,
    alone: timing.AloneTimes,
    num_threads: int,
    try_out: Callable[[dataset_probe.DatasetSource], float],
) -> dict[str, float]:
    """Measures thread pool, repeat and prefetch where they may help; all can be applied to the finished dataset."""
    tried = {}
    if num_threads > MANY_THREADS_PER_CORE * count_cpus():
        tried["fewer_threads_s"] = try_out(source.limit_threads(count_cpus()))
    if loop.is_epoch_start.any():
        tried["repeated_s"] = try_out(source.repeat(TRIED_DEPTH))
    work_s = float(np.median(loop.steps_s + loop.transfers_s))
    waits = float(np.mean(loop.waits_s[~loop.is_epoch_start])) > _NOTICEABLE_SHARE * loop.interval_s
    # A deeper buffer does not help if loading is too slow on average.
    if waits and float(alone.alone_s.mean()) < _NEARLY_ENOUGH * work_s:
        tried["ahead_s"] = try_out(source.read_ahead(TRIED_DEPTH))
    return tried


def try_step(step: timing.Work, is_emulated: bool, batches: list[Any], step_s: float) -> tuple[Trials, int]:
    """Times the step as a graph if it is eager, and on trimmed batches if there is much padding.

    Also returns the number of eager operations, 0 below `MANY_EAGER_OPS`.
    """
    num_ops = 0 if is_emulated else count_eager_ops(step, batches[0])
    graph_s = try_as_graph(step, batches[:2], step_s, num_ops) if num_ops >= MANY_EAGER_OPS else None
    padding = measure_padding(batches)
    trimmed_s = None
    if padding is not None and padding >= MUCH_PADDING:
        trimmed_s = try_trimmed(step, batches, padding, USUAL_PADDING)
    return Trials(graph_s, trimmed_s), num_ops if num_ops >= MANY_EAGER_OPS else 0


def _time_last_stages(samples: list[Any], transfer: timing.Work | None, step_s: float) -> tuple[StageTime, StageTime]:
    """Returns transfer and step; without a `transfer` function, a copy in host memory stands for it."""
    arrays = [array for array in timing.list_arrays(samples[0]) if getattr(array.dtype, "name", "") != "string"]
    move = (lambda: transfer(samples[0])) if transfer else (lambda: [np.array(array) for array in arrays])
    return StageTime("transfer", time_calls(move, 5)), StageTime("step", step_s)
