"""What each operation of a `tf.data` pipeline takes, from the model that a live iterator keeps of itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.listen import AudioLimits
from myxtts.errors import DataError
from myxtts.pipeline.native import TFNativeDataLoader
from myxtts.pipeline.sides import choose_stretch
from myxtts.pipeline.source import RecordingSource
from myxtts.pipeline.splits import count_reference_frames
from myxtts.runtime.plan import Plan
from myxtts.tools.profile_result import OpTime

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
