"""Strategies over logical CPU devices, for a process whose CPU is split into four."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from myxtts.errors import MyXTTSError
from myxtts.runtime.plan import CPU_DEVICE, Mode, Plan
from myxtts.runtime.strategy import list_devices, make_strategy, setup_gpu_strategy, translate_plan

_KINDS = {"one_device": tf.distribute.OneDeviceStrategy, "mirrored": tf.distribute.MirroredStrategy}


def describe(strategy: Any) -> dict[str, Any]:
    """The kind, and the devices that a computation and a variable really are on."""
    (kind,) = [name for name, known in _KINDS.items() if isinstance(strategy, known)] or ["default"]
    with strategy.scope():
        variable = tf.Variable(1.0)
        computed = strategy.run(lambda: variable + 1.0)
    tensors = strategy.experimental_local_results(computed)
    copies = strategy.experimental_local_results(variable)
    return {
        "kind": kind,
        "computed_on": [shorten(tensor.device) for tensor in tensors],
        "kept_on": [shorten(copy.device) for copy in copies],
    }


def shorten(device: str) -> str:
    return device.rpartition("device:")[2]


def set_up(**arguments: Any) -> dict[str, Any]:
    try:
        return describe(setup_gpu_strategy(**arguments))
    except MyXTTSError as error:
        return {"error": type(error).__name__, "message": str(error)}


def set_up_twice(**arguments: Any) -> bool:
    return setup_gpu_strategy(**arguments) is setup_gpu_strategy(**arguments)


def carry_out(kind: Any, model_devices: list[str]) -> dict[str, Any]:
    plan = Plan(Mode.MIRRORED, CPU_DEVICE, tuple(model_devices), kind, 1, 0, 1, 0, 0, 0.0, (), ())
    try:
        description = describe(make_strategy(plan))
    except MyXTTSError as error:
        return {"error": type(error).__name__, "message": str(error)}
    return {**description, "is_unchanged": translate_plan(plan) == plan}


def list_all(device_type: str) -> list[str]:
    return list(list_devices(device_type))


def start_devices_by_listing() -> bool:
    """Whether listing the devices starts them: then their number could not be changed any more."""
    list_devices("CPU")
    list_devices("GPU")
    cpu = tf.config.list_physical_devices("CPU")[0]
    configuration = tf.config.get_logical_device_configuration(cpu)
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 5)
    except RuntimeError:
        return True
    tf.config.set_logical_device_configuration(cpu, configuration)
    return False
