"""A loop that is watched from outside: what it dispatches, reads and copies, with one fault planted at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import tensorflow as tf
from tests.device_process import DeviceProcess

from myxtts.pipeline import stages
from myxtts.pipeline.stages import Passed, Stage
from myxtts.tools.watch_loop import LoopFacts, LoopWatch

NUM_STEPS = 10
BATCHES = [tf.fill([4, 3], float(number)) for number in range(NUM_STEPS)]


def watch(step: Callable[[Any], Any], in_flight: int | None = 2, devices: tuple[str, ...] = ("/CPU:0",)) -> LoopFacts:
    """A loop as the training loop is: results are read by another thread, up to `in_flight` steps late."""
    unread: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(1) as reader, LoopWatch(devices) as seen:
        observed, seen.is_slow = seen.wrap(step), True
        for batch in BATCHES:
            result = observed(batch)
            if in_flight is None:
                continue
            unread.append(reader.submit(result.numpy))
            while len(unread) > in_flight:
                unread.popleft().result()
    return seen.summarize()


def make_step(**options: Any) -> Any:
    weight = tf.Variable(tf.ones([3, 3]))

    def train(batch: Any) -> Any:
        loss = tf.reduce_mean(tf.matmul(batch, weight))
        weight.assign_sub(0.1 * weight)
        return loss

    function = tf.function(train, autograph=False, **options)
    function(BATCHES[0])
    return function


def test_a_loop_that_runs_ahead_has_no_fault() -> None:
    facts = watch(make_step(jit_compile=True))
    assert (facts.num_eager_ops, facts.num_host_reads, facts.num_new_graphs, facts.elsewhere) == (1, 0, 0, ())
    assert facts.num_steps_ahead is not None
    assert facts.num_steps_ahead >= 1
    assert facts.graph.num_compiled > 0
    assert facts.graph.num_outside == 0


def test_a_result_that_is_awaited_in_every_step_is_seen() -> None:
    facts = watch(make_step(), in_flight=0)
    assert facts.num_steps_ahead == 0


@pytest.mark.parametrize(
    "read", [lambda loss: loss.numpy(), float, bool, lambda _: tf.test.experimental.sync_devices()]
)
def test_reads_of_the_training_thread_are_counted(read: Callable[[Any], Any]) -> None:
    step = make_step()

    def train(batch: Any) -> Any:
        loss = step(batch)
        read(loss)
        return loss

    facts = watch(train, in_flight=None)
    assert facts.num_host_reads == 1


def test_operations_beside_the_step_are_counted() -> None:
    step, average = make_step(), [tf.Variable(tf.ones([3])) for _ in range(20)]

    def train(batch: Any) -> Any:
        loss = step(batch)
        for weight in average:
            weight.assign(weight * 0.9)
        return loss

    facts = watch(train)
    # The graph; and for each weight a read, a product and an assignment.
    assert facts.num_eager_ops == 61
    assert "AssignVariableOp" in facts.eager_kinds


def test_a_step_that_is_traced_again_and_again_is_seen() -> None:
    weight, numbers = tf.Variable(1.0), iter(range(100))
    step = tf.function(
        lambda batch, number: tf.reduce_sum(batch) * weight * number, autograph=False, reduce_retracing=False
    )
    facts = watch(lambda batch: step(batch, next(numbers)))
    assert facts.num_new_graphs == facts.num_steps


def test_patches_are_undone() -> None:
    before = {name: getattr(type(BATCHES[0]), name) for name in ("numpy", "__float__", "__array__")}
    watch(make_step())
    assert {name: getattr(type(BATCHES[0]), name) for name in before} == before
    assert BATCHES[2].numpy().max() == 2


def test_copies_of_a_batch_are_counted_in_the_thread_that_makes_them() -> None:
    def copy(batch: dict[str, Any]) -> dict[str, Any]:
        return {name: tf.identity(tensor) for name, tensor in batch.items()}

    batch = dict.fromkeys("abcdefg", BATCHES[0])
    with LoopWatch(("/CPU:0",)) as seen, seen.count_copies(), ThreadPoolExecutor(1) as thread:
        observed = seen.wrap(make_step())
        for name, function in (("transfer", copy), ("features", lambda batch: copy(copy(batch))), ("transfer", copy)):
            thread.submit(stages._pass_through, Stage(name, function, 1), Passed(None, batch, {})).result()
            observed(BATCHES[1])
    assert seen.summarize().num_copies == 7
    # The callback of the other thread did not switch off that of this one.
    assert seen.summarize().num_eager_ops == 1


def test_tensors_on_another_device_are_named(device_process: DeviceProcess) -> None:
    facts = device_process.run("tests.tools.test_watch_loop:watch_misplaced")
    assert facts["right"] == []
    assert facts["batch"] == ["float32[4, 3] on CPU:0"]
    assert facts["variable"] == ["a variable on CPU:0"]


def watch_misplaced() -> dict[str, Any]:
    """Steps on the second of two devices: with all on it, with the batch on the first, and with the weight there."""

    def look(weight_device: str, batch_device: str) -> tuple[str, ...]:
        with tf.device(weight_device):
            weight = tf.Variable(tf.ones([3, 3]))
        with tf.device(batch_device):
            batches = [tf.identity(batch) for batch in BATCHES]
        step = tf.function(lambda batch: tf.reduce_sum(tf.matmul(batch, weight)), autograph=False)
        with LoopWatch(("/CPU:1",)) as seen, tf.device("/CPU:1"):
            observed = seen.wrap(step)
            for batch in batches:
                observed(batch)
        return seen.summarize().elsewhere

    return {
        "right": look("/CPU:1", "/CPU:1"),
        "batch": look("/CPU:1", "/CPU:0"),
        "variable": look("/CPU:0", "/CPU:1"),
    }


def test_steps_with_a_pause_are_left_out() -> None:
    step = make_step()
    with LoopWatch(("/CPU:0",)) as seen:
        observed = seen.wrap(step)
        for number, batch in enumerate(BATCHES):
            loss = observed(batch)
            if number % 2:
                seen.note_pause()
                loss.numpy()
    facts = seen.summarize()
    assert facts.num_host_reads == 0
    assert replace(facts, graph=facts.graph).num_steps == 4
