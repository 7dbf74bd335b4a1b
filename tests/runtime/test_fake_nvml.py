"""The fake NVML keeps to the surface of the real module, so that what passes against it runs against a driver."""

from __future__ import annotations

import inspect

import pynvml
import pytest
from tests.runtime.fake_nvml import FakeGpu, FakeNvml, FakeProcess, make_gpus

FUNCTIONS = [name for name in vars(FakeNvml) if name.startswith("nvml")]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_exists_in_pynvml_with_as_many_arguments(name: str) -> None:
    def count_required(function: object) -> int:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
        return sum(parameter.default is parameter.empty for parameter in parameters)

    assert count_required(getattr(FakeNvml(), name)) == count_required(getattr(pynvml, name))


def test_nothing_answers_before_the_library_is_started() -> None:
    nvml = FakeNvml(make_gpus(1))
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        nvml.nvmlDeviceGetCount()
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlShutdown()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        nvml.nvmlDeviceGetName(handle)


def test_errors_are_the_real_classes() -> None:
    with pytest.raises(pynvml.NVMLError_LibraryNotFound):
        FakeNvml(problem=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND).nvmlInit()
    nvml = FakeNvml([FakeGpu(lost=True), FakeGpu(forbidden=True)])
    nvml.nvmlInit()
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        nvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(pynvml.NVMLError_NoPermission):
        nvml.nvmlDeviceGetHandleByIndex(1)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetHandleByIndex(2)


def test_a_gpu_may_be_lost_while_it_is_watched() -> None:
    nvml = FakeNvml(make_gpus(1, utilization_percent=90))
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetUtilizationRates(handle).gpu == 90
    nvml.gpus[0].lost = True
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        nvml.nvmlDeviceGetUtilizationRates(handle)


def test_readings_come_in_the_units_of_the_library() -> None:
    nvml = FakeNvml([FakeGpu(power_w=123.4, pcie_tx_kb_s=7, processes=(FakeProcess(42, 1000),))])
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetPowerUsage(handle) == 123_400
    assert nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES) == 7
    assert nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES) == 0
    assert nvml.nvmlDeviceGetComputeRunningProcesses(handle)[0].usedGpuMemory == 1000
