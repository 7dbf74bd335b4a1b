"""Hardware detection: CPUs, memory, disk, GPUs and cluster that this process may use. No TensorFlow.

Containers and job schedulers give less than the machine has, through control groups (cgroups) of both versions. GPUs
are listed by the driver's management library (NVML); CUDA shows fewer of them, and in another order, where
CUDA_VISIBLE_DEVICES is set.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pynvml

from myxtts.runtime.cluster import Cluster, read_cluster

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_PROC_ROOT = Path("/proc")
_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_ORDER, _PCI_ORDER = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
_START_PROBLEMS = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver is installed",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is installed but not loaded",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user has no permission to use the NVIDIA driver",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was updated: restart the machine",
}
LOST_GPU_ERRORS = (
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED,
    pynvml.NVML_ERROR_IRQ_ISSUE,
    pynvml.NVML_ERROR_INSUFFICIENT_POWER,
)
"""Errors of a GPU that has failed, as opposed to one that this user may not use."""


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A part of a GPU that is divided by MIG (Multi-Instance GPU), with memory of its own."""

    uuid: str
    memory_bytes: int
    free_memory_bytes: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. `index` is its number in CUDA and TensorFlow, `driver_index` its number in nvidia-smi.

    The memory of a GPU with MIG instances is that of the instance which CUDA uses: the first, unless
    CUDA_VISIBLE_DEVICES names another.
    """

    index: int
    name: str
    memory_bytes: int
    free_memory_bytes: int
    uuid: str
    compute_capability: tuple[int, int]
    driver_index: int
    instances: tuple[MigInstance, ...] = ()


class GpuListing(NamedTuple):
    """Usable GPUs in the driver's order, the reason if there is none, and notes on GPUs that were left out."""

    gpus: tuple[Gpu, ...]
    no_gpu_reason: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hardware:
    """Resources within this process's limits. `no_gpu_reason` is empty if there are GPUs; `notes` name skipped ones."""

    num_cpus: int
    ram_bytes: int
    available_ram_bytes: int
    gpus: tuple[Gpu, ...] = ()
    no_gpu_reason: str = ""
    notes: tuple[str, ...] = ()
    cluster: Cluster | None = None
    """The multi-worker run that this process is part of, if any."""


def detect_hardware(*, nvml: Any = None, environment: Mapping[str, str] | None = None) -> Hardware:
    """Finds the CPUs, memory, GPUs and driver of this machine, without loading TensorFlow.

    `nvml` and `environment` stand for the driver and the environment of this process, which are used by default.
    """
    variables = os.environ if environment is None else environment
    listing = _apply_visibility(list_gpus(nvml or pynvml), variables)
    ram_bytes, available_ram_bytes = measure_memory()
    return Hardware(
        num_cpus=count_cpus(),
        ram_bytes=ram_bytes,
        available_ram_bytes=available_ram_bytes,
        gpus=listing.gpus,
        no_gpu_reason=listing.no_gpu_reason,
        notes=listing.notes,
        cluster=read_cluster(variables),
    )


def count_cpus() -> int:
    """Returns the CPUs this process may use: affinity mask and cgroup quota, rounded up, at least one."""
    quota = read_cpu_quota()
    # The affinity already holds what a cpuset of the control group leaves.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, math.ceil(quota)) if quota is not None else allowed)


def read_cpu_quota() -> float | None:
    """Returns the tightest CFS quota in CPUs over all cgroup levels, None without a limit."""
    quotas = [_read_quota_v2(folder) for folder in _walk_folders("")]
    quotas += [_read_quota_v1(folder) for folder in _walk_folders("cpu")]
    return min((quota for quota in quotas if quota is not None), default=None)


def measure_memory() -> tuple[int, int]:
    """Returns all and available bytes of memory; in a container the limit of its cgroup counts where it is tighter."""
    memory, (limit_bytes, free_bytes) = psutil.virtual_memory(), read_memory_limit()
    available = memory.available if free_bytes is None else min(memory.available, free_bytes)
    return min(memory.total, limit_bytes or memory.total), available


def read_memory_limit() -> tuple[int | None, int | None]:
    """Returns the lowest cgroup memory limit, and the fewest bytes free under any limit; None without a limit."""
    levels = [
        *_read_memory_levels("", "memory.max", "memory.current", "inactive_file"),
        *_read_memory_levels("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ]
    return min((limit for limit, _ in levels), default=None), min((free for _, free in levels), default=None)


def _walk_folders(controller: str) -> Iterator[Path]:
    """Yields the folders of this process's cgroup and of all its ancestors, any of which may set a limit.

    Version 2 has one hierarchy for all controllers, which is called "" here.
    """
    for line in _read_text(_PROC_ROOT / "self" / "cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controller not in controllers.split(","):
            continue
        # Version 1 mounts `cpu,cpuacct` under that name or as `cpu`; version 2 is at the root, or `unified` beside
        # version 1 (hybrid).
        for name in sorted({controllers, controller} if controller else {"", "unified"}):
            root = _CGROUP_ROOT / name
            # A container may be told the host's path, which does not exist here: then the root is its own group.
            folder = root if ".." in group.split("/") else root / group.lstrip("/")
            yield from (level for level in (folder, *folder.parents) if level.is_relative_to(root) and level.is_dir())


def _read_quota_v2(folder: Path) -> float | None:
    quota, _, period = _read_text(folder / "cpu.max").strip().partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _read_quota_v1(folder: Path) -> float | None:
    quota = _read_int(folder / "cpu.cfs_quota_us")
    period = _read_int(folder / "cpu.cfs_period_us")
    return quota / period if quota and period else None


def _read_memory_levels(
    controller: str, limit_name: str, usage_name: str, cache_name: str
) -> Iterator[tuple[int, int]]:
    """Limit and free bytes of each level that has a limit."""
    for folder in _walk_folders(controller):
        limit = _read_int(folder / limit_name)
        if limit is not None:
            # The page cache counts as used, but its inactive pages are reclaimed when memory is needed.
            used = (_read_int(folder / usage_name) or 0) - _read_statistic(folder / "memory.stat", cache_name)
            yield limit, max(0, min(limit, limit - used))


def _read_statistic(path: Path, name: str) -> int:
    """Returns a line of memory.stat, 0 where it is missing."""
    for line in _read_text(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return 0


def _read_int(path: Path) -> int | None:
    """The number in the file; None for `max`, -1 and a file that is not there."""
    text = _read_text(path).strip()
    return int(text) if text.isdigit() else None


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        # Which files exist depends on kernel and container; one that cannot be read sets no limit we could know of.
        return ""


def list_gpus(nvml: Any) -> GpuListing:
    """Returns all usable GPUs in the driver's order; a driver that fails becomes `no_gpu_reason`, not an error.

    `nvml` is the module `pynvml`, or a fake driver in tests. No CUDA context is created, so it takes no GPU memory and
    CUDA can still be configured afterwards.
    """
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


def _list_started(nvml: Any) -> GpuListing:
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


def _read_gpu(nvml: Any, driver_index: int, index: int, notes: list[str]) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(driver_index)
    instances = _list_instances(nvml, handle)
    memory_bytes = free_memory_bytes = 0
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        memory_bytes, free_memory_bytes = int(memory.total), int(memory.free)
    except pynvml.NVMLError_NotSupported:
        # Integrated GPUs, which share the memory of the host, do not support this query.
        notes.append(f"GPU {driver_index} does not report its memory.")
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    gpu = Gpu(
        index=index,
        name=nvml.nvmlDeviceGetName(handle),
        memory_bytes=memory_bytes,
        free_memory_bytes=free_memory_bytes,
        uuid=nvml.nvmlDeviceGetUUID(handle),
        compute_capability=(major, minor),
        driver_index=driver_index,
    )
    return _use_instance(replace(gpu, instances=instances), instances[0]) if instances else gpu


def _list_instances(nvml: Any, handle: Any) -> tuple[MigInstance, ...]:
    """MIG instances of a GPU; none where it is not divided, or cannot be.

    Raises NVMLError_NotFound where MIG is on without an instance: CUDA cannot use such a GPU.
    """
    try:
        mode, _ = nvml.nvmlDeviceGetMigMode(handle)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return ()
    if mode != pynvml.NVML_DEVICE_MIG_ENABLE:
        return ()
    instances = []
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except pynvml.NVMLError_NotFound:
            continue
        memory = nvml.nvmlDeviceGetMemoryInfo(instance)
        instances.append(MigInstance(nvml.nvmlDeviceGetUUID(instance), int(memory.total), int(memory.free)))
    if not instances:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
    return tuple(instances)


def _use_instance(gpu: Gpu, instance: MigInstance) -> Gpu:
    return replace(gpu, memory_bytes=instance.memory_bytes, free_memory_bytes=instance.free_memory_bytes)


def _explain_skip(driver_index: int, error: pynvml.NVMLError) -> str:
    if error.value in LOST_GPU_ERRORS:
        return f"GPU {driver_index} of the driver is left out: it has failed ({error}); restart the machine."
    if error.value == pynvml.NVML_ERROR_NO_PERMISSION:
        return f"GPU {driver_index} of the driver is left out: this user may not use it."
    if error.value == pynvml.NVML_ERROR_NOT_FOUND:
        return f"GPU {driver_index} of the driver is left out: MIG is on, but it has no MIG instance."
    return f"GPU {driver_index} of the driver is left out: {error}."


def _apply_visibility(listing: GpuListing, environment: Mapping[str, str]) -> GpuListing:
    """Applies CUDA_VISIBLE_DEVICES: hides, reorders and renumbers the GPUs as CUDA will."""
    if not listing.gpus:
        return listing
    value = environment.get(_VISIBLE_DEVICES)
    named = _find_instance(listing.gpus, (value or "").partition(",")[0].strip())
    if named is not None:
        gpu, instance = named
        used = replace(_use_instance(gpu, instance), index=0)
        return GpuListing((used,), "", (*listing.notes, _describe_instance(gpu, instance)))
    visible = select_visible(value, [gpu.uuid for gpu in listing.gpus])
    gpus = [listing.gpus[position] for position in visible.positions]
    notes = [*listing.notes, *([visible.note] if visible.note else [])]
    divided = [gpu for gpu in gpus if gpu.instances]
    if divided:
        # CUDA shows a process one MIG instance, and no other GPU beside it.
        gpus = divided[:1]
        notes.append(_describe_instance(gpus[0], gpus[0].instances[0]))
    # Without the variable, TensorFlow is started with PCI_BUS_ID (see `runtime.strategy`).
    if len({gpu.name for gpu in listing.gpus}) > 1 and environment.get(_ORDER, _PCI_ORDER) != _PCI_ORDER:
        notes.append(f"The GPUs differ, and {_ORDER} may number them by speed: set it to {_PCI_ORDER}, or unset it.")
    numbered = tuple(replace(gpu, index=index) for index, gpu in enumerate(gpus))
    return GpuListing(numbered, "" if gpus else visible.note.rstrip("."), tuple(notes))


def _find_instance(gpus: Sequence[Gpu], entry: str) -> tuple[Gpu, MigInstance] | None:
    """The MIG instance that is named by (the beginning of) its UUID, and its GPU."""
    found = [(gpu, instance) for gpu in gpus for instance in gpu.instances if instance.uuid.startswith(entry)]
    return found[0] if entry.startswith("MIG-") and len(found) == 1 else None


def _describe_instance(gpu: Gpu, instance: MigInstance) -> str:
    return (
        f"GPU {gpu.driver_index} is divided by MIG into {len(gpu.instances)}: CUDA uses the instance {instance.uuid}, "
        f"which has {instance.memory_bytes / 2**30:.1f} GB, and no other GPU. {_VISIBLE_DEVICES} can name another."
    )


class VisibleGpus(NamedTuple):
    """Positions in the driver's list of GPUs, in CUDA's order, and a note when something was left out."""

    positions: tuple[int, ...]
    note: str


def select_visible(value: str | None, uuids: Sequence[str]) -> VisibleGpus:
    """Reads CUDA_VISIBLE_DEVICES (None: not set) as CUDA does: numbers or UUIDs, up to the first that names no GPU."""
    if value is None:
        return VisibleGpus(tuple(range(len(uuids))), "")
    positions: list[int] = []
    for entry in value.split(","):
        position = _find_position(entry.strip(), uuids)
        if position in positions:
            return VisibleGpus((), f"{_VISIBLE_DEVICES}={value!r} names a GPU twice, and CUDA then shows none.")
        if position is None:
            return VisibleGpus(tuple(positions), _explain_stop(value, entry.strip()))
        positions.append(position)
    return VisibleGpus(tuple(positions), "")


def _find_position(entry: str, uuids: Sequence[str]) -> int | None:
    """Resolves one entry of CUDA_VISIBLE_DEVICES: a number, or the unique prefix of a UUID."""
    if entry.startswith("GPU-"):
        matches = [position for position, uuid in enumerate(uuids) if uuid.startswith(entry)]
        return matches[0] if len(matches) == 1 else None
    # CUDA reads the digits in front and ignores what follows them.
    digits = re.match(r"\+?([0-9]{1,4})", entry)
    position = int(digits[1]) if digits else -1
    return position if 0 <= position < len(uuids) else None


def _explain_stop(value: str, entry: str) -> str:
    """Returns the note for the entry at which CUDA stops reading the list."""
    if value.strip() in ("", "-1"):
        return f"{_VISIBLE_DEVICES}={value!r} hides all GPUs."
    if entry.startswith("MIG-"):
        return f"{_VISIBLE_DEVICES} names the MIG instance {entry}, which no GPU here has, so CUDA shows none."
    return f"{_VISIBLE_DEVICES}={value!r}: {entry!r} names no GPU here, so CUDA ignores it and all that follows."
