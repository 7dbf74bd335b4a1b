"""A model of the loop between data and step: what an interval becomes if one thing changes.

A producer makes batches one after the other and rests when the buffer is full; the consumer takes them in order. Times
that were measured go in, so bursts stay bursts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from myxtts.tools.diagnosis.evidence import Evidence, Times

_SETTLED_BATCHES = 400
_HALF = 0.5


def simulate_interval(production_s: Sequence[float] | Times, work_s: float, depth: int) -> float:
    """Mean seconds of a step when batches take `production_s`, in turn, and `depth` may wait; 0 is no overlap."""
    times = [float(seconds) for seconds in production_s] or [0.0]
    if depth <= 0:
        return float(np.mean(times)) + work_s
    num_batches = max(_SETTLED_BATCHES, 4 * len(times))
    first = num_batches // 4
    taken: list[float] = []
    made, ended, began = 0.0, 0.0, 0.0
    for number in range(num_batches):
        # The next batch is begun when there is room for it.
        room = taken[number - depth] if number >= depth else 0.0
        made = max(made, room) + times[number % len(times)]
        taken.append(max(made, ended))
        ended = taken[-1] + work_s
        if number == first:
            began = ended
    return (ended - began) / (num_batches - 1 - first)


@dataclass(frozen=True, slots=True)
class Losses:
    """Seconds that an average step loses to each of its enemies. They need not add up: one hides behind another."""

    rate_s: float
    rest_s: float
    transfer_s: float
    epoch_s: float
    retracing_s: float
    threads_s: float
    eager_s: float
    padding_s: float


def weigh_losses(evidence: Evidence) -> Losses:
    loop = evidence.loop
    work_s = evidence.usual_step_s + float(np.mean(loop.transfers_s))
    usual = ~loop.is_epoch_start
    wait_s = max(0.0, float(np.mean(loop.waits_s[usual])) - evidence.take_s) if usual.any() else 0.0
    rate_s = min(wait_s, max(0.0, evidence.data_s - work_s))
    return Losses(
        rate_s=rate_s,
        rest_s=wait_s - rate_s,
        transfer_s=float(np.mean(loop.transfers_s)),
        epoch_s=measure_epoch_loss(evidence),
        retracing_s=float(np.maximum(0.0, loop.steps_s - evidence.step_s)[loop.is_new_shape].sum() / loop.num_steps),
        threads_s=_measure_thread_loss(evidence),
        eager_s=max(0.0, evidence.step_s - (evidence.trials.graph_step_s or evidence.step_s)),
        padding_s=_measure_padding_loss(evidence),
    )


def measure_epoch_loss(evidence: Evidence) -> float:
    """What the beginnings of epochs cost, spread over all steps."""
    loop = evidence.loop
    if loop.is_epoch_start.any():
        usual_s = float(np.median(loop.waits_s[~loop.is_epoch_start])) if (~loop.is_epoch_start).any() else 0.0
        return float(np.maximum(0.0, loop.waits_s[loop.is_epoch_start] - usual_s).sum() / loop.num_steps)
    return evidence.epoch_stall_s / evidence.epoch_length if evidence.epoch_length else 0.0


def _measure_thread_loss(evidence: Evidence) -> float:
    fewer_s = evidence.trials.fewer_threads_s
    return max(0.0, evidence.loop.interval_s - fewer_s) if fewer_s is not None else 0.0


def _measure_padding_loss(evidence: Evidence) -> float:
    if evidence.padding is None or evidence.padding <= evidence.padding_after:
        return 0.0
    trimmed_s = evidence.trials.trimmed_step_s
    if trimmed_s is not None and not evidence.is_step_emulated:
        return max(0.0, evidence.step_s - trimmed_s)
    # An emulated step that takes the same for any batch stands for a device whose work grows with the frames.
    is_told = trimmed_s is not None and trimmed_s < 0.97 * evidence.step_s
    after_s = trimmed_s if is_told else evidence.step_s * (1 - evidence.padding) / (1 - evidence.padding_after)
    assert after_s is not None
    return max(0.0, evidence.step_s - after_s)


def find_overlap(evidence: Evidence) -> float:
    """1 where loading hides behind the step or the step behind loading, 0 where one follows the other."""
    loop = evidence.loop
    work_s = evidence.usual_step_s + float(np.mean(loop.transfers_s))
    usual = ~loop.is_epoch_start
    wait_s = float(np.mean(loop.waits_s[usual])) if usual.any() else 0.0
    least_s = min(evidence.data_s, work_s)
    return float(np.clip((evidence.data_s - wait_s) / least_s, 0.0, 1.0)) if least_s > 0 else 1.0


def find_depth(evidence: Evidence) -> int:
    """Batches that may wait, as told or as the overlap shows."""
    if evidence.buffer_depth:
        return evidence.buffer_depth
    return 0 if find_overlap(evidence) < _HALF else 1


@dataclass(frozen=True, slots=True)
class Change:
    """What would be different; None leaves it as it is."""

    production_s: Times | None = None
    step_s: float | None = None
    transfer_s: float | None = None
    depth: int | None = None
    has_epoch_stalls: bool = True
    has_retraces: bool = True


def predict_interval(evidence: Evidence, change: Change) -> float:
    """Mean seconds of a step with the change, everything else as measured."""
    losses = weigh_losses(evidence)
    production_s = evidence.alone_s if change.production_s is None else change.production_s
    step_s = evidence.usual_step_s if change.step_s is None else change.step_s
    transfer_s = losses.transfer_s if change.transfer_s is None else change.transfer_s
    depth = find_depth(evidence) if change.depth is None else change.depth
    core_s = simulate_interval(production_s, step_s + transfer_s + evidence.take_s, depth)
    epoch_s = losses.epoch_s if change.has_epoch_stalls else 0.0
    return core_s + epoch_s + (losses.retracing_s if change.has_retraces else 0.0)
