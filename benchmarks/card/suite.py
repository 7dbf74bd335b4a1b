"""Suite `card` of `make bench`: what the host does for a step, the CPU step against the usual way, and second starts.

What GPUs would do comes from `make card`; its measurements in `card.json` are kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.alone import NO_NOISE, run_alone
from benchmarks.card.figures import read_kept
from benchmarks.card.former_step import make_learner, race_steps
from benchmarks.copies import measure_copies_per_batch
from benchmarks.eager_operations import count_eager_operations
from benchmarks.harness import Measurement
from benchmarks.voice_data import make_config, make_data
from myxtts.pipeline.open import open_batches

_NUM_STEPS = 6
_DEVICE = "/CPU:1"
"""A logical device that stands in for a GPU: what it computes on must be copied to it."""
_WITHOUT_WORK = frozenset(("Placeholder", "Const", "Identity", "NoOp", "PartitionedCall", "StatefulPartitionedCall"))
"""Nodes of a graph that compute nothing, and calls of compiled functions."""
_FIRST_STEP = "Saving step 1."
"""What a run of one step says when that step is done."""


def measure_card() -> list[Measurement]:
    with tempfile.TemporaryDirectory() as name:
        make_data(Path(name))
        race, counts = run_alone(race_steps, name), run_alone(count_operations, name)
        copies, starts = run_alone(count_copies, name), time_starts(Path(name))
    return [
        *_describe_race(race),
        *_describe_counts(counts),
        _describe_copies(copies),
        _describe_starts(starts),
        *read_kept(compiled=True),
    ]


def count_operations(folder: str) -> dict[str, float]:
    """Operations that the host starts one by one in a step, and those of its graph that XLA does not compile."""
    config = make_config(folder)
    learner, counts = make_learner(config), list[int]()
    with open_batches(config, steps=_NUM_STEPS) as feed:
        for step, batch in enumerate(feed):
            with count_eager_operations() as count:
                learner.train([batch], step)
            counts.append(count())
            (part,) = learner.cut([batch])
    graph = learner.train_step._train.get_concrete_function(part).graph
    outside = [node.type for node in graph.get_operations() if node.type not in _WITHOUT_WORK]
    # The first steps trace.
    return {"eager": float(max(counts[2:])), "outside": float(len(outside))}


def count_copies(folder: str) -> dict[str, float]:
    """Copies to the device for each batch, from the feed to the input of its step."""
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    config = make_config(folder)
    learner = make_learner(config, tf.distribute.OneDeviceStrategy(_DEVICE), num_lanes=1)
    with open_batches(config, steps=_NUM_STEPS) as feed:
        batches = list(feed)

    per_batch = measure_copies_per_batch(batches, lambda batch: learner.cut([batch.to_devices([_DEVICE])]))
    return {"per_batch": per_batch.get(_DEVICE.strip("/"), 0.0)}


def time_starts(folder: Path) -> dict[str, float]:
    """Seconds from the start of `myxtts train` to its first step, at the first start and at the second."""
    environment = {**os.environ, **NO_NOISE, "XDG_CACHE_HOME": str(folder / "cache")}
    seconds = {}
    for name in ("first", "second"):
        config = make_config(str(folder), run_dir=str(folder / name), steps=1, log_steps=1, enable_xla_compilation=True)
        path = folder / f"{name}.yaml"
        path.write_text(config.to_yaml(), encoding="utf-8")
        started = time.monotonic()
        command = [sys.executable, "-m", "myxtts", "train", "--config", str(path)]
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            lines = []
            for line in process.stdout or ():
                lines.append(line)
                if _FIRST_STEP in line:
                    seconds[name] = time.monotonic() - started
        if name not in seconds:
            raise RuntimeError(f"myxtts train did not reach its first step:\n{''.join(lines)}")
    return seconds


def _describe_race(figures: dict[str, float]) -> list[Measurement]:
    note = (
        f"compiled, batches of 16: {1000 * figures['ours']:.0f} ms, and {1000 * figures['usual']:.0f} ms with Keras' "
        "AdamW, clip_by_global_norm, derived gradients of convolutions and an average outside the compiled step"
    )
    losses = f"50 steps in float32, loss {figures['first_loss']:.3f} to {figures['last_loss']:.3f}"
    return [
        Measurement("CPU step of tiny, by the usual way", figures["ratio"], "x", "at least", 1.15, note),
        Measurement("losses of both ways, furthest apart", figures["difference"], "", "at most", 1e-5, losses),
    ]


def _describe_counts(figures: dict[str, float]) -> list[Measurement]:
    eager, outside = "from a batch of the feed to a result", "CPU, two lanes; calls of compiled functions not counted"
    return [
        Measurement("eager operations per step", figures["eager"], "", "at most", 9, eager),
        Measurement("graph operations outside the compiled step", figures["outside"], "", "at most", 49, outside),
    ]


def _describe_copies(figures: dict[str, float]) -> Measurement:
    note = "of all its tensors, to a logical device, counted by TensorFlow's profiler up to the input of its step"
    return Measurement("copies per batch", figures["per_batch"], "", "at most", 1, note)


def _describe_starts(figures: dict[str, float]) -> Measurement:
    note = f"`myxtts train` to its first step, tiny, compiled: {figures['first']:.0f} s, then {figures['second']:.0f} s"
    return Measurement("second start, by the first", figures["second"] / figures["first"], "x", "at most", 1 / 3, note)
