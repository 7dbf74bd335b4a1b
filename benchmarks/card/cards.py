"""The GPUs that presets are for, as XLA's compiler and the roofline model know them.

Figures of the rates are NVIDIA's own (data sheets and architecture whitepapers): memory bandwidth, and dense bfloat16
products with float32 sums on tensor cores, without sparsity.
"""

from __future__ import annotations

from dataclasses import dataclass

LAUNCH_US = 2.0
"""Shortest time from the start of one kernel, copy or library call to the start of the next on one stream."""
HOST_WAIT_US = 12.0
"""A value copied to the host, the stream waited for, and the next kernel started: what a loop without a known trip
count costs at every iteration."""


@dataclass(frozen=True)
class Card:
    """A GPU: what the compiler asks for, and two rates for the roofline."""

    title: str
    capability: tuple[int, int]
    num_cores: int
    fpus_per_core: int
    clock_ghz: float
    bandwidth: float
    """Bytes per second."""
    bf16_flops: float
    l2_bytes: int
    memory_bytes: int
    shared_memory: tuple[int, int]
    """Bytes per core, and the most that one block may take of them."""
    threads_per_core: int

    def describe(self) -> str:
        """The text form of XLA's `GpuTargetConfigProto`."""
        major, minor = self.capability
        per_core, per_block = self.shared_memory
        fields = {
            "threads_per_block_limit": 1024,
            "threads_per_warp": 32,
            "shared_memory_per_block": 49_152,
            "shared_memory_per_core": per_core,
            "shared_memory_per_block_optin": per_block,
            "threads_per_core_limit": self.threads_per_core,
            "core_count": self.num_cores,
            "fpus_per_core": self.fpus_per_core,
            "block_dim_limit_x": 2**31 - 1,
            "block_dim_limit_y": 65_535,
            "block_dim_limit_z": 65_535,
            "memory_bandwidth": int(self.bandwidth),
            "l2_cache_size": self.l2_bytes,
            "clock_rate_ghz": self.clock_ghz,
            "device_memory_size": self.memory_bytes,
            "registers_per_core_limit": 65_536,
            "registers_per_block_limit": 65_536,
        }
        lines = "\n".join(f"  {name}: {value}" for name, value in fields.items())
        return (
            f"gpu_device_info {{\n{lines}\n  cuda_compute_capability {{ major: {major} minor: {minor} }}\n}}\n"
            'platform_name: "CUDA"\n'
            "dnn_version_info { major: 9 minor: 10 patch: 2 }\n"
            "runtime_version { major: 12 minor: 9 patch: 0 }\n"
            f'device_description_str: "{self.title}"\n'
        )


_CONSUMER = (102_400, 101_376)
CARDS = {
    "rtx3060": Card("RTX 3060", (8, 6), 28, 128, 1.777, 360e9, 25.5e12, 2_359_296, 12_600_000_000, _CONSUMER, 1536),
    "rtx3090": Card("RTX 3090", (8, 6), 82, 128, 1.695, 936e9, 71e12, 6_291_456, 25_400_000_000, _CONSUMER, 1536),
    "rtx4090": Card("RTX 4090", (8, 9), 128, 128, 2.52, 1008e9, 165.2e12, 75_497_472, 25_400_000_000, _CONSUMER, 1536),
    "a100": Card("A100", (8, 0), 108, 64, 1.41, 1555e9, 312e12, 41_943_040, 42_300_000_000, (167_936, 166_912), 2048),
    "h100": Card("H100", (9, 0), 132, 128, 1.98, 3352e9, 989e12, 52_428_800, 84_900_000_000, (233_472, 232_448), 2048),
}
