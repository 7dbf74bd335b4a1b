"""Hardware detection: CPUs, memory, disk, GPUs and cluster that this process may use. No TensorFlow.

Containers and job schedulers give less than the machine has, through control groups (cgroups) of both versions; CUDA
shows fewer GPUs than the driver, and in another order, where CUDA_VISIBLE_DEVICES is set.
"""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import psutil

from myxtts.runtime.cluster import Cluster, read_cluster
from myxtts.runtime.nvml import Gpu, GpuListing, Nvml, list_gpus, load_nvml

__all__ = ["Gpu", "Hardware", "count_cpus", "detect_hardware", "read_memory_limit"]

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_PROC_ROOT = Path("/proc")
_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Hardware:
    """Resources within this process's limits. `no_gpu_reason` is empty if there are GPUs; `notes` name skipped ones."""

    num_cpus: int
    ram_bytes: int
    available_ram_bytes: int
    disk_free_bytes: int
    gpus: tuple[Gpu, ...] = ()
    no_gpu_reason: str = ""
    notes: tuple[str, ...] = ()
    cluster: Cluster | None = None
    """The multi-worker run that this process is part of, if any."""


def detect_hardware(
    path: Path | None = None, *, nvml: Nvml | None = None, environment: Mapping[str, str] | None = None
) -> Hardware:
    """Looks at the machine; `path` is where data will be written (by default the working folder).

    `nvml` and `environment` stand for the driver and the environment of this process, which are used by default.
    """
    variables = os.environ if environment is None else environment
    listing = _apply_visibility(list_gpus(nvml or load_nvml()), variables)
    memory = psutil.virtual_memory()
    limit_bytes, free_bytes = read_memory_limit()
    return Hardware(
        num_cpus=count_cpus(),
        ram_bytes=min(memory.total, limit_bytes or memory.total),
        available_ram_bytes=memory.available if free_bytes is None else min(memory.available, free_bytes),
        disk_free_bytes=_measure_free_disk(path or Path.cwd()),
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
    """Applies CUDA_VISIBLE_DEVICES: hides, reorders and renumbers the GPUs as CUDA will."""
    if not listing.gpus:
        return listing
    visible = select_visible(environment.get(_VISIBLE_DEVICES), [gpu.uuid for gpu in listing.gpus])
    gpus = tuple(replace(listing.gpus[position], index=index) for index, position in enumerate(visible.positions))
    notes = [*listing.notes, *([visible.note] if visible.note else [])]
    if len({gpu.name for gpu in listing.gpus}) > 1 and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        notes.append(
            "The GPUs differ, and CUDA may number them by speed: set CUDA_DEVICE_ORDER=PCI_BUS_ID to keep this order."
        )
    return GpuListing(gpus, "" if gpus else visible.note.rstrip("."), tuple(notes))


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
        return f"{_VISIBLE_DEVICES} names the MIG slice {entry}; slices are not supported, name a whole GPU."
    return f"{_VISIBLE_DEVICES}={value!r}: {entry!r} names no GPU here, so CUDA ignores it and all that follows."
