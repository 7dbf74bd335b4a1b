"""How a step is run: decided once, with a reason that names what decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myxtts.config.schema import XTTSConfig
from myxtts.errors import HardwareError
from myxtts.training.execution import (
    Device,
    Execution,
    MicroBatches,
    MicroBatchMemory,
    choose_execution,
    name_situation,
)

CPU, OLD_GPU, GPU = Device("CPU"), Device("GPU", (7, 5)), Device("GPU", (8, 6))


def choose(device: Device = CPU, total_steps: int | None = 8000, **settings: Any) -> Execution:
    return choose_execution(XTTSConfig(**settings).training, device, total_steps=total_steps, num_shapes=2)


@pytest.mark.parametrize(
    ("settings", "total_steps", "is_compiled", "words"),
    [
        ({}, 8000, True, "A run of 8,000 steps is long enough for 2 batch shapes"),
        (
            {},
            100,
            False,
            "A run of 100 steps is too short to compile 2 batch shapes: XLA pays from 150",
        ),
        ({}, None, True, "A run of unknown length"),
        ({"minutes": 57.0}, 3420, True, "A run of 57 minutes is long enough"),
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


def test_shapes_that_are_not_known_yet_do_not_keep_a_run_from_being_compiled() -> None:
    training = XTTSConfig().training
    long, short = (choose_execution(training, GPU, total_steps=steps, num_shapes=None) for steps in (150, 149))
    assert (long.is_compiled, short.is_compiled) == (True, False)
    assert "long enough for its batch shapes" in long.reasons[0]


def test_a_short_run_on_a_gpu_does_not_wait_for_the_compiler() -> None:
    short, long = (choose(GPU, total_steps=total_steps) for total_steps in (299, 300))
    assert (short.is_graph, short.is_compiled, long.is_compiled) == (True, False, True)
    assert "A run of 299 steps is too short to compile 2 batch shapes: XLA pays from 300" in short.reasons[0]
    assert choose(GPU, total_steps=None).is_compiled


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
    assert [choose(device).sums_by_row for device in (CPU, GPU)] == [True, False]
    assert choose(total_steps=10).num_lanes == 1
    assert not choose(total_steps=10).sums_by_row


def test_gpus_search_alignments_in_chunks_and_cpus_frame_by_frame() -> None:
    assert [choose(device).is_search_chunked for device in (CPU, GPU)] == [False, True]


ASKED = MicroBatches(32, 1)


def test_halving_keeps_the_rows_of_a_step() -> None:
    sizes = [ASKED]
    while sizes[-1].batch_size > 1:
        sizes.append(sizes[-1].halve())
    assert [(each.batch_size, each.accumulation) for each in sizes] == [
        (32, 1),
        (16, 2),
        (8, 4),
        (4, 8),
        (2, 16),
        (1, 32),
    ]
    assert {each.num_rows for each in sizes} == {32}


def test_a_single_row_that_does_not_fit_is_a_clear_error() -> None:
    with pytest.raises(HardwareError, match=r"GPU 0, .* one utterance") as caught:
        MicroBatches(1, 8).halve("GPU 0")
    assert "--model-size" in caught.value.next_step


@given(st.integers(2, 5000), st.integers(1, 64))
def test_halving_never_loses_a_row_and_ends(batch_size: int, accumulation: int) -> None:
    sizes = MicroBatches(batch_size, accumulation)
    for _ in range(14):
        if sizes.batch_size == 1:
            break
        smaller = sizes.halve()
        assert smaller.batch_size < sizes.batch_size
        assert smaller.accumulation == 2 * sizes.accumulation
        assert sizes.num_rows <= smaller.num_rows <= sizes.num_rows + sizes.accumulation
        sizes = smaller
    assert sizes.batch_size == 1


def refuse_warnings(message: str) -> None:
    raise AssertionError(message)


def test_what_fits_is_remembered_for_the_same_device_model_and_wish(tmp_path: Path) -> None:
    memory = MicroBatchMemory(tmp_path / "micro_batches.json", refuse_warnings)
    here = name_situation("GPU 0", "abc", ASKED)
    assert memory.recall(here) is None
    memory.remember(here, ASKED.halve())
    memory.remember(name_situation("GPU 1", "abc", ASKED), ASKED.halve().halve())
    again = MicroBatchMemory(tmp_path / "micro_batches.json", refuse_warnings)
    assert again.recall(here) == MicroBatches(16, 2)
    assert again.recall(name_situation("GPU 1", "abc", ASKED)) == MicroBatches(8, 4)
    assert again.recall(name_situation("GPU 0", "xyz", ASKED)) is None
    assert again.recall(name_situation("GPU 0", "abc", MicroBatches(64, 1))) is None


def test_what_fitted_before_is_chosen_and_said(tmp_path: Path) -> None:
    lines: list[str] = []
    memory = MicroBatchMemory(tmp_path / "micro_batches.json", lines.append)
    assert memory.choose("here", ASKED) == ASKED
    memory.remember("here", ASKED)
    assert memory.choose("here", ASKED) == ASKED
    assert lines == []
    memory.remember("here", ASKED.halve())
    assert memory.choose("here", ASKED) == ASKED.halve()
    assert lines == ["Each step uses 2 micro-batches, which fitted into memory before."]
    # What was found with another number of batches per step cannot be cut evenly.
    assert memory.choose("here", MicroBatches(32, 3)) == MicroBatches(32, 3)


@pytest.mark.parametrize(
    "content",
    ["", "[", "[]", '{"here": 1}', '{"here": {"batch_size": 0, "accumulation": 1}}', '{"here": {"batch_size": "8"}}'],
)
def test_a_damaged_memory_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "micro_batches.json"
    path.write_text(content, encoding="utf-8")
    memory = MicroBatchMemory(path, refuse_warnings)
    assert memory.recall("here") is None
    memory.remember("here", ASKED)
    assert memory.recall("here") == ASKED


def test_a_disk_that_refuses_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    warnings: list[str] = []
    MicroBatchMemory(tmp_path / "file" / "memory.json", warnings.append).remember("here", ASKED)
    assert "searched for again" in warnings[0]
