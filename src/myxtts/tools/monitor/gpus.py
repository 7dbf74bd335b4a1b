"""Reads every GPU through NVML: utilisation, memory, power, temperature, clocks, PCIe, throttling and processes.

A number that a GPU does not report, or that this user may not read, is None and named in `unavailable`; a GPU that
falls off the bus while it is watched stays in the list with its problem. NVML errors never
end a reading. NVML ignores CUDA_VISIBLE_DEVICES, so that all GPUs of the machine are read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self, TypeVar

import psutil
import pynvml

from myxtts.runtime.hardware import LOST_GPU_ERRORS, list_gpus
from myxtts.tools.words import mark

DENIED, UNSUPPORTED, SILENT = "denied", "not reported", "no answer"
"""Why a number is missing: no permission, not supported by GPU or driver, any other NVML error."""
LOST = "lost"
"""Problem of a GPU that no longer answers the driver (`LOST_GPU_ERRORS`)."""

_PCIE_INTERVAL_S = 10.0
"""Between two measurements of PCIe throughput: each of its two calls blocks for 20 ms, other calls for microseconds."""
_THROTTLE_REASONS = {
    "power_cap": pynvml.nvmlClocksEventReasonSwPowerCap,
    "slowdown": pynvml.nvmlClocksEventReasonHwSlowdown,
    "sync_boost": pynvml.nvmlClocksEventReasonSyncBoost,
    "software_heat": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
    "hardware_heat": pynvml.nvmlClocksEventReasonHwThermalSlowdown,
    "power_brake": pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
    "board_limit": pynvml.nvmlClocksThrottleReasonBoardLimit,
    "reliability": pynvml.nvmlClocksThrottleReasonReliability,
}
"""Names of NVML's bits. Those for an idle GPU and for clocks set by the user are left out: they are no throttling."""
THROTTLE_TEXTS = mark(
    {
        "power_cap": "its power limit is reached",
        "slowdown": "hardware slowdown by heat or power",
        "sync_boost": "limited by another GPU of its group (sync boost)",
        "software_heat": "too hot (driver's limit)",
        "hardware_heat": "too hot (hardware's limit)",
        "power_brake": "the power supply limits it (power brake)",
        "board_limit": "a limit of the board is reached",
        "reliability": "limited for reliability (voltage)",
    }
)

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A compute process on a GPU; `used_bytes` is None where the driver does not report it, `name` may be empty."""

    pid: int
    name: str
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment. `index` is its number in nvidia-smi; `rx` goes into the GPU, `tx` out of it.

    `problem` is set where the GPU could not be read at all; `unavailable` maps the name of a missing number to its gap.
    `throttle_reasons` is None where it could not be read, and empty where the GPU is not throttled.
    """

    index: int
    name: str
    uuid: str = ""
    problem: str = ""
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    pcie_rx_bytes_per_s: int | None = None
    pcie_tx_bytes_per_s: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    processes: tuple[GpuProcess, ...] | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)

    @property
    def memory_share(self) -> float | None:
        if self.memory_used_bytes is None or not self.memory_bytes:
            return None
        return self.memory_used_bytes / self.memory_bytes


class GpuReader:
    """Context that holds an NVML session. Without a GPU, `num_gpus` is 0 and `no_gpu_reason` says why.

    `nvml` is the module to call; tests pass a fake one.
    """

    def __init__(self, nvml: Any = None) -> None:
        self._nvml: Any = nvml if nvml is not None else pynvml
        self._known: dict[int, tuple[str, str]] = {}
        self._process_names: dict[int, str] = {}
        self._pcie: dict[int, tuple[float, tuple[int | None, int | None]]] = {}
        self.num_gpus, self.no_gpu_reason = 0, ""
        self._is_open = False

    def __enter__(self) -> Self:
        # The listing explains why there is no GPU; GPUs that it could not read are still counted below.
        listing = list_gpus(self._nvml)
        try:
            self._nvml.nvmlInit()
            self._is_open = True
            self.num_gpus = self._nvml.nvmlDeviceGetCount()
        except pynvml.NVMLError:
            self.num_gpus = 0
        self.no_gpu_reason = "" if self.num_gpus else listing.no_gpu_reason or "the NVIDIA driver finds no GPU"
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_open:
            self._is_open = False
            try:
                self._nvml.nvmlShutdown()
            except pynvml.NVMLError:
                # NVML fails here if the driver was unloaded; there is nothing to release.
                return

    def read(self) -> tuple[GpuReading, ...]:
        """Reads each GPU that was present at the start, in the driver's order; drops names of processes that ended."""
        readings = tuple(self._read_or_explain(index) for index in range(self.num_gpus))
        present = {process.pid for reading in readings for process in reading.processes or ()}
        self._process_names = {pid: name for pid, name in self._process_names.items() if pid in present}
        return readings

    def _read_or_explain(self, index: int) -> GpuReading:
        """Reads one GPU; one that fails altogether keeps its last known name and gets a `problem`."""
        try:
            # A new handle every time: it is cheap, and an old one stays dead when a GPU comes back.
            return self._read_gpu(index, self._nvml.nvmlDeviceGetHandleByIndex(index))
        except pynvml.NVMLError as error:
            name, uuid = self._known.get(index, ("", ""))
            if error.value in LOST_GPU_ERRORS:
                return GpuReading(index, name, uuid, problem=LOST)
            return GpuReading(index, name, uuid, problem=_name_gap(error))

    def _read_gpu(self, index: int, handle: Any) -> GpuReading:
        # NVML reports power in mW and PCIe throughput in KB/s.
        nvml, asker = self._nvml, _Asker()
        name, uuid = self._read_identity(index, handle, asker)
        memory = asker.ask("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        rates = asker.ask("utilization", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        pcie_rx, pcie_tx = self._read_pcie(index, handle, asker)
        sm_clock, memory_clock = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM
        return GpuReading(
            index,
            name,
            uuid,
            utilization_percent=float(rates.gpu) if rates is not None else None,
            memory_used_bytes=int(memory.used) if memory is not None else None,
            memory_bytes=int(memory.total) if memory is not None else None,
            power_w=asker.ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            power_limit_w=asker.ask("power_limit", lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000),
            temperature_c=asker.ask(
                "temperature", lambda: nvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
            ),
            sm_clock_mhz=asker.ask("clocks", lambda: nvml.nvmlDeviceGetClockInfo(handle, sm_clock)),
            max_sm_clock_mhz=asker.ask("max_clocks", lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, sm_clock)),
            memory_clock_mhz=asker.ask("memory_clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, memory_clock)),
            pcie_rx_bytes_per_s=pcie_rx,
            pcie_tx_bytes_per_s=pcie_tx,
            pcie_generation=asker.ask("pcie_link", lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
            pcie_width=asker.ask("pcie_link", lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
            throttle_reasons=asker.ask("throttling", lambda: _read_throttling(nvml, handle)),
            processes=asker.ask("processes", lambda: self._read_processes(handle)),
            unavailable=asker.unavailable,
        )

    def _read_identity(self, index: int, handle: Any, asker: _Asker) -> tuple[str, str]:
        """Returns name and UUID, read once and kept: a lost GPU can no longer be asked."""
        if index not in self._known:
            name = asker.ask("name", lambda: self._nvml.nvmlDeviceGetName(handle))
            uuid = asker.ask("uuid", lambda: self._nvml.nvmlDeviceGetUUID(handle))
            self._known[index] = (name or "GPU", uuid or "")
        return self._known[index]

    def _read_pcie(self, index: int, handle: Any, asker: _Asker) -> tuple[int | None, int | None]:
        """Returns bytes per second into and out of a GPU, measured again every `_PCIE_INTERVAL_S`."""
        measured_at, rates = self._pcie.get(index, (-math.inf, (None, None)))
        if time.monotonic() - measured_at >= _PCIE_INTERVAL_S:
            counters = (pynvml.NVML_PCIE_UTIL_RX_BYTES, pynvml.NVML_PCIE_UTIL_TX_BYTES)
            measure = self._nvml.nvmlDeviceGetPcieThroughput
            rx, tx = (asker.ask("pcie", partial(measure, handle, counter)) for counter in counters)
            rates = (None if rx is None else 1000 * rx, None if tx is None else 1000 * tx)
            if None in rates:
                return rates
            self._pcie[index] = (time.monotonic(), rates)
        return rates

    def _read_processes(self, handle: Any) -> tuple[GpuProcess, ...]:
        """Lists the compute processes, largest memory first; graphics processes are not among them."""
        found = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        processes = [GpuProcess(one.pid, self._name_process(one.pid), one.usedGpuMemory) for one in found]
        return tuple(sorted(processes, key=lambda process: -(process.used_bytes or 0)))

    def _name_process(self, pid: int) -> str:
        if pid not in self._process_names:
            try:
                self._process_names[pid] = psutil.Process(pid).name()
            except psutil.Error:
                # It has ended, or lives outside of this container.
                self._process_names[pid] = ""
        return self._process_names[pid]


class _Asker:
    """Calls NVML functions for one GPU and records failed ones in `unavailable`."""

    def __init__(self) -> None:
        self.unavailable: dict[str, str] = {}

    def ask(self, name: str, question: Callable[[], _Answer]) -> _Answer | None:
        """Returns the answer, None where the call fails. Raises NVMLError only where the GPU is lost."""
        try:
            return question()
        except pynvml.NVMLLibraryMismatchError:
            # Raised by pynvml where the driver is too old for this function; not a subclass of NVMLError.
            self.unavailable[name] = UNSUPPORTED
        except pynvml.NVMLError as error:
            if error.value in LOST_GPU_ERRORS:
                raise
            self.unavailable[name] = _name_gap(error)
        return None


def _read_throttling(nvml: Any, handle: Any) -> tuple[str, ...]:
    try:
        reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except pynvml.NVMLError_FunctionNotFound:
        # The name of the same function in drivers before 535.
        reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return tuple(name for name, bit in _THROTTLE_REASONS.items() if reasons & bit)


def _name_gap(error: pynvml.NVMLError) -> str:
    """Classifies an NVML error as no permission, not supported, or no answer."""
    if error.value == pynvml.NVML_ERROR_NO_PERMISSION:
        return DENIED
    if error.value in (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND):
        return UNSUPPORTED
    return SILENT
