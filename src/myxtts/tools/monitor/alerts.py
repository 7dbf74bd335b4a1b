"""Warnings of the monitor: data starvation, oscillation, throttling, memory nearly full, stalled runs, lost GPUs.

`find_alerts` judges every sample again and keeps nothing; `AlertBook` collects the alerts of a watch for its summary.
GPU alerts are judged over the last samples, those of a run over its last steps, so that one slow step raises none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from myxtts.tools.monitor.gpus import LOST, THROTTLE_TEXTS, GpuReading
from myxtts.tools.monitor.run import RunReading
from myxtts.tools.monitor.sample import History, Sample
from myxtts.tools.rhythm import STABLE_VARIATION
from myxtts.tools.words import Translator, mark

AlertKind = Literal["lost", "memory", "stall", "starvation", "oscillation", "throttling", "step"]
ALERT_KINDS = mark(
    {
        "lost": "lost GPU",
        "memory": "memory",
        "stall": "stall",
        "starvation": "starvation",
        "oscillation": "oscillation",
        "throttling": "throttling",
        "step": "step",
    }
)
"""Labels of the kinds, most severe first: the screen shows them in this order."""
# By the key of an alert. The suffix of a placeholder (_share, _percent, _count, _time) selects its number format.
_SENTENCES = mark(
    {
        "run_starved": "The run waits for data {wait_share} of the time ({wait_ms} ms a step, {depth} batches in "
        "the buffer). myxtts diagnose finds the cause.",
        "run_swings": "Step times vary by {variation_share} and repeat every {period_count} steps: data comes in "
        "bursts. A deeper buffer evens them out; myxtts diagnose finds the cause.",
        "run_uneven": "Step times vary by {variation_share}, without a period (under 20 % is stable). myxtts "
        "diagnose finds the cause.",
        "run_steps_differ": "Steps of the same batch shape vary by {variation_share} although data is always ready: "
        "other work on this machine takes its cores or its GPU.",
        "run_stalled": "No step for {idle_time} although the training process is alive: it validates, saves or hangs.",
        "gpu_idle": "GPU {gpu} runs kernels only {mean_percent} of the time although a process computes on it: "
        "data comes too slowly.",
        "gpu_underused": "GPU {gpu} runs kernels only {mean_percent} of the time although the run does not wait for "
        "data: look into the step with myxtts profile, or raise data.batch_size.",
        "gpu_hollow": "GPU {gpu} reports {mean_percent} utilisation but draws only {power_share} of its power limit: "
        "some kernel always runs, but kernels are small or wait for the host. Look into the step with myxtts profile.",
        "gpu_gaps": "The GPU runs kernels only {busy_share} of the time although the run does not wait for data: look "
        "into the step with myxtts diagnose.",
        "run_retraces": "{retraced_share} of the steps make a new graph before they compute: shapes or arguments of "
        "the step change. myxtts diagnose finds the cause.",
        "run_pauses": "Only {wall_share} of the wall clock is spent in steps; the rest goes to checkpoints, validation "
        "and samples. Raise training.checkpoint_steps.",
        "gpu_swings": "The utilisation of GPU {gpu} swings between {low_percent} and {high_percent}: data comes "
        "in bursts.",
        "gpu_throttled": "GPU {gpu} is throttled: {reasons}.",
        "gpu_memory_full": "The memory of GPU {gpu} is {used_share} full: a longer batch may not fit. Lower "
        "data.batch_size.",
        "host_memory_full": "The machine's memory is {used_share} full: processes may be killed. Lower "
        "data.buffer_size.",
        "gpu_lost": "GPU {gpu} is lost: it no longer answers the driver. Restart the machine; look for Xid in "
        "the system's log.",
    }
)

STARVED_AU = 0.9
"""Accelerator utilisation under which a run counts as starved."""
_FED_AU = 0.98
"""Above it data is always ready and cannot be the reason why steps differ."""
FULL_SHARE = 0.95
"""Share of GPU or host memory in use from which a warning is given."""
_MIN_STEPS = 8
"""A run with fewer steps in its window is not judged."""
_NUM_RECENT = 30
"""Samples over which the utilisation of a GPU is judged: one minute at the default interval of 2 s."""
_MIN_RECENT = 10
_IDLE_PERCENT = 50.0
"""Mean utilisation below which a GPU with a process on it counts as underused."""
_FULL_PERCENT, _LOW_POWER = 80.0, 0.4
"""A GPU counts as hollow above this mean utilisation and under this share of its power limit: a GPU that computes all
the time draws at least half of it."""
_LOW_BUSY, _LOW_WALL = 0.6, 0.7
"""Shares of GPU busy time and of the wall clock in steps under which a run that has its data is warned of."""
_MANY_RETRACES = 0.2
"""Share of steps with a new graph above which a run is warned of."""
_SWING_PERCENT = 30.0
"""Least distance between the 10 % and 90 % quantiles of a swinging GPU's utilisation, in percentage points."""
_SWING_SHARE = 0.5
"""The 10 % quantile of a swinging GPU's utilisation lies under this share of its 90 % quantile."""
_HELD_BACK_CLOCK = 0.75
"""A power cap counts below this share of the maximum clock: under full load about four fifths are normal."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One warning, without words: `key` selects its sentence in `_SENTENCES`, `numbers` and `reasons` fill it.

    `gpu` is the index in nvidia-smi, None for the run and the host. `reasons` are keys of `THROTTLE_TEXTS`.
    """

    kind: AlertKind
    key: str
    gpu: int | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


@dataclass(slots=True)
class AlertRecord:
    """An alert over a whole watch: first and last time, number of samples, and the numbers of the last one."""

    alert: Alert
    first_s: float
    last_s: float
    num_samples: int = 1


class AlertBook:
    """Collects the alerts of a watch; equal key, GPU and reasons are one record."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, int | None, tuple[str, ...]], AlertRecord] = {}

    def note(self, alerts: Sequence[Alert], elapsed_s: float) -> None:
        for alert in alerts:
            name = (alert.key, alert.gpu, alert.reasons)
            record = self._records.get(name)
            if record is None:
                self._records[name] = AlertRecord(alert, elapsed_s, elapsed_s)
            else:
                record.alert, record.last_s = alert, elapsed_s
                record.num_samples += 1

    @property
    def records(self) -> list[AlertRecord]:
        """Records in the order of their first occurrence."""
        return list(self._records.values())


def find_alerts(sample: Sample, history: History) -> list[Alert]:
    """Returns the alerts of the newest sample; it must already have been added to `history`."""
    alerts = [*_judge_run(sample.run)]
    for gpu in sample.gpus:
        alerts += _judge_gpu(gpu, sample.run, history)
    if sample.host.ram_share >= FULL_SHARE:
        alerts.append(Alert("memory", "host_memory_full", numbers={"used_share": sample.host.ram_share}))
    return alerts


def _judge_run(run: RunReading | None) -> Iterator[Alert]:
    """Judges stall, starvation (AU under 0.9) and oscillation; above an AU of 0.98 oscillation is not the data's."""
    if run is None:
        return
    if run.state == "stalled":
        yield Alert("stall", "run_stalled", numbers={"idle_time": run.idle_s or 0.0})
    if run.state != "running" or run.num_steps < _MIN_STEPS:
        return
    if run.au is not None and run.au < STARVED_AU:
        numbers = {"wait_share": 1 - run.au, "wait_ms": 1000 * (run.wait_s or 0.0), "depth": run.depth or 0.0}
        yield Alert("starvation", "run_starved", numbers=numbers)
    elif run.device_busy is not None and run.device_busy < _LOW_BUSY:
        yield Alert("step", "gpu_gaps", numbers={"busy_share": run.device_busy})
    if run.retraced_share is not None and run.retraced_share > _MANY_RETRACES:
        yield Alert("step", "run_retraces", numbers={"retraced_share": run.retraced_share})
    if run.wall_share is not None and run.wall_share < _LOW_WALL:
        yield Alert("step", "run_pauses", numbers={"wall_share": run.wall_share})
    if run.variation is not None and run.variation > STABLE_VARIATION:
        if run.au is not None and run.au > _FED_AU:
            yield Alert("oscillation", "run_steps_differ", numbers={"variation_share": run.variation})
        elif run.period_steps is None:
            yield Alert("oscillation", "run_uneven", numbers={"variation_share": run.variation})
        else:
            numbers = {"variation_share": run.variation, "period_count": run.period_steps}
            yield Alert("oscillation", "run_swings", numbers=numbers)


def _judge_gpu(gpu: GpuReading, run: RunReading | None, history: History) -> Iterator[Alert]:
    if gpu.problem == LOST:
        yield Alert("lost", "gpu_lost", gpu.index)
        return
    if gpu.memory_share is not None and gpu.memory_share >= FULL_SHARE:
        yield Alert("memory", "gpu_memory_full", gpu.index, {"used_share": gpu.memory_share})
    reasons = _find_throttling(gpu)
    if reasons:
        yield Alert("throttling", "gpu_throttled", gpu.index, reasons=reasons)
    yield from _judge_use(gpu, run, history)


def _find_throttling(gpu: GpuReading) -> tuple[str, ...]:
    """Returns the throttle reasons; a power cap, normal at full load, counts only where the clock drops much."""
    reasons = gpu.throttle_reasons or ()
    is_held_back = (
        gpu.sm_clock_mhz is None
        or not gpu.max_sm_clock_mhz
        or gpu.sm_clock_mhz < _HELD_BACK_CLOCK * gpu.max_sm_clock_mhz
    )
    return tuple(reason for reason in reasons if reason != "power_cap" or is_held_back)


def _judge_use(gpu: GpuReading, run: RunReading | None, history: History) -> Iterator[Alert]:
    """Judges oscillation and starvation by GPU utilisation, for a GPU with a compute process on it.

    NVML's utilisation is the share of time in which any kernel ran, however small; the power tells how much it did.

    Low utilisation is put down to the data unless the followed run shows that it does not wait for any.
    """
    recent = np.array(history.get_recent(f"gpu{gpu.index}_utilization_percent", _NUM_RECENT))
    recent = recent[~np.isnan(recent)]
    # Where processes cannot be listed, a GPU that was busy at any time counts as used.
    is_used = bool(gpu.processes) or (gpu.processes is None and bool(recent.any()))
    if len(recent) < _MIN_RECENT or not is_used:
        return
    low, high, mean = float(np.quantile(recent, 0.1)), float(np.quantile(recent, 0.9)), float(recent.mean())
    if high - low >= _SWING_PERCENT and low < _SWING_SHARE * high:
        yield Alert("oscillation", "gpu_swings", gpu.index, {"low_percent": low, "high_percent": high})
    elif mean < _IDLE_PERCENT:
        is_fed = run is not None and run.state == "running" and run.au is not None and run.au >= STARVED_AU
        yield Alert("starvation", "gpu_underused" if is_fed else "gpu_idle", gpu.index, {"mean_percent": mean})
    elif mean >= _FULL_PERCENT and (power := _measure_power(gpu, history)) is not None and power < _LOW_POWER:
        yield Alert("step", "gpu_hollow", gpu.index, {"mean_percent": mean, "power_share": power})


def _measure_power(gpu: GpuReading, history: History) -> float | None:
    """Returns the mean power over the recent samples as a share of the limit; None where the GPU does not report it."""
    recent = np.array(history.get_recent(f"gpu{gpu.index}_power_w", _NUM_RECENT))
    recent = recent[~np.isnan(recent)]
    return float(recent.mean()) / gpu.power_limit_w if len(recent) and gpu.power_limit_w else None


def describe_alert(alert: Alert, tr: Translator) -> str:
    """Returns the sentence of an alert; numbers are formatted by the last word of their names, as in `idle_time`."""
    values = {name: _format(name, number, tr) for name, number in alert.numbers.items()}
    if alert.gpu is not None:
        values["gpu"] = tr.count(alert.gpu)
    if alert.reasons:
        values["reasons"] = tr.join(tr(THROTTLE_TEXTS[reason]) for reason in alert.reasons)
    return tr(_SENTENCES[alert.key], **values)


def _format(name: str, number: float, tr: Translator) -> str:
    kind = name.rpartition("_")[2]
    if kind == "share":
        return tr.share(number, digits=0)
    if kind == "percent":
        return tr.share(number / 100, digits=0)
    if kind == "count":
        return tr.count(number)
    return tr.time(number) if kind == "time" else tr.number(number)
