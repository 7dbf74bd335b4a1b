"""A training in one go, and one that is saved, forgotten and taken up by a second model in the same process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tests.training.toy_step import Run, cut, make_batch

from myxtts.training.run.checkpoint import CheckpointFolder
from myxtts.training.run.saver import BackgroundSaver
from myxtts.training.run.state import AVERAGE, MODEL, OPTIMIZER, TrainingState


def _refuse(message: str) -> None:
    raise AssertionError(message)


class Training:
    """A small model with optimizer and running average, and the state under test."""

    def __init__(self, strategy: str) -> None:
        self.run = Run(strategy, "adamw")
        with self.run.strategy.scope():
            self.averages = [tf.Variable(variable.value) for variable in self.run.model.trainable_variables]
        named = {str(number): variable for number, variable in enumerate(self.run.model.trainable_variables)}
        groups = {
            MODEL: named,
            AVERAGE: dict(zip(named, self.averages, strict=True)),
            OPTIMIZER: self.run.optimizer.named_variables,
        }
        self.state = TrainingState(groups)

    def train(self, first: int, last: int) -> None:
        for step in range(first, last):
            self.run.step(cut(self.run.strategy, make_batch(step), 1), step)
            for average, variable in zip(self.averages, self.run.model.trainable_variables, strict=True):
                average.assign(0.9 * average + 0.1 * variable.value)

    def list_bits(self) -> dict[str, bytes]:
        return {name: array.tobytes() for name, array in self.state.collect().items()}

    def measure_spread(self) -> float:
        """How far apart the replicas of a variable are."""
        values = [*(variable.value for variable in self.run.model.variables), *self.averages]
        values += [self.run.optimizer.iterations, *self.run.optimizer.slots]
        locals_ = [[np.asarray(part) for part in self.run.strategy.experimental_local_results(v)] for v in values]
        return max(float(np.abs(part - parts[0]).max()) for parts in locals_ for part in parts)


def train_with_interruption(strategy: str, folder: str) -> dict[str, Any]:
    whole = Training(strategy)
    whole.train(0, 8)
    first = Training(strategy)
    first.train(0, 4)
    with BackgroundSaver(CheckpointFolder(Path(folder), warn=_refuse), _refuse) as saver:
        saver.save(4, first.state.collect(), {"step": 4})
        # What is trained on meanwhile does not reach the checkpoint.
        first.train(4, 6)
    checkpoint = CheckpointFolder(Path(folder), warn=_refuse).load_newest()
    assert checkpoint is not None
    second = Training(strategy)
    is_fresh_different = second.list_bits() != {name: a.tobytes() for name, a in checkpoint.arrays.items()}
    second.state.restore(checkpoint.arrays)
    second.train(4, 8)
    return {
        "names": sorted(whole.list_bits()),
        "names_again": sorted(second.list_bits()),
        "is_bit_equal": whole.list_bits() == second.list_bits(),
        "differs_without_restoring": is_fresh_different,
        "spread": second.measure_spread(),
        "dtypes": sorted({array.dtype.name for array in checkpoint.arrays.values()}),
    }
