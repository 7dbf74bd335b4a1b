"""The parts of a training step, each as a function of its own: what forward, backward and optimiser take.

They are made like the step itself, as graphs or compiled, for one device or all replicas. Backward is what forward and
backward take together, less what forward takes alone, so the parts may add up to a little more or less than the step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from statistics import median
from typing import Any

import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.audio import AudioLimits
from myxtts.errors import DataError
from myxtts.pipeline.loaders.native import TFNativeDataLoader
from myxtts.pipeline.recordings import RecordingSource
from myxtts.pipeline.splits import choose_range, count_reference_frames, order_split
from myxtts.runtime.plan import Plan
from myxtts.tools.profile.result import OpTime, PartTimes
from myxtts.training.execution import Execution
from myxtts.training.step import MicroBatch
from myxtts.training.voice.learner import Learner
from myxtts.types import Batch, Tensor


class StepParts:
    """Takes a learner's step apart. The weights move while it is timed, so the learner is of no use afterwards."""

    def __init__(self, learner: Learner, config: XTTSConfig, execution: Execution) -> None:
        self._learner, self._config, self._execution = learner, config, execution
        self._strategy = learner.strategy
        self._loss = learner.loss
        self._weights = [variable.value for variable in learner.model.trainable_variables]

    def measure(self, batches: Sequence[Batch], shape: str, num_repeats: int) -> PartTimes:
        """`batches` make one step."""
        learner, step, average = self._learner, tf.constant(0, tf.int64), self._learner.average
        part = learner.cut(batches)[0]
        forward, both = self._compile(self._run_forward), self._compile(self._run_both)
        update = self._compile(self._update, crosses_devices=True)
        gradients = self._call(both, part, step)
        seconds = time_in_turns(
            {
                "whole": lambda: learner.train(batches, 0),
                "forward": lambda: self._call(forward, part, step),
                "both": lambda: self._call(both, part, step),
                "optimizer": lambda: self._call(update, gradients),
                "average": lambda: average.update(0) if average is not None else None,
            },
            num_repeats,
        )
        count, backward_s = learner.micro_batches.accumulation, max(0.0, seconds["both"] - seconds["forward"])
        return PartTimes(
            shape=shape,
            whole_s=seconds["whole"],
            forward_s=count * seconds["forward"],
            backward_s=count * backward_s,
            optimizer_s=seconds["optimizer"],
            average_s=seconds["average"] if average is not None else 0.0,
        )

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with self._strategy.scope(), self._enter_device():
            return function(*arguments)

    def _compile(self, function: Callable[..., Any], *, crosses_devices: bool = False) -> Callable[..., Any]:
        """The function on all replicas, run as the step is. Of several only what each does for itself is compiled."""
        is_one, is_compiled = self._strategy.num_replicas_in_sync == 1, self._execution.is_compiled
        inner = function
        if is_compiled and not is_one and not crosses_devices:
            inner = tf.function(function, jit_compile=True, autograph=False)

        def compute(*arguments: Any) -> Any:
            # Not given to the strategy itself, which would call a compiled function on one device for all replicas.
            return inner(*arguments)

        def run(*arguments: Any) -> Any:
            return self._strategy.run(compute, args=arguments)

        if not self._execution.is_graph:
            return run
        compiled: Callable[..., Any] = tf.function(run, jit_compile=is_compiled and is_one, autograph=False)
        return compiled

    def _enter_device(self) -> AbstractContextManager[Any]:
        """A compiled function runs where it is called."""
        is_one_device = isinstance(self._strategy, tf.distribute.OneDeviceStrategy)
        needs_device = self._execution.is_compiled and is_one_device
        return tf.device(self._strategy.extended.worker_devices[0]) if needs_device else nullcontext()

    def _run_forward(self, part: MicroBatch, step: Tensor) -> Tensor:
        loss, _ = self._loss(self._learner.model, part, True, step)
        return loss

    def _run_both(self, part: MicroBatch, step: Tensor) -> list[Tensor]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self._weights)
            loss = self._run_forward(part, step)
        gradients = tape.gradient(loss, self._weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return list(map(tf.convert_to_tensor, gradients))

    def _update(self, gradients: list[Tensor]) -> Tensor:
        """Clips and applies; Keras exchanges gradients between replicas here."""
        norm = tf.linalg.global_norm(gradients)
        clip_norm = self._config.training.clip_norm
        scale = clip_norm / tf.maximum(norm, clip_norm)
        variables = self._learner.model.trainable_variables
        self._learner.optimizer.apply([gradient * scale for gradient in gradients], variables)
        return norm


def wait_for_devices() -> None:
    """Returns when all devices have done what they were told."""
    tf.test.experimental.sync_devices()


def time_in_turns(actions: Mapping[str, Callable[[], object]], num_rounds: int) -> dict[str, float]:
    """The median time of each, in rounds in which all take their turn: what disturbs the machine disturbs all of them.

    The first round, in which graphs are made, is not counted.
    """
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(num_rounds + 1):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            wait_for_devices()
            seconds[name].append(time.perf_counter() - started)
    return {name: median(values[1:]) for name, values in seconds.items()}


# What each operation of a `tf.data` pipeline takes, from the model that a live iterator keeps of itself.

_ROOT = "Root"


def measure_native_ops(config: XTTSConfig, plan: Plan, source: RecordingSource, num_batches: int) -> list[OpTime]:
    """The native loader's pipeline as a dataset of its own, run through once. DataError where Python must help."""
    batches = choose_range(order_split(source, "train", config, plan), plan, steps=num_batches)
    loader = TFNativeDataLoader(
        source, AudioLimits.from_config(config.data), count_reference_frames(config.data), config.training.seed
    )
    plans = [batches.plan_of(position) for position in range(batches.start, batches.stop)]
    return measure_ops(loader.dataset(plans), num_batches)


def measure_ops(dataset: Any, num_batches: int) -> list[OpTime]:
    """Takes batches out of a dataset and reads its model, in which TensorFlow may have fused operations."""
    options = tf.data.Options()
    # Only a dataset that may tune itself keeps a model.
    options.autotune.enabled = True
    with _mute_absl():
        iterator = iter(dataset.with_options(options))
    num_taken = sum(1 for _ in islice(iterator, num_batches))
    if num_taken == 0:
        raise DataError("The dataset is empty.", next_step="Give it at least one batch.")
    return list(read_model(tf.data.experimental.get_model_proto(iterator), num_taken))


@contextmanager
def _mute_absl() -> Iterator[None]:
    """An option that is set twice is worth a warning to TensorFlow, but is meant here."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def read_model(model: Any, num_batches: int) -> Iterator[OpTime]:
    """The operations from the end of the pipeline to its beginning."""
    waiting = [(model.output, 0)]
    while waiting:
        number, level = waiting.pop()
        node = model.nodes[number]
        if node.name != _ROOT:
            settings = {parameter.name: int(parameter.value) for parameter in node.parameters}
            yield OpTime(
                name=node.name,
                level=level,
                own_ms=node.processing_time / 1e6 / num_batches,
                num_elements=int(node.num_elements),
                num_buffered=int(node.buffered_elements),
                parallelism=settings.get("parallelism"),
                buffer_size=settings.get("buffer_size"),
                megabytes=node.bytes_produced / 2**20,
            )
        waiting += [(input_number, level + (node.name != _ROOT)) for input_number in reversed(node.inputs)]
