"""Busy time of GPUs from traces: made-up planes of the profiler, and samples of a training between steps."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from myxtts.runtime.device_trace import BusySampler, DeviceTime, DeviceTrace, read_device_times

MS = 10**9
"""Picoseconds of a millisecond."""


def make_space(planes: dict[str, dict[str, list[tuple[str, float, float]]]]) -> Any:
    """A trace: events (name, start in ms, length in ms) by plane and line."""
    space = xplane_pb2.XSpace()
    for plane_name, lines in planes.items():
        plane = space.planes.add(name=plane_name)
        for line_name, events in lines.items():
            line = plane.lines.add(name=line_name, timestamp_ns=5_000_000)
            for name, start_ms, length_ms in events:
                number = len(plane.event_metadata) + 1
                plane.event_metadata[number].name = name
                line.events.add(metadata_id=number, offset_ps=int(start_ms * MS), duration_ps=int(length_ms * MS))
    return space


def test_kernels_that_overlap_count_once_and_copies_apart() -> None:
    streams: dict[str, list[tuple[str, float, float]]] = {
        "Stream #7(Compute)": [("fusion_1", 0, 4), ("gemm", 6, 2)],
        "Stream #8(Compute)": [("fusion_2", 3, 2)],
        "Stream #9(MemcpyH2D)": [("MemcpyH2D", 1, 3), ("Memset", 9, 1)],
        "XLA Ops": [("fusion_1", 0, 20)],
    }
    host: dict[str, list[tuple[str, float, float]]] = {"python": [("step", 0, 100)]}
    times = read_device_times(make_space({"/device:GPU:1": streams, "/host:CPU": host, "/device:CUSTOM:0": {}}))
    assert list(times) == ["GPU:1"]
    assert [times["GPU:1"].busy_s, times["GPU:1"].copy_s] == pytest.approx([0.007, 0.004])
    assert (times["GPU:1"].num_kernels, times["GPU:1"].num_copies) == (3, 2)


def test_a_machine_without_a_gpu_has_no_device_times() -> None:
    trace = DeviceTrace()
    tf.reduce_sum(tf.random.normal([64, 64]) @ tf.random.normal([64, 64])).numpy()
    assert trace.stop() == {}
    # Nothing is left over that would keep another trace from starting.
    DeviceTrace().drop()


class FakeTrace:
    def __init__(self, times: dict[str, DeviceTime]) -> None:
        self.times, self.num_drops = times, 0

    def stop(self) -> dict[str, DeviceTime]:
        return self.times

    def drop(self) -> None:
        self.num_drops += 1


class Stage:
    """A sampler with a clock that goes on by 10 ms a step."""

    def __init__(self, times: dict[str, DeviceTime], devices: tuple[str, ...] = ("/GPU:0",)) -> None:
        self.now, self.traces, self.said = 0.0, list[FakeTrace](), list[str]()
        self._times = times
        self.sampler = BusySampler(devices, 60.0, self.said.append, self._start, lambda: self.now)

    def _start(self) -> FakeTrace:
        self.traces.append(FakeTrace(self._times))
        return self.traces[-1]

    def step(self, num_steps: int = 1) -> None:
        for _ in range(num_steps):
            self.now += 0.010
            self.sampler.note_step()


def busy(seconds: float) -> DeviceTime:
    return DeviceTime(seconds, 0.0, 100, 1)


def test_a_few_steps_are_sampled_every_so_often() -> None:
    stage = Stage({"GPU:0": busy(0.020), "GPU:3": busy(0.050)})
    stage.step(100)
    assert stage.traces == []
    stage.now = 20.0
    stage.step(6)
    # 20 of 5 x 10 ms; the other GPU does not train.
    assert stage.sampler.share == pytest.approx(0.4)
    assert stage.sampler.num_kernels == 20
    stage.step(100)
    assert len(stage.traces) == 1
    stage.now += 60
    stage.step()
    assert len(stage.traces) == 2


def test_a_checkpoint_in_the_middle_is_not_sampled() -> None:
    stage = Stage({"GPU:0": busy(0.050)})
    stage.now = 20.0
    stage.step(3)
    stage.sampler.drop()
    assert (stage.traces[0].num_drops, stage.sampler.share) == (1, None)
    stage.now += 5
    stage.step(6)
    assert stage.sampler.share == pytest.approx(1.0)


def test_mean_over_the_gpus_that_train() -> None:
    stage = Stage({"GPU:0": busy(0.05), "GPU:1": busy(0.04), "GPU:2": busy(0.02)}, ("/GPU:1", "/GPU:2"))
    stage.now = 20.0
    stage.step(6)
    assert stage.sampler.share == pytest.approx(0.6)


def test_a_gpu_that_cannot_be_traced_is_reported_once() -> None:
    stage = Stage({})
    stage.now = 20.0
    stage.step(6)
    stage.now += 1000
    stage.step(20)
    assert stage.sampler.share is None
    assert len(stage.traces) == 1
    assert len(stage.said) == 1
    assert "without data wait" in stage.said[0]


def test_errors_of_the_profiler_do_not_end_a_training() -> None:
    def fail() -> Any:
        raise tf.errors.AlreadyExistsError(None, None, "Another profiler is running.")

    said: list[str] = []
    sampler = BusySampler(("/GPU:0",), 1e-9, said.append, fail, clock=lambda: 1.0)
    sampler._due_at = 0.0
    sampler.note_step()
    sampler.note_step()
    assert sampler.share is None
    (line,) = said
    assert line.startswith("The busy time of the GPU cannot be measured: Another profiler is running. AU is")


def test_nothing_is_traced_on_a_cpu() -> None:
    stage = Stage({"GPU:0": busy(0.05)}, ("/CPU:0",))
    stage.now = 100.0
    stage.step(10)
    assert stage.traces == []
