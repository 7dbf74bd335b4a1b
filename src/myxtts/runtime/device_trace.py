"""Time in which GPUs run kernels, from short traces of TensorFlow's profiler.

`read_device_times` reads an `XSpace`, the protobuf of the profiler, which TensorFlow ships; no plugin is needed. Gaps
between two kernels count as idle, unlike in the utilisation of NVML, which only asks whether any kernel ran at all in
the last sample period.
`BusySampler` traces a few steps of a training every few minutes. Without a GPU nothing is traced.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from myxtts.runtime.plan import is_cpu
from myxtts.types import Say

_PLANE = re.compile(r"^/device:(GPU:\d+)")
"""Planes of GPUs; other planes are the host and the environment."""
_STREAM = "Stream"
"""Lines of a plane that are CUDA streams. Other lines are derived from them and would count twice."""
_COPY_NAMES = ("memcpy", "memset")
_PS = 1e-12
_NUM_TRACED_STEPS = 5
"""Steps in one sample: enough for a mean, and few enough to be read in a tenth of a second."""
_FIRST_AFTER_S = 20.0
"""Seconds of training before the first sample: the first steps are not typical."""


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """What one GPU did during a trace. `busy_s` is the time in which at least one kernel ran, on any stream.

    `copy_s` is the time of copies and memory settings, which may run beside kernels; waiting for the device before a
    copy starts is not part of it.
    """

    busy_s: float
    copy_s: float
    num_kernels: int
    num_copies: int


def read_device_times(space: Any) -> dict[str, DeviceTime]:
    """Sums the events of each GPU of an `XSpace`, by name such as `GPU:0`; empty where no GPU was traced."""
    found = {}
    for plane in space.planes:
        match = _PLANE.match(plane.name)
        if match is None:
            continue
        kernels: list[tuple[int, int]] = []
        copies: list[tuple[int, int]] = []
        names = plane.event_metadata
        for line in plane.lines:
            if not line.name.startswith(_STREAM):
                continue
            for event in line.events:
                start = 1000 * line.timestamp_ns + event.offset_ps
                name = names[event.metadata_id].name.lower() if event.metadata_id in names else ""
                (copies if name.startswith(_COPY_NAMES) else kernels).append((start, start + event.duration_ps))
        found[match[1]] = DeviceTime(_measure_union(kernels), _measure_union(copies), len(kernels), len(copies))
    return found


def _measure_union(intervals: Iterable[tuple[int, int]]) -> float:
    """Returns the seconds covered by at least one of the intervals, which are in picoseconds."""
    covered, last_end = 0, 0
    for start, end in sorted(intervals):
        covered += max(0, end - max(start, last_end))
        last_end = max(last_end, end)
    return covered * _PS


class DeviceTrace:
    """A running trace of the GPUs; `stop` returns what they did. Raises `tf.errors.OpError` where it cannot be made."""

    def __init__(self) -> None:
        # Host events are left out: they would slow the training down and are not read.
        options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=0, device_tracer_level=1)
        self._folder = TemporaryDirectory(prefix="myxtts-trace-")
        try:
            tf.profiler.experimental.start(self._folder.name, options=options)
        except tf.errors.OpError:
            self._folder.cleanup()
            raise

    def stop(self) -> dict[str, DeviceTime]:
        try:
            tf.profiler.experimental.stop()
            spaces = [xplane_pb2.XSpace.FromString(path.read_bytes()) for path in self._list_files()]
        finally:
            self._folder.cleanup()
        return {name: times for space in spaces for name, times in read_device_times(space).items()}

    def drop(self) -> None:
        """Ends the trace without reading it."""
        tf.profiler.experimental.stop(save=False)
        self._folder.cleanup()

    def _list_files(self) -> list[Path]:
        return sorted(Path(self._folder.name).rglob("*.xplane.pb"))


class BusySampler:
    """Measures the share of time in which the training GPUs are busy, over a few steps every `every_s` seconds.

    `devices` are the training devices of the plan. On CPUs, and with `every_s` 0, nothing is measured. Where the
    profiler cannot trace the GPU, it says so once and measures no more.
    """

    def __init__(
        self,
        devices: Sequence[str],
        every_s: float,
        say: Say,
        start_trace: Callable[[], Any] = DeviceTrace,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._names = [device.strip("/").removeprefix("device:") for device in devices if not is_cpu(device)]
        self._every_s, self._say, self._start_trace, self._clock = every_s, say, start_trace, clock
        self.is_on = bool(self._names) and every_s > 0
        self._due_at = clock() + min(_FIRST_AFTER_S, every_s)
        self._trace: Any = None
        self._started_at, self._num_left = 0.0, 0
        self.share: float | None = None
        """The newest measurement, a mean over the training GPUs; None before the first."""
        self.num_kernels: float | None = None
        """Kernels that a training GPU ran in a step of the newest sample."""

    def note_step(self) -> None:
        """Called between two steps: begins a trace when one is due, and ends it a few steps later."""
        if self._trace is not None:
            self._num_left -= 1
            if self._num_left <= 0:
                self._finish()
        elif self.is_on and self._clock() >= self._due_at:
            self._begin()

    def drop(self) -> None:
        """Drops a trace under way, before work that is no step; the next step begins another."""
        if self._trace is not None:
            trace, self._trace = self._trace, None
            self._guard(trace.drop)

    def _begin(self) -> None:
        self._trace = self._guard(self._start_trace)
        self._num_left, self._started_at = _NUM_TRACED_STEPS, self._clock()

    def _finish(self) -> None:
        trace, self._trace = self._trace, None
        span_s = max(self._clock() - self._started_at, 1e-9)
        self._due_at = self._clock() + self._every_s
        times = self._guard(trace.stop)
        if times is None:
            return
        # The profiler may number GPUs differently when some are hidden: then all that were traced count.
        chosen = [times[name] for name in self._names if name in times] or list(times.values())
        if chosen:
            self.share = min(1.0, fmean(one.busy_s for one in chosen) / span_s)
            self.num_kernels = fmean(one.num_kernels for one in chosen) / _NUM_TRACED_STEPS
        else:
            self._give_up("the profiler does not report this GPU")

    def _guard(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except (tf.errors.OpError, OSError) as error:
            self._give_up(getattr(error, "message", None) or str(error))
            return None

    def _give_up(self, reason: str) -> None:
        self.is_on = False
        reason = reason.rstrip(".")
        self._say(f"The busy time of the GPU cannot be measured: {reason}. AU is the share of time without data wait.")
