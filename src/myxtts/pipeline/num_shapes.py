"""`num_shapes: auto`: how many batch shapes pay for a run, from its length and the lengths of its utterances.

More shapes leave less padding in every step, and each shape takes its time to compile. A pure function of settings and
data, with a reason for the user. A run keeps its number when it is resumed: other shapes would be other batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from myxtts.config.schema import TrainingConfig, XTTSConfig
from myxtts.pipeline.order import make_buckets

MOST_SHAPES = 8
"""The number where nothing but padding counts. Lengths of usual corpora then need 5 to 10 % of padding."""
_CANDIDATES = (1, 2, 3, 4, 6, MOST_SHAPES)
_PADDED_SHARE = 1 / 5
"""Of the time of a step, what grows with padding: tells how many frames a run of some minutes has."""
_WORTH = 0.01
"""Share of the time of the run that more shapes must save: they are waited for before the first steps."""


class ShapeCost(NamedTuple):
    """Seconds that a batch shape takes to compile and to trace, and that a padded frame of a batch adds to a step."""

    compile_s: float
    trace_s: float
    frame_s: float


COSTS = {"CPU": ShapeCost(30.0, 10.0, 20e-6), "GPU": ShapeCost(30.0, 10.0, 0.4e-6)}
"""By the kind of the training device. Seconds to compile are those of `STEPS_PER_COMPILED_SHAPE` in
`training.execution`. The decoder works on crops of one length, so that padding makes only text encoder, alignment and
pitch slower. On two CPU cores a frame of `tiny` adds 20 microseconds to a step beside another training, where a shape
takes twice as long to compile, too. For GPUs an estimate: a fifth of the model time of `small` on an RTX 3060
(benchmarks/results/card.json), twice, because the model time is that of perfect kernels."""
_USUAL_WIDTH = 320
"""Width of the text encoder that `frame_s` is stated for, that of `small`; what is moved grows with the width."""


@dataclass(frozen=True)
class ShapeChoice:
    """The number of batch shapes, and why."""

    number: int
    reason: str


def choose_num_shapes(
    lengths_N: NDArray[np.integer], config: XTTSConfig, *, is_on_cpu: bool, multiple_of: int = 1
) -> ShapeChoice:
    """The lowest number of shapes whose compiling and padding take about the least time over the whole run.

    `lengths_N` are the frames of the utterances before trimming.
    """
    training = config.training
    why = _find_reason_for_most(config)
    if why is not None:
        return ShapeChoice(MOST_SHAPES, _explain(MOST_SHAPES, why))
    making_s, frame_s = _estimate_costs(config, is_on_cpu)
    layouts = {number: _lay_out(lengths_N, number, config, multiple_of) for number in _CANDIDATES}
    limit_s = None if training.minutes is None else 60 * training.minutes * _PADDED_SHARE
    most = None if limit_s is None else limit_s / (frame_s * layouts[MOST_SHAPES].frames_per_batch)
    padding_s = {number: layout.count_frames(training, most) * frame_s for number, layout in layouts.items()}
    total_s = {number: layouts[number].num_shapes * making_s + padding_s[number] for number in _CANDIDATES}
    allowed_s = min(total_s.values()) + _WORTH * padding_s[MOST_SHAPES] / _PADDED_SHARE
    best = next(number for number in _CANDIDATES if total_s[number] <= allowed_s)
    num_more = layouts[MOST_SHAPES].num_shapes - layouts[best].num_shapes
    saved_s, cost_s = padding_s[best] - padding_s[MOST_SHAPES], num_more * making_s
    making = "trace" if training.enable_xla_compilation is False else "compile"
    if best == MOST_SHAPES:
        why = f"the run is long enough to {making} all of them"
    elif not num_more:
        why = "the lengths of the utterances need no more"
    elif saved_s > cost_s:
        why = f"more would save less than {_WORTH:.0%} of the time"
    else:
        why = f"{num_more} more would take {_show(cost_s)} to {making} and save only {_show(saved_s)} of padding"
    return ShapeChoice(best, _explain(best, why))


def _find_reason_for_most(config: XTTSConfig) -> str | None:
    """Why as many shapes as possible are right whatever the length of the run; None if they are not."""
    training = config.training
    if not training.enable_graph_mode or training.enable_eager_debug:
        return "nothing is compiled in eager mode"
    if training.steps is None and training.epochs is None and training.minutes is None:
        return "the run has no given length"
    if config.data.frame_budget is not None:
        return "frame_budget counts padding: with less of it a step has more utterances"
    return None


class _Layout(NamedTuple):
    """What a number of shapes leads to: its shapes, the batches of an epoch, and padded frames of a batch."""

    num_shapes: int
    num_batches: int
    frames_per_batch: float

    def count_frames(self, training: TrainingConfig, most_batches: float | None) -> float:
        """Padded frames of the whole run, which has `most_batches` at most where its time is limited."""
        total_steps = training.count_steps(self.num_batches)
        ends = [] if total_steps is None else [float(total_steps * training.gradient_accumulation_steps)]
        ends += [] if most_batches is None else [most_batches]
        return min(ends) * self.frames_per_batch


def _lay_out(lengths_N: NDArray[np.integer], number: int, config: XTTSConfig, multiple_of: int) -> _Layout:
    assert isinstance(config.data.batch_size, int), "batch_size is settled first"
    buckets = make_buckets(lengths_N, number, config.data.batch_size, config.data.frame_budget, multiple_of)
    shapes = buckets.make_shapes(lengths_N, lengths_N)
    num_batches_K = -(-buckets.counts // buckets.batch_sizes)
    frames_K = np.array([shape.num_utterances * shape.num_frames for shape in shapes], np.int64)
    num_batches = int(num_batches_K.sum())
    return _Layout(len(shapes), num_batches, float((num_batches_K * frames_K).sum() / num_batches))


def _estimate_costs(config: XTTSConfig, is_on_cpu: bool) -> tuple[float, float]:
    """Seconds to make the graphs of one shape, and seconds of a padded frame."""
    training, cost = config.training, COSTS["CPU" if is_on_cpu else "GPU"]
    making_s = cost.trace_s if training.enable_xla_compilation is False else cost.compile_s
    if training.durations == "auto" and not is_on_cpu:
        # Every shape is made again when training goes on from written durations.
        making_s *= 2
    return making_s, cost.frame_s * config.model.text_width / _USUAL_WIDTH


def _explain(number: int, why: str) -> str:
    return f"Batch shapes: {number}, because {why} (num_shapes is auto)."


def _show(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:,.0f} min"
