"""Batches are a pure function of index, seed, epoch and settings; every utterance comes once an epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myxtts.errors import DataError
from myxtts.pipeline.buckets import assign_buckets, choose_lengths, measure_padding
from myxtts.pipeline.order import NO_ROW, BatchOrder

FIRST_BATCH = [44, 20, 26, 14]
FIRST_BATCH_OF_SECOND_EPOCH = [68, 50, 65, 56]

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


def test_only_the_last_shape_has_a_batch_that_is_not_full() -> None:
    order = make_order(list(range(1, 120)), batch_size=8)
    partial = [batch for p in range(order.num_batches_per_epoch) if (batch := order.batch(p)).num_real < 8]
    assert len(partial) <= 1
    assert all(batch.shape == order.shapes[-1] for batch in partial)


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


def test_nothing_to_order_is_said_plainly() -> None:
    with pytest.raises(DataError, match="no utterances"):
        make_order([])


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
