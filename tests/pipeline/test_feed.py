"""The feed hands out batches in order, holds loaders back, and neither hangs nor leaves threads behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from myxtts.errors import DataError
from myxtts.pipeline import feed as feed_module
from myxtts.pipeline import load_ahead
from myxtts.pipeline.batch import Arrays, BatchLayout, Loader, hand_over_arrays
from myxtts.pipeline.feed import Feed, WarmUp
from myxtts.pipeline.order import BatchOrder, BatchPlan
from myxtts.pipeline.splits import BatchRange
from myxtts.pipeline.stages import Stage
from myxtts.pipeline.telemetry import Telemetry
from myxtts.pipeline.tune import FeedSettings, Tuner

NUM_UTTERANCES = 60


class FakeLoader(Loader):
    """Writes the row of each utterance into its spectrogram; `trouble` may do anything first."""

    name = "fake"

    def __init__(self, trouble: Callable[[BatchPlan], None] = lambda _plan: None) -> None:
        self._trouble = trouble
        self.num_loaded = 0

    def fill(self, plan: BatchPlan, arrays: Arrays) -> Arrays:
        self._trouble(plan)
        arrays["mel"][:] = plan.rows[:, None, None]
        arrays["mel_lengths"][:] = plan.shape.num_frames
        self.num_loaded += 1
        return arrays

    def name_utterances(self, plan: BatchPlan) -> tuple[str, ...]:
        return tuple(f"utterance{row}" for row in plan.rows)


def wait_for(event: threading.Event) -> None:
    event.wait(120)


def open_feed(
    loader: FakeLoader, num_batches: int = 20, start: int = 0, prefetch_size: int = 2, **options: Any
) -> Feed:
    rows = np.arange(NUM_UTTERANCES)
    order = BatchOrder(rows, rows % 40 + 20, rows % 10 + 5, rows % 3, seed=1, batch_size=4, num_shapes=3)
    defaults: dict[str, Any] = {"num_workers": 2, "buffer_size": 5, "telemetry": Telemetry()}
    return Feed(
        BatchRange(order, start, start + num_batches, (0, 1)),
        loader,
        BatchLayout.of_features(order.shapes, 8, 10),
        (Stage("transfer", hand_over_arrays, prefetch_size),),
        **{**defaults, **options},
    )


@pytest.fixture(autouse=True)
def no_thread_is_left_behind() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 60
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not set(threading.enumerate()) - before


def collect_rows(**options: Any) -> list[list[int]]:
    with open_feed(FakeLoader(lambda plan: time.sleep(0.002 * (plan.position % 3))), **options) as feed:
        return [batch.mel[:, 0, 0].astype(int).tolist() for batch in feed]


@pytest.mark.parametrize("num_workers", [1, 2, 4])
@pytest.mark.parametrize("buffer_size", [1, 3, 50])
def test_batches_come_in_order_whatever_the_threads(num_workers: int, buffer_size: int) -> None:
    expected = collect_rows(num_workers=1, buffer_size=1)
    assert collect_rows(num_workers=num_workers, buffer_size=buffer_size) == expected


def test_stopping_anywhere_and_starting_there_gives_the_same_batches() -> None:
    whole = collect_rows(num_batches=24)
    for stop in (1, 7, 15, 23):
        assert collect_rows(num_batches=stop) + collect_rows(start=stop, num_batches=24 - stop) == whole


def test_loaders_wait_for_the_consumer() -> None:
    loader = FakeLoader()
    with open_feed(loader, num_batches=100, buffer_size=5, prefetch_size=2) as feed:
        next(iter(feed))
        time.sleep(0.3)
        # One taken, two on the device, one in the hand of the transfer thread, five in memory.
        assert loader.num_loaded <= 1 + 2 + 1 + 5


def test_a_batch_that_is_kept_does_not_change() -> None:
    with open_feed(FakeLoader(), buffer_size=1) as feed:
        kept = list(feed)
    assert [batch.mel[:, 0, 0].astype(int).tolist() for batch in kept] == collect_rows()


def test_error_of_a_loader_reaches_the_consumer_with_the_utterances() -> None:
    def fail(plan: BatchPlan) -> None:
        if plan.position == 3:
            raise MemoryError("no more")

    seen: list[int] = []
    with open_feed(FakeLoader(fail)) as feed, pytest.raises(DataError, match=r"batch 3 .*MemoryError.*utterance\d+"):
        seen.extend(batch.position for batch in feed)
    assert seen == [0, 1, 2]


def test_hanging_loader_is_tried_again_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_ahead, "_STALL_LIMIT_S", 1.0)
    release = threading.Event()
    attempts: list[int] = []

    def hang_first(plan: BatchPlan) -> None:
        if plan.position == 4:
            attempts.append(plan.position)
            if len(attempts) == 1:
                release.wait(120)

    with open_feed(FakeLoader(hang_first)) as feed:
        assert [batch.position for batch in feed] == list(range(20))
        release.set()
    assert attempts == [4, 4]


def test_loader_that_hangs_twice_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_ahead, "_STALL_LIMIT_S", 1.0)
    release = threading.Event()

    def hang(plan: BatchPlan) -> None:
        if plan.position == 2:
            release.wait(120)

    with open_feed(FakeLoader(hang)) as feed:
        with pytest.raises(DataError, match=r"batch 2 hangs.*utterance\d+"):
            list(feed)
        release.set()


@pytest.mark.parametrize("num_taken", [0, 1, 5])
def test_stopping_early_does_not_load_the_rest(num_taken: int) -> None:
    with open_feed(FakeLoader(lambda _plan: time.sleep(0.05)), num_batches=1000) as feed:
        for _, _batch in zip(range(num_taken), feed, strict=False):
            pass
        started = time.monotonic()
    # The rest would take 25 seconds.
    assert time.monotonic() - started < 12.0


def test_statistics_tell_a_starved_consumer_from_a_fed_one() -> None:
    with open_feed(FakeLoader(lambda _plan: time.sleep(0.06)), num_workers=1, num_batches=15) as starved:
        list(starved)
    with open_feed(FakeLoader(), num_batches=15) as fed:
        for _batch in fed:
            time.sleep(0.06)
    assert starved.stats().au < 0.4
    assert fed.stats().au > 0.6
    assert fed.stats().num_batches == 14
    assert 0 <= fed.stats().padding < 1


def test_consumer_starts_when_enough_is_ready_and_the_delay_has_passed() -> None:
    said: list[str] = []
    loader = FakeLoader(lambda _plan: time.sleep(0.02))
    with open_feed(loader, prefetch_size=4, warm_up=WarmUp(4, delay_s=0.5), say=said.append) as feed:
        started = time.monotonic()
        next(iter(feed))
        waited_s = time.monotonic() - started
    assert waited_s >= 0.5
    assert loader.num_loaded >= 4
    assert [line.split(":")[0] for line in said] == ["Filling the buffer", "Start"]


def test_no_data_by_the_time_limit_ends_with_a_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "_WARM_UP_LIMIT_S", 1.5)
    release = threading.Event()
    with open_feed(FakeLoader(lambda _plan: wait_for(release)), warm_up=WarmUp(2)) as feed:
        with pytest.raises(DataError, match=r"No batch is ready.*utterance\d+"):
            next(iter(feed))
        release.set()


def test_slow_loading_starts_the_model_late_and_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "_WARM_UP_LIMIT_S", 2.0)
    said: list[str] = []
    release = threading.Event()

    def load(plan: BatchPlan) -> None:
        if plan.position > 0:
            wait_for(release)

    with open_feed(FakeLoader(load), warm_up=WarmUp(2), say=said.append) as feed:
        next(iter(feed))
        release.set()
    assert "starts with 1 of 2 batches" in said[1]


def test_error_while_warming_up_is_not_waited_for() -> None:
    def fail(_plan: BatchPlan) -> None:
        raise DataError("nothing there")

    with open_feed(FakeLoader(fail), warm_up=WarmUp(5)) as feed, pytest.raises(DataError, match="nothing there"):
        next(iter(feed))


def test_tuning_speeds_up_a_starved_feed_and_keeps_the_order() -> None:
    expected = collect_rows(num_batches=200, buffer_size=4)

    def tune() -> Tuner:
        tuner = Tuner(FeedSettings(1, 4), FeedSettings(4, 16))
        loader = FakeLoader(lambda _plan: time.sleep(0.008))
        with open_feed(loader, num_batches=200, num_workers=1, buffer_size=4, tuner=tuner) as feed:
            rows = []
            for batch in feed:
                rows.append(batch.mel[:, 0, 0].astype(int).tolist())
                time.sleep(0.002)
        assert rows == expected
        assert tuner.is_held
        return tuner

    # Times are measured: where other programs take the processor, a trial may show no gain.
    assert any(tune().settings.num_workers > 1 for _ in range(4))
