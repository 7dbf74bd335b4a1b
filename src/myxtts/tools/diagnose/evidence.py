"""What a diagnosis measured, as plain data: everything that causes and advice are derived from, and nothing else.

Times are seconds per batch unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
StageName = Literal["read", "decode", "features", "batch", "transfer", "step"]
USUAL_PADDING = 0.07
"""Left by eight static shapes on clips of 1 to 10 seconds."""
_FEWEST_USUAL = 3
STAGES: tuple[StageName, ...] = ("read", "decode", "features", "batch", "transfer", "step")


@dataclass(frozen=True, slots=True)
class StageTime:
    """One stage on its own, with the threads it has: what it adds to a batch, and how much of that is computing.

    `cpu_share` is the time in which it computed, or wanted to, by wall time: near 0 the stage waits, as for a disk.
    """

    name: StageName
    seconds: float
    cpu_share: float = 1.0
    num_threads: int = 1
    is_python: bool = False
    num_bytes: float = 0.0
    num_reads: float = 0.0

    @property
    def batches_per_s(self) -> float:
        return 1 / self.seconds if self.seconds > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A Python function that the dataset calls from its graph; `operation` is PyFunc, EagerPyFunc or their like."""

    operation: str
    name: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.name} ({self.file}:{self.line})" if self.file else self.name


@dataclass(frozen=True, slots=True, eq=False)
class LoopTimes:
    """Steps with everything at work together, the first left out. Arrays [steps]."""

    waits_s: Times
    transfers_s: Times
    steps_s: Times
    is_epoch_start: NDArray[np.bool_]
    is_new_shape: NDArray[np.bool_]
    cpu_s: float = 0.0

    @property
    def intervals_s(self) -> Times:
        return np.asarray(self.waits_s + self.transfers_s + self.steps_s)

    @property
    def num_steps(self) -> int:
        return len(self.waits_s)

    @property
    def interval_s(self) -> float:
        return float(self.intervals_s.mean())

    @property
    def num_shapes(self) -> int:
        return int(self.is_new_shape.sum())


@dataclass(frozen=True, slots=True)
class Trials:
    """What was tried out instead of estimated; None where there was nothing to try or no way to.

    Seconds per batch: `graph_step_s` the step as a graph, `trimmed_step_s` the step with little padding,
    `fewer_threads_s` the whole loop with as many threads as there are cores, `ahead_s` with many batches read ahead,
    `repeated_s` with epochs that follow each other without a break, and `cached_s` making the same batch from features
    that were computed before.
    """

    graph_step_s: float | None = None
    trimmed_step_s: float | None = None
    fewer_threads_s: float | None = None
    ahead_s: float | None = None
    repeated_s: float | None = None
    cached_s: float | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """While data was loaded on its own it used `num_used_cores`, and nobody used `num_free_cores`.

    `num_wanted_cores` also counts threads that stood in line for one.
    """

    num_cores: int
    num_used_cores: float = 1.0
    num_wanted_cores: float = 1.0
    num_free_cores: float = 0.0
    gpu_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Everything that was measured.

    `alone_s` [batches] is how long each batch took with nobody in its way, `step_s` a step that has been traced, on a
    batch that is there, and `take_s` what it costs to take a batch that lies in memory. `buffer_depth` counts batches
    that may wait for the step, None where that is not known. `epoch_stall_s` is what the first batch of an epoch costs
    beyond the usual, once in `epoch_length` batches. `settings` are those that
    advice may change, and numbers that it chooses their values by.
    """

    subject: Literal["configuration", "dataset"]
    loop: LoopTimes
    alone_s: Times
    step_s: float
    take_s: float
    stages: tuple[StageTime, ...]
    machine: Machine
    is_step_emulated: bool = True
    python_functions: tuple[PythonFunction, ...] = ()
    num_threads: int = 1
    buffer_depth: int | None = None
    epoch_length: int | None = None
    epoch_stall_s: float = 0.0
    padding: float | None = None
    padding_after: float = USUAL_PADDING
    num_eager_ops: int = 0
    trials: Trials = field(default_factory=Trials)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def data_s(self) -> float:
        """What the data side takes for a batch on average, when the step takes no time."""
        return float(self.alone_s.mean()) if len(self.alone_s) else 0.0

    @property
    def usual_step_s(self) -> float:
        """A step while data is loaded beside it, without those that made a new graph."""
        usual = self.loop.steps_s[~self.loop.is_new_shape]
        return float(np.median(usual)) if len(usual) >= _FEWEST_USUAL else self.step_s

    def find_stage(self, name: StageName) -> StageTime | None:
        return next((stage for stage in self.stages if stage.name == name), None)
