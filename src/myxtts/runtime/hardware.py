"""Finds out what the machine offers this process: CPUs, memory, disk and GPUs. No TensorFlow."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from myxtts.runtime.cgroup import CGROUP_ROOT, PROC_ROOT, read_cpu_quota, read_memory_limit
from myxtts.runtime.cluster import Cluster, read_cluster
from myxtts.runtime.cuda_visible import VARIABLE, select_visible
from myxtts.runtime.nvml import Gpu, GpuListing, Nvml, list_gpus, load_nvml

__all__ = ["Gpu", "Hardware", "count_cpus", "detect_hardware"]


@dataclass(frozen=True, slots=True)
class Hardware:
    """What this process may use. `no_gpu_reason` is empty when there are GPUs; `notes` tell what was left out."""

    num_cpus: int
    ram_bytes: int
    available_ram_bytes: int
    disk_free_bytes: int
    gpus: tuple[Gpu, ...] = ()
    no_gpu_reason: str = ""
    notes: tuple[str, ...] = ()
    cluster: Cluster | None = None
    """The processes that train one model with this one, where there are others."""


def detect_hardware(
    path: Path | None = None,
    *,
    nvml: Nvml | None = None,
    cgroup_root: Path = CGROUP_ROOT,
    proc_root: Path = PROC_ROOT,
    environment: Mapping[str, str] | None = None,
) -> Hardware:
    """Looks at the machine; `path` is where data will be written (by default the working folder)."""
    variables = os.environ if environment is None else environment
    listing = _apply_visibility(list_gpus(nvml or load_nvml()), variables)
    memory = psutil.virtual_memory()
    limit_bytes, free_bytes = read_memory_limit(cgroup_root, proc_root)
    return Hardware(
        num_cpus=count_cpus(cgroup_root, proc_root),
        ram_bytes=min(memory.total, limit_bytes or memory.total),
        available_ram_bytes=memory.available if free_bytes is None else min(memory.available, free_bytes),
        disk_free_bytes=_measure_free_disk(path or Path.cwd()),
        gpus=listing.gpus,
        no_gpu_reason=listing.no_gpu_reason,
        notes=listing.notes,
        cluster=read_cluster(variables),
    )


def count_cpus(cgroup_root: Path = CGROUP_ROOT, proc_root: Path = PROC_ROOT) -> int:
    """CPUs this process may use, at least one; a part of one counts as one."""
    quota = read_cpu_quota(cgroup_root, proc_root)
    # The affinity already holds what a cpuset of the control group leaves.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, math.ceil(quota)) if quota is not None else allowed)


def _measure_free_disk(path: Path) -> int:
    """Free bytes on the disk that `path` is or will be on."""
    absolute = path.absolute()
    for folder in (absolute, *absolute.parents):
        try:
            return shutil.disk_usage(folder).free
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
    return 0


def _apply_visibility(listing: GpuListing, environment: Mapping[str, str]) -> GpuListing:
    """Numbers the GPUs as CUDA will, which may hide and reorder them."""
    if not listing.gpus:
        return listing
    visible = select_visible(environment.get(VARIABLE), [gpu.uuid for gpu in listing.gpus])
    gpus = tuple(replace(listing.gpus[position], index=index) for index, position in enumerate(visible.positions))
    notes = [*listing.notes, *([visible.note] if visible.note else [])]
    if len({gpu.name for gpu in listing.gpus}) > 1 and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        notes.append(
            "The GPUs differ, and CUDA may number them by speed: set CUDA_DEVICE_ORDER=PCI_BUS_ID to keep this order."
        )
    return GpuListing(gpus, "" if gpus else visible.note.rstrip("."), tuple(notes))
