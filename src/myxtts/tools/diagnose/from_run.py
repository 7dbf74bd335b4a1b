"""Diagnosis of a run from its own files, while it trains or afterwards; needs neither TensorFlow nor its data.

Waits, step times, traced graphs and padding come from telemetry.jsonl, the busy time of the GPU and the share of the
wall clock from metrics.jsonl. What only a look at the code or at the stages can show is left to `from_config`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from myxtts.errors import DataError
from myxtts.runtime.hardware import count_cpus
from myxtts.tools.diagnose.evidence import Evidence, LoopTimes, Machine, StageTime, StepFacts
from myxtts.tools.run_files import RunFiles, StepTimes, read_run
from myxtts.tools.watch_loop import LoopFacts

_SETTINGS = (*("data.preprocessing_mode", "data.batch_size"), *("training.checkpoint_steps", "training.sample_steps"))
"""Settings of the run that advice may change."""
_FEWEST_STEPS = 8
"""Steps that a diagnosis needs."""
_COMPUTING_SHARE = 0.1
"""Share of the step that computes where every step is traced or compiled first."""
_TAKING_SHARE = 0.1
"""Quantile of the waits that stands for taking a batch that is ready."""


def examine_run(path: Path) -> Evidence:
    """Reads the files of a run as evidence. Raises DataError where there is no run, or too few steps of it."""
    run = read_run(path)
    feed, num_batches = run.feed, run.batches_per_step
    # Steps at whose end training validated or saved are left out: their pause is part of `step_s`.
    steps = run.group_steps(is_retraced_included=True)
    num_steps = 0 if feed is None else len(feed.position) // num_batches
    if feed is None or steps is None or num_steps < _FEWEST_STEPS:
        raise DataError(
            f"The run {path} has {num_steps} measured steps; a diagnosis needs {_FEWEST_STEPS}.",
            next_step="Let it train on, or diagnose its configuration: myxtts diagnose --config FILE.",
        )
    loop, num_storms = _group_loop(steps)
    num_threads = run.find_setting("data.num_workers")
    num_threads = num_threads if isinstance(num_threads, int) and num_threads > 0 else 1
    usual = ~loop.is_new_shape
    # Where every step traces a graph, what it would take without is not known, but a small part of it.
    step_s = float(np.median(loop.steps_s[usual]) if usual.any() else _COMPUTING_SHARE * np.median(loop.steps_s))
    load_s = num_batches * feed.load_s / num_threads
    copy_s = num_batches * float(np.mean(feed.stages.get("transfer", np.zeros(1))))
    mean_wait_s = float(loop.waits_s.mean())
    facts = LoopFacts(num_steps, num_new_graphs=num_storms, wall_share=_find_wall_share(run, loop))
    return Evidence(
        subject="configuration",
        loop=loop,
        alone_s=load_s,
        step_s=step_s,
        take_s=float(np.quantile(loop.waits_s, _TAKING_SHARE)) if mean_wait_s < step_s else 0.0,
        stages=(StageTime("batch", float(load_s.mean())), StageTime("transfer", copy_s), StageTime("step", step_s)),
        machine=Machine(count_cpus()),
        is_step_emulated=False,
        is_from_files=True,
        num_threads=num_threads,
        buffer_depth=_find_depth(run, num_batches),
        padding=feed.padding,
        step_facts=StepFacts(facts, is_gpu=run.device_busy is not None, device_busy=run.device_busy),
        settings={key: run.find_setting(key) for key in _SETTINGS},
    )


def _group_loop(steps: StepTimes) -> tuple[LoopTimes, int]:
    """Returns the times of steps as those of a loop, and the number of steps that traced a known shape again."""
    is_retraced = steps.num_retraced > 0
    _, firsts, shape = np.unique(steps.num_padded_frames, return_index=True, return_inverse=True)
    is_new = np.zeros(len(shape), bool)
    is_new[firsts] = is_retraced[firsts]
    zeros = np.zeros(len(shape))
    loop = LoopTimes(steps.wait_s, zeros, steps.step_s, zeros > 0, is_new, shape)
    return loop, int((is_retraced & ~is_new).sum())


def _find_wall_share(run: RunFiles, loop: LoopTimes) -> float:
    """Returns the share of the wall clock in steps; runs of older versions noted only their pauses."""
    if run.wall_share is not None:
        return run.wall_share
    in_steps_s, paused_s = float(loop.intervals_s.sum()), sum(seconds for _, seconds in run.watched)
    return in_steps_s / max(in_steps_s + paused_s, 1e-9)


def _find_depth(run: RunFiles, batches_per_step: int) -> int | None:
    size = run.find_setting("data.buffer_size")
    return max(1, size // batches_per_step) if isinstance(size, int) else None
