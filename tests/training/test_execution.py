"""How a step is run: decided once, with a reason that names what decided."""

from __future__ import annotations

from typing import Any

import pytest

from myxtts.config.schema import XTTSConfig
from myxtts.training.execution import Device, Execution, choose_execution

CPU, OLD_GPU, GPU = Device("CPU"), Device("GPU", (7, 5)), Device("GPU", (8, 6))


def choose(device: Device = CPU, total_steps: int | None = 8000, **settings: Any) -> Execution:
    return choose_execution(XTTSConfig(**settings).training, device, total_steps=total_steps, num_shapes=2)


@pytest.mark.parametrize(
    ("settings", "total_steps", "is_compiled", "words"),
    [
        ({}, 8000, True, "A run of 8,000 steps on a CPU with 2 batch shapes pays for compiling"),
        (
            {},
            100,
            False,
            "A run of 100 steps on a CPU with 2 batch shapes does not pay for compiling, one of 150",
        ),
        ({}, None, True, "A run without an end"),
        ({"minutes": 57.0}, 3420, True, "A run of 57 minutes on a CPU"),
        ({"enable_xla_compilation": False}, 8000, False, "graph mode without XLA, as asked"),
        ({"enable_xla_compilation": True}, 1, True, "compiled with XLA, as asked"),
    ],
)
def test_a_cpu_compiles_where_it_pays(
    settings: dict[str, Any], total_steps: int | None, is_compiled: bool, words: str
) -> None:
    execution = choose(total_steps=total_steps, **settings)
    assert execution.is_graph
    assert execution.is_compiled == is_compiled
    assert words in execution.reasons[0]


@pytest.mark.parametrize("key", ["enable_eager_debug", "enable_graph_mode"])
def test_a_debugger_gets_every_operation(key: str) -> None:
    settings: dict[str, Any] = {key: key == "enable_eager_debug"}
    execution = choose(GPU, **settings)
    assert (execution.is_graph, execution.is_compiled) == (False, False)
    assert key in execution.reasons[0]


def test_sixteen_bits_only_where_the_device_has_them_or_they_are_asked_for() -> None:
    assert [choose(device).policy for device in (CPU, OLD_GPU, GPU)] == ["float32", "float32", "mixed_bfloat16"]
    assert choose(GPU, mixed_precision=False).policy == "float32"
    assert "will be slow" in choose(OLD_GPU, mixed_precision=True).reasons[1]


def test_lanes_are_for_compiled_steps_on_a_cpu() -> None:
    assert [choose(device).num_lanes for device in (CPU, GPU)] == [2, 1]
    assert choose(total_steps=10).num_lanes == 1
