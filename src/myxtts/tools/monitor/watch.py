"""Sampling loop of `myxtts monitor`: at every interval takes a sample, finds alerts, logs and shows it.

`Monitor.summarize` gives the whole watch as JSON: statistics by GPU, host and run, and all warnings.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from myxtts.tools.monitor.alerts import AlertBook, AlertRecord, describe_alert, find_alerts
from myxtts.tools.monitor.gpus import GpuReading
from myxtts.tools.monitor.log import SampleLog
from myxtts.tools.monitor.sample import RUN_COLUMNS, History, Sample, Sampler
from myxtts.tools.monitor.screen import Show, View
from myxtts.tools.words import Translator

DEFAULT_INTERVAL_S = 2.0
_FIRST_LOOK_S = 0.2
"""Time before the first sample, over which its CPU load is measured."""
# Columns of `Sample.to_row` whose statistics are in the summary.
_GPU_SUMMARY = tuple(
    (
        "utilization_percent memory_used_bytes power_w temperature_c sm_clock_mhz memory_clock_mhz "
        "pcie_rx_bytes_per_s pcie_tx_bytes_per_s"
    ).split()
)
# Fields of the last reading of a GPU that are in the summary as they are.
_GPU_FACTS = tuple(
    ("index name uuid problem memory_bytes pcie_generation pcie_width throttle_reasons processes unavailable").split()
)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Interval and duration of a watch. Without a duration it runs until interrupted; `is_once` takes one sample."""

    interval_s: float = DEFAULT_INTERVAL_S
    duration_s: float | None = None
    is_once: bool = False


class Monitor:
    """One watch: its sampler, history and alerts.

    `watch` may be interrupted by KeyboardInterrupt at any moment; `summarize` and `last_view` then give what was
    measured until then.
    """

    def __init__(
        self,
        sampler: Sampler,
        schedule: Schedule | None = None,
        log: SampleLog | None = None,
        tr: Translator | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`sampler` and `log` must have been entered as contexts by the caller."""
        self.schedule = schedule if schedule is not None else Schedule()
        self.sampler, self.history, self.book = sampler, History(), AlertBook()
        self._log, self._clock = log, clock
        self._tr = tr or Translator()
        self._own_cpu_s: float | None = None
        self._measured_at = 0.0
        self._own_cpu_percent: float | None = None
        self.first: Sample | None = None
        self.last: Sample | None = None
        self.last_view: View | None = None

    def watch(self, show: Show) -> None:
        """Samples until the duration is over, with a last sample at its end. Late samples shift the later ones."""
        started = self._clock()
        due = started + min(_FIRST_LOOK_S, self.schedule.interval_s)
        duration_s = self.schedule.duration_s
        end = None if duration_s is None else started + duration_s
        while True:
            if end is not None:
                due = min(due, end)
            time.sleep(max(0.0, due - self._clock()))
            show(self.look())
            now = self._clock()
            if self.schedule.is_once or (end is not None and now >= end):
                return
            # On a fixed grid, without drift; after a delay the next sample is due at once.
            due = max(due + self.schedule.interval_s, now)

    def look(self) -> View:
        """Takes one sample, finds its alerts, logs it and returns the view. The log is written before it is shown."""
        sample = self.sampler.take()
        self.first, self.last = self.first or sample, sample
        self.history.add(sample.to_row())
        alerts = find_alerts(sample, self.history)
        self.book.note(alerts, sample.elapsed_s)
        if self._log is not None:
            self._log.write(sample, alerts)
        self.last_view = View(
            sample=sample,
            alerts=alerts,
            history=self.history,
            interval_s=self.schedule.interval_s,
            no_gpu_reason=self.sampler.gpus.no_gpu_reason,
            own_cpu_percent=self._measure_own_cost(),
            log_state=self._log.describe() if self._log is not None else "",
            tr=self._tr,
        )
        return self.last_view

    def _measure_own_cost(self) -> float | None:
        """Returns the CPU time of this process since its first sample, drawing included, in percent of one core."""
        now, cpu_s = self._clock(), time.process_time()
        if self._own_cpu_s is None:
            self._own_cpu_s, self._measured_at = cpu_s, now
        elif now > self._measured_at:
            self._own_cpu_percent = 100 * (cpu_s - self._own_cpu_s) / (now - self._measured_at)
        return self._own_cpu_percent

    def summarize(self) -> dict[str, Any]:
        """Returns the whole watch for JSON output: mean, extremes and last value of each number, state and warnings."""
        sample = self.last
        if sample is None:
            return {"num_samples": 0, "seconds": 0.0, "gpus": [], "run": None, "warnings": []}
        own = self._own_cpu_percent
        return {
            "num_samples": self.history.num_rows,
            "seconds": round(sample.elapsed_s, 3),
            "interval_s": self.schedule.interval_s,
            "started": self.first.time if self.first is not None else None,
            "own_cpu_percent": round(own, 3) if own is not None else None,
            "no_gpu_reason": self.sampler.gpus.no_gpu_reason,
            "gpus": [self._summarize_gpu(gpu) for gpu in sample.gpus],
            "host": {
                "num_cpus": sample.host.num_cpus,
                "ram_bytes": sample.host.ram_bytes,
                **self._collect_stats("", ("cpu_percent", "ram_used_bytes")),
            },
            "run": self._summarize_run(sample),
            "warnings": [_describe_record(record, self._tr) for record in self.book.records],
            "log_file": str(self._log.path) if self._log is not None else None,
            "log_problem": self._log.problem if self._log is not None else "",
        }

    def _summarize_gpu(self, gpu: GpuReading) -> dict[str, Any]:
        """Describes a GPU: identity, link, throttling and processes of the last sample, statistics over the watch."""
        reading = asdict(gpu)
        facts = {name: reading[name] for name in _GPU_FACTS}
        return {**facts, **self._collect_stats(f"gpu{gpu.index}_", _GPU_SUMMARY)}

    def _summarize_run(self, sample: Sample) -> dict[str, Any] | None:
        """Describes the run: state now, means of its last window under `last`, and statistics over the watch."""
        run = sample.run
        if run is None:
            return None
        numbers = {name: getattr(run, name) for name in ("state", "position", "step", "epoch", "loss", "idle_s")}
        last = {name: getattr(run, name) for name in RUN_COLUMNS}
        return {"path": str(Path(run.path)), **numbers, "last": last, **self._collect_stats("", RUN_COLUMNS)}

    def _collect_stats(self, prefix: str, names: tuple[str, ...]) -> dict[str, Any]:
        """Returns the statistics by name; None for a number that no sample had."""
        found = {name: self.history.get_stats(prefix + name) for name in names}
        return {name: stats.to_json() if stats is not None else None for name, stats in found.items()}


def _describe_record(record: AlertRecord, tr: Translator) -> dict[str, Any]:
    """A warning for JSON; `first_s` and `last_s` are seconds since the start of the watch."""
    return {
        "kind": record.alert.kind,
        "gpu": record.alert.gpu,
        "reasons": list(record.alert.reasons),
        "message": describe_alert(record.alert, tr),
        "first_s": round(record.first_s, 3),
        "last_s": round(record.last_s, 3),
        "num_samples": record.num_samples,
    }
