"""Times the parts of a training step, and the operations of a `tf.data` pipeline.

Forward pass, gradients and update are those of the step itself, as graphs of their own. Backward is what gradients take
less what the forward pass takes, so the parts may add up to a little more or less than the step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from statistics import median
from typing import Any

import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.audio import AudioLimits
from myxtts.errors import DataError
from myxtts.pipeline.choose_loader import choose_stretch
from myxtts.pipeline.loaders.native import TFNativeDataLoader
from myxtts.pipeline.recordings import RecordingSource
from myxtts.pipeline.splits import count_reference_frames
from myxtts.runtime.plan import Plan
from myxtts.tools.profile.result import OpTime, PartTimes
from myxtts.training.voice.learner import Learner
from myxtts.types import Batch


def measure_parts(learner: Learner, batches: Sequence[Batch], shape: str, num_repeats: int) -> PartTimes:
    """`batches` make one step. The weights move while it is timed, so the learner is of no use afterwards."""
    number, ema = tf.constant(0, tf.int64), learner.ema
    part, parts = learner.cut(batches)[0], learner.train_step.take_apart()
    computed = parts["gradients"](part, number)
    seconds = time_in_turns(
        {
            "whole": lambda: learner.train(batches, 0),
            "forward": lambda: parts["forward"](part, number),
            "gradients": lambda: parts["gradients"](part, number),
            "update": lambda: parts["update"](computed),
            "ema": lambda: ema.update(0) if ema is not None else None,
        },
        num_repeats,
    )
    count, backward_s = learner.micro_batches.accumulation, max(0.0, seconds["gradients"] - seconds["forward"])
    return PartTimes(
        shape=shape,
        whole_s=seconds["whole"],
        forward_s=count * seconds["forward"],
        backward_s=count * backward_s,
        optimizer_s=seconds["update"],
        average_s=seconds["ema"] if ema is not None else 0.0,
    )


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
    stretch = choose_stretch(source, "train", config, plan, start=0, epochs=None, steps=num_batches)
    loader = TFNativeDataLoader(
        source, AudioLimits.from_config(config.data), count_reference_frames(config.data), config.training.seed
    )
    plans = [stretch.plan_of(position) for position in range(stretch.start, stretch.stop)]
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
