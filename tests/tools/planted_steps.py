"""Pipelines whose fault lies behind the data: in the step, in threads or in the transfer; and two without a fault."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from queue import Queue
from typing import Any

import tensorflow as tf
from tests.tools import planted
from tests.tools.planted import STEP_S, B, M, Plant, make_batches, plant, rest, sort_much

from myxtts.tools.diagnose.findings import Cause
from myxtts.tools.diagnose.from_dataset import EmulatedStep
from myxtts.tools.diagnose.timing import Work
from myxtts.tools.emulate import StepTime

# The step.


def changing_shapes() -> Plant:
    weights = tf.random.normal([M // 4, M // 4])

    def make_step(is_cured: bool) -> Work:
        def compute(batch: Any) -> Any:
            for _ in range(12):
                batch = tf.nn.relu(batch @ weights)
            return tf.reduce_mean(batch)

        spec = [tf.TensorSpec([B, None, M // 4])] if is_cured else None
        graph = tf.function(compute, autograph=False, input_signature=spec)

        def train(batch: Any) -> None:
            graph(batch)
            time.sleep(STEP_S)

        return train

    def make() -> Any:
        def draw(_number: Any) -> Any:
            length = tf.random.uniform([], 20, 2000, tf.int32)
            return tf.zeros([B, length, M // 4]) + tf.random.stateless_normal([M // 4], [1, 2])

        return tf.data.Dataset.range(100_000).map(draw).prefetch(4)

    return Plant(Cause.RETRACING, make, make, make_step(False), make_step(True))


def eager_step() -> Plant:
    weights = tf.random.normal([M, M])

    def compute(batch: Any) -> Any:
        for _ in range(150):
            batch = tf.nn.relu(tf.matmul(batch[:, :4], weights) * 0.1)
        return tf.reduce_mean(batch)

    return Plant(
        Cause.EAGER,
        lambda: make_batches(0.001),
        lambda: make_batches(0.001),
        compute,
        tf.function(compute, autograph=False),
    )


def oversized_padding() -> Plant:
    def make(is_cured: bool) -> Any:
        def draw(number: Any) -> dict[str, Any]:
            real = 60 + tf.cast(number % 40, tf.int32)
            mel = tf.random.stateless_normal([B, real, M], tf.stack([number, 1]))
            width = tf.where(is_cured, real + 4, 400)
            lengths = tf.fill([B], real)
            return {"mel": tf.pad(mel, [[0, 0], [0, width - real], [0, 0]]), "mel_lengths": lengths}

        return tf.data.Dataset.range(100_000).map(draw).prefetch(4)

    step = EmulatedStep(StepTime(0.003, 0.012 / (B * 400)))
    return plant(Cause.PADDING, lambda: make(False), lambda: make(True), step)


def compute_bound() -> Plant:
    return plant(Cause.COMPUTE_BOUND, lambda: make_batches(0.001), lambda: make_batches(0.001), rest(0.03))


def healthy() -> Plant:
    return plant(Cause.HEALTHY, lambda: make_batches(0.006), lambda: make_batches(0.006), rest(0.015))


# Threads and transfer.


def too_many_threads() -> Plant:
    def make(num_threads: int) -> Any:
        numbers = tf.data.Dataset.range(100_000)
        dataset = numbers.map(sort_much, num_parallel_calls=num_threads).batch(2).prefetch(4)
        options = tf.data.Options()
        options.threading.private_threadpool_size = num_threads
        return dataset.with_options(options)

    def compute(_batch: Any) -> None:
        """Work of the host, as starting a training step is."""
        ended = time.thread_time() + 0.010
        while time.thread_time() < ended:
            pass

    return plant(Cause.TOO_MANY_THREADS, lambda: make(48), lambda: make(2), compute)


def slow_transfer() -> Plant:
    def move(batch: Any) -> Any:
        time.sleep(0.008)
        return batch

    def ahead() -> Any:
        return _MovedAhead(make_batches(0.002), move)

    step = rest(STEP_S)
    return Plant(Cause.TRANSFER, lambda: make_batches(0.002), ahead, step, step, move)


class _MovedAhead:
    """Batches that a thread has moved before they are asked for, as prefetching to a device does."""

    def __init__(self, dataset: Any, move: Work) -> None:
        self._dataset, self._move = dataset, move

    def __iter__(self) -> Iterator[Any]:
        ready: Queue[Any] = Queue(2)
        is_over = threading.Event()

        def work() -> None:
            for batch in self._dataset:
                moved = self._move(batch)
                while not is_over.is_set():
                    if not ready.full():
                        ready.put(moved)
                        break
                    time.sleep(0.0005)
                if is_over.is_set():
                    return

        thread = threading.Thread(target=work)
        thread.start()
        try:
            while True:
                yield ready.get()
        finally:
            is_over.set()
            thread.join()


EVERYWHERE: dict[str, Callable[[], Plant]] = {
    make.__name__: make
    for make in (
        planted.librosa_in_numpy_function,
        planted.loop_in_py_function,
        planted.python_generator,
        planted.one_thread,
        planted.no_prefetch,
        planted.buffer_of_one_with_bursts,
        planted.rare_bursts,
        planted.epoch_end_rebuild,
        planted.shuffle_refill,
        changing_shapes,
        eager_step,
        oversized_padding,
        compute_bound,
        healthy,
        too_many_threads,
        slow_transfer,
    )
}
"""Those that need no files."""
