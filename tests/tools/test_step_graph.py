"""Graphs of a step: loops whose passes XLA can count, operations in and outside of what it compiles, kernels in HLO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from myxtts.tools.step_graph import count_hlo, read_step_graph


def count_up(x: Any) -> Any:
    return tf.while_loop(lambda i, _: i < 300, lambda i, y: (i + 1, tf.sin(y)), [0, x])[1]


def count_to_a_shape(x: Any) -> Any:
    last = tf.shape(x)[0] * 80
    return tf.while_loop(lambda i, _: i < last, lambda i, y: (i + 1, tf.sin(y)), [0, x])[1]


def with_maximum(x: Any) -> Any:
    return tf.while_loop(lambda i, _: i < 300, lambda i, y: (i + 1, tf.sin(y)), [0, x], maximum_iterations=300)[1]


def count_down(x: Any) -> Any:
    return tf.while_loop(lambda i, _: i >= 0, lambda i, y: (i - 1, tf.sin(y)), [300, x])[1]


def until_small(x: Any) -> Any:
    return tf.while_loop(lambda y: tf.reduce_max(y) > 0.01, lambda y: (y * 0.99,), [x])[0]


def as_long_as_the_data_say(x: Any) -> Any:
    last = 300 + tf.cast(x[0, 0], tf.int32)
    return tf.while_loop(lambda i, _: i < last, lambda i, y: (i + 1, tf.sin(y)), [0, x])[1]


@pytest.mark.parametrize(
    ("body", "is_known"),
    [
        (count_up, True),
        (count_to_a_shape, True),
        (with_maximum, False),
        (until_small, False),
        (as_long_as_the_data_say, False),
    ],
)
def test_loops_are_known_where_the_compiler_knows_them(body: Callable[[Any], Any], is_known: bool) -> None:
    function, x = tf.function(body, jit_compile=True, autograph=False), tf.ones([4, 4])
    graph = read_step_graph([function.get_concrete_function(x).function_def.signature.name])
    assert graph.num_loops == 1
    assert bool(graph.unknown_loops) != is_known
    hlo = count_hlo(function.experimental_get_compiler_ir(x)(stage="optimized_hlo"))
    assert (hlo.num_loops, hlo.num_unknown_loops) == (1, int(not is_known))
    # A loop of known length counts with all of its passes.
    assert (hlo.num_started > 300) == is_known


def test_a_loop_that_counts_down_is_not_counted() -> None:
    function = tf.function(count_down, autograph=False).get_concrete_function(tf.ones([4, 4]))
    assert read_step_graph([function.function_def.signature.name]).unknown_loops


def test_operations_are_in_or_outside_of_the_compiled_part() -> None:
    weights = [tf.Variable(tf.ones([4, 4])) for _ in range(3)]

    @tf.function(jit_compile=True, autograph=False)
    def compute(x: Any) -> Any:
        return tf.reduce_sum(tf.matmul(x, weights[0]) * 2)

    @tf.function(autograph=False)
    def train(x: Any) -> Any:
        loss = compute(x)
        tf.cond(loss > 0, lambda: [weight.assign_sub(0.1 * weight) for weight in weights], lambda: weights)
        return loss

    graph = read_step_graph([train.get_concrete_function(tf.ones([4, 4])).function_def.signature.name, "AddV2"])
    assert graph.compiled == {"MatMul": 1, "Mul": 1, "Sum": 1}
    assert graph.outside == {"Greater": 1, "If": 1, "Mul": 3, "AssignSubVariableOp": 3}
    assert (graph.num_float32_products, graph.num_half_products) == (1, 0)


def test_products_are_counted_by_their_numbers() -> None:
    function = tf.function(lambda x: tf.einsum("ij,jk->ik", x, x) + tf.matmul(x, x), autograph=False)
    name = function.get_concrete_function(tf.ones([4, 4], tf.bfloat16)).function_def.signature.name
    assert read_step_graph([name]).num_half_products == 2
