"""GPU, processor and memory of a training over time: sampled in its process, written to system.jsonl, read by pages.

`SystemLog` is a callback of the training loop, so that samples carry the step. Its thread sleeps nearly all the time.
The first minute has one each second, later minutes have fewer, down to one in ten seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

import psutil

from myxtts.storage.json_file import JsonLines, is_number
from myxtts.tools.monitor.gpus import GpuReader
from myxtts.training.callbacks import Record, TrainResult
from myxtts.training.run.folder import SYSTEM_FILE_NAME

if TYPE_CHECKING:
    from myxtts.training.loop import TrainingLoop

GPU_COLUMNS = ("utilization_percent", "memory_used_bytes", "power_w", "temperature_c")
_SHORTEST_S, _LONGEST_S, _GROWTH = 1.0, 10.0, 1 / 60
"""Seconds between two samples: at the start, at most, and how they grow with the time since the start."""
_PAUSE_S = 60.0
"""A longer time between two samples was a pause of the run, which pages leave out."""


class SystemLog:
    """Samples from the first step until it is left as a context."""

    def __init__(self, *, nvml: Any = None) -> None:
        self._gpus, self._process = GpuReader(nvml), psutil.Process()
        self._step: int | None = None
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._gpus.__enter__()
        # psutil measures between two calls: the first one only starts the interval.
        self._process.cpu_percent()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
        self._gpus.__exit__()

    def on_step(self, loop: TrainingLoop, record: Record | None) -> None:
        self._step = loop.step
        if self._thread is None:
            lines = JsonLines(loop.run.path / SYSTEM_FILE_NAME, loop.say)
            self._thread = threading.Thread(target=self._run, args=(lines,), name="system-log", daemon=True)
            self._thread.start()

    def on_checkpoint(self, loop: TrainingLoop) -> None:
        """Nothing to note."""

    def on_end(self, loop: TrainingLoop, result: TrainResult) -> None:
        """Nothing to note: the context ends the thread, also after an error."""

    def take(self) -> dict[str, Any]:
        """Returns a sample: seconds since 1970, step, cores in use and memory of this process, and each GPU."""
        gpus = [
            {"index": gpu.index, "name": gpu.name, **{name: getattr(gpu, name) for name in GPU_COLUMNS}}
            for gpu in self._gpus.read()
        ]
        return {
            "time": round(time.time(), 1),
            "at_step": self._step,
            "cores": round(self._process.cpu_percent() / 100, 2),
            "memory_bytes": self._process.memory_info().rss,
            "gpus": gpus,
        }

    def _run(self, lines: JsonLines) -> None:
        started = time.monotonic()
        pause_s = _SHORTEST_S
        while not self._is_over.wait(pause_s):
            lines.append(self.take())
            pause_s = min(_LONGEST_S, _SHORTEST_S + _GROWTH * (time.monotonic() - started))


class RunClock:
    """Minutes of training at the times of samples, without the pauses between the sessions of a run."""

    def __init__(self) -> None:
        self._last_s: float | None = None
        self.minutes = 0.0

    def advance(self, time_s: float) -> float:
        gap_s = time_s - self._last_s if self._last_s is not None else 0.0
        self.minutes += (gap_s if 0 <= gap_s <= _PAUSE_S else 0.0) / 60
        self._last_s = time_s
        return self.minutes


def flatten(lines: Iterable[Mapping[str, Any]], clock: RunClock) -> list[dict[str, float]]:
    """Returns a row for each sample that can be read: minutes, and the numbers in the units of the charts."""
    rows = []
    for line in lines:
        if not is_number(line.get("time")):
            continue
        row = {"minutes": clock.advance(float(line["time"]))}
        scaled = {"cores": 1.0, "memory_bytes": 1e-9}
        row |= {name: scale * line[name] for name, scale in scaled.items() if is_number(line.get(name))}
        gpus = line.get("gpus")
        for gpu in gpus if isinstance(gpus, list) else ():
            if isinstance(gpu, dict) and isinstance(gpu.get("index"), int):
                scale = {"memory_used_bytes": 1e-9}
                row |= {
                    f"gpu{gpu['index']}_{name}": scale.get(name, 1.0) * gpu[name]
                    for name in GPU_COLUMNS
                    if is_number(gpu.get(name))
                }
        rows.append(row)
    return rows
