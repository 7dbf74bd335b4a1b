"""Samples of the monitor: GPUs, CPU, host memory and run at one moment, and their history in constant memory.

`Sampler` takes them; `Sample.to_row` gives the columns that `History` and CSV logs share.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import psutil

from myxtts.runtime.hardware import count_cpus, measure_memory
from myxtts.tools.monitor.gpus import GpuReader, GpuReading
from myxtts.tools.monitor.run import RUNS_FOLDER, RunFollower, RunReading, find_newest_run

Row = dict[str, float | int | str | None]
"""One sample as a flat row: the same columns every time, None where there is no number."""

_GPU_COLUMNS = tuple(
    (
        "name problem utilization_percent memory_used_bytes memory_bytes power_w power_limit_w temperature_c "
        "sm_clock_mhz memory_clock_mhz pcie_rx_bytes_per_s pcie_tx_bytes_per_s pcie_generation pcie_width"
    ).split()
)
RUN_COLUMNS = (
    *("au", "device_busy", "wall_share", "wait_s", "step_s"),
    *("depth", "utterances_per_s", "batches_per_s", "padding", "variation"),
)
"""Means over the last seconds of a run, None while it is not running."""
_LOOK_FOR_RUN_EVERY_S = 5.0
"""Time between two searches for a newer run, each of which lists the runs folder."""
_MAX_RECENT = 600
"""Samples that are kept for sparklines and GPU alerts: 20 minutes at the default interval of 2 s."""


@dataclass(frozen=True, slots=True)
class HostReading:
    """CPU load and memory of the host; `ram_bytes` is the smaller of the machine's memory and the container's limit."""

    cpu_percent: float
    num_cpus: int
    ram_used_bytes: int
    ram_bytes: int

    @property
    def ram_share(self) -> float:
        return self.ram_used_bytes / max(1, self.ram_bytes)


@dataclass(frozen=True, slots=True)
class Sample:
    """All readings of one moment. `elapsed_s` counts from the start of watching; `time` is UTC in ISO 8601."""

    elapsed_s: float
    time: str
    host: HostReading
    gpus: tuple[GpuReading, ...]
    run: RunReading | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def to_row(self) -> Row:
        """Flattens the sample; the columns depend on the number of GPUs only. Lists become counts or joined words."""
        row: Row = {"time": self.time, "elapsed_s": round(self.elapsed_s, 3)}
        row |= {"cpu_percent": self.host.cpu_percent, "ram_used_bytes": self.host.ram_used_bytes}
        row |= _flatten_run(self.run)
        for gpu in self.gpus:
            row |= {f"gpu{gpu.index}_{name}": getattr(gpu, name) for name in _GPU_COLUMNS}
            reasons, processes = gpu.throttle_reasons, gpu.processes
            row[f"gpu{gpu.index}_throttle_reasons"] = None if reasons is None else " ".join(reasons)
            row[f"gpu{gpu.index}_num_processes"] = None if processes is None else len(processes)
        return row


def _flatten_run(run: RunReading | None) -> Row:
    """Columns of the run; its means are None unless it is running, because they would be out of date."""
    names = {"run": "path", "run_state": "state", "position": "position", "step": "step", "loss": "loss"}
    row: Row = {column: getattr(run, name, None) for column, name in names.items()}
    is_going = run is not None and run.state == "running"
    return row | {name: getattr(run, name) if is_going else None for name in RUN_COLUMNS}


class Sampler:
    """Context that reads GPUs, host and run. Without `run_path` it follows the newest run in `runs_folder`."""

    def __init__(
        self,
        run_path: Path | None = None,
        *,
        nvml: Any = None,
        runs_folder: Path = RUNS_FOLDER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.gpus = GpuReader(nvml)
        self._is_run_named, self._runs_folder, self._clock = run_path is not None, runs_folder, clock
        self._follower = RunFollower(run_path, clock) if run_path is not None else None
        self._last_run: RunReading | None = None
        self._looked_at: float | None = None
        self._num_cpus = count_cpus()
        self._started = clock()

    def __enter__(self) -> Self:
        self.gpus.__enter__()
        self._started = self._clock()
        # psutil measures between two calls: the first one only starts the interval.
        psutil.cpu_percent()
        return self

    def __exit__(self, *_: object) -> None:
        self.gpus.__exit__()
        if self._follower is not None:
            self._follower.close()

    def take(self) -> Sample:
        """Takes one sample now; the CPU load is the mean since the sample before."""
        self._look_for_newer_run()
        self._last_run = self._follower.read() if self._follower is not None else None
        return Sample(
            elapsed_s=self._clock() - self._started,
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            host=self._read_host(),
            gpus=self.gpus.read(),
            run=self._last_run,
        )

    def _read_host(self) -> HostReading:
        ram_bytes, free_bytes = measure_memory()
        return HostReading(psutil.cpu_percent(), self._num_cpus, max(0, ram_bytes - free_bytes), ram_bytes)

    def _look_for_newer_run(self) -> None:
        """Switches to the newest run, unless a run was named or the followed one is running or stalled."""
        if self._is_run_named or (self._last_run is not None and self._last_run.state in ("running", "stalled")):
            return
        now = self._clock()
        if self._looked_at is not None and now - self._looked_at < _LOOK_FOR_RUN_EVERY_S:
            return
        self._looked_at = now
        newest = find_newest_run(self._runs_folder)
        if newest is not None and (self._follower is None or newest != self._follower.path):
            if self._follower is not None:
                self._follower.close()
            self._follower = RunFollower(newest, self._clock)


@dataclass(slots=True)
class Stats:
    """Running statistics of one column: count, sum, extremes and last value."""

    num_values: int = 0
    total: float = 0.0
    lowest: float = math.inf
    highest: float = -math.inf
    last: float = math.nan

    def add(self, value: float) -> None:
        self.num_values += 1
        self.total += value
        self.lowest, self.highest = min(self.lowest, value), max(self.highest, value)
        self.last = value

    @property
    def mean(self) -> float:
        return self.total / self.num_values

    def to_json(self) -> dict[str, float]:
        return {"mean": round(self.mean, 6), "min": self.lowest, "max": self.highest, "last": self.last}


class History:
    """The last 600 values and running statistics of every numeric column, in constant memory.

    NaN stands where a row had no number, so that the values of all columns line up in time.
    """

    def __init__(self) -> None:
        self.num_rows = 0
        self._recent: dict[str, deque[float]] = {}
        self._stats: dict[str, Stats] = {}

    def add(self, row: Row) -> None:
        """Adds a row; a column that appears later is filled with NaN for the rows before."""
        for name, value in row.items():
            if isinstance(value, str):
                continue
            number = math.nan if value is None else float(value)
            recent = self._recent.setdefault(name, deque([math.nan] * min(self.num_rows, _MAX_RECENT), _MAX_RECENT))
            recent.append(number)
            if not math.isnan(number):
                self._stats.setdefault(name, Stats()).add(number)
        self.num_rows += 1

    def get_recent(self, column: str, num_values: int) -> list[float]:
        """Returns up to `num_values` of the newest values, oldest first; empty for an unknown column."""
        return list(self._recent.get(column, ()))[-num_values:] if num_values > 0 else []

    def get_stats(self, column: str) -> Stats | None:
        """Returns the statistics over the whole watch; None where the column never had a number."""
        return self._stats.get(column)
