"""From evidence to causes, most costly first. Pure: the same evidence gives the same findings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from myxtts.tools.diagnosis.evidence import Evidence, StageTime
from myxtts.tools.diagnosis.model import Losses, find_depth, find_overlap, weigh_losses

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
