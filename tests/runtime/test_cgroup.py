"""Limits of control groups, both versions, at every level."""

from __future__ import annotations

from pathlib import Path

import pytest

from myxtts.runtime.cgroup import read_cpu_quota, read_memory_limit

UNLIMITED_V1 = 9223372036854771712


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "cgroup", tmp_path / "proc"


def build(roots: tuple[Path, Path], membership: str, files: dict[str, str]) -> None:
    cgroup_root, proc_root = roots
    for root, name, text in [(proc_root, "self/cgroup", membership), *((cgroup_root, *item) for item in files.items())]:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/job/step\n", {"job/cpu.max": "200000 100000", "job/step/cpu.max": "max 100000"}, 2.0),
        ("0::/job/step\n", {"job/cpu.max": "400000 100000", "job/step/cpu.max": "50000 100000"}, 0.5),
        ("0::/job/step\n", {"job/cpu.max": "100000 100000", "job/step/cpu.max": "800000 100000"}, 1.0),
        ("0::/not/in/this/container\n", {"cpu.max": "300000 100000"}, 3.0),
        ("0::/../../outside\n", {"cpu.max": "300000 100000"}, 3.0),
        ("0::/\n", {"cpu.max": "nonsense"}, None),
        ("0::/\n", {"cpu.max": "100000 0"}, None),
        (
            "4:cpu,cpuacct:/box\n",
            {"cpu,cpuacct/box/cpu.cfs_quota_us": "-1", "cpu,cpuacct/box/cpu.cfs_period_us": "100000"},
            None,
        ),
        (
            "4:cpu,cpuacct:/box\n",
            {"cpu,cpuacct/box/cpu.cfs_quota_us": "250000", "cpu,cpuacct/box/cpu.cfs_period_us": "100000"},
            2.5,
        ),
        ("4:cpu,cpuacct:/box\n", {"cpu/box/cpu.cfs_quota_us": "250000", "cpu/box/cpu.cfs_period_us": "100000"}, 2.5),
        (
            "1:cpu:/a/b\n0::/\n",
            {"cpu/a/cpu.cfs_quota_us": "100000", "cpu/a/cpu.cfs_period_us": "100000", "cpu/a/b/tasks": ""},
            1.0,
        ),
        ("1:cpuset:/box\n", {"cpu/box/cpu.cfs_quota_us": "1", "cpu/box/cpu.cfs_period_us": "1"}, None),
        ("", {}, None),
    ],
)
def test_the_tightest_cpu_quota_counts(
    roots: tuple[Path, Path], membership: str, files: dict[str, str], quota: float | None
) -> None:
    build(roots, membership, files)
    assert read_cpu_quota(*roots) == quota


@pytest.mark.parametrize(
    ("membership", "files", "limits"),
    [
        ("0::/\n", {"memory.max": "max\n", "memory.current": "5\n"}, (None, None)),
        ("0::/\n", {"memory.max": "1000", "memory.current": "400"}, (1000, 600)),
        (
            "0::/\n",
            {"memory.max": "1000", "memory.current": "400", "memory.stat": "anon 1\ninactive_file 300\n"},
            (1000, 900),
        ),
        ("0::/\n", {"memory.max": "1000", "memory.current": "1400"}, (1000, 0)),
        ("0::/\n", {"memory.max": "1000", "memory.current": "4", "memory.stat": "inactive_file 300"}, (1000, 1000)),
        (
            "0::/a/b\n",
            {"a/memory.max": "1000", "a/memory.current": "900", "a/b/memory.max": "500", "a/b/memory.current": "100"},
            (500, 100),
        ),
        (
            "3:memory:/box\n",
            {
                "memory/memory.limit_in_bytes": str(UNLIMITED_V1),
                "memory/box/memory.limit_in_bytes": "2000",
                "memory/box/memory.usage_in_bytes": "1500",
                "memory/box/memory.stat": "inactive_file 7\ntotal_inactive_file 100\n",
            },
            (2000, 600),
        ),
        ("3:memory:/\n", {"memory/memory.limit_in_bytes": str(UNLIMITED_V1)}, (UNLIMITED_V1, UNLIMITED_V1)),
        ("", {}, (None, None)),
    ],
)
def test_the_tightest_memory_limit_counts(
    roots: tuple[Path, Path], membership: str, files: dict[str, str], limits: tuple[int | None, int | None]
) -> None:
    build(roots, membership, files)
    assert read_memory_limit(*roots) == limits


def test_a_machine_without_control_groups_has_no_limits(roots: tuple[Path, Path]) -> None:
    assert read_cpu_quota(*roots) is None
    assert read_memory_limit(*roots) == (None, None)
