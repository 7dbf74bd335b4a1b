"""GPUs that exist only in TensorFlow's books, for a process that never starts its devices or has none.

Hiding, numbering and memory growth are then TensorFlow's own; only the hardware is missing.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tests.runtime.fake_nvml import FakeNvml, make_gpus

from myxtts.config.schema import XTTSConfig
from myxtts.errors import MyXTTSError
from myxtts.runtime import strategy as module
from myxtts.runtime.hardware import detect_hardware
from myxtts.runtime.plan import choose_plan
from myxtts.training.learner import detect_device


def install_gpus(num_gpus: int) -> None:
    """Gives TensorFlow so many GPUs, all visible, as if freshly found."""
    books: Any = context.context()
    books._initialize_physical_devices()
    gpus = [context.PhysicalDevice(f"/physical_device:GPU:{number}", "GPU") for number in range(num_gpus)]
    for devices in (books._physical_devices, books._visible_device_list):
        devices[:] = [device for device in devices if device.device_type != "GPU"] + gpus
    books._memory_growth_map = dict.fromkeys(gpus)


def read_options() -> dict[str, Any]:
    """What TensorFlow would tell the GPU driver."""
    options = context.context()._compute_gpu_options()
    return {"visible": options.visible_device_list, "growth": options.allow_growth}


class Recorder:
    """Stands for the strategies, which start the devices when they are made."""

    def __init__(self, devices: str | Sequence[str]) -> None:
        self.devices = [devices] if isinstance(devices, str) else list(devices)


class OneDevice(Recorder): ...


class Mirrored(Recorder): ...


class MultiWorker(Recorder):
    """`devices` tells the cluster as Slurm has it, this process in it, its GPUs, and how gradients are exchanged."""

    def __init__(self, cluster_resolver: Any, communication_options: Any) -> None:
        super().__init__([])
        exchange = communication_options.implementation.value
        if cluster_resolver is not None:
            addresses = cluster_resolver.cluster_spec().as_dict()["worker"]
            accelerators = cluster_resolver.num_accelerators()
            gpus = f"{accelerators.get('GPU', 0)} GPUs"
            self.devices = [*addresses, f"task {cluster_resolver.task_id}", gpus, exchange]


_RECORDED = {
    "OneDeviceStrategy": OneDevice,
    "MirroredStrategy": Mirrored,
    "MultiWorkerMirroredStrategy": MultiWorker,
}


def set_up(num_gpus: int, **arguments: Any) -> dict[str, Any]:
    """What `setup_gpu_strategy` makes of a machine with so many GPUs."""
    install_gpus(num_gpus)
    return _describe(lambda: module.setup_gpu_strategy(**arguments))


def carry_out_plan(num_gpus: int, num_found: int, **values: Any) -> dict[str, Any]:
    """What `make_strategy` makes of the plan for a machine where TensorFlow finds `num_found` GPUs."""
    install_gpus(num_found)
    plan = choose_plan(XTTSConfig(**values), detect_hardware(nvml=FakeNvml(make_gpus(num_gpus)), environment={}))
    description = _describe(lambda: module.make_strategy(plan))
    if "error" not in description:
        translated = module.translate_plan(plan)
        description["plan"] = [translated.data_device, *translated.model_devices]
        description["prefetch"] = list(translated.prefetch_devices)
    return description


def set_up_started(hidden_first: bool, grow_first: bool, requests: list[str]) -> list[dict[str, Any]]:
    """Starts TensorFlow with three GPUs, the last one hidden if asked, and only then makes strategies."""
    install_gpus(3)
    gpus = tf.config.list_physical_devices("GPU")
    if hidden_first:
        tf.config.set_visible_devices(gpus[:2], "GPU")
    for gpu in gpus if grow_first else []:
        tf.config.experimental.set_memory_growth(gpu, True)
    tf.constant(0)
    return [_describe(lambda visible=visible: module.setup_gpu_strategy(visible_gpus=visible)) for visible in requests]


def in_environment(name: str, environment: dict[str, str], **arguments: Any) -> Any:
    """One of the functions above with some variables set."""
    os.environ.update(environment)
    try:
        return globals()[name](**arguments)
    finally:
        for variable in environment:
            del os.environ[variable]


def join_late() -> str:
    """What is said to a worker that has started its devices before it joins its cluster."""
    install_gpus(0)
    tf.constant(0)
    cluster = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})
    try:
        module.setup_gpu_strategy()
    except MyXTTSError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        del os.environ["TF_CONFIG"]
    return ""


def _describe(make: Any) -> dict[str, Any]:
    originals = {name: getattr(tf.distribute, name) for name in _RECORDED}
    for name, recorder in _RECORDED.items():
        setattr(tf.distribute, name, recorder)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            strategy = make()
    except MyXTTSError as error:
        return {"error": type(error).__name__, "message": str(error)}
    finally:
        for name, original in originals.items():
            setattr(tf.distribute, name, original)
        module._exchanging.clear()
    devices = strategy.devices if isinstance(strategy, Recorder) else []
    warned = [str(warning.message) for warning in caught]
    return {"kind": type(strategy).__name__, "devices": devices, "warnings": warned, **read_options()}


def detect_training_device(capabilities: list[tuple[int, int] | None], **values: Any) -> Any:
    """Capability that decides on the numbers of a step, on a machine whose GPUs have these."""
    install_gpus(len(capabilities))
    details = {f"/physical_device:GPU:{number}": capability for number, capability in enumerate(capabilities)}
    before = tf.config.experimental.get_device_details
    tf.config.experimental.get_device_details = lambda gpu: {"compute_capability": details[gpu.name]}
    gpus = make_gpus(len(capabilities))
    try:
        plan = choose_plan(XTTSConfig(**values), detect_hardware(nvml=FakeNvml(gpus), environment={}))
        return detect_device(plan).capability
    finally:
        tf.config.experimental.get_device_details = before
