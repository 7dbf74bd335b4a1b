"""Bottleneck analysis of the input pipeline: splits the time of a training step into losses and names their causes.

`weigh_losses` gives the seconds per step lost to each effect, `find_causes` turns them into findings, the most costly
first, and `predict_interval` predicts the step interval after a change. The prediction simulates a bounded prefetch
buffer between producer and consumer, driven by the measured batch times, so that bursts are kept. All functions are
pure: the same evidence gives the same findings. `advice` chooses settings by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from myxtts.tools.diagnose.evidence import Evidence, StageTime, Times
from myxtts.tools.diagnose.findings import Cause, Facts, Finding
from myxtts.tools.diagnose.step_faults import list_faults

_SETTLED_BATCHES = 400
"""Least number of simulated batches. The first quarter fills the empty buffer and is not counted."""
_HALF = 0.5
"""Overlap below which loading and step count as serial, that is, as running without a prefetch buffer."""


def simulate_interval(production_s: Sequence[float] | Times, work_s: float, depth: int) -> float:
    """Returns the mean step interval behind a prefetch buffer of `depth` batches; with depth 0 nothing overlaps.

    Batch n takes `production_s[n % len]` seconds. The producer starts it when batch n - depth has left the buffer.
    """
    times = [float(seconds) for seconds in production_s] or [0.0]
    if depth <= 0:
        return float(np.mean(times)) + work_s
    num_batches = max(_SETTLED_BATCHES, 4 * len(times))
    first = num_batches // 4
    taken: list[float] = []
    made, ended, began = 0.0, 0.0, 0.0
    for number in range(num_batches):
        # Production starts when the buffer has capacity.
        room = taken[number - depth] if number >= depth else 0.0
        made = max(made, room) + times[number % len(times)]
        taken.append(max(made, ended))
        ended = taken[-1] + work_s
        if number == first:
            began = ended
    return (ended - began) / (num_batches - 1 - first)


@dataclass(frozen=True, slots=True)
class Losses:
    """Seconds that an average step loses to each effect. They need not add up, because one may hide behind another.

    `rate_s` is waiting because loading is slower than the step on average, `rest_s` all other waiting: bursts, or no
    prefetch. `epoch_s` is the restart of the pipeline, spread over the steps of an epoch. `threads_s`, `eager_s` and
    `padding_s` are differences to trials; padding is estimated where a trial cannot show it.
    """

    rate_s: float
    rest_s: float
    transfer_s: float
    epoch_s: float
    retracing_s: float
    threads_s: float
    eager_s: float
    padding_s: float


def weigh_losses(evidence: Evidence) -> Losses:
    """Attributes the time of the measured loop; waits at the start of an epoch count as `epoch_s` only."""
    loop, trials = evidence.loop, evidence.trials
    wait_s = max(0.0, evidence.wait_s - evidence.take_s)
    rate_s = min(wait_s, max(0.0, evidence.data_s - evidence.work_s))
    return Losses(
        rate_s=rate_s,
        rest_s=wait_s - rate_s,
        transfer_s=evidence.transfer_s,
        epoch_s=_measure_epoch_loss(evidence),
        retracing_s=float(np.maximum(0.0, loop.steps_s - evidence.step_s)[loop.is_new_shape].sum() / loop.num_steps),
        threads_s=max(0.0, loop.interval_s - (trials.fewer_threads_s or loop.interval_s)),
        eager_s=max(0.0, evidence.step_s - (trials.graph_step_s or evidence.step_s)),
        padding_s=_measure_padding_loss(evidence),
    )


def _measure_epoch_loss(evidence: Evidence) -> float:
    """Returns the extra wait at epoch starts, spread over all steps.

    If the measured loop saw no epoch start, the stall measured by loading alone is used.
    """
    loop = evidence.loop
    if loop.is_epoch_start.any():
        usual_s = float(np.median(loop.waits_s[~loop.is_epoch_start])) if (~loop.is_epoch_start).any() else 0.0
        return float(np.maximum(0.0, loop.waits_s[loop.is_epoch_start] - usual_s).sum() / loop.num_steps)
    return evidence.epoch_stall_s / evidence.epoch_length if evidence.epoch_length else 0.0


def _measure_padding_loss(evidence: Evidence) -> float:
    """Returns the seconds that a step would save with `padding_after`, as tried, else in proportion to the frames."""
    if evidence.padding is None or evidence.padding <= evidence.padding_after:
        return 0.0
    after_s = evidence.trials.trimmed_step_s
    # An emulated step of constant time cannot show the saving: assume a device whose time grows with the frames.
    # Below 0.97 the emulated step does depend on the frames, and the trial is used.
    if after_s is None or (evidence.is_step_emulated and after_s >= 0.97 * evidence.step_s):
        after_s = evidence.step_s * (1 - evidence.padding) / (1 - evidence.padding_after)
    return max(0.0, evidence.step_s - after_s)


def find_overlap(evidence: Evidence) -> float:
    """Returns how far loading and step run in parallel: 1 if the shorter one is hidden completely, 0 if serial.

    A serial loop waits `data_s` at every step; each second of overlap shortens that wait.
    """
    least_s = min(evidence.data_s, evidence.work_s)
    return float(np.clip((evidence.data_s - evidence.wait_s) / least_s, 0.0, 1.0)) if least_s > 0 else 1.0


def find_depth(evidence: Evidence) -> int:
    """Returns the prefetch depth: as known, else 0 or 1 by the measured overlap."""
    if evidence.buffer_depth:
        return evidence.buffer_depth
    return 0 if find_overlap(evidence) < _HALF else 1


@dataclass(frozen=True, slots=True)
class Change:
    """A change for `predict_interval`; None keeps the measured value. `depth` is the prefetch depth."""

    production_s: Times | None = None
    step_s: float | None = None
    transfer_s: float | None = None
    depth: int | None = None
    has_epoch_stalls: bool = True
    has_retraces: bool = True


def predict_interval(evidence: Evidence, change: Change) -> float:
    """Returns the mean seconds of a step with the change, everything else as measured."""
    losses = weigh_losses(evidence)
    production_s = evidence.alone_s if change.production_s is None else change.production_s
    step_s = evidence.usual_step_s if change.step_s is None else change.step_s
    transfer_s = losses.transfer_s if change.transfer_s is None else change.transfer_s
    depth = find_depth(evidence) if change.depth is None else change.depth
    core_s = simulate_interval(production_s, step_s + transfer_s + evidence.take_s, depth)
    epoch_s = losses.epoch_s if change.has_epoch_stalls else 0.0
    return core_s + epoch_s + (losses.retracing_s if change.has_retraces else 0.0)


NOTICEABLE_SHARE = 0.08
"""Share of the step interval; a smaller loss is not reported, because it is within the noise of the machine."""
MUCH_PADDING = 0.25
"""Share of padding among all frames from which it is reported, and the step is also timed with trimmed batches."""
SPARE_FACTOR = 4.0
"""Step time over loading time from which training is called compute-bound instead of healthy."""
SMALL_FILE_BYTES = 64 * 1024
"""Mean size of a read below which the advice speaks of small files (latency), above it of a slow disk (throughput)."""
_WAITING_CPU_SHARE = 0.5
"""CPU time over wall time of a stage below which it may be I/O-bound."""
_BURST_RATIO = 3.0
"""95th percentile over median of the loading times."""
_BURST_VARIATION = 0.6
"""Standard deviation over mean of the loading times."""
_MAIN_SHARE = 0.4
"""Share of the data stages from which Python functions are named as the cause."""
_LARGE_SHARE = 0.2
"""Share of the interval gained with fewer threads from which they are blamed for all waiting."""
_CURED_SHARE = 0.5
"""Share of the waiting that the prefetch trial must remove to rule out a lack of throughput."""
_CROWD_ASKED, _CROWD_WAITING = 2, 3
"""Threads per core that were asked for, and runnable threads per core: above both, threads compete for cores."""
_WAITING_WANTED_CORES, _WAITING_USED_CORES = 0.9, 0.2
"""Cores that loading wanted and had. A pipeline bound by the CPU wants at least one core and gets a good part of it."""
_RETRACED_SHARE = 0.1
"""Share of steps with a new shape below which shapes repeat, so that retracing ends by itself."""


def find_causes(evidence: Evidence) -> tuple[Finding, ...]:
    """Returns the causes with a noticeable loss, the most costly first; else a single harmless finding.

    Losses of the same cause are added before they are compared with `NOTICEABLE_SHARE`.
    """
    losses = weigh_losses(evidence)
    least_s = NOTICEABLE_SHARE * evidence.loop.interval_s
    merged: dict[Cause, Finding] = {}
    for finding in (*_weigh_all(evidence, losses), *list_faults(evidence, least_s)):
        known = merged.get(finding.cause)
        loss_s = finding.loss_s + (known.loss_s if known else 0.0)
        merged[finding.cause] = Finding(finding.cause, loss_s, {**finding.facts, **(known.facts if known else {})})
    found = [finding for finding in merged.values() if finding.loss_s >= least_s]
    if not found:
        return (_clear(evidence),)
    return tuple(sorted(found, key=lambda finding: -finding.loss_s))


def _weigh_all(evidence: Evidence, losses: Losses) -> Iterator[Finding]:
    """Yields every candidate with its loss, noticeable or not; a cause may come twice."""
    loop = evidence.loop
    yield _weigh_threads(evidence, losses)
    wait_s = losses.rate_s + losses.rest_s
    ahead_s = evidence.trials.ahead_s
    if ahead_s is not None and loop.interval_s - ahead_s >= _CURED_SHARE * wait_s:
        # The prefetch trial removed most of the waiting, so throughput is sufficient.
        yield _explain_rest(evidence, wait_s)
    else:
        yield _explain_rest(evidence, losses.rest_s)
        if losses.rate_s > 0:
            yield _explain_rate(evidence, losses.rate_s)
    yield Finding(Cause.TRANSFER, losses.transfer_s, {"ms": 1e3 * losses.transfer_s})
    length = evidence.epoch_length or loop.num_steps / max(1, int(loop.is_epoch_start.sum()))
    yield Finding(Cause.EPOCH_END, losses.epoch_s, {"ms": 1e3 * losses.epoch_s * length, "batches": float(length)})
    if loop.is_new_shape.mean() >= _RETRACED_SHARE:
        facts = {"shapes": float(loop.is_new_shape.sum()), "steps": float(loop.num_steps)}
        yield Finding(Cause.RETRACING, losses.retracing_s, facts)
    if evidence.num_eager_ops:
        facts = {"ops": float(evidence.num_eager_ops), "ms": 1e3 * evidence.step_s}
        yield Finding(Cause.EAGER, losses.eager_s, facts)
    if evidence.padding is not None and evidence.padding >= MUCH_PADDING:
        yield Finding(Cause.PADDING, losses.padding_s, {"padding": evidence.padding})


def _weigh_threads(evidence: Evidence, losses: Losses) -> Finding:
    """Returns the gain of the trial with fewer threads.

    Under contention, or with a large gain, all waiting and the slowdown of the step itself are attributed to threads.
    """
    loss_s, num_threads, num_cores = losses.threads_s, evidence.num_threads, evidence.machine.num_cores
    num_wanted = evidence.machine.num_wanted_cores
    is_crowded = num_threads > _CROWD_ASKED * num_cores and num_wanted > _CROWD_WAITING * num_cores
    if is_crowded or loss_s > _LARGE_SHARE * evidence.loop.interval_s:
        loss_s = max(loss_s, losses.rate_s + losses.rest_s + max(0.0, evidence.usual_step_s - evidence.step_s))
    facts = {"threads": float(num_threads), "cores": float(num_cores), "wanted": num_wanted}
    return Finding(Cause.TOO_MANY_THREADS, loss_s, facts)


def _explain_rate(evidence: Evidence, loss_s: float) -> Finding:
    """Explains a lack of throughput: Python functions, then I/O-bound reads, else the slowest stage in general."""
    main = find_main_stage(evidence)
    facts: Facts = {
        "data_ms": 1e3 * evidence.data_s,
        "step_ms": 1e3 * evidence.usual_step_s,
        "stage": main.name if main else "batch",
    }
    if _has_main_python(evidence):
        return _blame_python(evidence, loss_s, facts)
    if main is not None and main.name == "read" and is_waiting(evidence, main):
        size = main.num_bytes / main.num_reads if main.num_reads else 0.0
        kind = "small_files" if 0 < size < SMALL_FILE_BYTES else "slow_disk"
        return Finding(
            Cause.SLOW_READS, loss_s, {**facts, "read_ms": 1e3 * main.seconds, "kib": size / 1024, "kind": kind}
        )
    return Finding(Cause.RATE_DEFICIT, loss_s, facts)


def _explain_rest(evidence: Evidence, loss_s: float) -> Finding:
    """Explains waiting despite sufficient throughput: the GIL, bursts, or no overlap of loading and step."""
    is_bursty = _is_bursty(evidence)
    facts = {
        "data_ms": 1e3 * evidence.data_s,
        "worst_ms": 1e3 * float(evidence.alone_s.max(initial=0.0)),
        "overlap": find_overlap(evidence),
    }
    if _has_main_python(evidence) and find_depth(evidence) > 0 and not is_bursty:
        # Fast enough on average and prefetched: what is left is the GIL, which the thread of the step needs as well.
        return _blame_python(evidence, loss_s, facts)
    return Finding(Cause.BURSTS if is_bursty else Cause.NO_OVERLAP, loss_s, facts)


def is_waiting(evidence: Evidence, stage: StageTime) -> bool:
    """Returns whether a stage is I/O-bound: little CPU time, while cores are idle."""
    machine = evidence.machine
    # On a busy machine an I/O-bound thread is queued too when it wakes up, so wanted cores alone do not tell; but a
    # thread that computes uses more than a fraction of a core.
    is_idle = machine.num_wanted_cores < _WAITING_WANTED_CORES or machine.num_used_cores < _WAITING_USED_CORES
    return stage.cpu_share < _WAITING_CPU_SHARE and is_idle


def _has_main_python(evidence: Evidence) -> bool:
    """Returns whether Python functions take a large share of the time of a batch."""
    # Relative to the sum of the stages, not to `data_s`: it was measured at another time, under another load.
    all_s = sum(stage.seconds for stage in evidence.loading_stages)
    return bool(evidence.python_functions) and _sum_python(evidence) >= _MAIN_SHARE * max(all_s, 1e-9)


def _sum_python(evidence: Evidence) -> float:
    return sum(stage.seconds for stage in evidence.stages if stage.is_python)


def _blame_python(evidence: Evidence, loss_s: float, facts: Facts) -> Finding:
    names = ", ".join(str(function) for function in evidence.python_functions)
    python_ms = 1e3 * _sum_python(evidence)
    return Finding(Cause.PYTHON_FUNCTIONS, loss_s, {**facts, "functions": names, "python_ms": python_ms})


def _is_bursty(evidence: Evidence) -> bool:
    """Returns whether loading times are heavy-tailed in themselves.

    The 95th percentile ignores single outliers caused by the machine. Without overlap, every batch delays the step, and
    the missing prefetch is the cause instead.
    """
    times = evidence.alone_s
    if len(times) < 8:
        return False
    median_s, mean_s = float(np.median(times)), float(times.mean())
    is_tailed = float(np.quantile(times, 0.95)) > _BURST_RATIO * max(median_s, 1e-9)
    return is_tailed and float(times.std()) > _BURST_VARIATION * mean_s and find_overlap(evidence) > 0.25


def find_main_stage(evidence: Evidence) -> StageTime | None:
    """Returns the slowest stage before the transfer."""
    return max(evidence.loading_stages, key=lambda stage: stage.seconds, default=None)


def _clear(evidence: Evidence) -> Finding:
    """Returns the harmless finding: the step itself takes the time."""
    spare = evidence.step_s / max(evidence.data_s, 1e-9)
    facts = {"spare": min(spare, 1000.0), "step_ms": 1e3 * evidence.step_s}
    return Finding(Cause.COMPUTE_BOUND if spare >= SPARE_FACTOR else Cause.HEALTHY, 0.0, facts)
