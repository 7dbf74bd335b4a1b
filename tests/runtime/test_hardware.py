"""What the machine offers: limits of control groups of both versions, GPUs as CUDA shows them, CPUs and memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.fake_nvml import GIB, FakeGpu, FakeNvml, make_gpus, make_unequal_gpus

from myxtts.runtime.hardware import Hardware, detect_hardware, read_cpu_quota, read_memory_limit, select_visible

UNLIMITED_V1 = 9223372036854771712


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The folders that stand for /sys/fs/cgroup and /proc."""
    monkeypatch.setattr("myxtts.runtime.hardware._CGROUP_ROOT", tmp_path / "cgroup")
    monkeypatch.setattr("myxtts.runtime.hardware._PROC_ROOT", tmp_path / "proc")
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
    assert read_cpu_quota() == quota


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
    assert read_memory_limit() == limits


@pytest.mark.usefixtures("roots")
def test_a_machine_without_control_groups_has_no_limits() -> None:
    assert read_cpu_quota() is None
    assert read_memory_limit() == (None, None)


UUIDS = ["GPU-aaaa1111", "GPU-aaaa2222", "GPU-bbbb3333", "GPU-cccc4444"]


@pytest.mark.parametrize(
    ("value", "positions"),
    [
        (None, (0, 1, 2, 3)),
        ("0", (0,)),
        ("2,0", (2, 0)),
        (" 1 , 3 ", (1, 3)),
        ("GPU-bbbb3333", (2,)),
        ("GPU-c", (3,)),
        ("GPU-b,GPU-aaaa1", (2, 0)),
        ("1,GPU-c", (1, 3)),
        ("1x", (1,)),
    ],
)
def test_named_gpus_are_shown_in_the_order_given(value: str | None, positions: tuple[int, ...]) -> None:
    assert select_visible(value, UUIDS) == (positions, "")


@pytest.mark.parametrize(
    ("value", "positions", "note"),
    [
        ("", (), "hides all"),
        ("-1", (), "hides all"),
        ("0,-1,1", (0,), "'-1' names no GPU"),
        ("1,9,0", (1,), "'9' names no GPU"),
        ("3,none", (3,), "'none' names no GPU"),
        ("GPU-zzzz", (), "'GPU-zzzz' names no GPU"),
        ("0,GPU-aaaa", (0,), "'GPU-aaaa' names no GPU"),  # two GPUs begin like that
        ("0,0", (), "names a GPU twice"),
        ("0,GPU-aaaa1111", (), "names a GPU twice"),
        ("MIG-1234", (), "MIG instance"),
        ("0,", (0,), "'' names no GPU"),
        ("no", (), "'no' names no GPU"),
    ],
)
def test_the_list_ends_at_the_first_wrong_entry_and_says_so(value: str, positions: tuple[int, ...], note: str) -> None:
    visible = select_visible(value, UUIDS)
    assert visible.positions == positions
    assert note in visible.note


@given(st.text(st.sampled_from("0123,-GPUaMI "), max_size=20), st.integers(0, 4))
def test_only_gpus_that_exist_are_ever_shown(value: str, count: int) -> None:
    visible = select_visible(value, UUIDS[:count])
    assert set(visible.positions) <= set(range(count))
    assert len(set(visible.positions)) == len(visible.positions)


def detect(
    gpus: Sequence[FakeGpu] = (), *, visible: str | None = None, order: str | None = None, problem: int | None = None
) -> Hardware:
    nvml = FakeNvml(gpus, problem=problem)
    variables = {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": order}
    environment = {name: value for name, value in variables.items() if value is not None}
    hardware = detect_hardware(nvml=nvml, environment=environment)
    assert nvml.num_users == 0, "the library is shut down after use"
    return hardware


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_equal_gpus_are_numbered_in_order(count: int) -> None:
    hardware = detect(make_gpus(count))
    assert [gpu.index for gpu in hardware.gpus] == list(range(count))
    assert bool(hardware.no_gpu_reason) == (count == 0)
    assert hardware.notes == ()


def test_a_gpu_is_described() -> None:
    gpu = detect([FakeGpu(uuid="GPU-1")]).gpus[0]
    assert (gpu.name, gpu.memory_bytes, gpu.free_memory_bytes) == ("NVIDIA GeForce RTX 4090", 24 * GIB, 23 * GIB)
    assert (gpu.uuid, gpu.compute_capability, gpu.driver_index) == ("GPU-1", (8, 9), 0)


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver is installed"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "not loaded"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "has no permission"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "restart the machine"),
        (pynvml.NVML_ERROR_UNKNOWN, "does not answer"),
    ],
)
def test_a_driver_that_does_not_answer_is_explained_in_one_line(problem: int, reason: str) -> None:
    hardware = detect(make_gpus(2), problem=problem)
    assert hardware.gpus == ()
    assert reason in hardware.no_gpu_reason
    assert "\n" not in hardware.no_gpu_reason


def test_a_driver_that_fails_while_listing_is_shut_down_and_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: FakeNvml) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)

    monkeypatch.setattr(FakeNvml, "nvmlDeviceGetCount", fail)
    assert "does not list its GPUs: Unknown Error" in detect(make_gpus(1)).no_gpu_reason


def test_lost_and_forbidden_gpus_are_left_out_with_a_word() -> None:
    hardware = detect([FakeGpu(lost=True), FakeGpu(), FakeGpu(forbidden=True), FakeGpu()])
    assert [(gpu.index, gpu.driver_index) for gpu in hardware.gpus] == [(0, 1), (1, 3)]
    assert "GPU 0 of the driver is left out: it has failed" in hardware.notes[0]
    assert "GPU 2 of the driver is left out: this user may not use it" in hardware.notes[1]


def test_losing_the_only_gpu_is_the_reason_for_having_none() -> None:
    hardware = detect([FakeGpu(lost=True)])
    assert hardware.gpus == ()
    assert "it has failed" in hardware.no_gpu_reason


def test_a_gpu_without_memory_of_its_own_is_kept() -> None:
    hardware = detect([FakeGpu(reports_memory=False)])
    assert hardware.gpus[0].memory_bytes == 0
    assert "does not report its memory" in hardware.notes[0]


def test_gpus_are_numbered_as_cuda_shows_them() -> None:
    hardware = detect(make_gpus(4), visible="3,1")
    assert [(gpu.index, gpu.driver_index) for gpu in hardware.gpus] == [(0, 3), (1, 1)]


@pytest.mark.parametrize("visible", ["", "-1", "7", "0,0"])
def test_hiding_every_gpu_is_the_reason_for_having_none(visible: str) -> None:
    hardware = detect(make_gpus(2), visible=visible)
    assert hardware.gpus == ()
    assert f"CUDA_VISIBLE_DEVICES={visible!r}" in hardware.no_gpu_reason


def test_a_wrong_entry_in_the_list_is_noted() -> None:
    hardware = detect(make_gpus(2), visible="1,9,0")
    assert [gpu.driver_index for gpu in hardware.gpus] == [1]
    assert "'9' names no GPU" in hardware.notes[0]


@pytest.mark.parametrize(("order", "num_notes"), [(None, 0), ("FASTEST_FIRST", 1), ("PCI_BUS_ID", 0)])
def test_unequal_gpus_whose_order_is_another_are_noted(order: str | None, num_notes: int) -> None:
    assert len(detect(make_unequal_gpus(), order=order).notes) == num_notes


def make_divided_a100() -> FakeGpu:
    instances = [FakeGpu(uuid=f"MIG-{number}", memory_bytes=(10 + number) * GIB) for number in range(3)]
    return FakeGpu("NVIDIA A100", 40 * GIB, compute_capability=(8, 0), instances=tuple(instances))


@pytest.mark.parametrize(
    ("visible", "gb", "said"),
    [
        (None, 10, "instance MIG-0, which has 10.0 GB"),
        ("1", 10, "instance MIG-0"),
        ("GPU-00000001", 10, "instance MIG-0"),
        ("MIG-2", 12, "instance MIG-2, which has 12.0 GB"),
    ],
)
def test_of_a_divided_gpu_one_instance_is_used_and_its_memory_counts(visible: str | None, gb: int, said: str) -> None:
    hardware = detect([FakeGpu(), make_divided_a100()], visible=visible)
    assert [(gpu.index, gpu.driver_index) for gpu in hardware.gpus] == [(0, 1)]
    assert (hardware.gpus[0].memory_bytes, hardware.gpus[0].free_memory_bytes) == (gb * GIB, (gb - 1) * GIB)
    assert said in hardware.notes[0]


def test_a_whole_gpu_beside_a_divided_one_can_be_named() -> None:
    hardware = detect([FakeGpu(), make_divided_a100()], visible="0")
    assert [(gpu.driver_index, gpu.memory_bytes) for gpu in hardware.gpus] == [(0, 24 * GIB)]
    assert hardware.notes == ()


def test_a_gpu_that_is_to_be_divided_but_has_no_instance_is_left_out() -> None:
    hardware = detect([FakeGpu("NVIDIA A100", compute_capability=(8, 0), instances=())])
    assert hardware.gpus == ()
    assert "no MIG instance" in hardware.no_gpu_reason


def limit(roots: tuple[Path, Path], cpu: str, memory: str) -> None:
    build(roots, "0::/\n", {"cpu.max": cpu, "memory.max": memory, "memory.current": "1000000"})


@pytest.mark.parametrize(
    ("affinity", "quota", "num_cpus"),
    [(8, "max", 8), (8, "150000", 2), (8, "10000", 1), (2, "600000", 2), (1, "max", 1)],
)
def test_cpus_are_what_quota_and_affinity_both_allow(
    roots: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, affinity: int, quota: str, num_cpus: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)))
    limit(roots, f"{quota} 100000", "max")
    assert detect_hardware(nvml=FakeNvml()).num_cpus == num_cpus


def test_memory_is_what_the_control_group_leaves(roots: tuple[Path, Path]) -> None:
    limit(roots, "max 100000", "50000000")
    hardware = detect_hardware(nvml=FakeNvml())
    assert (hardware.ram_bytes, hardware.available_ram_bytes) == (50_000_000, 49_000_000)


def test_without_a_limit_memory_is_what_the_machine_has(roots: tuple[Path, Path]) -> None:
    total = psutil.virtual_memory().total
    for memory in ("max", str(total * 100)):
        limit(roots, "max 100000", memory)
        hardware = detect_hardware(nvml=FakeNvml())
        assert hardware.ram_bytes == total
        assert 0 < hardware.available_ram_bytes <= total


def test_the_real_machine_can_be_looked_at_without_tensorflow() -> None:
    code = (
        "import sys; from myxtts.runtime.hardware import detect_hardware; from myxtts.runtime.plan import choose_plan; "
        "from myxtts.config.schema import XTTSConfig; hardware = detect_hardware(); "
        "choose_plan(XTTSConfig(), hardware); "
        "assert hardware.num_cpus >= 1 and hardware.ram_bytes > 0; "
        "sys.exit('tensorflow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
