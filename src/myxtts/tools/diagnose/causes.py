"""From evidence to causes, most costly first. Pure: the same evidence gives the same findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from myxtts.tools.diagnose.evidence import Evidence, StageTime, Times

# A model of the loop between data and step: what an interval becomes if one thing changes.
#
# A producer makes batches one after the other and rests when the buffer is full; the consumer takes them in order.
# Times
# that were measured go in, so bursts stay bursts.

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


NOTICEABLE_SHARE = 0.08
"""Of an interval; less than this is lost in what a machine does besides."""
MUCH_PADDING = 0.25
SPARE_FACTOR = 4.0
"""Where data could come so many times faster, the pipeline is not worth a look."""
SMALL_FILE_BYTES = 64 * 1024
_WAITING_CPU_SHARE = 0.5
_BURST_RATIO = 3.0
_BURST_VARIATION = 0.6
_MAIN_SHARE = 0.4
_LARGE_SHARE = 0.2
_CURED_SHARE = 0.5
_CROWD_ASKED, _CROWD_WAITING = 2, 3
_WAITING_WANTED_CORES, _WAITING_USED_CORES = 0.9, 0.2
_RETRACED_SHARE = 0.1


class Cause(StrEnum):
    RATE_DEFICIT = "rate_deficit"
    BURSTS = "bursts"
    NO_OVERLAP = "no_overlap"
    TRANSFER = "transfer_not_overlapped"
    TOO_MANY_THREADS = "too_many_threads"
    RETRACING = "retracing"
    EPOCH_END = "epoch_end_stall"
    PYTHON_FUNCTIONS = "python_functions"
    SLOW_READS = "small_files_or_slow_disk"
    PADDING = "padding_waste"
    EAGER = "eager_mode"
    COMPUTE_BOUND = "compute_bound"
    HEALTHY = "healthy"

    @property
    def is_harmless(self) -> bool:
        return self in (Cause.COMPUTE_BOUND, Cause.HEALTHY)


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause, the seconds of an average step that it takes, and the numbers that show it, by name."""

    cause: Cause
    loss_s: float
    facts: dict[str, float | str] = field(default_factory=dict)


def find_causes(evidence: Evidence) -> tuple[Finding, ...]:
    """What costs time, the most costly first; where nothing does, one finding that says so."""
    losses = weigh_losses(evidence)
    least_s = NOTICEABLE_SHARE * evidence.loop.interval_s
    merged: dict[Cause, Finding] = {}
    for finding in _weigh_all(evidence, losses):
        known = merged.get(finding.cause)
        loss_s = finding.loss_s + (known.loss_s if known else 0.0)
        merged[finding.cause] = Finding(finding.cause, loss_s, {**finding.facts, **(known.facts if known else {})})
    found = [finding for finding in merged.values() if finding.loss_s >= least_s]
    if not found:
        return (_clear(evidence),)
    return tuple(sorted(found, key=lambda finding: -finding.loss_s))


def _weigh_all(evidence: Evidence, losses: Losses) -> Iterator[Finding]:
    loop = evidence.loop
    yield _weigh_threads(evidence, losses)
    wait_s = losses.rate_s + losses.rest_s
    ahead_s = evidence.trials.ahead_s
    if ahead_s is not None and loop.interval_s - ahead_s >= _CURED_SHARE * wait_s:
        # Reading ahead cured it when tried, so it was not the rate.
        yield _explain_rest(evidence, wait_s)
    else:
        yield _explain_rest(evidence, losses.rest_s)
        if losses.rate_s > 0:
            yield _explain_rate(evidence, losses.rate_s)
    yield Finding(Cause.TRANSFER, losses.transfer_s, {"ms": 1e3 * losses.transfer_s})
    length = evidence.epoch_length or loop.num_steps / max(1, int(loop.is_epoch_start.sum()))
    yield Finding(Cause.EPOCH_END, losses.epoch_s, {"ms": 1e3 * losses.epoch_s * length, "batches": float(length)})
    if loop.is_new_shape.mean() >= _RETRACED_SHARE:
        facts: dict[str, float | str] = {"shapes": float(loop.num_shapes), "steps": float(loop.num_steps)}
        yield Finding(Cause.RETRACING, losses.retracing_s, facts)
    if evidence.num_eager_ops:
        ops: dict[str, float | str] = {"ops": float(evidence.num_eager_ops), "ms": 1e3 * evidence.step_s}
        yield Finding(Cause.EAGER, losses.eager_s, ops)
    if evidence.padding is not None and evidence.padding >= MUCH_PADDING:
        yield Finding(Cause.PADDING, losses.padding_s, {"padding": evidence.padding})


def is_crowded(evidence: Evidence) -> bool:
    """Whether far more threads were started than there are cores, and stood in line for them."""
    machine = evidence.machine
    has_many = evidence.num_threads > _CROWD_ASKED * machine.num_cores
    return has_many and machine.num_wanted_cores > _CROWD_WAITING * machine.num_cores


def _weigh_threads(evidence: Evidence, losses: Losses) -> Finding:
    """What fewer threads gained when tried. Where there is a crowd, or the gain is large, they answer for all waits."""
    loss_s = losses.threads_s
    if is_crowded(evidence) or loss_s > _LARGE_SHARE * evidence.loop.interval_s:
        loss_s = max(loss_s, losses.rate_s + losses.rest_s + max(0.0, evidence.usual_step_s - evidence.step_s))
    facts: dict[str, float | str] = {
        "threads": float(evidence.num_threads),
        "cores": float(evidence.machine.num_cores),
        "wanted": evidence.machine.num_wanted_cores,
    }
    return Finding(Cause.TOO_MANY_THREADS, loss_s, facts)


def _explain_rate(evidence: Evidence, loss_s: float) -> Finding:
    """The data side is slower than the step on average: because of what?"""
    main = find_main_stage(evidence)
    facts: dict[str, float | str] = {
        "data_ms": 1e3 * evidence.data_s,
        "step_ms": 1e3 * evidence.usual_step_s,
        "stage": main.name if main else "batch",
    }
    if has_main_python(evidence):
        return Finding(Cause.PYTHON_FUNCTIONS, loss_s, {**facts, **_name_python(evidence)})
    if main is not None and main.name == "read" and is_waiting(evidence, main):
        size = main.num_bytes / main.num_reads if main.num_reads else 0.0
        kind = "small_files" if 0 < size < SMALL_FILE_BYTES else "slow_disk"
        reads: dict[str, float | str] = {"read_ms": 1e3 * main.seconds, "kib": size / 1024, "kind": kind}
        return Finding(Cause.SLOW_READS, loss_s, {**facts, **reads})
    return Finding(Cause.RATE_DEFICIT, loss_s, facts)


def _explain_rest(evidence: Evidence, loss_s: float) -> Finding:
    """The data side is fast enough on average, and the step waits all the same."""
    facts: dict[str, float | str] = {
        "data_ms": 1e3 * evidence.data_s,
        "worst_ms": 1e3 * float(evidence.alone_s.max()) if len(evidence.alone_s) else 0.0,
        "overlap": find_overlap(evidence),
    }
    if has_main_python(evidence) and find_depth(evidence) > 0 and not is_bursty(evidence):
        # Enough on average and read ahead: what is left is Python, which the step's own thread has to wait for.
        return Finding(Cause.PYTHON_FUNCTIONS, loss_s, {**facts, **_name_python(evidence)})
    return Finding(Cause.BURSTS if is_bursty(evidence) else Cause.NO_OVERLAP, loss_s, facts)


def is_waiting(evidence: Evidence, stage: StageTime) -> bool:
    """Whether a stage waits for something else than a core."""
    machine = evidence.machine
    # On a busy machine a thread that wakes up stands in line too; but one that computes gets more than a little.
    is_idle = machine.num_wanted_cores < _WAITING_WANTED_CORES or machine.num_used_cores < _WAITING_USED_CORES
    return stage.cpu_share < _WAITING_CPU_SHARE and is_idle


def has_main_python(evidence: Evidence) -> bool:
    """Whether Python functions take much of what a batch takes."""
    # Of what the stages add up to: they were measured one after the other, on whatever the machine did just then.
    all_s = sum(stage.seconds for stage in evidence.stages if stage.name not in ("transfer", "step"))
    return bool(evidence.python_functions) and _sum_python(evidence) >= _MAIN_SHARE * max(all_s, 1e-9)


def _sum_python(evidence: Evidence) -> float:
    return sum(stage.seconds for stage in evidence.stages if stage.is_python)


def _name_python(evidence: Evidence) -> dict[str, float | str]:
    names = ", ".join(str(function) for function in evidence.python_functions)
    return {"functions": names, "python_ms": 1e3 * _sum_python(evidence)}


def is_bursty(evidence: Evidence) -> bool:
    """Whether some batches take far longer than most, by themselves; outliers of the machine are too few to count."""
    times = evidence.alone_s
    if len(times) < 8:
        return False
    median_s, mean_s = float(np.median(times)), float(times.mean())
    is_tailed = float(np.quantile(times, 0.95)) > _BURST_RATIO * max(median_s, 1e-9)
    return is_tailed and float(times.std()) > _BURST_VARIATION * mean_s and find_overlap(evidence) > 0.25


def find_main_stage(evidence: Evidence) -> StageTime | None:
    """The stage of the data side that takes the longest."""
    before_device = [stage for stage in evidence.stages if stage.name not in ("transfer", "step")]
    return max(before_device, key=lambda stage: stage.seconds, default=None)


def _clear(evidence: Evidence) -> Finding:
    """Nothing is lost: the step is what takes the time."""
    spare = evidence.step_s / max(evidence.data_s, 1e-9)
    facts: dict[str, float | str] = {"spare": min(spare, 1000.0), "step_ms": 1e3 * evidence.step_s}
    return Finding(Cause.COMPUTE_BOUND if spare >= SPARE_FACTOR else Cause.HEALTHY, 0.0, facts)
