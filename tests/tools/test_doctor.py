"""`myxtts doctor` finds what is in the way of training, on fake GPUs and without TensorFlow."""

from __future__ import annotations

import json
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pynvml
import pytest
from tests.runtime.fake_nvml import GIB, FakeGpu, FakeNvml
from typer.testing import CliRunner

from myxtts.cli.main import app
from myxtts.tools import doctor
from myxtts.tools.doctor import EXTRAS, Build, Check, Examined, examine_machine

BUILD = Build("12.5.1", "9", (6, 0), (9, 0))


@pytest.fixture(autouse=True)
def built_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "read_build", lambda: BUILD)


def examine(nvml: FakeNvml, num_visible: int = 0, folder: Path = Path()) -> Examined:
    return examine_machine(folder, nvml=nvml, environment={}, count_visible=lambda: num_visible)


def find(examined: Examined, name: str) -> list[Check]:
    return [check for check in examined.checks if check.name == name]


def test_a_machine_with_a_gpu_is_ready() -> None:
    examined = examine(FakeNvml([FakeGpu()]), num_visible=1)
    assert examined.is_ready
    assert find(examined, "GPU") == [
        Check("GPU", "ok", "0: NVIDIA GeForce RTX 4090, compute capability 8.9, 24 GiB (23 free)")
    ]
    assert find(examined, "Driver") == [Check("Driver", "ok", "580.65.06, supports CUDA up to 13.0")]
    assert find(examined, "CUDA") == [Check("CUDA", "ok", "TensorFlow finds 1 of 1 GPUs")]


def test_a_gpu_that_tensorflow_does_not_find_is_an_error() -> None:
    examined = examine(FakeNvml([FakeGpu(), FakeGpu()]), num_visible=0)
    assert not examined.is_ready
    (check,) = find(examined, "CUDA")
    assert check.found == "TensorFlow finds 0 of 2 GPUs"
    assert "myxtts[cuda]" in check.next_step


def test_an_old_driver_and_an_old_gpu_are_errors() -> None:
    nvml = FakeNvml([FakeGpu(name="Tesla M40", compute_capability=(5, 2))])
    nvml.cuda_version = 11080
    examined = examine(nvml, num_visible=1)
    assert "update the NVIDIA driver" in find(examined, "Driver")[0].next_step
    assert "needs compute capability 6.0" in find(examined, "GPU")[0].next_step
    assert not examined.is_ready


def test_a_gpu_that_is_newer_than_tensorflow_is_a_warning() -> None:
    examined = examine(FakeNvml([FakeGpu(name="NVIDIA GeForce RTX 5090", compute_capability=(12, 0))]), num_visible=1)
    (check,) = find(examined, "GPU")
    assert check.status == "warning"
    assert "up to compute capability 9.0" in check.next_step
    assert examined.is_ready


@pytest.mark.parametrize(
    ("capability", "installed", "status"),
    [
        ((6, 1), "9.10.2.21", "ok"),
        ((6, 1), "9.11.0.98", "error"),
        ((7, 5), "9.19.0.56", "ok"),
        ((8, 9), "8.9", "error"),
    ],
)
def test_cudnn_must_fit_the_gpu(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], installed: str, status: str
) -> None:
    found = doctor._find_version
    monkeypatch.setattr(doctor, "_find_version", lambda name: installed if "cudnn" in name else found(name))
    (check,) = find(examine(FakeNvml([FakeGpu(compute_capability=capability)]), num_visible=1), "cuDNN")
    assert check.status == status
    assert ("pip install 'nvidia-cudnn-cu12<9.11'" in check.next_step) == (capability == (6, 1) and status == "error")


def test_a_gpu_in_use_is_a_warning() -> None:
    examined = examine(FakeNvml([FakeGpu(used_memory_bytes=20 * GIB)]), num_visible=1)
    assert find(examined, "GPU")[0].status == "warning"
    assert examined.is_ready


def test_no_driver_is_a_warning_with_the_reason() -> None:
    examined = examine(FakeNvml(problem=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    (check,) = find(examined, "GPU")
    assert (check.status, check.found) == ("warning", "none: no NVIDIA driver is installed")
    assert "--model-size tiny" in check.next_step
    assert examined.is_ready


def hide_modules(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    found: Any = PathFinder.find_spec
    monkeypatch.setattr(
        PathFinder,
        "find_spec",
        classmethod(lambda cls, name, *rest: None if name in names else found(name, *rest)),
    )
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_without_tensorflow_nothing_can_be_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_modules(monkeypatch, "tensorflow")
    monkeypatch.setattr(doctor, "read_build", lambda: None)
    (check,) = find(examine(FakeNvml()), "TensorFlow")
    assert (check.status, check.next_step) == ("warning", "To train: pip install 'myxtts[train]'")
    hide_modules(monkeypatch, "tensorflow", "onnxruntime")
    examined = examine(FakeNvml())
    assert find(examined, "TensorFlow")[0].status == "error"
    assert "pip install 'myxtts[speak]'" in [check.next_step for check in find(examined, "Extras")]
    assert not examined.is_ready


def test_a_full_disk_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = type("Usage", (), {"free": 2**30, "total": 2**40})
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage)
    (check,) = find(examine(FakeNvml(), folder=tmp_path), "Disk")
    assert check.status == "error"
    assert str(tmp_path) in check.found


def test_the_command_prints_checks_and_ends_with_their_result(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Check("CUDA", "error", "TensorFlow finds 0 of 1 GPUs", "Do this.")
    monkeypatch.setattr(doctor, "examine_machine", lambda _folder: Examined([problem]))
    done = CliRunner().invoke(app, ["doctor", "--json"])
    assert done.exit_code == 1
    result = json.loads(done.stdout)
    assert (result["is_ready"], result["checks"][0]["next_step"]) == (False, "Do this.")
    assert "Not ready. First fix: CUDA. Do this." in done.stderr
    monkeypatch.setattr(doctor, "examine_machine", lambda _folder: Examined([]))
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 0


def test_all_extras_of_the_package_are_known() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    names = {line.partition(" = ")[0] for line in section.splitlines() if " = [" in line}
    assert names - set(EXTRAS) == {"cuda", "dev"}
