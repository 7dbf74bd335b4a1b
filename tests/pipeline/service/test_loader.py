"""The loader of a data service under services that mix up, lose, break off, fall silent and disappear."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.pipeline.fake_service import (
    NO_PORT,
    SETTINGS,
    FakeStream,
    LocalLoader,
    greet,
    make_buffer,
    plan_of,
)
from tests.pipeline.recordings import DATA, Clip, make_corpus, order_rows

from myxtts.errors import ConfigError, DataError
from myxtts.pipeline.order import BatchPlan
from myxtts.pipeline.recordings import RecordingSource
from myxtts.pipeline.service.address import await_service, find_obstacle, join_address, split_address
from myxtts.pipeline.service.loader import ServiceLoader, open_service_loader
from myxtts.pipeline.service.reorder import StreamBrokenError
from myxtts.pipeline.splits import BatchRange

MUTE_LIMIT_S = 2.5
QUICK: dict[str, Any] = {
    "_OVERTAKEN_LIMIT_S": 0.5,
    "_GONE_LIMIT_S": 1.2,
    "_MUTE_LIMIT_S": MUTE_LIMIT_S,
    "_FIRST_CHUNK": 4,
    "_CHUNK": 10,
    "_NUM_AHEAD": 40,
}
Arrange = Callable[[list[int]], list[Any]]


class Scene:
    """A loader over fake streams, with everything that was said and opened."""

    def __init__(
        self, address: str, arrange: Arrange, stop: int, *, hangs_at_end: bool = False, **changes: Any
    ) -> None:
        self.local, self.said, self.streams = LocalLoader(), list[str](), list[FakeStream]()

        def open_stream(plans: Sequence[BatchPlan]) -> FakeStream:
            self.streams.append(FakeStream(plans, arrange, hangs_at_end=hangs_at_end))
            return self.streams[-1]

        options: dict[str, Any] = {"start": 0, "can_send": lambda _plan: True} | changes
        open_any: Any = open_stream
        self.loader = ServiceLoader(address, open_any, self.local, plan_of, stop=stop, say=self.said.append, **options)

    def fill(self, position: int) -> int:
        """The number that the batch of a position is made of."""
        return int(self.loader.fill(plan_of(position), make_buffer())["mel"].flat[0])

    def fill_all(self, stop: int, num_threads: int = 3) -> list[int]:
        with ThreadPoolExecutor(num_threads) as pool:
            return list(pool.map(self.fill, range(stop)))


@contextmanager
def open_scene(arrange: Arrange, stop: int, *, limits: dict[str, Any] | None = None, **options: Any) -> Iterator[Scene]:
    with greet() as address, patch.multiple("myxtts.pipeline.service.loader", **QUICK | (limits or {})):
        scene = Scene(address, arrange, stop, **options)
        try:
            yield scene
        finally:
            scene.loader.close()
        names = [thread.name for thread in threading.enumerate()]
        assert not [name for name in names if name.startswith("myxtts-service")]


def keep(positions: list[int]) -> list[Any]:
    return list(positions)


def test_batches_come_from_the_service_chunk_after_chunk() -> None:
    with open_scene(keep, stop=37) as scene:
        assert scene.fill_all(37) == list(range(37))
        assert len(scene.streams) == 5
        assert (scene.loader.num_received, scene.loader.num_lost) == (37, 0)
    assert scene.local.positions == []
    assert scene.local.is_closed
    assert scene.said == []


@example(seed=186, num_lost=5, num_threads=1, hangs=True)
@given(seed=st.integers(0, 1000), num_lost=st.integers(0, 6), num_threads=st.integers(1, 5), hangs=st.booleans())
@settings(max_examples=8)
def test_mixed_up_lost_and_repeated_batches_leave_every_position_filled_once(
    seed: int, num_lost: int, num_threads: int, hangs: bool
) -> None:
    def mix(positions: list[int]) -> list[Any]:
        generator = random.Random(seed + positions[0])
        kept = [position for position in positions if generator.random() >= num_lost / 10]
        kept += generator.sample(kept, len(kept) // 3)
        return sorted(kept, key=lambda position: position + generator.uniform(0, 4))

    with open_scene(mix, stop=24, hangs_at_end=hangs, limits={"_NUM_AHEAD": 4}) as scene:
        numbers = scene.fill_all(24, num_threads)
    assert [number if number >= 0 else -1 - number for number in numbers] == list(range(24))
    assert sorted(scene.local.positions) == [-1 - number for number in numbers if number < 0]


def test_loss_is_said_once() -> None:
    with open_scene(lambda positions: positions[::2], stop=14) as scene:
        assert [number < 0 for number in scene.fill_all(14)] == [False, True] * 7
    assert len(scene.said) == 1
    assert "did not arrive" in scene.said[0]
    assert "on this machine" in scene.said[0]


def test_stream_that_waits_for_lost_batches_is_ended() -> None:
    with open_scene(lambda positions: positions[1:], stop=40, hangs_at_end=True, limits={"_NUM_AHEAD": 4}) as scene:
        scene.fill_all(40)
        assert len(scene.streams) == 5
        assert all(stream.cancelled.wait(60) for stream in scene.streams)


def test_what_cannot_be_sent_is_loaded_here_without_a_word() -> None:
    with open_scene(keep, stop=20, can_send=lambda plan: plan.position % 3 != 0) as scene:
        assert scene.fill_all(20) == [position if position % 3 else -1 - position for position in range(20)]
    assert scene.said == []


def test_nothing_is_sent_where_nothing_can_be() -> None:
    with open_scene(keep, stop=20, can_send=lambda _plan: False) as scene:
        assert scene.fill_all(20) == [-1 - position for position in range(20)]
    assert scene.streams == []


def test_batch_that_is_asked_for_again_is_loaded_here() -> None:
    with open_scene(keep, stop=8) as scene:
        assert [scene.fill(2), scene.fill(2), scene.fill(8)] == [2, -3, -9]


def test_loading_begins_where_it_is_told_to() -> None:
    with open_scene(keep, start=30, stop=33) as scene:
        assert [scene.fill(position) for position in (29, 30, 31, 32, 33)] == [-30, 30, 31, 32, -34]


def test_no_more_is_asked_for_than_there_is_room() -> None:
    with open_scene(keep, stop=500, limits={"_FIRST_CHUNK": 100, "_CHUNK": 100, "_NUM_AHEAD": 4}) as scene:
        scene.fill(0)
        time.sleep(0.3)
        assert sum(stream.num_brought for stream in scene.streams) <= 8


def test_stream_that_breaks_is_loaded_here_and_the_next_one_is_tried() -> None:
    def break_first(positions: list[int]) -> list[Any]:
        return [*positions[:2], StreamBrokenError("a disk is full")] if positions[0] == 0 else keep(positions)

    with open_scene(break_first, stop=14) as scene:
        assert scene.fill_all(14) == [0, 1, -3, -4, *range(4, 14)]
    assert "a disk is full" in scene.said[0]


def test_service_that_breaks_twice_is_an_error() -> None:
    with (
        open_scene(lambda positions: [StreamBrokenError("a disk is full")], stop=14) as scene,
        pytest.raises(DataError, match=r"data service at 127.0.0.1:\d+ failed: a disk is full"),
    ):
        scene.fill_all(14)


def test_error_with_words_for_the_user_is_passed_on() -> None:
    with (
        open_scene(lambda positions: [0, DataError("cannot open x.wav")], stop=14) as scene,
        pytest.raises(DataError, match=r"cannot open x\.wav"),
    ):
        scene.fill_all(14)


def test_silent_service_is_an_error_with_its_address() -> None:
    with open_scene(lambda positions: [], stop=14, hangs_at_end=True) as scene:
        started = time.monotonic()
        with pytest.raises(DataError, match=r"at 127.0.0.1:\d+ has sent nothing for \d+ s: it answers, but no worker"):
            scene.fill(0)
        assert time.monotonic() - started >= MUTE_LIMIT_S


@pytest.mark.parametrize("when", ["before the first chunk", "behind the first chunk"])
def test_service_that_disappears_is_an_error_with_its_address(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**QUICK, "_NUM_AHEAD": 1}.items():
        monkeypatch.setattr(f"myxtts.pipeline.service.loader.{name}", value)
    with greet() as address:
        scene = Scene(address, keep, 60)
        num_filled = 3 if when == "behind the first chunk" else 0
        assert [scene.fill(position) for position in range(num_filled)] == list(range(num_filled))
    try:
        with pytest.raises(DataError, match=rf"{address} has sent nothing .* does not answer any more") as raised:
            scene.fill_all(60)
        assert "data-worker" in raised.value.next_step
    finally:
        scene.loader.close()


def test_closing_ends_whoever_waits_at_once() -> None:
    patient = dict.fromkeys(("_OVERTAKEN_LIMIT_S", "_GONE_LIMIT_S", "_MUTE_LIMIT_S"), 1e9)
    with (
        open_scene(lambda positions: [], stop=14, hangs_at_end=True, limits=patient) as scene,
        ThreadPoolExecutor(2) as pool,
    ):
        waiting = [pool.submit(scene.fill, position) for position in range(2)]
        time.sleep(0.2)
        scene.loader.close()
        for future in waiting:
            with pytest.raises(DataError, match="closed"):
                future.result(60)


# Whether there is a service at all.


@pytest.mark.parametrize(
    ("answer", "obstacle"),
    [(SETTINGS, ""), (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no tf.data service"), (None, "no answer")],
)
def test_service_is_told_from_whatever_else_listens(answer: bytes | None, obstacle: str) -> None:
    with greet(answer) as address:
        found = find_obstacle(address, 0.5)
    assert (obstacle in found) if obstacle else found == ""


def test_nothing_at_the_address_is_an_error_after_the_stated_time() -> None:
    started = time.monotonic()
    with pytest.raises(DataError, match=rf"{NO_PORT}: connection refused \(tried for 0.5 s\)") as raised:
        await_service(NO_PORT, 0.5)
    assert time.monotonic() - started >= 0.5
    assert "myxtts data-worker" in raised.value.next_step


def test_another_kind_of_server_is_an_error_at_once() -> None:
    started = time.monotonic()
    with greet(b"220 mail.example.org ESMTP\r\n") as address, pytest.raises(DataError, match=r"no tf\.data service"):
        await_service(address, 30.0)
    assert time.monotonic() - started < 25, "it was not waited for until the limit"


@pytest.mark.parametrize("address", ["10.0.0.5:5050", "[::1]:80", "localhost:1"])
def test_addresses_are_taken_apart_and_put_together(address: str) -> None:
    assert join_address(*split_address(address)) == address


def open_loader(folder: Path, clips: Sequence[Clip], **changes: Any) -> list[str]:
    source = RecordingSource.open(make_corpus(folder, clips), DATA)
    data, batches = DATA.model_copy(update=changes), BatchRange(order_rows(source), 0, 10, (0, 1))
    loader, messages = open_service_loader(source, data, batches, 40, 1, 0, lambda _line: None)
    loader.close()
    return messages


def test_recordings_beyond_the_service_are_said_once(tmp_path: Path) -> None:
    with greet() as address:
        first, second = open_loader(tmp_path, [Clip(), Clip(), Clip(suffix=".flac")], data_service=address)
    assert address in first
    assert "1 of 3 recordings are beyond it (FLAC)" in second


def test_service_that_could_load_nothing_is_refused(tmp_path: Path) -> None:
    with greet() as address, pytest.raises(DataError, match=r"none of these recordings.*FLAC"):
        open_loader(tmp_path, [Clip(suffix=".flac")] * 2, data_service=address)


def test_service_and_loading_through_python_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="use_tf_native_loading"):
        open_loader(tmp_path, [Clip()] * 2, data_service=NO_PORT, use_tf_native_loading=False)
