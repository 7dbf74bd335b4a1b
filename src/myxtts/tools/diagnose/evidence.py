"""Measurements of an input pipeline and its training step, as plain data for `causes` and `advice`.

Filled by `from_config` (MyXTTS's own feed) and `from_dataset` (any `tf.data.Dataset`). Times are seconds per batch
unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from myxtts.tools.rhythm import Oscillation, even_out_shapes, find_oscillation
from myxtts.tools.watch_loop import LoopFacts

Times = NDArray[np.float64]
StageName = Literal["read", "decode", "features", "batch", "transfer", "step"]
USUAL_PADDING = 0.07
"""Share of padding left by eight static shapes on clips of 1 to 10 seconds."""
_FEWEST_USUAL = 3
"""Steps without retracing that a median needs; with fewer, the step timed alone is used."""


@dataclass(frozen=True, slots=True)
class StageTime:
    """Time that one stage adds to a batch when it runs alone with its own threads.

    `cpu_share` is (CPU time + time queued for a core) / wall time: near 0 the stage is I/O-bound. `num_bytes` and
    `num_reads` are per batch.
    """

    name: StageName
    seconds: float
    cpu_share: float = 1.0
    num_threads: int = 1
    is_python: bool = False
    num_bytes: float = 0.0
    num_reads: float = 0.0


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
    """Times of the full training loop, one value per step: wait for a batch, transfer, train. Arrays [steps].

    The first step is left out: it traces the graph and fills the buffers. `is_new_shape` marks steps that may have been
    retraced, `shape` numbers the batch shapes.
    """

    waits_s: Times
    transfers_s: Times
    steps_s: Times
    is_epoch_start: NDArray[np.bool_]
    is_new_shape: NDArray[np.bool_]
    shape: NDArray[np.int64] | None = None

    @property
    def oscillation(self) -> Oscillation:
        """Variation and period of the step times, compared between batches of equal shape."""
        steps_s = self.steps_s if self.shape is None else even_out_shapes(self.steps_s, self.shape)
        return find_oscillation(self.waits_s + self.transfers_s + steps_s)

    @property
    def intervals_s(self) -> Times:
        return np.asarray(self.waits_s + self.transfers_s + self.steps_s)

    @property
    def num_steps(self) -> int:
        return len(self.waits_s)

    @property
    def interval_s(self) -> float:
        return float(self.intervals_s.mean())


@dataclass(frozen=True, slots=True)
class Trials:
    """Results of changes that were measured instead of predicted; None where a trial was not needed or not possible.

    Seconds per batch: `graph_step_s` the step as a graph, `trimmed_step_s` the step with little padding,
    `fewer_threads_s` the whole loop with as many threads as there are cores, `ahead_s` with many batches read ahead,
    `repeated_s` with epochs that follow each other without a break, and `cached_s` making the same batch from features
    that were computed before. `double_ratio` is the time of a step on twice as many rows by
    that of a step as configured.
    """

    graph_step_s: float | None = None
    trimmed_step_s: float | None = None
    fewer_threads_s: float | None = None
    ahead_s: float | None = None
    repeated_s: float | None = None
    cached_s: float | None = None
    double_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What the training step does beside computing, from a look at the real loop, and what its device could do.

    `is_gpu` and `has_bfloat16` are of the device that trains; `device_busy` is the share of time in which it ran
    kernels, None where that cannot be measured. `has_durations` tells whether the store holds durations that the step
    searches for; `num_frames` are those of the longest batch, which bound the passes of a loop over frames. Each of
    `num_shapes` batch shapes needs one graph.
    """

    loop: LoopFacts
    is_gpu: bool = False
    has_bfloat16: bool = False
    device_busy: float | None = None
    has_durations: bool = False
    num_frames: int = 0
    num_shapes: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """CPU load while data was loaded without training steps.

    `num_used_cores` is CPU time / wall time of this process, `num_wanted_cores` also counts threads queued for a core,
    and `num_free_cores` were idle on the machine.
    """

    num_cores: int
    num_used_cores: float = 1.0
    num_wanted_cores: float = 1.0
    num_free_cores: float = 0.0
    gpu_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """All measurements of one diagnosis.

    `alone_s` [batches] are loading times without a step, `step_s` is a traced step on a batch in memory, and `take_s`
    the cost of taking a batch that is ready. `buffer_depth` is the prefetch depth, None where it is not known.
    `epoch_stall_s` is the extra time of the first batch of an epoch, once in `epoch_length` batches. `padding_after` is
    the share of padding that better shapes would leave. `is_from_files` tells whether all was read from the files of a
    run, where no stage was measured alone. `step_facts` are None for an emulated step. `settings` holds
    configuration values that advice may change, and numbers by which it chooses new ones.
    """

    subject: Literal["configuration", "dataset"]
    loop: LoopTimes
    alone_s: Times
    step_s: float
    take_s: float
    stages: tuple[StageTime, ...]
    machine: Machine
    is_step_emulated: bool = True
    is_from_files: bool = False
    python_functions: tuple[PythonFunction, ...] = ()
    num_threads: int = 1
    buffer_depth: int | None = None
    epoch_length: int | None = None
    epoch_stall_s: float = 0.0
    padding: float | None = None
    padding_after: float = USUAL_PADDING
    num_eager_ops: int = 0
    step_facts: StepFacts | None = None
    trials: Trials = field(default_factory=Trials)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def data_s(self) -> float:
        """Mean loading time of a batch, measured without a step."""
        return float(self.alone_s.mean()) if len(self.alone_s) else 0.0

    @property
    def wait_s(self) -> float:
        """Mean wait of a step in the full loop, without the starts of epochs."""
        usual = self.loop.waits_s[~self.loop.is_epoch_start]
        return float(usual.mean()) if len(usual) else 0.0

    @property
    def transfer_s(self) -> float:
        return float(self.loop.transfers_s.mean())

    @property
    def work_s(self) -> float:
        """Step and transfer, that is, the time in which a prefetch buffer can fill up."""
        return self.usual_step_s + self.transfer_s

    @property
    def loading_stages(self) -> list[StageTime]:
        return [stage for stage in self.stages if stage.name not in ("transfer", "step")]

    @property
    def usual_step_s(self) -> float:
        """Median step in the full loop, without steps of a new shape; longer than `step_s` under CPU contention."""
        usual = self.loop.steps_s[~self.loop.is_new_shape]
        return float(np.median(usual)) if len(usual) >= _FEWEST_USUAL else self.step_s

    def find_stage(self, name: StageName) -> StageTime | None:
        return next((stage for stage in self.stages if stage.name == name), None)
