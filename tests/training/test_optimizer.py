"""AdamW over packed moments: their names in checkpoints, and weights that a step leaves as they are."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from myxtts.training.optimizer import AdamW, spread_flags

SHAPES = {"table": (3, 2), "bias": (4,), "kernel": (2, 5)}
NUM_VALUES = 20


def make_optimizer() -> tuple[AdamW, list[Any]]:
    generator = np.random.default_rng(3)
    weights = {name: keras.Variable(generator.normal(size=shape).astype(np.float32)) for name, shape in SHAPES.items()}
    return AdamW(weights, 0.1, betas=(0.9, 0.98), undecayed=("table",)), list(weights.values())


def update(optimizer: AdamW, weights: list[Any], gradient: float, kept: list[bool], is_skipped: bool = False) -> None:
    run = optimizer.make_update(weights)
    values = [weight.value for weight in weights]
    flags = {value: tf.constant(value) for value in (True, False)}
    gradient_P, rate = tf.fill([NUM_VALUES], gradient), tf.constant(0.01)
    chosen = [flags[value] for value in kept]
    run(optimizer.iterations, values, optimizer.slots, gradient_P, rate, flags[is_skipped], chosen)


def test_moments_are_numbered_by_weight_and_restored_one_by_one() -> None:
    optimizer, _ = make_optimizer()
    named = optimizer.named_variables
    assert list(named) == ["00000", *(f"{number:05}" for number in range(2, 8))]
    assert [tuple(named[f"{number:05}"].shape) for number in (2, 4, 6)] == list(SHAPES.values())
    named["00005"].assign(np.arange(4, dtype=np.float32))
    np.testing.assert_array_equal(named["00005"].numpy(), [0, 1, 2, 3])
    first, second = (moments.numpy() for moments in optimizer.slots)
    assert not first.any()
    np.testing.assert_array_equal(second[6:10], [0, 1, 2, 3])
    assert np.count_nonzero(second) == 3


@pytest.mark.parametrize("gradient", [0.5, np.nan])
def test_a_weight_that_is_kept_keeps_its_bits_and_moments(gradient: float) -> None:
    optimizer, weights = make_optimizer()
    update(optimizer, weights, 0.25, [False] * 3)
    before = [weight.numpy() for weight in weights]
    moments = [moment.numpy() for moment in optimizer.slots]
    update(optimizer, weights, gradient, [False, True, True])
    assert not np.array_equal(before[0], weights[0].numpy(), equal_nan=True)
    for number in (1, 2):
        assert before[number].tobytes() == weights[number].numpy().tobytes()
    for old, new in zip(moments, optimizer.slots, strict=True):
        assert old[6:].tobytes() == new.numpy()[6:].tobytes()
        assert old[:6].tobytes() != new.numpy()[:6].tobytes()


def test_a_skipped_step_is_not_counted() -> None:
    optimizer, weights = make_optimizer()
    before = [weight.numpy() for weight in weights]
    update(optimizer, weights, np.nan, [True] * 3, is_skipped=True)
    assert optimizer.iterations.numpy() == 0
    assert all(old.tobytes() == weight.numpy().tobytes() for old, weight in zip(before, weights, strict=True))
    update(optimizer, weights, 1.0, [False] * 3)
    assert optimizer.iterations.numpy() == 1


def test_a_pull_leads_back_to_the_start_instead_of_to_zero() -> None:
    generator = np.random.default_rng(3)
    weights = {name: keras.Variable(generator.normal(size=shape).astype(np.float32)) for name, shape in SHAPES.items()}
    optimizer = AdamW(weights, 0.1, betas=(0.9, 0.98), undecayed=("table",), pull=2.0)
    optimizer.note_start()
    starts = [weight.numpy() for weight in weights.values()]
    assert {name: start.numpy().tolist() for name, start in optimizer.start_variables.items()} == {
        name: start.tolist() for name, start in zip(SHAPES, starts, strict=True)
    }
    for weight in weights.values():
        weight.assign(weight + 1.0)
    update(optimizer, list(weights.values()), 0.0, [False] * 3)
    # By rate times pull of the way, biases too; rows of tables may be those of new symbols, whose start is random.
    for (name, weight), start in zip(weights.items(), starts, strict=True):
        way = 1.0 if name == "table" else 1.0 - 0.01 * 2.0
        np.testing.assert_allclose(weight.numpy(), start + way, rtol=0, atol=1e-6)


def test_flags_are_spread_over_values_only_where_they_differ() -> None:
    yes, no = tf.constant(True), tf.constant(False)
    assert spread_flags([yes, yes], [2, 3]) is yes
    assert spread_flags([no, yes, yes, no], [1, 2, 1, 2]).numpy().tolist() == [False, True, True, True, False, False]


def test_other_weights_than_its_own_are_refused() -> None:
    optimizer, weights = make_optimizer()
    with pytest.raises(AssertionError, match="other weights"):
        optimizer.make_update(weights[:2])
