"""XLA's compiler for NVIDIA GPUs, on a machine that has none: `python compiler.py HLO DUMP CARD`.

It runs in the environment that `make card` makes (JAX with its CUDA plugin), which has neither TensorFlow nor MyXTTS:
it imports nothing of this project. XLA writes what it makes of a graph into the folder DUMP; CARD is a file that
describes the device.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

FLAGS = (
    "--xla_dump_hlo_as_text",
    # Without a device nothing is tried out, and products cut along the contracted axis are refused untried.
    "--xla_gpu_enable_split_k_autotuning=false",
    # Its table of latencies knows neither sm_86 nor sm_89.
    "--xla_gpu_enable_analytical_sol_latency_estimator=false",
)


def main(hlo_path: str, dump: str, card_path: str) -> None:
    os.environ |= {
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "XLA_FLAGS": " ".join((*FLAGS, f"--xla_dump_to={dump}")),
    }
    tools = importlib.util.find_spec("nvidia.cuda_nvcc")
    if tools is not None and tools.submodule_search_locations:  # ptxas and libdevice
        os.environ["PATH"] = f"{next(iter(tools.submodule_search_locations))}/bin:{os.environ['PATH']}"
    _compile(Path(hlo_path).read_bytes(), Path(card_path).read_text(encoding="utf-8"))


def _compile(hlo: bytes, description: str) -> None:
    import numpy as np
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax, xla_client
    from jax._src.lib.mlir import ir
    from jax.experimental import topologies

    topology = topologies.get_topology_desc(platform="cuda", target_config=description, topology="1x1x1")
    device = topology.devices[0]
    with mlir.make_ir_context():
        module = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(hlo))
        _drop_copies(module, ir)
        options = xla_client.CompileOptions()
        options.num_replicas = options.num_partitions = 1
        options.device_assignment = xla_client.DeviceAssignment.create(np.array([[0]]))
        device.client.compile(module, _jax.DeviceList((device,)), options)


def _drop_copies(module: Any, ir: Any) -> None:
    """Replaces `mhlo.copy`, which TensorFlow puts before every result and StableHLO does not have, by its operand."""
    copies = []

    def visit(operation: Any) -> Any:
        if operation.operation.name == "mhlo.copy":
            copies.append(operation.operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for copy in copies:
        copy.results[0].replace_all_uses_with(copy.operands[0])
        copy.erase()


if __name__ == "__main__":
    main(*sys.argv[1:])
