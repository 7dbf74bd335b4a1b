"""Evidence as if it had been measured, with whatever shall be wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from myxtts.tools.diagnose.evidence import Evidence, LoopTimes, Machine, PythonFunction, StageTime

STEP_S, DATA_S = 0.020, 0.008


def make_loop(
    num_steps: int = 60,
    *,
    wait_s: float = 0.0,
    transfer_s: float = 0.0,
    step_s: float = STEP_S,
    every: int = 0,
    burst_s: float = 0.0,
    **changes: Any,
) -> LoopTimes:
    """A loop of even steps; every so many steps one waits for `burst_s` more."""
    waits_s = np.full(num_steps, wait_s)
    if every:
        waits_s[::every] += burst_s
    times: dict[str, Any] = {
        "waits_s": waits_s,
        "transfers_s": np.full(num_steps, transfer_s),
        "steps_s": np.full(num_steps, step_s),
        "is_epoch_start": np.zeros(num_steps, bool),
        "is_new_shape": np.zeros(num_steps, bool),
    }
    return LoopTimes(**{**times, **changes})


def make_evidence(**changes: Any) -> Evidence:
    """A healthy pipeline, except for the changes."""
    data_s = float(np.mean(changes.get("alone_s", DATA_S)))
    values: dict[str, Any] = {
        "subject": "dataset",
        "loop": make_loop(),
        "alone_s": np.full(40, DATA_S),
        "step_s": STEP_S,
        "take_s": 0.0,
        "stages": (
            StageTime("read", 0.2 * data_s),
            StageTime("features", 0.8 * data_s),
            StageTime("transfer", 0.0005),
            StageTime("step", STEP_S),
        ),
        "machine": Machine(8, 1.0, 1.0, 6.0),
        "buffer_depth": 4,
    }
    return Evidence(**{**values, **changes})


def make_slow_python() -> Evidence:
    """A Python function that takes five times as long as the step."""
    return make_evidence(
        alone_s=np.full(40, 0.100),
        loop=make_loop(wait_s=0.080),
        stages=(StageTime("read", 0.005, 0.1), StageTime("features", 0.095, is_python=True)),
        python_functions=(PythonFunction("PyFunc", "load_wave", "old_pipeline.py", 12),),
    )


def make_bursts() -> Evidence:
    alone_s = np.full(40, 0.004)
    alone_s[::10] = 0.120
    return make_evidence(alone_s=alone_s, loop=make_loop(every=10, burst_s=0.080), buffer_depth=1)
