"""What the control groups of Linux leave to this process: containers and job schedulers give less than the machine has.

Both versions are read. A limit may stand at any level above the process, so every level up to the root counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
PROC_ROOT = Path("/proc")


def read_cpu_quota(cgroup_root: Path = CGROUP_ROOT, proc_root: Path = PROC_ROOT) -> float | None:
    """How many CPUs' worth of time may be used, None without a limit."""
    quotas = [_read_quota_v2(folder) for folder in _walk_folders(cgroup_root, proc_root, "")]
    quotas += [_read_quota_v1(folder) for folder in _walk_folders(cgroup_root, proc_root, "cpu")]
    return min((quota for quota in quotas if quota is not None), default=None)


def read_memory_limit(cgroup_root: Path = CGROUP_ROOT, proc_root: Path = PROC_ROOT) -> tuple[int | None, int | None]:
    """The lowest limit in bytes and the bytes still free under the tightest level; None without a limit."""
    levels = [
        *_read_memory_levels(cgroup_root, proc_root, "", ("memory.max", "memory.current", "inactive_file")),
        *_read_memory_levels(
            cgroup_root, proc_root, "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        ),
    ]
    limit = min((limit for limit, _ in levels), default=None)
    return limit, min((free for _, free in levels), default=None)


def _walk_folders(cgroup_root: Path, proc_root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's group and of all groups above it; version 2 has the controller ""."""
    for line in _read_text(proc_root / "self" / "cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controller not in controllers.split(","):
            continue
        for root in _find_mounts(cgroup_root, controllers, controller):
            # A container may be told the host's path, which does not exist here: then the root is its own group.
            folder = root if ".." in group.split("/") else root / group.lstrip("/")
            yield from (level for level in (folder, *folder.parents) if level.is_relative_to(root) and level.is_dir())


def _find_mounts(cgroup_root: Path, controllers: str, controller: str) -> list[Path]:
    names = {controllers, controller} if controller else {"", "unified"}
    return [folder for name in sorted(names) if (folder := cgroup_root / name).is_dir()]


def _read_quota_v2(folder: Path) -> float | None:
    quota, _, period = _read_text(folder / "cpu.max").strip().partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _read_quota_v1(folder: Path) -> float | None:
    quota = _read_int(folder / "cpu.cfs_quota_us")
    period = _read_int(folder / "cpu.cfs_period_us")
    return quota / period if quota and period else None


def _read_memory_levels(
    cgroup_root: Path, proc_root: Path, controller: str, names: tuple[str, str, str]
) -> Iterator[tuple[int, int]]:
    limit_name, usage_name, cache_name = names
    for folder in _walk_folders(cgroup_root, proc_root, controller):
        limit = _read_int(folder / limit_name)
        if limit is not None:
            # Pages of files that were read count as used, but are given back when memory is needed.
            used = (_read_int(folder / usage_name) or 0) - _read_statistic(folder / "memory.stat", cache_name)
            yield limit, max(0, min(limit, limit - used))


def _read_statistic(path: Path, name: str) -> int:
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
