"""One look at everything that is watched: GPUs, processor, memory and the run, as numbers for screen, log and page."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from myxtts.runtime.hardware import count_cpus, read_memory_limit
from myxtts.tools.monitor.gpus import GpuReader, GpuReading, ReadingNvml
from myxtts.tools.monitor.run import RUNS_FOLDER, RunFollower, RunReading, find_newest_run

Row = dict[str, float | int | str | None]
"""One sample as a flat row: the same columns every time, None where there is no number."""

_GPU_COLUMNS = (
    "name",
    "problem",
    "utilization_percent",
    "memory_used_bytes",
    "memory_bytes",
    "power_w",
    "power_limit_w",
    "temperature_c",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "pcie_rx_bytes_per_s",
    "pcie_tx_bytes_per_s",
    "pcie_generation",
    "pcie_width",
)
_RUN_COLUMNS = ("au", "wait_s", "step_s", "depth", "utterances_per_s", "batches_per_s", "padding", "variation")
_LOOK_FOR_RUN_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class HostReading:
    """The machine besides its GPUs; memory is what this process may use, as a container leaves it."""

    cpu_percent: float
    num_cpus: int
    ram_used_bytes: int
    ram_bytes: int

    @property
    def ram_share(self) -> float:
        return self.ram_used_bytes / max(1, self.ram_bytes)


@dataclass(frozen=True, slots=True)
class Sample:
    """Everything at one moment. `elapsed_s` counts from the start of watching, `time` is UTC."""

    elapsed_s: float
    time: str
    host: HostReading
    gpus: tuple[GpuReading, ...]
    run: RunReading | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def to_row(self) -> Row:
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
    """Means belong to this moment only while the run is going; after that they would draw a line that is not there."""
    row: Row = {
        "run": run.path if run is not None else None,
        "run_state": run.state if run is not None else None,
        "position": run.position if run is not None else None,
        "step": run.step if run is not None else None,
        "loss": run.loss if run is not None else None,
    }
    is_going = run is not None and run.state == "running"
    return row | {name: getattr(run, name) if is_going else None for name in _RUN_COLUMNS}


class Sampler:
    """Takes samples while it is open. Without `run_path` it follows the newest run of `runs_folder`."""

    def __init__(
        self,
        run_path: Path | None = None,
        *,
        nvml: ReadingNvml | None = None,
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
        # The first call only sets the mark from which the next one counts.
        psutil.cpu_percent()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.gpus.__exit__(kind, error, trace)
        if self._follower is not None:
            self._follower.close()

    def take(self) -> Sample:
        return Sample(
            elapsed_s=self._clock() - self._started,
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            host=self._read_host(),
            gpus=self.gpus.read(),
            run=self._read_run(),
        )

    def _read_host(self) -> HostReading:
        memory = psutil.virtual_memory()
        limit_bytes, free_bytes = read_memory_limit()
        ram_bytes = min(memory.total, limit_bytes or memory.total)
        free = memory.available if free_bytes is None else min(memory.available, free_bytes)
        return HostReading(psutil.cpu_percent(), self._num_cpus, max(0, ram_bytes - free), ram_bytes)

    def _read_run(self) -> RunReading | None:
        self._look_for_newer_run()
        self._last_run = self._follower.read() if self._follower is not None else None
        return self._last_run

    def _look_for_newer_run(self) -> None:
        """A run that goes on is followed to its end; after it, whichever begins next."""
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


# What was measured so far, in constant memory: recent values for sparklines, all of the time for plots and means.

_MAX_RECENT = 600
_MAX_POINTS = 2048


@dataclass(slots=True)
class Stats:
    """Mean, extremes and last value of one column."""

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
    """Takes rows; text columns are left out. NaN stands where a row had no number."""

    def __init__(self) -> None:
        self.num_rows = 0
        self._recent: dict[str, deque[float]] = {}
        self._stats: dict[str, Stats] = {}
        self._points: dict[str, list[float]] = {}
        self._num_rows_per_point = 1
        self._pending: list[Mapping[str, float]] = []

    def add(self, row: Row) -> None:
        numbers = {name: _to_number(value) for name, value in row.items() if not isinstance(value, str)}
        for name, number in numbers.items():
            recent = self._recent.setdefault(name, deque([math.nan] * min(self.num_rows, _MAX_RECENT), _MAX_RECENT))
            recent.append(number)
            if not math.isnan(number):
                self._stats.setdefault(name, Stats()).add(number)
        self.num_rows += 1
        self._pending.append(numbers)
        if len(self._pending) >= self._num_rows_per_point:
            self._add_point()

    def get_recent(self, column: str, num_values: int) -> list[float]:
        """The last values, oldest first; as many as there are."""
        recent = self._recent.get(column, deque())
        start = max(0, len(recent) - num_values)
        return [recent[place] for place in range(start, len(recent))]

    def get_stats(self, column: str) -> Stats | None:
        return self._stats.get(column)

    def get_curve(self, column: str) -> tuple[list[float], list[float]]:
        """Seconds and values over all of the time; where it was long, each value is a mean."""
        points, last = self._points, self._average_pending()
        seconds = [*points.get("elapsed_s", []), *([last["elapsed_s"]] if "elapsed_s" in last else [])]
        values = [*points.get(column, []), *([last.get(column, math.nan)] if "elapsed_s" in last else [])]
        missing = len(seconds) - len(values)
        return seconds, [math.nan] * missing + values

    def _add_point(self) -> None:
        point = self._average_pending()
        self._pending = []
        num_points = max((len(values) for values in self._points.values()), default=0)
        for name in {**self._points, **point}:
            values = self._points.setdefault(name, [math.nan] * num_points)
            values.append(point.get(name, math.nan))
        if num_points + 1 >= _MAX_POINTS:
            self._points = {name: _halve(values) for name, values in self._points.items()}
            self._num_rows_per_point *= 2

    def _average_pending(self) -> dict[str, float]:
        names = {name for numbers in self._pending for name in numbers}
        return {name: _average([numbers.get(name, math.nan) for numbers in self._pending]) for name in names}


def _halve(values: list[float]) -> list[float]:
    return [_average(values[place : place + 2]) for place in range(0, len(values), 2)]


def _average(values: list[float]) -> float:
    finite = [value for value in values if not math.isnan(value)]
    return sum(finite) / len(finite) if finite else math.nan


def _to_number(value: float | str | None) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
