"""What TensorFlow executes where, as its runtime records it: not where a tensor says that it is.

Two records are joined. When a function is first run, the runtime keeps the graphs that it gave to the executor of each
device; while it runs, its profiler notes every kernel that starts, by the name of its node, and every copy between
devices. So `run` must call its functions for the first time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorflow.python.eager import context

from benchmarks.copies import iterate_events, record_profile, select_copies

_KERNEL = re.compile(r"(\S+):(\w+)$")


@dataclass
class Executed:
    """Kernels by device, as kinds of operations, and copies from device to device outside of functions."""

    kernels: dict[str, set[str]] = field(default_factory=dict)
    copies: Counter[tuple[str, str]] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        kernels = {device: sorted(kinds) for device, kinds in self.kernels.items()}
        return {"kernels": kernels, "copies": sorted(self.copies.elements())}


def watch(run: Callable[[], Any], folder: Path) -> Executed:
    context.enable_run_metadata()
    # Graphs are kept from the first watch on; those of functions that ran in the meantime are dropped here.
    context.export_run_metadata()
    try:
        record_profile(run, folder)
    finally:
        metadata = context.export_run_metadata()
        context.disable_run_metadata()
    devices = _find_devices(metadata)
    executed = Executed(copies=select_copies(iterate_events(folder)))
    for name in set(iterate_events(folder)):
        if (kernel := _KERNEL.match(name)) and kernel[1] in devices:
            for device in devices[kernel[1]]:
                executed.kernels.setdefault(device, set()).add(_name_kind(kernel[2]))
    return executed


def _name_kind(kind: str) -> str:
    """A kind of operation, whichever of its implementations the runtime took: _MklNativeFusedMatMul is a MatMul."""
    return re.sub(r"^_(Mkl)?(Native)?(Fused)?(?=MatMul)", "", kind)


def _find_devices(metadata: Any) -> dict[str, set[str]]:
    """For each node the devices whose executor was given it."""
    devices: dict[str, set[str]] = {}
    for function in metadata.function_graphs:
        for graph in function.partition_graphs:
            for node in graph.node:
                devices.setdefault(node.name, set()).add(node.device.rpartition("/device:")[2])
    return devices
