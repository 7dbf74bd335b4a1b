"""Lists the NVIDIA GPUs through the driver's management library (NVML), without TensorFlow or CUDA.

Creates no CUDA context, so it takes no GPU memory and CUDA can still be configured afterwards. A GPU that fails is left
out with a note instead of ending the listing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

import pynvml

_START_PROBLEMS = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver is installed (its library libnvidia-ml was not found)",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is installed but not loaded",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user may not talk to the NVIDIA driver",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was updated while loaded; restart the machine",
}
LOST_GPU_ERRORS = (
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED,
    pynvml.NVML_ERROR_IRQ_ISSUE,
    pynvml.NVML_ERROR_INSUFFICIENT_POWER,
)
"""Errors of a GPU that has failed, as opposed to one that this user may not use."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. `index` is its number in CUDA and TensorFlow, `driver_index` its number in nvidia-smi."""

    index: int
    name: str
    memory_bytes: int
    free_memory_bytes: int
    uuid: str
    compute_capability: tuple[int, int]
    driver_index: int


class Nvml(Protocol):
    """The part of the `pynvml` module used here; its errors are NVMLError."""

    def nvmlInit(self) -> None: ...  # noqa: N802
    def nvmlShutdown(self) -> None: ...  # noqa: N802
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: N802
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...  # noqa: N802
    def nvmlDeviceGetName(self, handle: Any) -> str: ...  # noqa: N802
    def nvmlDeviceGetUUID(self, handle: Any) -> str: ...  # noqa: N802
    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any: ...  # noqa: N802
    def nvmlDeviceGetCudaComputeCapability(self, handle: Any) -> tuple[int, int]: ...  # noqa: N802


class GpuListing(NamedTuple):
    """Usable GPUs in the driver's order, the reason if there is none, and notes on GPUs that were left out."""

    gpus: tuple[Gpu, ...]
    no_gpu_reason: str
    notes: tuple[str, ...]


def load_nvml() -> Nvml:
    """Returns the `pynvml` module as the protocol, which tests replace by a fake driver."""
    return cast(Nvml, pynvml)


def list_gpus(nvml: Nvml) -> GpuListing:
    """Returns all usable GPUs in the driver's order; a driver that fails becomes `no_gpu_reason`, not an error."""
    try:
        nvml.nvmlInit()
    except pynvml.NVMLError as error:
        return GpuListing((), _START_PROBLEMS.get(error.value, f"the NVIDIA driver does not answer: {error}"), ())
    try:
        return _list_started(nvml)
    except pynvml.NVMLError as error:
        return GpuListing((), f"the NVIDIA driver does not list its GPUs: {error}", ())
    finally:
        nvml.nvmlShutdown()


def _list_started(nvml: Nvml) -> GpuListing:
    """Queries every GPU of an initialised driver; one that fails becomes a note."""
    gpus: list[Gpu] = []
    notes: list[str] = []
    for driver_index in range(nvml.nvmlDeviceGetCount()):
        try:
            gpus.append(_read_gpu(nvml, driver_index, index=len(gpus), notes=notes))
        except pynvml.NVMLError as error:
            notes.append(_explain_skip(driver_index, error))
    reason = "" if gpus else " ".join(notes).rstrip(".") or "the NVIDIA driver finds no GPU"
    return GpuListing(tuple(gpus), reason, tuple(notes))


def _read_gpu(nvml: Nvml, driver_index: int, index: int, notes: list[str]) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(driver_index)
    memory_bytes = free_memory_bytes = 0
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        memory_bytes, free_memory_bytes = int(memory.total), int(memory.free)
    except pynvml.NVMLError_NotSupported:
        # Integrated GPUs, which share the memory of the host, do not support this query.
        notes.append(f"GPU {driver_index} does not report its memory.")
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(
        index=index,
        name=nvml.nvmlDeviceGetName(handle),
        memory_bytes=memory_bytes,
        free_memory_bytes=free_memory_bytes,
        uuid=nvml.nvmlDeviceGetUUID(handle),
        compute_capability=(major, minor),
        driver_index=driver_index,
    )


def _explain_skip(driver_index: int, error: pynvml.NVMLError) -> str:
    if error.value in LOST_GPU_ERRORS:
        return f"GPU {driver_index} of the driver is left out: it has failed ({error}); restart the machine."
    if error.value == pynvml.NVML_ERROR_NO_PERMISSION:
        return f"GPU {driver_index} of the driver is left out: this user may not use it."
    return f"GPU {driver_index} of the driver is left out: {error}."
