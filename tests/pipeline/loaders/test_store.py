"""Announced batches are read from the disk before anyone asks for them."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.store.synthetic import SETTINGS, append_segment, begin_store

from myxtts.pipeline.loaders.store import CachedLoader
from myxtts.pipeline.order import BatchOrder, BatchPlan
from myxtts.store import mapping as memory_advice
from myxtts.store.index import Row
from myxtts.store.reader import FeatureStore

NUM_MELS = 80
NUM_UTTERANCES = 400
PLENTY_BYTES = 1 << 40
_mincore = ctypes.CDLL(None).mincore
_mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 50 MB in two segments."""
    folder = tmp_path_factory.mktemp("read_ahead") / "store"
    begin_store(folder, replace(SETTINGS, mel=replace(SETTINGS.mel, n_mels=NUM_MELS)))
    mel = np.ones((400, NUM_MELS), "<f4")
    for segment in range(2):
        numbers = range(segment * NUM_UTTERANCES // 2, (segment + 1) * NUM_UTTERANCES // 2)
        rows = [Row(f"utterance{number}", f"speaker{number % 7}", "en", source_frames=400) for number in numbers]
        append_segment(folder, [(row, {"mel": mel, "tokens": np.arange(50, dtype="<i4")}) for row in rows])
    os.sync()
    return folder


@pytest.fixture
def store(folder: Path) -> FeatureStore:
    """The store on a cold disk: none of its pages is in memory."""
    for path in folder.rglob("*"):
        if path.suffix in (".mel", ".tokens"):
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
    store = FeatureStore.open(folder)
    if measure_resident(store, np.arange(NUM_UTTERANCES)) > 0.01:
        pytest.skip("this file system does not let go of pages")
    return store


@pytest.fixture(autouse=True)
def no_thread_is_left_behind() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) == before


def measure_resident(store: FeatureStore, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
    """The share of the pages of these spectrograms that are in memory; asking does not bring them there."""
    states = []
    for row in rows.tolist():
        mel = store.read_mel(row)
        start = mel.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
        num_bytes = mel.ctypes.data + mel.nbytes - start
        pages = np.zeros(-(-num_bytes // mmap.PAGESIZE), np.uint8)
        assert _mincore(start, num_bytes, pages.ctypes.data) == 0
        states.append(pages & 1)
    return float(np.concatenate(states).mean())


def make_order(store: FeatureStore) -> BatchOrder:
    columns = store.columns
    rows = np.arange(len(store))
    return BatchOrder(rows, columns["mel_length"], columns["tokens_length"], columns["speaker"], seed=1, batch_size=8)


def list_rows(plan: BatchPlan) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.unique(np.concatenate([plan.rows, plan.references]))


def wait_until(is_so: Callable[[], bool], time_limit_s: float = 120.0) -> bool:
    deadline = time.monotonic() + time_limit_s
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.01)
    return is_so()


@pytest.mark.parametrize("allowed", [True, False], ids=["in one call", "call by call"])
def test_records_of_an_announced_batch_and_no_others_come_into_memory(
    store: FeatureStore, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not allowed:
        monkeypatch.setattr(memory_advice, "_PROCESS_MADVISE", -1)
    loader, order = CachedLoader(store, 100, seed=1), make_order(store)
    loader.announce(order.batch(0))
    asked = list_rows(order.batch(0))
    assert wait_until(lambda: measure_resident(store, asked) == 1.0)
    # A page may hold the end of one record and the start of the next.
    assert measure_resident(store, np.setdiff1d(np.arange(NUM_UTTERANCES), asked)) < 0.05
    loader.close()


def test_a_store_that_fits_into_memory_is_read_as_a_whole(store: FeatureStore) -> None:
    loader = CachedLoader(store, 100, seed=1, ram_budget_bytes=PLENTY_BYTES)
    assert measure_resident(store, np.arange(NUM_UTTERANCES)) < 0.01
    loader.announce(make_order(store).batch(0))
    assert wait_until(lambda: measure_resident(store, np.arange(NUM_UTTERANCES)) == 1.0)
    loader.close()


def test_a_store_that_does_not_fit_is_not(store: FeatureStore) -> None:
    num_bytes = sum(store.list_files(("mel", "tokens")).values())
    loader = CachedLoader(store, 100, seed=1, ram_budget_bytes=num_bytes - 1)
    loader.announce(make_order(store).batch(0))
    assert wait_until(lambda: measure_resident(store, list_rows(make_order(store).batch(0))) == 1.0)
    assert measure_resident(store, np.arange(NUM_UTTERANCES)) < 0.2
    loader.close()


@pytest.mark.parametrize("ram_budget_bytes", [0, PLENTY_BYTES])
def test_announcing_returns_at_once_and_closing_ends_it(store: FeatureStore, ram_budget_bytes: int) -> None:
    loader, order = CachedLoader(store, 100, seed=1, ram_budget_bytes=ram_budget_bytes), make_order(store)
    plans = [order.batch(position) for position in range(100)]
    times = []
    for plan in plans:
        started = time.thread_time()
        loader.announce(plan)
        times.append(time.thread_time() - started)
    # A hundredth of the shortest step, in processor time: a busy machine makes everything else longer.
    assert np.median(times) < 50e-6
    loader.close()
    loader.announce(plans[0])
    loader.close()


def test_nothing_is_asked_for_again_and_again_once_everything_is_there(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    loader, order = CachedLoader(store, 100, seed=1), make_order(store)
    for path in store.list_files(("mel", "tokens")):
        path.read_bytes()
    monkeypatch.setattr(store, "request_pages", lambda _rows, part: asked.append(part))
    for position in range(1000):
        loader.announce(order.batch(position))
        time.sleep(0.0002)
    loader.close()
    assert 0 < asked.count("mel") < 500


def test_a_store_that_was_replaced_meanwhile_does_no_harm(folder: Path, tmp_path: Path) -> None:
    begin_store(tmp_path / "store")
    append_segment(
        tmp_path / "store",
        [(Row(f"id{n}"), {"mel": np.ones((5, 2), "<f4"), "tokens": np.ones(3, "<i4")}) for n in range(9)],
    )
    store = FeatureStore.open(tmp_path / "store")
    for path in store.list_files(("mel", "tokens")):
        path.unlink()
    for ram_budget_bytes in (0, PLENTY_BYTES):
        loader = CachedLoader(store, 3, seed=1, ram_budget_bytes=ram_budget_bytes)
        for position in range(3):
            loader.announce(make_order(store).batch(position))
        loader.close()
    assert store.read_mel(8).sum() == 10
