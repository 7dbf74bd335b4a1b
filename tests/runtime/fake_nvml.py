"""A stand-in for the `pynvml` module: GPUs that can be described, lost and forbidden, for tests without a GPU.

It has pynvml's functions with their units (mW, MHz, KB/s, bytes) and raises pynvml's own exceptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pynvml

GIB = 2**30


@dataclass(frozen=True)
class FakeProcess:
    pid: int
    used_bytes: int


@dataclass
class FakeGpu:
    """One GPU; change its attributes between calls to play a scene."""

    name: str = "NVIDIA GeForce RTX 4090"
    memory_bytes: int = 24 * GIB
    used_memory_bytes: int = 1 * GIB
    uuid: str = ""
    compute_capability: tuple[int, int] = (8, 9)
    utilization_percent: int = 0
    memory_utilization_percent: int = 0
    power_w: float = 50.0
    power_limit_w: float = 450.0
    temperature_c: int = 40
    sm_clock_mhz: int = 2520
    memory_clock_mhz: int = 10501
    max_sm_clock_mhz: int = 3105
    pcie_rx_kb_s: int = 0
    pcie_tx_kb_s: int = 0
    pcie_generation: int = 4
    pcie_width: int = 16
    throttle_reasons: int = 0
    processes: tuple[FakeProcess, ...] = ()
    lost: bool = False
    forbidden: bool = False
    reports_memory: bool = True
    instances: tuple[FakeGpu, ...] | None = None
    """MIG instances, each with a UUID and memory of its own; None where MIG is off."""


class FakeNvml:
    """`problem` is a pynvml error code that starting the library ends with."""

    def __init__(self, gpus: Sequence[FakeGpu] = (), *, problem: int | None = None) -> None:
        self.gpus = list(gpus)
        self.problem = problem
        self.cuda_version = 13000
        self.num_users = 0
        for index, gpu in enumerate(self.gpus):
            gpu.uuid = gpu.uuid or f"GPU-{index:08x}-0000-0000-0000-000000000000"

    def __getattr__(self, name: str) -> Any:
        """Constants and exception classes are the real ones."""
        if name.startswith("NVML"):
            return getattr(pynvml, name)
        raise AttributeError(f"the fake NVML has no {name}")

    def nvmlInit(self) -> None:  # noqa: N802
        if self.problem is not None:
            raise pynvml.NVMLError(self.problem)
        self.num_users += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self._check_started()
        self.num_users -= 1

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        self._check_started()
        return "580.65.06"

    def nvmlSystemGetCudaDriverVersion(self) -> int:  # noqa: N802
        self._check_started()
        return self.cuda_version

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._check_started()
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        self._check_started()
        if not 0 <= index < len(self.gpus):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return self._use(self.gpus[index])

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:  # noqa: N802
        self._check_started()
        for gpu in self.gpus:
            if gpu.uuid == uuid:
                return self._use(gpu)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetIndex(self, handle: FakeGpu) -> int:  # noqa: N802
        return next(index for index, gpu in enumerate(self.gpus) if gpu is self._use(handle))

    def nvmlDeviceGetName(self, handle: FakeGpu) -> str:  # noqa: N802
        return self._use(handle).name

    def nvmlDeviceGetUUID(self, handle: FakeGpu) -> str:  # noqa: N802
        return self._use(handle).uuid

    def nvmlDeviceGetCudaComputeCapability(self, handle: FakeGpu) -> tuple[int, int]:  # noqa: N802
        return self._use(handle).compute_capability

    def nvmlDeviceGetMemoryInfo(self, handle: FakeGpu) -> SimpleNamespace:  # noqa: N802
        gpu = self._use(handle)
        if not gpu.reports_memory:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        free = gpu.memory_bytes - gpu.used_memory_bytes
        return SimpleNamespace(total=gpu.memory_bytes, used=gpu.used_memory_bytes, free=free)

    def nvmlDeviceGetMigMode(self, handle: FakeGpu) -> tuple[int, int]:  # noqa: N802
        gpu = self._use(handle)
        if gpu.compute_capability not in ((8, 0), (9, 0)):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        mode = pynvml.NVML_DEVICE_MIG_DISABLE if gpu.instances is None else pynvml.NVML_DEVICE_MIG_ENABLE
        return mode, mode

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: FakeGpu) -> int:  # noqa: N802
        self._use(handle)
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: FakeGpu, index: int) -> FakeGpu:  # noqa: N802
        instances = self._use(handle).instances or ()
        if index >= len(instances):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return instances[index]

    def nvmlDeviceGetUtilizationRates(self, handle: FakeGpu) -> SimpleNamespace:  # noqa: N802
        gpu = self._use(handle)
        return SimpleNamespace(gpu=gpu.utilization_percent, memory=gpu.memory_utilization_percent)

    def nvmlDeviceGetPowerUsage(self, handle: FakeGpu) -> int:  # noqa: N802
        return round(self._use(handle).power_w * 1000)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: FakeGpu) -> int:  # noqa: N802
        return round(self._use(handle).power_limit_w * 1000)

    def nvmlDeviceGetTemperature(self, handle: FakeGpu, sensor: int) -> int:  # noqa: N802
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return self._use(handle).temperature_c

    def nvmlDeviceGetClockInfo(self, handle: FakeGpu, kind: int) -> int:  # noqa: N802
        gpu = self._use(handle)
        return gpu.memory_clock_mhz if kind == pynvml.NVML_CLOCK_MEM else gpu.sm_clock_mhz

    def nvmlDeviceGetMaxClockInfo(self, handle: FakeGpu, kind: int) -> int:  # noqa: N802
        gpu = self._use(handle)
        return gpu.memory_clock_mhz if kind == pynvml.NVML_CLOCK_MEM else gpu.max_sm_clock_mhz

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: FakeGpu) -> int:  # noqa: N802
        return self._use(handle).throttle_reasons

    def nvmlDeviceGetPcieThroughput(self, handle: FakeGpu, counter: int) -> int:  # noqa: N802
        gpu = self._use(handle)
        return gpu.pcie_tx_kb_s if counter == pynvml.NVML_PCIE_UTIL_TX_BYTES else gpu.pcie_rx_kb_s

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: FakeGpu) -> int:  # noqa: N802
        return self._use(handle).pcie_generation

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: FakeGpu) -> int:  # noqa: N802
        return self._use(handle).pcie_width

    def nvmlDeviceGetComputeRunningProcesses(self, handle: FakeGpu) -> list[SimpleNamespace]:  # noqa: N802
        processes = self._use(handle).processes
        return [SimpleNamespace(pid=process.pid, usedGpuMemory=process.used_bytes) for process in processes]

    def _check_started(self) -> None:
        if not self.num_users:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)

    def _use(self, gpu: FakeGpu) -> FakeGpu:
        self._check_started()
        if gpu.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        if gpu.forbidden:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)
        return gpu


def make_gpus(count: int, **attributes: Any) -> list[FakeGpu]:
    """Equal GPUs."""
    return [FakeGpu(**attributes) for _ in range(count)]


def make_unequal_gpus() -> list[FakeGpu]:
    """A fast and a slow one."""
    return [FakeGpu(), FakeGpu(name="NVIDIA GeForce RTX 3060", memory_bytes=12 * GIB, compute_capability=(8, 6))]
