"""Times forward, backward, optimizer and EMA of a training step, and the operations of a `tf.data` pipeline.

Forward pass, gradients and update are the functions of the step itself, each as a graph of its own. Backward time is
gradients minus forward, so the parts may add up to a little more or less than the step. Times of `tf.data` operations
come from the model that the iterator keeps for autotuning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
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
from myxtts.runtime.timing import time_in_turns
from myxtts.tools.profile.result import OpTime, PartTimes
from myxtts.tools.step_graph import count_hlo
from myxtts.training.micro_batches import enter_device
from myxtts.training.voice.learner import Learner
from myxtts.types import Batch


def measure_parts(learner: Learner, batches: Sequence[Batch], shape: str, num_repeats: int) -> PartTimes:
    """Times the parts of one step made of `batches`, by one micro-batch, times the number of micro-batches.

    The weights are updated many times, so the learner must not be used afterwards.
    """
    part, parts = learner.cut(batches)[0], learner.train_step.take_apart()
    computed = parts["gradients"](part)
    actions: dict[str, Callable[[], object]] = {
        "whole": lambda: learner.train(batches, 0),
        "forward": lambda: parts["forward"](part),
        "gradients": lambda: parts["gradients"](part),
        "update": lambda: parts["update"](computed),
    }
    times = time_in_turns({name: partial(_finish, action) for name, action in actions.items()}, num_repeats)
    seconds = {name: median(values) for name, values in times.items()}
    count, backward_s = learner.micro_batches.accumulation, max(0.0, seconds["gradients"] - seconds["forward"])
    return PartTimes(
        shape=shape,
        whole_s=seconds["whole"],
        forward_s=count * seconds["forward"],
        backward_s=count * backward_s,
        optimizer_s=seconds["update"],
    )


def count_kernels(learner: Learner, batches: Sequence[Batch]) -> float | None:
    """Counts the kernels and library calls of a step in the HLO that XLA makes of it; compiles one shape once more.

    Where rows are split into lanes, only their gradients are compiled and counted. None for a step without XLA, and on
    several devices, where only a trace of the GPU can count.
    """
    step: Any = learner.train_step
    if learner.strategy.num_replicas_in_sync > 1 or not (step._is_compiled_whole or step._is_compiled_by_part):
        return None
    part = learner.cut(batches)[0]
    function, times = (step._train if step.accumulation_steps == 1 else step._accumulate), 1
    arguments: tuple[Any, ...] = (part,)
    with learner.strategy.scope(), enter_device(learner.strategy):
        if step._is_compiled_by_part:
            lanes = step.list_lanes(part)
            function, arguments, times = step.compute_piece, (part, lanes[0], step._step.read_value()), len(lanes)
        text = function.experimental_get_compiler_ir(*arguments)(stage="optimized_hlo")
    return float(times * step.accumulation_steps * count_hlo(text).num_started)


def _finish(action: Callable[[], object]) -> None:
    action()
    wait_for_devices()


def wait_for_devices() -> None:
    """Blocks until all queued operations on all devices have finished; GPU kernels run asynchronously."""
    tf.test.experimental.sync_devices()


_ROOT = "Root"
"""Name of a node of the model that is no operation of the pipeline."""


def measure_native_ops(config: XTTSConfig, plan: Plan, source: RecordingSource, num_batches: int) -> list[OpTime]:
    """Times the operations of the native loader's pipeline on the first `num_batches` batches of the epoch.

    Raises `DataError` if some recordings can only be decoded in Python.
    """
    batches = choose_range(order_split(source, "train", config, plan), plan, steps=num_batches)
    loader = TFNativeDataLoader(
        source, AudioLimits.from_config(config.data), count_reference_frames(config.data), config.training.seed
    )
    plans = [batches.plan_of(position) for position in range(batches.start, batches.stop)]
    return measure_ops(loader.dataset(plans), num_batches)


def measure_ops(dataset: Any, num_batches: int) -> list[OpTime]:
    """Draws batches from a dataset and reads its performance model; TensorFlow may have fused operations in it."""
    options = tf.data.Options()
    # TensorFlow keeps the model only with autotuning.
    options.autotune.enabled = True
    with _mute_absl():
        iterator = iter(dataset.with_options(options))
    num_taken = sum(1 for _ in islice(iterator, num_batches))
    if num_taken == 0:
        raise DataError("The dataset is empty.", next_step="Give it at least one batch.")
    return list(read_model(tf.data.experimental.get_model_proto(iterator), num_taken))


@contextmanager
def _mute_absl() -> Iterator[None]:
    """Silences TensorFlow's warning that an option is set a second time, which is intended here."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def read_model(model: Any, num_batches: int) -> Iterator[OpTime]:
    """Yields the nodes of a tf.data `ModelProto` in preorder, from the last operation to its inputs.

    `processing_time` is in ns over all elements, without the inputs.
    """
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
