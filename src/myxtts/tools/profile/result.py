"""Results of a training profile as plain data: step parts, data loading, checkpoints, `tf.data` ops, compilation.

Filled by `measure` and `parts`, shown by `page`, written as JSON by `TrainingProfile.to_json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.tools.rhythm import STABLE_VARIATION, Rating, rate_loading

NOTICEABLE_WAIT = 0.08
"""Share of time spent waiting for data from which loading is called slow."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Summary of repeated timings in milliseconds; `variation` is standard deviation / mean."""

    mean_ms: float
    median_ms: float
    highest_ms: float
    variation: float

    @classmethod
    def of(cls, seconds: Sequence[float] | NDArray[np.float64]) -> Spread:
        """Summarises times in seconds; all zeros if there are none."""
        if len(seconds) == 0:
            return cls(0.0, 0.0, 0.0, 0.0)
        values = 1000 * np.asarray(seconds, np.float64)
        mean = float(values.mean())
        return cls(mean, float(np.median(values)), float(values.max()), float(values.std()) / mean if mean else 0.0)


@dataclass(frozen=True, slots=True)
class StepSample:
    """One measured step: `shape` is utterances x frames x tokens of its first batch, `wait_s` the wait for data."""

    step: int
    shape: str
    wait_s: float
    step_s: float


@dataclass(frozen=True, slots=True)
class Compilation:
    """Tracing, with XLA also compilation, for one batch shape; `step` is None if it happened before the first step."""

    shape: str
    seconds: float
    step: int | None
    is_compiled: bool


@dataclass(frozen=True, slots=True)
class DataLoading:
    """Data loading during the profiled steps.

    `wait` is the wait of the step, `load` a loader thread's time for a batch, and `stages` what follows in parallel
    with the step, such as the copy to the device. `num_threads` load at once. `au` is the share of time not spent
    waiting for data, which says nothing about how busy a GPU is: see `StepCounts.device_busy`.
    """

    loader: str
    wait: Spread
    load: Spread
    stages: dict[str, Spread]
    mean_depth: float
    au: float
    padding: float
    num_threads: int = 1
    step_ms: float = 0.0
    """Mean time of a batch in the training step."""

    @property
    def rating(self) -> Rating:
        """Rating of loading by the step that consumes the batches: `good`, `moderate` or `slow`."""
        if 1 - self.au >= NOTICEABLE_WAIT:
            return "slow"
        rating = rate_loading(self.load.mean_ms / max(1, self.num_threads), self.step_ms)
        return "moderate" if rating == "slow" else rating

    @property
    def is_stable(self) -> bool:
        return self.load.variation < STABLE_VARIATION


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What one step starts, as the real training loop runs it.

    Python dispatches `num_eager_ops` operations, of which one is the whole step where it is a graph, and waits for
    `num_host_reads` tensors; a step begins with `num_steps_ahead` earlier ones unfinished. A batch crosses to the
    device in `num_copies`. `num_compiled_ops` of the graph are inside what XLA compiles, `num_outside_ops` are not;
    `num_unknown_loops` of its `num_loops` ask the host in every pass on a GPU. `num_kernels` were counted on a GPU, or
    in the HLO that XLA made of the step; None where neither was possible. `device_busy` is the share of time in which
    the GPU ran kernels, `wall_share` that of the wall clock spent in steps.
    """

    num_eager_ops: float
    num_host_reads: float
    num_steps_ahead: float | None
    num_copies: float | None
    num_compiled_ops: int
    num_outside_ops: int
    num_loops: int
    num_unknown_loops: int
    num_kernels: float | None = None
    device_busy: float | None = None
    wall_share: float = 1.0


@dataclass(frozen=True, slots=True)
class PartTimes:
    """Median seconds of a step on batches of `shape`, and of its parts summed over all micro-batches."""

    shape: str
    whole_s: float
    forward_s: float
    backward_s: float
    optimizer_s: float

    @property
    def sum_s(self) -> float:
        return self.forward_s + self.backward_s + self.optimizer_s

    @property
    def rest_s(self) -> float:
        """Step time outside the parts: cutting micro-batches, dispatch, summing gradients."""
        return max(0.0, self.whole_s - self.sum_s)


@dataclass(frozen=True, slots=True)
class SavingTimes:
    """Cost and frequency of checkpoints and log entries.

    `checkpoint_held_s` is the pause of training, `checkpoint_write_s` the writing in the background.
    """

    checkpoint_held_s: float
    checkpoint_write_s: float
    checkpoint_steps: int
    log_s: float
    log_steps: int


@dataclass(frozen=True, slots=True)
class OpTime:
    """One `tf.data` operation; `level` is its distance from the last one.

    `own_ms` is its processing time per batch without its inputs. `parallelism` and `buffer_size` are None where the
    operation has none.
    """

    name: str
    level: int
    own_ms: float
    num_elements: int
    num_buffered: int
    parallelism: int | None
    buffer_size: int | None
    megabytes: float


@dataclass(frozen=True, slots=True)
class TrainingProfile:
    """All results. `mode` is `xla`, `graph` or `eager`; without `ops`, `no_ops_reason` is a key of `page._NO_OPS`.

    `compilations` includes the graphs traced before the first step.
    """

    mode: str
    num_parameters: int
    steps: tuple[StepSample, ...]
    data: DataLoading
    parts: PartTimes
    counts: StepCounts
    saving: SavingTimes
    ops: tuple[OpTime, ...]
    no_ops_reason: str
    compilations: tuple[Compilation, ...]
    trace_dir: str | None = None

    @property
    def num_retraces(self) -> int:
        """Graphs traced during training; every shape should have been traced before."""
        return sum(one.step is not None for one in self.compilations)

    def list_stages(self) -> list[tuple[str, float]]:
        """Returns seconds per average step by stage; the training step is that of the most frequent shape."""
        return [
            ("data_wait", self.data.wait.mean_ms / 1000),
            *self.list_parts(),
            ("checkpoint", self.saving.checkpoint_held_s / self.saving.checkpoint_steps),
            ("logging", self.saving.log_s / self.saving.log_steps),
        ]

    def list_parts(self) -> list[tuple[str, float]]:
        parts = self.parts
        return [
            ("forward", parts.forward_s),
            ("backward", parts.backward_s),
            ("optimizer", parts.optimizer_s),
            ("rest", parts.rest_s),
        ]

    def measure_shapes(self) -> dict[str, Spread]:
        """Returns step times by batch shape, the slowest shape first."""
        shapes = dict.fromkeys(sample.shape for sample in self.steps)
        times = {shape: Spread.of([one.step_s for one in self.steps if one.shape == shape]) for shape in shapes}
        return dict(sorted(times.items(), key=lambda item: -item[1].median_ms))

    def to_json(self) -> dict[str, Any]:
        data = self.data
        return {
            "mode": self.mode,
            "num_parameters": self.num_parameters,
            "stages_ms": {name: 1000 * seconds for name, seconds in self.list_stages()},
            "parts": {**asdict(self.parts), "sum_s": self.parts.sum_s},
            "counts": asdict(self.counts),
            "step": asdict(Spread.of([one.step_s for one in self.steps])),
            "data_loading": {**asdict(data), "rating": data.rating, "is_stable": data.is_stable},
            "saving": asdict(self.saving),
            "shapes": {shape: asdict(spread) for shape, spread in self.measure_shapes().items()},
            "tf_data_ops": [asdict(op) for op in self.ops],
            "no_ops_reason": self.no_ops_reason,
            "compilations": [asdict(one) for one in self.compilations],
            "num_retraces": self.num_retraces,
            "trace_dir": self.trace_dir,
            "steps": [asdict(one) for one in self.steps],
        }
