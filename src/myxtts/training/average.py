"""The running average of the weights, which synthesis speaks with: smoother than any single step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

Variable = Any
_WARM_UP = 10


class RunningAverage:
    """Averages of trainable weights, one beside each. Make it in the scope of the strategy."""

    def __init__(self, weights: Mapping[str, Variable], decay: float, strategy: Any) -> None:
        assert 0 < decay < 1, f"a decay of {decay}"
        self._decay, self._strategy = decay, strategy
        # The value of a Keras variable is that of TensorFlow, which strategies know.
        self._weights = {name: weight.value for name, weight in weights.items()}
        with strategy.scope():
            self.variables = {
                name: tf.Variable(weight, trainable=False, name="average") for name, weight in self._weights.items()
            }
        self._update_all = tf.function(self._move, autograph=False)

    def update(self, step: int) -> None:
        """Takes the weights after a step into the average. At first it follows faster, to forget how it began."""
        decay = min(self._decay, (1 + step) / (_WARM_UP + step))
        with self._strategy.scope():
            self._update_all(tf.constant(decay, tf.float32))

    def trace(self) -> None:
        """Makes the graph of an update without updating."""
        with self._strategy.scope():
            self._update_all.get_concrete_function(tf.TensorSpec([], tf.float32))

    def reset(self) -> None:
        """Begins anew at the present weights."""
        with self._strategy.scope():
            for name, average in self.variables.items():
                average.assign(self._weights[name].read_value())

    def settle(self, names: Iterable[str]) -> None:
        """Gives these weights their average."""
        for name in names:
            self._weights[name].assign(self.variables[name].numpy())

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """The weights are their averages within the block, and bit by bit what they were behind it."""
        kept = {name: weight.numpy() for name, weight in self._weights.items()}
        self.settle(self._weights)
        try:
            yield
        finally:
            for name, weight in self._weights.items():
                weight.assign(kept[name])

    def _move(self, decay: Any) -> None:
        for name, average in self.variables.items():
            # On each device with what lies there: nothing is sent.
            self._strategy.extended.update(average, _approach, args=(self._weights[name], decay), group=False)


def _approach(average: Variable, weight: Any, decay: Any) -> Any:
    return average.assign(average + (1 - decay) * (weight - average))
