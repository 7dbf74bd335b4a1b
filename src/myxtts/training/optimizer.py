"""AdamW, freezing and the exponential moving average (EMA) of the weights, as operations that XLA compiles.

`TrainStep` reduces, clips and accumulates gradients and calls the update on each device with the variables of that
device. The optimizers of Keras reduce gradients themselves and find their variables by the strategy, which keeps them
out of a compiled function when there are several devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import tensorflow as tf

from myxtts.types import Tensor

_EPSILON = 1e-7
"""Added to the root of the mean squared gradient, as by Keras."""
_EMA_WARM_UP = 10
"""Warm-up of the EMA decay, (1 + step) / (10 + step): 0.1 at step 0, 0.91 at step 90, 0.99 at step 890."""


class AdamW:
    """Moments of these weights by name, and the update. Make it in the scope of the strategy.

    Biases and norms are not decayed, nor weights whose name begins with one of `undecayed`.
    """

    def __init__(
        self,
        weights: Mapping[str, Any],
        weight_decay: float,
        *,
        betas: tuple[float, float],
        undecayed: tuple[str, ...] = (),
    ) -> None:
        self._betas = betas
        self.iterations = tf.Variable(
            0, dtype=tf.int64, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )
        """Updates so far; steps that were skipped do not count."""
        self._moments = {
            id(weight): tuple(tf.Variable(tf.zeros(weight.shape), trainable=False, name=name) for _ in range(2))
            for name, weight in weights.items()
        }
        self._decays = {
            id(weight): 0.0 if len(weight.shape) < 2 or name.startswith(undecayed) else weight_decay
            for name, weight in weights.items()
        }

    @property
    def named_variables(self) -> dict[str, Any]:
        """All variables by stable names for checkpoints: 0 is `iterations`, the moments begin at 2."""
        moments = [moment for both in self._moments.values() for moment in both]
        return {"00000": self.iterations, **{f"{number:05}": moment for number, moment in enumerate(moments, 2)}}

    def find_slots(self, weights: Iterable[Any]) -> list[tuple[Any, ...]]:
        """First and second moment of each of these weights."""
        return [self._moments[id(weight)] for weight in weights]

    def make_update(self, weights: Iterable[Any]) -> Callable[..., list[Tensor]]:
        """Returns the update of these weights; it is called with the variables of one device (see `_update`)."""
        return partial(self._update, [self._decays[id(weight)] for weight in weights])

    def _update(
        self,
        decays: Sequence[float],
        iterations: Any,
        weights: Sequence[Any],
        slots: Sequence[tuple[Any, ...]],
        gradients: Sequence[Tensor],
        rate: Tensor,
        frozen: Sequence[Tensor | None],
    ) -> list[Tensor]:
        """Updates the variables of one device; returns the new weights. See `assign_unless` for `frozen`."""
        count = tf.cast(iterations.assign_add(1), tf.float32)
        first, second = self._betas
        alpha = rate * tf.sqrt(1 - tf.pow(second, count)) / (1 - tf.pow(first, count))
        # Made and read once: each operation of a weight is traced, lowered and compiled for hundreds of weights.
        new_share, new_square_share, epsilon = (tf.constant(value) for value in (1 - first, 1 - second, _EPSILON))
        decayed_shares = {decay: tf.constant(decay) for decay in decays}
        updated = []
        for weight, (mean, square), decay, gradient, is_frozen in zip(
            weights, slots, decays, gradients, frozen, strict=True
        ):
            old_mean, old_square, old = mean.read_value(), square.read_value(), weight.read_value()
            new_mean = old_mean + (gradient - old_mean) * new_share
            new_mean = assign_unless(is_frozen, mean, new_mean, old_mean)
            new_square = old_square + (tf.square(gradient) - old_square) * new_square_share
            new_square = assign_unless(is_frozen, square, new_square, old_square)
            decayed = old - old * decayed_shares[decay] * rate if decay else old
            new = decayed - new_mean * alpha / (tf.sqrt(new_square) + epsilon)
            updated.append(assign_unless(is_frozen, weight, new, old))
        return updated


def assign_unless(is_frozen: Tensor | None, variable: Any, value: Tensor, old: Tensor) -> Tensor:
    """Assigns a new value unless the variable is frozen, and returns what it has then; None is never frozen.

    The old value is selected, not computed, so that a frozen variable keeps its bits.
    """
    if is_frozen is not None:
        value = tf.where(is_frozen, old, value)
    variable.assign(value, read_value=False)
    return value


class Freezing:
    """A switch on the device that excludes some weights from training, so that no graph has to be made anew.

    Weights, moments and averages keep their bits from then on, and the gradient norm does not contain them. Their
    gradients are still computed. Make it in the scope of the strategy.
    """

    def __init__(self, weights: Sequence[Any]) -> None:
        self._ids = {id(weight) for weight in weights}
        # Not a boolean: devices have kernels for variables of floating-point numbers in any case.
        self._switch = tf.Variable(
            0.0, dtype=tf.float32, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )

    def includes(self, weight: Any) -> bool:
        return id(weight) in self._ids

    def turn_on(self) -> None:
        self._switch.assign(1.0)

    def read(self) -> Tensor:
        """Whether the weights are frozen, in the graph."""
        return self._switch.read_value() > 0


def find_frozen(freezing: Freezing | None, weights: Sequence[Any]) -> list[Tensor | None]:
    """For each weight whether it is frozen, in the graph; None where it cannot be."""
    can_freeze = [freezing is not None and freezing.includes(weight) for weight in weights]
    is_frozen = freezing.read() if freezing is not None and any(can_freeze) else None
    return [is_frozen if can else None for can in can_freeze]


def clear_frozen(gradients: Sequence[Tensor], frozen: Sequence[Tensor | None]) -> list[Tensor]:
    """The gradients, with zeros for the weights that are frozen."""
    return [
        gradient if is_frozen is None else tf.where(is_frozen, 0.0, gradient)
        for gradient, is_frozen in zip(gradients, frozen, strict=True)
    ]


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


def move_averages(
    averages: Sequence[Any], weights: Sequence[Tensor], decay: Tensor, frozen: Sequence[Tensor | None]
) -> None:
    """Moves the averages of one device towards the weights, by the decay of a step; there may be no averages."""
    new_share = 1 - decay
    for average, weight, is_frozen in zip(averages, weights, frozen, strict=False):
        old = average.read_value()
        assign_unless(is_frozen, average, old + new_share * (weight - old), old)
