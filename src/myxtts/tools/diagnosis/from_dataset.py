"""Gathers the evidence of a `tf.data.Dataset` in front of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from myxtts.runtime.hardware import count_cpus
from myxtts.tools.diagnosis.advice import TRIED_DEPTH
from myxtts.tools.diagnosis.dataset_graph import count_threads, find_python_functions, find_read_ahead, list_chain
from myxtts.tools.diagnosis.dataset_probe import DatasetSource, time_stages
from myxtts.tools.diagnosis.evidence import USUAL_PADDING, Evidence, LoopTimes, Machine, StageTime, Trials
from myxtts.tools.diagnosis.loop import (
    AloneTimes,
    Limits,
    Work,
    list_arrays,
    run_alone_calmly,
    run_calmly,
    run_together,
    take_samples,
    time_calls,
    time_step,
)
from myxtts.tools.diagnosis.step_probe import (
    MANY_EAGER_OPS,
    count_eager_ops,
    measure_padding,
    try_as_graph,
    try_trimmed,
)

MANY_THREADS_PER_CORE = 2
_NUM_SAMPLES = 6
_MUCH_PADDING = 0.25
_NOTICEABLE_SHARE, _NEARLY_ENOUGH = 0.05, 1.5
_TAKING_SHARE = 0.2
_MEMORY_LIMITS = Limits(12, 3.0)


def examine_dataset(
    source: DatasetSource, step: Work, is_emulated: bool, transfer: Work | None, limits: Limits
) -> Evidence:
    """Together first, while shapes are still new to the step; then each part on its own."""
    links = list_chain(source.dataset)
    loop = run_calmly(lambda block: run_together(source, step, transfer, block), limits)
    alone = run_alone_calmly(source, limits)
    samples = take_samples(source, _NUM_SAMPLES)
    moved = [transfer(batch) for batch in samples] if transfer is not None else samples
    step_s = time_step(step, moved)
    in_memory = run_together(source.keep_in_memory(samples[0]), step, transfer, _MEMORY_LIMITS)
    trials, num_eager_ops = try_step(step, is_emulated, moved, step_s)
    num_threads = count_threads(links, source.dataset)

    def try_out(changed: DatasetSource) -> float:
        return run_calmly(lambda block: run_together(changed, step, transfer, block), limits).interval_s

    trials = replace(trials, **_try_from_outside(source, loop, alone, num_threads, try_out))
    stages = time_stages(links, float(alone.alone_s.mean()), samples[0])
    return Evidence(
        subject="dataset",
        loop=loop,
        alone_s=alone.alone_s,
        step_s=step_s,
        take_s=float(np.quantile(in_memory.waits_s, _TAKING_SHARE)),
        stages=(*stages, *_time_last_stages(samples, transfer, step_s)),
        machine=describe_machine(alone),
        is_step_emulated=is_emulated,
        python_functions=find_python_functions(source.dataset),
        num_threads=num_threads,
        buffer_depth=find_read_ahead(links),
        epoch_length=source.epoch_length,
        epoch_stall_s=_measure_stall(alone),
        padding=measure_padding(samples),
        num_eager_ops=num_eager_ops,
        trials=trials,
    )


def _try_from_outside(
    source: DatasetSource,
    loop: LoopTimes,
    alone: AloneTimes,
    num_threads: int,
    try_out: Callable[[DatasetSource], float],
) -> dict[str, float]:
    """The changes that need no other code of the user's, where they may help: they are tried, not guessed."""
    tried = {}
    if num_threads > MANY_THREADS_PER_CORE * count_cpus():
        tried["fewer_threads_s"] = try_out(source.limit_threads(count_cpus()))
    if loop.is_epoch_start.any():
        tried["repeated_s"] = try_out(source.repeat(TRIED_DEPTH))
    work_s = float(np.median(loop.steps_s + loop.transfers_s))
    waits = float(np.mean(loop.waits_s[~loop.is_epoch_start])) > _NOTICEABLE_SHARE * loop.interval_s
    # More batches in the buffer do not help a data side that is too slow on average.
    if waits and float(alone.alone_s.mean()) < _NEARLY_ENOUGH * work_s:
        tried["ahead_s"] = try_out(source.read_ahead(TRIED_DEPTH))
    return tried


def try_step(step: Work, is_emulated: bool, batches: list[Any], step_s: float) -> tuple[Trials, int]:
    """The step as a graph where it is eager, and with less padding where there is much."""
    num_ops = 0 if is_emulated else count_eager_ops(step, batches[0])
    graph_s = try_as_graph(step, batches[:2], step_s, num_ops) if num_ops >= MANY_EAGER_OPS else None
    padding = measure_padding(batches)
    trimmed_s = None
    if padding is not None and padding >= _MUCH_PADDING:
        trimmed_s = try_trimmed(step, batches, padding, USUAL_PADDING)
    return Trials(graph_s, trimmed_s), num_ops if num_ops >= MANY_EAGER_OPS else 0


def _time_last_stages(samples: list[Any], transfer: Work | None, step_s: float) -> tuple[StageTime, StageTime]:
    arrays = [array for array in list_arrays(samples[0]) if getattr(array.dtype, "name", "") != "string"]
    move = (lambda: transfer(samples[0])) if transfer else (lambda: [np.array(array) for array in arrays])
    return StageTime("transfer", time_calls(move)), StageTime("step", step_s)


def _measure_stall(alone: AloneTimes) -> float:
    """What the first batch of a later epoch took beyond the usual."""
    if not len(alone.epoch_starts_s):
        return 0.0
    return max(0.0, float(np.median(alone.epoch_starts_s)) - float(np.median(alone.alone_s)))


def describe_machine(alone: AloneTimes, gpu_names: tuple[str, ...] = ()) -> Machine:
    elapsed_s = max(float(alone.alone_s.sum() + alone.epoch_starts_s.sum()), 1e-9)
    num_cores = count_cpus()
    return Machine(
        num_cores,
        alone.cpu_s / elapsed_s,
        alone.runnable_s / elapsed_s,
        min(alone.num_free_cores, float(num_cores)),
        gpu_names,
    )
