"""What is read of GPUs: all numbers in plain units, and gaps that are named instead of a crash."""

from __future__ import annotations

import os
from types import SimpleNamespace

import psutil
import pynvml
import pytest
from tests.runtime.fake_nvml import FakeGpu, FakeNvml, FakeProcess, make_gpus
from tests.tools.fake_watch import GappyNvml, make_busy_gpus

from myxtts.tools.monitor.gpus import GpuReader


@pytest.mark.parametrize("num_gpus", [0, 1, 2, 8])
def test_every_gpu_is_read(num_gpus: int) -> None:
    nvml = FakeNvml(make_busy_gpus(num_gpus))
    with GpuReader(nvml) as reader:
        readings = reader.read()
        assert nvml.num_users == 1
    assert nvml.num_users == 0
    assert [reading.index for reading in readings] == list(range(num_gpus))
    assert [reading.utilization_percent for reading in readings] == [97 - number for number in range(num_gpus)]
    assert bool(reader.no_gpu_reason) == (num_gpus == 0)
    assert all(not reading.problem and not reading.unavailable for reading in readings)


def test_numbers_come_in_plain_units() -> None:
    gpu = FakeGpu(power_w=123.4, pcie_rx_kb_s=7, pcie_tx_kb_s=9, memory_bytes=1000, used_memory_bytes=250)
    gpu.processes = (FakeProcess(2**22 + 1, 10), FakeProcess(os.getpid(), 200))
    gpu.throttle_reasons = pynvml.nvmlClocksEventReasonGpuIdle | pynvml.nvmlClocksEventReasonHwThermalSlowdown
    with GpuReader(FakeNvml([gpu])) as reader:
        (reading,) = reader.read()
    assert reading.power_w == pytest.approx(123.4)
    assert (reading.pcie_rx_bytes_per_s, reading.pcie_tx_bytes_per_s) == (7000, 9000)
    assert reading.memory_share == 0.25
    assert reading.throttle_reasons == ("hardware_heat",)
    assert reading.processes is not None
    assert [(process.pid, process.used_bytes) for process in reading.processes] == [(os.getpid(), 200), (2**22 + 1, 10)]
    assert reading.processes[0].name == psutil.Process().name()
    assert reading.processes[1].name == ""


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver is installed"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "not loaded"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "has no permission"),
    ],
)
def test_without_a_driver_there_is_a_reason_and_no_reading(problem: int, words: str) -> None:
    with GpuReader(FakeNvml(make_gpus(2), problem=problem)) as reader:
        assert reader.read() == ()
    assert words in reader.no_gpu_reason


def test_a_gpu_that_is_lost_keeps_its_place_and_name_and_may_come_back() -> None:
    nvml = FakeNvml(make_busy_gpus(3))
    with GpuReader(nvml) as reader:
        reader.read()
        nvml.gpus[1].lost = True
        readings = reader.read()
        assert [reading.problem for reading in readings] == ["", "lost", ""]
        assert readings[1].name == "NVIDIA GeForce RTX 4090"
        assert readings[1].uuid
        assert readings[1].utilization_percent is None
        nvml.gpus[1].lost = False
        assert [reading.problem for reading in reader.read()] == ["", "", ""]


def test_gpus_that_were_lost_or_forbidden_from_the_start_are_shown_as_such() -> None:
    with GpuReader(FakeNvml([FakeGpu(lost=True), FakeGpu(forbidden=True), FakeGpu()])) as reader:
        assert [reading.problem for reading in reader.read()] == ["lost", "denied", ""]
    assert reader.no_gpu_reason == ""


def test_a_driver_that_goes_away_is_no_crash() -> None:
    nvml = FakeNvml(make_busy_gpus(2))
    with GpuReader(nvml) as reader:
        reader.read()
        nvml.num_users = 0
        assert [reading.problem for reading in reader.read()] == ["no answer", "no answer"]


QUESTIONS = {
    "nvmlDeviceGetUtilizationRates": ("utilization", "utilization_percent"),
    "nvmlDeviceGetMemoryInfo": ("memory", "memory_used_bytes"),
    "nvmlDeviceGetPowerUsage": ("power", "power_w"),
    "nvmlDeviceGetEnforcedPowerLimit": ("power_limit", "power_limit_w"),
    "nvmlDeviceGetTemperature": ("temperature", "temperature_c"),
    "nvmlDeviceGetClockInfo": ("clocks", "sm_clock_mhz"),
    "nvmlDeviceGetMaxClockInfo": ("max_clocks", "max_sm_clock_mhz"),
    "nvmlDeviceGetPcieThroughput": ("pcie", "pcie_rx_bytes_per_s"),
    "nvmlDeviceGetCurrPcieLinkGeneration": ("pcie_link", "pcie_generation"),
    "nvmlDeviceGetCurrPcieLinkWidth": ("pcie_link", "pcie_width"),
    "nvmlDeviceGetCurrentClocksEventReasons": ("throttling", "throttle_reasons"),
    "nvmlDeviceGetComputeRunningProcesses": ("processes", "processes"),
}
GAPS = {
    pynvml.NVML_ERROR_NO_PERMISSION: "denied",
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not reported",
    pynvml.NVML_ERROR_TIMEOUT: "no answer",
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("error", GAPS)
def test_a_question_without_an_answer_leaves_a_named_gap_and_all_the_rest(question: str, error: int) -> None:
    with GpuReader(GappyNvml(make_busy_gpus(1), {question: error})) as reader:
        (reading,) = reader.read()
    name, field = QUESTIONS[question]
    assert getattr(reading, field) is None
    assert reading.unavailable[name] == GAPS[error]
    assert not reading.problem
    others = {other for _, other in QUESTIONS.values()} - {field}
    assert all(getattr(reading, other) is not None for other in others)


def test_processes_of_a_driver_that_is_too_old_are_a_gap() -> None:
    mismatch = pynvml.NVMLLibraryMismatchError("no such function")
    with GpuReader(GappyNvml(make_busy_gpus(1), {"nvmlDeviceGetComputeRunningProcesses": mismatch})) as reader:
        (reading,) = reader.read()
    assert reading.processes is None
    assert reading.unavailable == {"processes": "not reported"}


def test_an_older_driver_is_asked_for_throttling_by_its_own_name() -> None:
    nvml = GappyNvml(
        make_busy_gpus(1), {"nvmlDeviceGetCurrentClocksEventReasons": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}
    )
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: 8  # type: ignore[attr-defined]
    with GpuReader(nvml) as reader:
        assert reader.read()[0].throttle_reasons == ("slowdown",)


def test_memory_of_a_process_may_be_unknown() -> None:
    nvml = FakeNvml(make_busy_gpus(1))
    nvml.nvmlDeviceGetComputeRunningProcesses = (  # type: ignore[method-assign]
        lambda handle: [SimpleNamespace(pid=1, usedGpuMemory=None)]
    )
    with GpuReader(nvml) as reader:
        processes = reader.read()[0].processes
    assert processes is not None
    assert processes[0].used_bytes is None


def test_pcie_throughput_which_blocks_is_measured_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, now = FakeNvml(make_busy_gpus(1)), [100.0]
    monkeypatch.setattr("myxtts.tools.monitor.gpus.time.monotonic", lambda: now[0])
    seen = []
    with GpuReader(nvml) as reader:
        for seconds, kilobytes in ((0, 7), (5, 8), (10, 9)):
            now[0], nvml.gpus[0].pcie_rx_kb_s = 100.0 + seconds, kilobytes
            seen.append(reader.read()[0].pcie_rx_bytes_per_s)
    assert seen == [7000, 7000, 9000]
