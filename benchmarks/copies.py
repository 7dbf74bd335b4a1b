"""Counts copies of tensors from device to device, as TensorFlow's profiler records them.

They are counted where they happen, and not where some code means to make them: an operation that is started without a
device, or on inputs of another device, copies without a word. Logical CPU devices may stand in for GPUs.

    count_copies(lambda: [transfer(loaded) for loaded in batches])   # Counter({("CPU:0", "CPU:1"): 3})
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_COPY = re.compile(r"_Send input \d+ from \S*/device:(\S+) to \S*/device:(\S+)")
"""How the profiler names the copy of an input to the device of an operation."""
_HOST_TRACER_LEVEL = 3
"""From this level on the profiler records copies."""


def count_copies(run: Callable[[], object]) -> Counter[tuple[str, str]]:
    """Calls `run`, and counts copies of the inputs of eager operations by the devices they go from and to."""
    with TemporaryDirectory() as folder:
        record_profile(run, Path(folder))
        return select_copies(iterate_events(Path(folder)))


def measure_copies_per_batch(
    batches: Iterable[Any], use: Callable[[Any], object] = lambda _batch: None
) -> dict[str, float]:
    """Takes all batches of a feed that ends and calls `use` with each; gives the copies per batch to each device."""
    num_batches = 0

    def take_all() -> None:
        nonlocal num_batches
        for batch in batches:
            use(batch)
            num_batches += 1

    copies: Counter[str] = Counter()
    for (_, target), number in count_copies(take_all).items():
        copies[target] += number
    return {device: number / max(1, num_batches) for device, number in sorted(copies.items())}


def record_profile(run: Callable[[], object], folder: Path) -> None:
    """Calls `run` under TensorFlow's profiler, which writes to the folder."""
    import tensorflow as tf

    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=_HOST_TRACER_LEVEL, python_tracer_level=0)
    tf.profiler.experimental.start(str(folder), options=options)
    try:
        run()
    finally:
        tf.profiler.experimental.stop()


def iterate_events(folder: Path) -> Iterator[str]:
    """The name of each event that was recorded in the folder, as often as it happened."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    for path in folder.rglob("*.xplane.pb"):
        for plane in xplane_pb2.XSpace.FromString(path.read_bytes()).planes:
            for line in plane.lines:
                for event in line.events:
                    yield plane.event_metadata[event.metadata_id].name


def select_copies(events: Iterator[str]) -> Counter[tuple[str, str]]:
    """The copies among events."""
    found = (_COPY.match(name) for name in events)
    return Counter((copy[1], copy[2]) for copy in found if copy)
