"""Builds the `tf.distribute` strategy of a plan: device visibility, memory growth, multi-worker and Slurm set-up.

A GPU's number is `Gpu.index` everywhere outside this module. TensorFlow counts only the GPUs it may see, so a hidden
one moves those behind it forward: `translate_plan` says where.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

# CUDA reads this when TensorFlow first asks for its GPUs; by default it numbers them by speed, unlike the driver.
os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")

import tensorflow as tf

from myxtts.config.values import parse_gpu_numbers
from myxtts.errors import ConfigError, HardwareError
from myxtts.runtime.cluster import Cluster, choose_slurm_port, read_cluster
from myxtts.runtime.plan import CPU_DEVICE, Plan, is_cpu, split_name, translate_devices

__all__ = ["list_devices", "make_strategy", "setup_gpu_strategy", "translate_plan"]

_exchanging: dict[tuple[str, ...], tf.distribute.Strategy] = {}
"""The strategy of this process that all-reduces, by its devices; at most one."""


def setup_gpu_strategy(
    enable_multi_gpu: bool = False, visible_gpus: str | None = None, *, device_type: str = "GPU"
) -> tf.distribute.Strategy:
    """Makes a TensorFlow distribution strategy for the GPUs of this machine, for your own training code.

    No GPU: the default strategy. One, or several without `enable_multi_gpu`: OneDeviceStrategy on the first. Several
    with it: MirroredStrategy. In a cluster: MultiWorkerMirroredStrategy over such GPUs of all workers.
    `visible_gpus` are the numbers that may be used, the first of them first. Call it before any other TensorFlow work.
    """
    existing = list_devices(device_type)
    allowed = existing if visible_gpus is None else _name_chosen(visible_gpus, device_type)
    _refuse_missing(allowed, existing, f"visible_gpus is {visible_gpus!r}")
    return _build_strategy(allowed if enable_multi_gpu else allowed[:1], allowed)


def make_strategy(plan: Plan) -> tf.distribute.Strategy:
    """Makes the strategy of a plan; GPUs that the plan does not use are hidden from TensorFlow.

    Afterwards `translate_plan` gives the plan in the names that TensorFlow uses.
    """
    used = tuple(dict.fromkeys((plan.data_device, *plan.model_devices)))
    for device_type in sorted({split_name(name)[0] for name in used}):
        wanted = [name for name in used if split_name(name)[0] == device_type]
        _refuse_missing(wanted, list_devices(device_type), f"The plan is to use {', '.join(wanted)}")
    model_devices = () if plan.strategy == "default" else plan.model_devices
    if plan.data_device not in (*plan.model_devices, CPU_DEVICE) and read_cluster(os.environ) is not None:
        raise HardwareError(
            f"{plan.data_device} is to make features, but several processes train together, and each of them trains "
            "on all GPUs it sees.",
            next_step="Leave data.data_gpu out, or train in one process.",
        )
    return _build_strategy(model_devices, used)


def list_devices(device_type: str = "GPU") -> tuple[str, ...]:
    """All devices of a type as `/GPU:0`, whether hidden or not. Asking initialises nothing.

    A GPU is a physical device; the CPU is one too, but may be split into several logical ones.
    """
    physical = tf.config.list_physical_devices(device_type)
    if device_type == "CPU":
        return tuple(f"/CPU:{number}" for number in range(sum(map(_count_logical, physical))))
    return tuple(map(_name_device, physical))


def translate_plan(plan: Plan) -> Plan:
    """Returns the plan with TensorFlow's device names, which count only the GPUs visible at this moment."""
    visible = _list_visible_gpus()
    used = [name for name in (plan.data_device, *plan.model_devices) if not is_cpu(name)]
    _refuse_missing(used, visible, f"The plan is to use {', '.join(used)}")
    return replace(
        plan,
        data_device=translate_devices([plan.data_device], visible)[0],
        model_devices=translate_devices(plan.model_devices, visible),
    )


def _build_strategy(model_devices: Sequence[str], visible: Sequence[str]) -> tf.distribute.Strategy:
    """Sets the visible GPUs and makes a strategy over `model_devices`.

    Default for none, OneDeviceStrategy for one, MirroredStrategy for several, MultiWorkerMirroredStrategy in a cluster.
    """
    cluster = read_cluster(os.environ)
    if cluster is not None:
        # MultiWorkerMirroredStrategy takes every visible GPU, so the others are hidden from it.
        _show_only(model_devices)
        return _make_once((cluster.source, *model_devices), lambda: _join_cluster(cluster, model_devices))
    _show_only(visible)
    names = translate_devices(model_devices, _list_visible_gpus())
    if not names:
        return tf.distribute.get_strategy()
    if len(names) == 1:
        return tf.distribute.OneDeviceStrategy(names[0])
    return _make_once(names, lambda: tf.distribute.MirroredStrategy(names))


def _join_cluster(cluster: Cluster, model_devices: Sequence[str]) -> tf.distribute.Strategy:
    """Makes a MultiWorkerMirroredStrategy from TF_CONFIG or from the Slurm step."""
    options = tf.distribute.experimental.CommunicationOptions()
    if model_devices and not any(map(is_cpu, model_devices)):
        # Left to itself TensorFlow exchanges the gradients of several hosts by gRPC, also between GPUs.
        options = tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.NCCL
        )
    resolver = None  # The strategy then reads TF_CONFIG itself.
    if cluster.source == "Slurm":
        num_gpus = sum(not is_cpu(name) for name in model_devices)
        resolver = _resolve_slurm(cluster, choose_slurm_port(os.environ), num_gpus)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver, communication_options=options)
    except (RuntimeError, tf.errors.OpError) as error:
        raise HardwareError(
            f"The cluster of {cluster.num_workers} workers described by {cluster.source} cannot be joined: {error}",
            next_step="Make the strategy first, before any other TensorFlow operation, and check that the address of "
            "this worker is free and its own.",
        ) from error


def _make_once(over: tuple[str, ...], make: Callable[[], tf.distribute.Strategy]) -> tf.distribute.Strategy:
    """Returns the one strategy of this process with collectives: those of a second would mix with the first one's."""
    if over not in _exchanging and _exchanging:
        raise HardwareError(
            f"This process trains over {', '.join(*_exchanging)} already and cannot train over {', '.join(over)} too.",
            next_step="Use one process for each set of devices.",
        )
    if not _exchanging:
        _exchanging[over] = make()
    return _exchanging[over]


def _resolve_slurm(cluster: Cluster, port: int, num_gpus: int) -> Any:
    """Slurm's description of the cluster, and this process in it.

    Slurm itself must give every task its own GPUs (--gpus-per-task), so TensorFlow is told to leave that alone: its
    resolver would need nvidia-smi and cannot serve hosts without a GPU. Nor does it find this process when the hosts
    are not in alphabetical order; the address does.
    """
    spec = tf.distribute.cluster_resolver.SlurmClusterResolver(
        port_base=port, gpus_per_node=cluster.num_workers, gpus_per_task=1, auto_set_gpu=False
    ).cluster_spec()
    addresses = spec.as_dict()["worker"]
    node, local_number = os.environ.get("SLURMD_NODENAME", ""), os.environ.get("SLURM_LOCALID", "")
    address = f"{node}:{port + int(local_number)}" if local_number.isdigit() else ""
    if address not in addresses:
        raise HardwareError(
            f"Task {local_number!r} (SLURM_LOCALID) on {node!r} (SLURMD_NODENAME) is not among the workers of this "
            f"Slurm step: {', '.join(addresses)}.",
            next_step="Start the run with srun, or describe the cluster in TF_CONFIG.",
        )
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec,
        task_type="worker",
        task_id=addresses.index(address),
        rpc_layer="grpc",
        num_accelerators={"GPU": num_gpus} if num_gpus else {},
    )


def _show_only(names: Sequence[str]) -> None:
    """Hides all other GPUs from TensorFlow, and sets memory growth on the visible ones."""
    wanted = [gpu for gpu in tf.config.list_physical_devices("GPU") if _name_device(gpu) in names]
    notes = [*_hide_all_but(wanted), *_let_memory_grow(wanted)]
    if notes:
        warnings.warn(
            f"TensorFlow had started its devices before the strategy was made: {', and '.join(notes)}. "
            "Make the strategy first, before any other TensorFlow operation.",
            RuntimeWarning,
            stacklevel=4,
        )


def _hide_all_but(wanted: list[Any]) -> Iterator[str]:
    """Sets the visible GPUs; yields a note if TensorFlow has initialised already and keeps more than it needs."""
    seen = tf.config.get_visible_devices("GPU")
    try:
        if seen != wanted:
            tf.config.set_visible_devices(wanted, "GPU")
    except RuntimeError as error:
        hidden = [gpu for gpu in wanted if gpu not in seen]
        if hidden:
            raise HardwareError(
                f"{_say_gpus(hidden)} may not be used: TensorFlow started with {_say_gpus(seen) or 'no GPU'}.",
                next_step="Make the strategy first, before any other TensorFlow operation.",
            ) from error
        yield f"it holds on to {_say_gpus([gpu for gpu in seen if gpu not in wanted])}"


def _let_memory_grow(wanted: list[Any]) -> Iterator[str]:
    """Sets memory growth; yields a note if TensorFlow has initialised already and may allocate all memory."""
    try:
        for gpu in wanted:
            # Logical devices configured by the user have fixed memory limits, which exclude growth.
            if not tf.config.get_logical_device_configuration(gpu):
                tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError:
        yield f"it may take all memory of {_say_gpus(wanted)}"


def _name_chosen(visible_gpus: str, device_type: str) -> tuple[str, ...]:
    try:
        numbers = parse_gpu_numbers(visible_gpus)
    except ValueError as error:
        raise ConfigError(f"visible_gpus: {error}.", next_step='Write GPU numbers such as "0" or "0,1".') from error
    return tuple(f"/{device_type}:{number}" for number in numbers)


def _refuse_missing(wanted: Sequence[str], existing: Sequence[str], asked: str) -> None:
    """Raises HardwareError for devices TensorFlow does not see, with the likely cause: no driver or no CUDA build."""
    missing = [name for name in wanted if name not in existing]
    if not missing:
        return
    if existing:
        raise HardwareError(
            f"{asked}, but TensorFlow does not see {', '.join(missing)}; it sees {', '.join(existing)}.",
            next_step="Name devices that exist.",
        )
    reason = "it sees no GPU" if tf.test.is_built_with_cuda() else "this TensorFlow was built without CUDA"
    raise HardwareError(
        f"{asked}, but TensorFlow does not see {', '.join(missing)}: {reason}.",
        next_step="Check the driver with nvidia-smi, and install the CUDA libraries with pip install 'myxtts[cuda]'.",
    )


def _list_visible_gpus() -> tuple[str, ...]:
    return tuple(map(_name_device, tf.config.get_visible_devices("GPU")))


def _say_gpus(gpus: Sequence[Any]) -> str:
    return ", ".join(map(_name_device, gpus))


def _count_logical(device: Any) -> int:
    """Logical devices that a physical one was split into; one unless configured."""
    return len(tf.config.get_logical_device_configuration(device) or [None])


def _name_device(device: Any) -> str:
    """`/GPU:1` for the physical device that TensorFlow calls /physical_device:GPU:1."""
    return f"/{device.device_type}:{device.name.rpartition(':')[2]}"
