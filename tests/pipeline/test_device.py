"""Batches as tensors: nothing is copied within the host, what is kept does not change, several devices share rows."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from tests.device_process import DeviceProcess

from myxtts.pipeline.batch import BatchLayout, Loaded, MemoryPool, make_device_transfer
from myxtts.pipeline.order import NO_ROW, BatchPlan, Shape

SHAPE = Shape(4, 16, 8)
LAYOUT = BatchLayout.of_features([SHAPE], 5, 6)


def load(pool: MemoryPool, number: int) -> Loaded:
    rows = np.array([0, 1, 2, NO_ROW])
    arrays = LAYOUT.view(SHAPE, pool.lease())
    for values in arrays.values():
        values[:] = number
        values[1] = number + 100
    return Loaded(BatchPlan(number, 0, rows, rows, SHAPE), ("a", "b", "c", ""), arrays, 0.0)


def make_pool() -> MemoryPool:
    return MemoryPool(LAYOUT.num_bytes, 2)


def test_tensors_look_at_the_memory_that_was_filled() -> None:
    pool = make_pool()
    loaded = load(pool, 7)
    batch = make_device_transfer(["/CPU:0"], LAYOUT.num_bytes)(loaded)
    loaded.arrays["mel"][0, 0, 0] = 99
    assert float(batch.mel[0, 0, 0]) == 99
    assert batch.position == 7
    assert batch.num_real == 3


def test_tensors_that_are_kept_keep_their_values_and_their_memory() -> None:
    pool, transfer = make_pool(), make_device_transfer(["/CPU:0"], LAYOUT.num_bytes)
    kept = [transfer(load(pool, number)) for number in range(5)]
    assert [int(batch.tokens[0, 0]) for batch in kept] == list(range(5))
    assert pool.num_made == 5
    kept.clear()
    gc.collect()
    transfer(load(pool, 6))
    assert pool.num_made == 5


def test_a_consumer_that_lets_go_needs_no_more_memory() -> None:
    pool, transfer = make_pool(), make_device_transfer(["/CPU:0"], LAYOUT.num_bytes)
    for number in range(50):
        assert float(transfer(load(pool, number)).mel[1, 0, 0]) == number + 100
    assert pool.num_made <= 2


def test_rows_are_shared_out_in_order() -> None:
    batch = make_device_transfer(["/CPU:0"] * 2, LAYOUT.num_bytes)(load(make_pool(), 3))
    assert [share.ids for share in batch.shares] == [("a", "b"), ("c", "")]
    assert [share.num_real for share in batch.shares] == [2, 1]
    assert [share.mel[:, 0, 0].numpy().tolist() for share in batch.shares] == [[3, 103], [3, 3]]
    assert batch.mel.shape == (4, 16, 5)


def test_uneven_shares_are_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError, match="4 rows cannot be shared by 3"):
        make_device_transfer(["/CPU:0"] * 3, LAYOUT.num_bytes)(load(make_pool(), 3))


def move_to(devices: list[str]) -> dict[str, Any]:
    """Runs in a process of its own."""
    batch = make_device_transfer(devices, LAYOUT.num_bytes)(load(make_pool(), 2))
    parts = batch.shares or (batch,)
    return {
        "devices": [part.mel.device.rpartition("device:")[2] for part in parts],
        "ids": [list(part.ids) for part in parts],
        "values": [part.mel.numpy()[:, 0, 0].tolist() for part in parts],
    }


def test_each_device_gets_its_rows() -> None:
    with DeviceProcess(3) as process:
        one = process.run("tests.pipeline.test_device:move_to", devices=["/CPU:1"])
        two = process.run("tests.pipeline.test_device:move_to", devices=["/CPU:1", "/CPU:2"])
    assert one == {"devices": ["CPU:1"], "ids": [["a", "b", "c", ""]], "values": [[2, 102, 2, 2]]}
    assert two == {"devices": ["CPU:1", "CPU:2"], "ids": [["a", "b"], ["c", ""]], "values": [[2, 102], [2, 2]]}
