"""Batches as tensors: nothing is copied within the host, what is kept does not change, several devices share rows."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tests.device_process import DeviceProcess

from benchmarks.copies import count_copies, measure_copies_per_batch
from myxtts.pipeline.batch import BatchLayout, Loaded, MemoryPool, make_device_transfer
from myxtts.pipeline.order import NO_ROW, BatchPlan, Shape
from myxtts.pipeline.packed import PackedBatch, cut_vector
from myxtts.pipeline.stages import Passed, Stage, StageChain
from myxtts.types import Batch

SHAPE = Shape(4, 16, 7)
LAYOUT = BatchLayout.of_features([SHAPE], 5, 6)


@pytest.fixture(scope="module")
def process() -> Iterator[DeviceProcess]:
    with DeviceProcess(3) as process:
        yield process


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


AWKWARD = np.array([1, 5, 2**31 - 1, -1, -(2**31), 0x7F800001, 0x7FC12345, 0x7F800000], np.int64).astype(np.int32)
"""Bits that are denormal numbers, infinity and NaN of both kinds as floats."""


def load_awkward() -> Loaded:
    loaded = load(make_pool(), 2)
    for number, values in enumerate(loaded.arrays.values()):
        values.reshape(-1).view(np.int32)[:] = np.resize(np.roll(AWKWARD, number), values.size)
    return loaded


def move_to(devices: list[str]) -> dict[str, Any]:
    """Runs in a process of its own."""
    transfer, loaded, awkward = make_device_transfer(devices, LAYOUT.num_bytes), load(make_pool(), 2), load_awkward()
    batches: list[Batch] = []
    copies = count_copies(lambda: batches.extend([transfer(loaded), transfer(awkward)]))
    parts = [batch.shares or (batch,) for batch in batches]
    names = list(LAYOUT.view(SHAPE))
    bits = {name: np.concatenate([getattr(part, name) for part in parts[1]]).tobytes() for name in names}
    return {
        "copies": sorted(copies.elements()),
        "devices": [sorted({part.arrays()[name].device[-5:] for name in names}) for part in parts[0]],
        "ids": [list(part.ids) for part in parts[0]],
        "values": [part.mel.numpy()[:, 0, 0].tolist() for part in parts[0]],
        "has_same_bits": all(bits[name] == awkward.arrays[name].tobytes() for name in names),
        "is_whole": all(np.array_equal(batches[0].arrays()[name], loaded.arrays[name]) for name in names),
    }


@pytest.mark.parametrize(
    ("devices", "ids", "values"),
    [
        (["CPU:1"], [["a", "b", "c", ""]], [[2, 102, 2, 2]]),
        (["CPU:1", "CPU:2"], [["a", "b"], ["c", ""]], [[2, 102], [2, 2]]),
    ],
)
def test_each_device_gets_its_rows_in_one_copy(
    process: DeviceProcess, devices: list[str], ids: list[list[str]], values: list[list[int]]
) -> None:
    moved = process.run("tests.pipeline.test_device:move_to", devices=[f"/{device}" for device in devices])
    # Two batches.
    assert moved["copies"] == [["CPU:0", device] for device in devices for _ in range(2)]
    assert moved["devices"] == [[device] for device in devices]
    assert (moved["ids"], moved["values"]) == (ids, values)
    assert moved["has_same_bits"]
    assert moved["is_whole"]


def feed_to(device: str, num_threads: int) -> dict[str, Any]:
    """Batches behind several copies at a time, of which every third takes longer than those behind it."""
    transfer, num_batches = make_device_transfer([device], LAYOUT.num_bytes), 12
    loaded = iter([load(make_pool(), number) for number in range(num_batches)])

    def copy(loaded: Loaded) -> Batch:
        time.sleep(0.02 * (loaded.plan.position % 3 == 0))
        return transfer(loaded)

    def take() -> Passed | None:
        return next((Passed(None, one, {}) for one in loaded), None)

    chain = StageChain(take, (Stage("transfer", copy, 2, num_threads),))

    def iterate() -> Iterator[Batch]:
        chain.start()
        while (passed := chain.take()) is not None:
            yield passed.content

    positions: list[int] = []
    per_batch = measure_copies_per_batch(iterate(), lambda batch: positions.append(batch.position))
    chain.close()
    return {"positions": positions, "per_batch": per_batch}


def test_several_copies_at_a_time_keep_the_order_and_are_one_per_batch(process: DeviceProcess) -> None:
    fed = process.run("tests.pipeline.test_device:feed_to", device="/CPU:1", num_threads=3)
    assert fed == {"positions": list(range(12)), "per_batch": {"CPU:1": 1.0}}


def test_tensors_of_a_batch_that_crossed_are_made_only_when_asked_for() -> None:
    whole = make_device_transfer(["/CPU:0"] * 2, LAYOUT.num_bytes)(load(make_pool(), 3))
    share = whole.shares[0]
    assert isinstance(share, PackedBatch)
    assert not hasattr(share, "melody")
    with mock.patch("myxtts.pipeline.packed.cut_vector", wraps=cut_vector) as cut:
        assert share.pieces[0].num_rows == 2
        cut.assert_not_called()
        assert share.durations is None
        assert share.tokens.dtype == "int32"
        assert share.mel is share.mel
        cut.assert_called_once()
