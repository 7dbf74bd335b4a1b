"""Suite `card` of `make bench`: what the host does for a step, and the CPU step against the usual way.

What GPUs would do comes from `make card`; its measurements in `card.json` are kept.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.alone import run_alone
from benchmarks.card.figures import read_kept
from benchmarks.card.former_step import make_learner, race_steps
from benchmarks.harness import Measurement
from benchmarks.voice_data import make_config, make_data
from myxtts.pipeline.open import open_batches

_NUM_STEPS = 6


def measure_card() -> list[Measurement]:
    with tempfile.TemporaryDirectory() as name:
        make_data(Path(name))
        race, counts = run_alone(race_steps, name), run_alone(count_operations, name)
    return [*_describe_race(race), *_describe_counts(counts), *read_kept(compiled=True)]


def count_operations(folder: str) -> dict[str, float]:
    """Operations that the host starts one by one in a step, from the batch of the feed to its result."""
    config = make_config(folder)
    learner, counts = make_learner(config), list[int]()
    with open_batches(config, steps=_NUM_STEPS) as feed:
        for step, batch in enumerate(feed):
            with _count_eager() as count:
                learner.train([batch], step)
            counts.append(count())
    # The first steps trace.
    return {"eager": float(max(counts[2:]))}


@contextmanager
def _count_eager() -> Iterator[Callable[[], int]]:
    """Context that counts the operations that TensorFlow's Python executes eagerly."""
    from tensorflow.python import pywrap_tfe

    num_started = 0

    def count(plain: Any) -> Any:
        def start(*arguments: Any) -> Any:
            nonlocal num_started
            num_started += 1
            return plain(*arguments)

        return start

    names = ("TFE_Py_Execute", "TFE_Py_FastPathExecute")
    counted = {name: count(getattr(pywrap_tfe, name)) for name in names}
    with mock.patch.multiple(pywrap_tfe, **counted):
        yield lambda: num_started


def _describe_race(figures: dict[str, float]) -> list[Measurement]:
    note = (
        f"compiled, batches of 16: {1000 * figures['ours']:.0f} ms, and {1000 * figures['usual']:.0f} ms with Keras' "
        "AdamW, clip_by_global_norm and an average outside the compiled step"
    )
    losses = f"50 steps in float32, loss {figures['first_loss']:.3f} to {figures['last_loss']:.3f}"
    return [
        Measurement("CPU step of tiny, by the usual way", figures["ratio"], "x", "at least", 1.15, note),
        Measurement("losses of both ways, furthest apart", figures["difference"], "", "at most", 1e-5, losses),
    ]


def _describe_counts(figures: dict[str, float]) -> list[Measurement]:
    return [
        Measurement(
            "eager operations per step", figures["eager"], "", "at most", 9, "from a batch of the feed to a result"
        )
    ]
