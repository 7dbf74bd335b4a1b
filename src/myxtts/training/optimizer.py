"""AdamW and the exponential moving average (EMA) of the weights, as operations that XLA compiles with the step.

`TrainStep` reduces, clips and accumulates gradients and calls the update on each device with the variables of that
device. The optimizers of Keras reduce gradients themselves and find their variables by the strategy, which keeps them
out of a compiled function when there are several devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Any

import tensorflow as tf

from myxtts.types import Tensor

_EPSILON = 1e-7
"""Added to the root of the mean squared gradient, as by Keras."""
_EMA_WARM_UP = 10
"""Warm-up of the EMA decay, (1 + step) / (10 + step): 0.1 at step 0, 0.91 at step 90, 0.99 at step 890."""


class AdamW:
    """Moments of these weights, and the update. Make it in the scope of the strategy.

    Biases and norms are not decayed, nor weights whose name begins with one of `undecayed`. The moments of all weights
    lie one behind the other in two variables [P], so that a few kernels update them.
    """

    def __init__(
        self,
        weights: Mapping[str, Any],
        weight_decay: float,
        *,
        betas: tuple[float, float],
        undecayed: tuple[str, ...] = (),
    ) -> None:
        self._betas, self._weights = betas, dict(weights)
        self.iterations = tf.Variable(
            0, dtype=tf.int64, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )
        """Updates so far; steps that were skipped do not count."""
        num_values = sum(math.prod(weight.shape) for weight in weights.values())
        self._moments = tuple(tf.Variable(tf.zeros([num_values]), trainable=False, name="moments") for _ in range(2))
        self._decays = {
            id(weight): 0.0 if len(weight.shape) < 2 or name.startswith(undecayed) else weight_decay
            for name, weight in weights.items()
        }

    @property
    def named_variables(self) -> dict[str, Any]:
        """All variables by stable names for checkpoints: 0 is `iterations`, the moments of each weight begin at 2."""
        named, start = {"00000": self.iterations}, 0
        for name, weight in self._weights.items():
            for moments in self._moments:
                named[f"{len(named) + 1:05}"] = VariableSlice(moments, start, tuple(weight.shape), name)
            start += math.prod(weight.shape)
        return named

    @property
    def slots(self) -> tuple[Any, ...]:
        """First and second moments of all weights."""
        return self._moments

    def make_update(self, weights: Iterable[Any]) -> Callable[..., list[Tensor]]:
        """Returns the update of these weights; it is called with the variables of one device (see `_update`)."""
        trained = {id(weight) for weight in weights}
        ranges = [
            (is_trained, sum(math.prod(weight.shape) for weight in neighbours))
            for is_trained, neighbours in groupby(self._weights.values(), lambda weight: id(weight) in trained)
        ]
        return partial(self._update, ranges, [self._decays[id(weight)] for weight in weights])

    def _update(
        self,
        ranges: Sequence[tuple[bool, int]],
        decays: Sequence[float],
        iterations: Any,
        weights: Sequence[Any],
        slots: tuple[Any, Any],
        gradient_P: Tensor,
        rate: Tensor,
        applied: Tensor,
    ) -> list[Tensor]:
        """Updates the variables of one device; returns the new weights.

        `gradient_P` are the gradients of the weights one behind the other. `applied` is 1.0, or 0.0 for a step that
        changes nothing, whose gradients must be finite nevertheless: a factor instead of a condition, which would make
        a GPU wait for the host and copy every variable.
        """
        first, second = self._betas
        count = tf.cast(iterations + 1, tf.float32)
        iterations.assign_add(tf.cast(applied, iterations.dtype))
        rate *= applied
        alpha = rate * tf.sqrt(1 - tf.pow(second, count)) / (1 - tf.pow(first, count))
        mean_P, square_P = (
            _move_average(moments, ranges, values_P, (1 - beta) * applied)
            for moments, values_P, beta in zip(slots, (gradient_P, tf.square(gradient_P)), self._betas, strict=True)
        )
        changes = tf.split(mean_P * alpha / (tf.sqrt(square_P) + _EPSILON), [math.prod(w.shape) for w in weights])
        updated = []
        for weight, change, decay in zip(weights, changes, decays, strict=True):
            decayed = weight - weight * decay * rate if decay else weight.read_value()
            new = decayed - tf.reshape(change, weight.shape)
            weight.assign(new)
            updated.append(new)
        return updated


def _move_average(moments: Any, ranges: Sequence[tuple[bool, int]], values_P: Tensor, share: Tensor) -> Tensor:
    """Moves the moments of the trained weights towards these values; returns those that were moved."""
    if len(ranges) == 1:
        return moments.assign_add((values_P - moments) * share)
    sizes = [size for _, size in ranges]
    parts = tf.split(moments.read_value(), sizes)
    values = iter(tf.split(values_P, [size for is_trained, size in ranges if is_trained]))
    moved = [
        part + (next(values) - part) * share if is_trained else part
        for part, (is_trained, _) in zip(parts, ranges, strict=True)
    ]
    moments.assign(tf.concat(moved, axis=0))
    return tf.concat([part for part, (is_trained, _) in zip(moved, ranges, strict=True) if is_trained], axis=0)


class VariableSlice:
    """A part of a packed variable [P], with what checkpoints need of a variable."""

    dtype = tf.float32

    def __init__(self, packed: Any, start: int, shape: tuple[int, ...], name: str) -> None:
        self._packed, self.shape, self.name = packed, shape, name
        self._start, self._stop = start, start + math.prod(shape)

    def numpy(self) -> Any:
        return tf.reshape(self._packed[self._start : self._stop], self.shape).numpy()

    def assign(self, value: Any) -> None:
        flat = tf.reshape(tf.convert_to_tensor(value, self.dtype), [-1])
        # A mirrored variable has one on each device.
        for variable in getattr(self._packed, "values", (self._packed,)):
            variable[self._start : self._stop].assign(flat)


class WeightEma:
    """Exponential moving average (EMA) of the trainable weights, used for validation, samples and bundles.

    The decay of a step is min(decay, (1 + step) / (10 + step)), so that the initial weights are forgotten quickly.
    `TrainStep` moves the averages. Make it in the scope of the strategy.
    """

    def __init__(self, weights: Mapping[str, Any], decay: float, strategy: Any) -> None:
        assert 0 < decay < 1, f"a decay of {decay}"
        self._decay, self._strategy = decay, strategy
        # `value` is the TensorFlow variable inside a Keras variable, which strategies can update.
        self._weights = {name: weight.value for name, weight in weights.items()}
        self._names = {id(weight): name for name, weight in weights.items()}
        with strategy.scope():
            self.variables = {
                name: tf.Variable(weight, trainable=False, name="average") for name, weight in self._weights.items()
            }

    def find(self, weights: Iterable[Any]) -> list[Any]:
        """The averages of these weights."""
        return [self.variables[self._names[id(weight)]] for weight in weights]

    def decay_at(self, step: Tensor) -> Tensor:
        """The decay of a step, in the graph."""
        number = tf.cast(step, tf.float64)
        warming = (1 + number) / (_EMA_WARM_UP + number)
        return tf.cast(tf.minimum(tf.constant(self._decay, tf.float64), warming), tf.float32)

    def reset(self) -> None:
        """Sets all averages to the present weights."""
        with self._strategy.scope():
            for name, average in self.variables.items():
                average.assign(self._weights[name].read_value())

    def settle(self, names: Iterable[str]) -> None:
        """Sets the weights of these names to their averages."""
        for name in names:
            self._weights[name].assign(self.variables[name].numpy())

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Context in which the weights are their averages; afterwards they are restored bit by bit."""
        kept = {name: weight.numpy() for name, weight in self._weights.items()}
        self.settle(self._weights)
        try:
            yield
        finally:
            for name, weight in self._weights.items():
                weight.assign(kept[name])
