"""Faults planted in the step and the loop of a real training: each as a context, with the settings it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.pipeline import packed
from myxtts.pipeline.packed import adopt
from myxtts.tools.diagnose.examine import Diagnosis, diagnose_config
from myxtts.tools.diagnose.findings import Cause
from myxtts.training import loop
from myxtts.training.execution import Device
from myxtts.training.learner import BaseLearner
from myxtts.training.step import TrainStep


@dataclass(frozen=True)
class PlantedLoop:
    """`plant` changes the code while the configuration with `settings` is diagnosed."""

    cause: Cause
    plant: Callable[[], AbstractContextManager[Any]] = nullcontext
    settings: dict[str, Any] = field(default_factory=dict)

    def diagnose(self, config: XTTSConfig) -> Diagnosis:
        with self.plant():
            return diagnose_config(config.model_copy(update=self.settings), num_batches=8, time_limit_s=6.0)


@contextmanager
def limit_loops() -> Iterator[None]:
    """Every loop gets a maximum of iterations, which makes its condition a conjunction."""
    original = tf.while_loop

    def loop_with_maximum(*arguments: Any, **options: Any) -> Any:
        return original(*arguments, **{"maximum_iterations": 100_000, **options})

    with patch.object(tf, "while_loop", loop_with_maximum):
        yield


@contextmanager
def read_every_step() -> Iterator[None]:
    original = TrainStep.__call__

    def train(step: TrainStep, *arguments: Any, **options: Any) -> Any:
        result = original(step, *arguments, **options)
        result.values.numpy()
        return result

    with patch.object(TrainStep, "__call__", train):
        yield


def wait_for_every_step() -> AbstractContextManager[Any]:
    return patch.object(loop, "_STEPS_IN_FLIGHT", 0)


@contextmanager
def update_without_compiler() -> Iterator[None]:
    """Gradients are compiled, optimizer and average are not."""
    original = TrainStep._compile

    def compile_gradients(step: Any, *arguments: Any) -> None:
        original(step, *arguments)
        step._conclude = step._conclude_with

    with patch.object(TrainStep, "_compile", compile_gradients):
        yield


@contextmanager
def average_by_hand() -> Iterator[None]:
    """A second average of the weights, moved by Python after every step."""
    original = BaseLearner.train

    def train(learner: Any, *arguments: Any) -> Any:
        result = original(learner, *arguments)
        for weight in list(learner.model.trainable_variables)[:20]:
            weight.value.assign(weight.value * 1.0)
        return result

    with patch.object(BaseLearner, "train", train):
        yield


@contextmanager
def make_graphs_anew() -> Iterator[None]:
    """Every step makes its functions, and so its graphs, again. A small graph stands in for that of the model."""
    original = TrainStep.__call__

    def train(step: Any, *arguments: Any, **options: Any) -> Any:
        tf.function(lambda: tf.add_n([weight * 0.0 for weight in step._weights[:1]]), autograph=False)()
        return original(step, *arguments, **options)

    with patch.object(TrainStep, "__call__", train):
        yield


@contextmanager
def copy_each_tensor() -> Iterator[None]:
    def adopt_and_copy(array: Any) -> Any:
        return tf.identity(adopt(array))

    with patch.object(packed, "adopt", adopt_and_copy):
        yield


def pretend_a_card() -> AbstractContextManager[Any]:
    """The device that trains is taken for a GPU with bfloat16."""
    return patch("myxtts.tools.diagnose.from_config.detect_device", lambda _plan: Device("GPU", (8, 9)))


PLANTED_LOOPS: dict[str, PlantedLoop] = {
    "loop without trip count": PlantedLoop(Cause.UNKNOWN_LOOP, limit_loops),
    ".numpy() in every step": PlantedLoop(Cause.HOST_SYNC, read_every_step),
    "no step in flight": PlantedLoop(Cause.HOST_SYNC, wait_for_every_step),
    "optimizer outside of XLA": PlantedLoop(Cause.OUTSIDE, update_without_compiler, {"enable_xla_compilation": True}),
    "average of weights in Python": PlantedLoop(Cause.EAGER_OPS, average_by_hand),
    "a new graph in every step": PlantedLoop(Cause.COMPILE_STORM, make_graphs_anew),
    "a copy for every tensor": PlantedLoop(Cause.MANY_COPIES, copy_each_tensor),
    "float32 on a card with bfloat16": PlantedLoop(
        Cause.FLOAT32, pretend_a_card, {"mixed_precision": False, "enable_xla_compilation": True}
    ),
    "XLA off on a card": PlantedLoop(
        Cause.NO_XLA, pretend_a_card, {"enable_xla_compilation": False, "mixed_precision": True}
    ),
    "a checkpoint every other step": PlantedLoop(Cause.PAUSES, settings={"checkpoint_steps": 2}),
}
