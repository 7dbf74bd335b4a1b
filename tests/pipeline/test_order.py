"""Batches are a pure function of index, seed, epoch and settings; every utterance comes once an epoch."""

from __future__ import annotations

import time
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from myxtts.pipeline.order import NO_ROW, BatchOrder, BatchPlan, assign_buckets, choose_lengths, hash_numbers

FIRST_BATCH = [20, 26, 14, 8]
FIRST_BATCH_OF_SECOND_EPOCH = [41, 59, 62, 44]

LENGTHS = st.lists(st.integers(1, 900), min_size=1, max_size=200)


def make_order(lengths: list[int], speakers: list[int] | None = None, **options: Any) -> BatchOrder:
    num_frames = np.array(lengths)
    defaults = {"seed": 1, "batch_size": 4, "num_shapes": 3}
    rows = np.arange(len(lengths)) * 3 + 5
    tokens = num_frames // 3 + 1
    labels = np.zeros(len(lengths), int) if speakers is None else np.array(speakers)
    return BatchOrder(rows, num_frames, tokens, labels, **{**defaults, **options})


def collect_rows(order: BatchOrder, epoch: int) -> list[int]:
    start = epoch * order.num_batches_per_epoch
    batches = [order.batch(start + index) for index in range(order.num_batches_per_epoch)]
    return [int(row) for batch in batches for row in batch.rows if row != NO_ROW]


@settings(max_examples=150, deadline=None)
@given(lengths=LENGTHS, batch_size=st.integers(1, 9), num_shapes=st.integers(1, 6), epoch=st.integers(0, 3))
def test_every_utterance_comes_once_an_epoch(lengths: list[int], batch_size: int, num_shapes: int, epoch: int) -> None:
    order = make_order(lengths, batch_size=batch_size, num_shapes=num_shapes)
    assert sorted(collect_rows(order, epoch)) == [index * 3 + 5 for index in range(len(lengths))]


@settings(max_examples=100, deadline=None)
@given(lengths=LENGTHS, budget=st.integers(1, 3000))
def test_a_frame_budget_is_kept_and_nothing_is_lost(lengths: list[int], budget: int) -> None:
    order = make_order(lengths, frame_budget=budget)
    assert len(collect_rows(order, 0)) == len(lengths)
    for shape in order.shapes:
        assert shape.num_utterances == 1 or shape.num_utterances * shape.num_frames <= budget


@settings(max_examples=100, deadline=None)
@given(lengths=LENGTHS)
def test_every_batch_holds_its_utterances_in_one_of_few_shapes(lengths: list[int]) -> None:
    order = make_order(lengths)
    assert len(order.shapes) <= 3
    for position in range(order.num_batches_per_epoch):
        batch = order.batch(position)
        assert batch.shape in order.shapes
        assert len(batch.rows) == batch.shape.num_utterances
        for row in batch.rows[batch.rows != NO_ROW]:
            length = lengths[(int(row) - 5) // 3]
            assert length <= batch.shape.num_frames
            assert length // 3 + 1 <= batch.shape.num_tokens


def list_batches(order: BatchOrder, epoch: int = 0) -> list[BatchPlan]:
    start = epoch * order.num_batches_per_epoch
    return [order.batch(start + index) for index in range(order.num_batches_per_epoch)]


@settings(max_examples=100, deadline=None)
@given(lengths=LENGTHS, batch_size=st.integers(1, 9), budget=st.none() | st.integers(1, 3000))
def test_at_most_one_batch_is_not_full(lengths: list[int], batch_size: int, budget: int | None) -> None:
    order = make_order(lengths, batch_size=batch_size, frame_budget=budget)
    partial = [batch for batch in list_batches(order) if batch.num_real < batch.shape.num_utterances]
    assert len(partial) <= 1
    assert all(batch.num_real > 0 for batch in list_batches(order))
    if budget is None:
        # Where it costs least.
        assert all(batch.shape == order.shapes[0] for batch in partial)


@settings(max_examples=100, deadline=None)
@given(lengths=LENGTHS, num_shapes=st.integers(1, 4))
def test_whole_batches_waste_least(lengths: list[int], num_shapes: int) -> None:
    """No other way to cut the sorted utterances into as many shapes needs fewer frames."""
    size = 4
    order = make_order(lengths, batch_size=size, num_shapes=num_shapes)
    used = sum(batch.shape.num_utterances * batch.shape.num_frames for batch in list_batches(order))
    ordered = sorted(lengths)
    ends = range(len(ordered) % size or size, len(ordered) + 1, size)
    tops = [-(-ordered[end - 1] // 8) * 8 for end in ends]
    for limits in combinations(sorted(set(tops)), min(num_shapes, len(set(tops)))):
        if limits[-1] == tops[-1]:
            assert used <= sum(size * next(limit for limit in limits if limit >= top) for top in tops)


Numbers = st.integers(0, 2**32)


@settings(max_examples=100, deadline=None)
@given(
    utterances=st.lists(
        st.tuples(st.integers(30, 900), st.integers(0, 29), st.integers(0, 3)), min_size=1, max_size=80
    ),
    seed=Numbers,
    shuffle=st.booleans(),
    budget=st.none() | st.integers(1, 3000),
)
def test_numbering_and_trimming_change_shapes_alone(
    utterances: list[tuple[int, int, int]], seed: int, shuffle: bool, budget: int | None
) -> None:
    """A store that was repaired, one with other rows, and recordings whose silence is not known give one order."""
    generator = np.random.default_rng(seed)
    source_frames, trimmed, speakers = map(np.array, zip(*utterances, strict=True))
    keys = generator.permutation(2**16)[: len(utterances)].astype(np.uint64)
    settings: dict[str, Any] = {"seed": 1, "batch_size": 4, "num_shapes": 3, "shuffle": shuffle, "frame_budget": budget}

    def order_ids(places: NDArray[np.int64], rows: NDArray[np.int64], num_frames: Any, labels: Any) -> list[Any]:
        order = BatchOrder(
            rows,
            num_frames[places],
            source_frames[places] // 5,
            labels[places],
            keys=keys[places],
            source_frames=source_frames[places],
            **settings,
        )
        names = {int(row): int(keys[place]) for row, place in zip(rows, places, strict=True)} | {NO_ROW: -1}
        batches = list_batches(order, 0) + list_batches(order, 1)
        for batch in batches:
            lengths = {int(row): int(num_frames[place]) for row, place in zip(rows, places, strict=True)} | {NO_ROW: 0}
            assert max(lengths[int(row)] for row in batch.rows) <= batch.shape.num_frames
            assert batch.keys is not None
            assert batch.keys[: batch.num_real].tolist() == [
                names[row] for row in batch.rows[: batch.num_real].tolist()
            ]
        return [
            ([names[row] for row in batch.rows.tolist()], [names[row] for row in batch.references.tolist()])
            for batch in batches
        ]

    places = np.arange(len(utterances))
    expected = order_ids(places, places, source_frames, speakers)
    shuffled, rows = generator.permutation(places), np.sort(generator.permutation(1000)[: len(places)])
    assert order_ids(shuffled, rows, source_frames - trimmed, 9 - speakers) == expected
    if not shuffle:
        for ids, _ in expected[: len(expected) // 2]:
            real = [id for id in ids if id != -1]
            assert real == sorted(real)


def test_shapes_are_as_tight_as_trimmed_lengths_allow() -> None:
    source_frames = np.repeat([100, 200, 400], 8)
    for trimmed in (0, 30):
        order = make_order((source_frames - trimmed).tolist(), source_frames=source_frames)
        assert [shape.num_frames for shape in order.shapes] == [
            -(-(length - trimmed) // 8) * 8 for length in (100, 200, 400)
        ]
        assert [shape.num_tokens for shape in order.shapes] == [
            -(-((length - trimmed) // 3 + 1) // 8) * 8 for length in (100, 200, 400)
        ]


def check_million(num_epochs: int, batch_size: int, **options: Any) -> None:
    num_utterances = 1_000_000
    generator = np.random.default_rng(0)
    source_frames = generator.integers(80, 1200, num_utterances)
    order = BatchOrder(
        np.arange(num_utterances),
        source_frames - generator.integers(0, 60, num_utterances),
        source_frames // 8,
        generator.integers(0, 2000, num_utterances),
        keys=hash_numbers(np.arange(num_utterances), 5),
        source_frames=source_frames,
        seed=1,
        batch_size=batch_size,
        **options,
    )
    assert len(order.shapes) <= 8
    first_rows = []
    for epoch in range(num_epochs):
        started = time.thread_time()
        batches = [order.batch(epoch * order.num_batches_per_epoch)]
        assert time.thread_time() - started < 2.0
        batches += list_batches(order, epoch)[1:]
        rows = np.concatenate([batch.rows for batch in batches])
        counts = np.bincount(rows[rows != NO_ROW], minlength=num_utterances)
        assert (counts == 1).all()
        first_rows.append(tuple(batches[0].rows.tolist()))
    assert len(set(first_rows)) == num_epochs


def test_of_a_million_utterances_none_is_lost_and_none_comes_twice() -> None:
    check_million(num_epochs=3, batch_size=256)


@pytest.mark.soak
@pytest.mark.parametrize("options", [{}, {"frame_budget": 20_000}, {"multiple_of": 4}])
def test_of_a_million_utterances_none_is_lost_over_many_epochs(options: dict[str, Any]) -> None:
    check_million(num_epochs=10, batch_size=32, **options)


def test_same_settings_give_the_same_batches_in_any_order_of_asking() -> None:
    lengths = np.random.default_rng(0).integers(50, 900, 500).tolist()
    first, second = make_order(lengths), make_order(lengths)
    positions = np.random.default_rng(1).integers(0, 5 * first.num_batches_per_epoch, 50)
    for position in positions:
        a, b = first.batch(int(position)), second.batch(int(position))
        assert a.shape == b.shape
        np.testing.assert_array_equal(a.rows, b.rows)
        np.testing.assert_array_equal(a.references, b.references)


def test_order_is_the_same_on_every_machine_and_version() -> None:
    order = make_order(list(range(10, 34)))
    assert order.batch(0).rows.tolist() == FIRST_BATCH
    assert order.batch(order.num_batches_per_epoch).rows.tolist() == FIRST_BATCH_OF_SECOND_EPOCH


def test_epochs_and_seeds_differ() -> None:
    lengths = list(range(50, 150))
    assert collect_rows(make_order(lengths), 0) != collect_rows(make_order(lengths), 1)
    assert collect_rows(make_order(lengths), 0) != collect_rows(make_order(lengths, seed=2), 0)


def test_shards_are_disjoint_slices_of_the_global_batch() -> None:
    order = make_order(list(range(50, 150)), batch_size=8, multiple_of=4)
    for position in range(order.num_batches_per_epoch):
        batch = order.batch(position)
        shards = [batch.take_shard(shard, 4) for shard in range(4)]
        assert all(shard.shape.num_utterances == 2 for shard in shards)
        np.testing.assert_array_equal(np.concatenate([shard.rows for shard in shards]), batch.rows)


@settings(max_examples=60, deadline=None)
@given(speakers=st.lists(st.integers(0, 5), min_size=1, max_size=60), epoch=st.integers(0, 3))
def test_reference_is_another_clip_of_the_same_speaker(speakers: list[int], epoch: int) -> None:
    order = make_order([100] * len(speakers), speakers)
    counts = np.bincount(speakers)
    for index in range(order.num_batches_per_epoch):
        batch = order.batch(epoch * order.num_batches_per_epoch + index)
        for row, reference in zip(batch.rows, batch.references, strict=True):
            if row == NO_ROW:
                assert reference == NO_ROW
                continue
            speaker = speakers[(int(row) - 5) // 3]
            assert speakers[(int(reference) - 5) // 3] == speaker
            assert (row == reference) == (counts[speaker] == 1)


def test_references_change_from_epoch_to_epoch() -> None:
    order = make_order([100] * 40)
    first = {int(r): int(f) for r, f in zip(order.batch(0).rows, order.batch(0).references, strict=True)}
    later = order.num_batches_per_epoch
    pairs: dict[int, int] = {}
    for index in range(later):
        batch = order.batch(later + index)
        pairs |= {int(r): int(f) for r, f in zip(batch.rows, batch.references, strict=True)}
    assert any(pairs[row] != reference for row, reference in first.items())


def measure_padding(lengths: NDArray[np.integer], limits: NDArray[np.int64]) -> float:
    """The share of frames that is padding when every utterance is padded to its own shape."""
    return float(1 - lengths.sum() / limits[assign_buckets(lengths, limits)].sum())


@settings(max_examples=80, deadline=None)
@given(lengths=LENGTHS, num_shapes=st.integers(1, 4))
def test_chosen_lengths_waste_least(lengths: list[int], num_shapes: int) -> None:
    limits = choose_lengths(np.array(lengths), num_shapes)
    assert len(limits) <= num_shapes
    assert limits[-1] >= max(lengths)
    assert (np.diff(limits) > 0).all()
    # No choice of the same number of shapes with one limit moved is better.
    best = measure_padding(np.array(lengths), limits)
    for place in range(len(limits) - 1):
        for move in (-8, 8):
            moved = limits.copy()
            moved[place] += move
            if moved[place] > 0 and (np.diff(moved) > 0).all():
                assert measure_padding(np.array(lengths), moved) >= best - 1e-12


def test_padding_with_eight_shapes_is_under_a_tenth() -> None:
    lengths = np.random.default_rng(0).integers(86, 861, 20_000)
    assert measure_padding(lengths, choose_lengths(lengths, 8)) < 0.1
    assert assign_buckets(lengths, choose_lengths(lengths, 8)).max() == 7


def test_voice_comes_from_the_same_batch_where_one_is_long_enough() -> None:
    rows = np.arange(40)
    lengths = np.where(rows < 20, 30, 100)
    order = BatchOrder(
        rows, lengths, rows % 5 + 3, rows % 2, seed=3, batch_size=10, num_shapes=2, num_reference_frames=60
    )
    for position in range(order.num_batches_per_epoch):
        batch = order.batch(position)
        is_inside = np.isin(batch.references, batch.rows)
        if batch.shape.num_frames > 60:
            assert is_inside.all()
        assert (batch.references != batch.rows).all()
        assert (batch.references % 2 == batch.rows % 2).all()
    short = next(batch for batch in map(order.batch, range(40)) if batch.shape.num_frames < 60)
    assert not np.isin(short.references, short.rows).all()


def test_bucket_that_does_not_fill_a_batch_has_a_smaller_one() -> None:
    rows = np.arange(35)
    order = BatchOrder(rows, rows * 10 + 10, rows % 5 + 3, rows % 2, seed=3, batch_size=16, num_shapes=4)
    assert [shape.num_utterances for shape in order.shapes] == [3, 16, 16]
    assert all(order.batch(position).num_real == len(order.batch(position).rows) for position in range(3))
