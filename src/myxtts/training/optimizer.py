"""AdamW, freezing and the exponential moving average (EMA) of the weights, as operations that XLA compiles.

`TrainStep` reduces, clips and accumulates gradients and calls the update on each device with the variables of that
device. The optimizers of Keras reduce gradients themselves and find their variables by the strategy, which keeps them
out of a compiled function when there are several devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import tensorflow as tf

from myxtts.training.run.state import mix_weights
from myxtts.types import Tensor

_EPSILON = 1e-7
"""Added to the root of the mean squared gradient, as by Keras."""
_EMA_WARM_UP = 10
"""Warm-up of the EMA decay, (1 + step) / (10 + step): 0.1 at step 0, 0.91 at step 90, 0.99 at step 890."""


class AdamW:
    """Moments of these weights, and the update. Make it in the scope of the strategy.

    Biases and norms are not decayed, nor weights whose name begins with one of `undecayed`. The moments of all weights
    lie one behind the other in two variables [P], so that a few kernels update them.
    With a `pull` weights are not decayed towards zero but pulled towards their starting values (L2-SP; Li et al.,
    2018), biases and norms too; the starting values are a third such variable, which `note_start` fills.
    """

    def __init__(
        self,
        weights: Mapping[str, Any],
        weight_decay: float,
        *,
        betas: tuple[float, float],
        undecayed: tuple[str, ...] = (),
        pull: float = 0.0,
    ) -> None:
        self._betas, self._weights = betas, dict(weights)
        self.iterations = tf.Variable(
            0, dtype=tf.int64, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )
        """Updates so far; steps that were skipped do not count."""
        num_values = sum(math.prod(weight.shape) for weight in weights.values())
        self._moments = tuple(tf.Variable(tf.zeros([num_values]), trainable=False, name="moments") for _ in range(2))
        self._start = tf.Variable(tf.zeros([num_values]), trainable=False, name="start") if pull else None
        fewest_axes = 0 if pull else 2
        self._decays = {
            id(weight): 0.0 if len(weight.shape) < fewest_axes or name.startswith(undecayed) else pull or weight_decay
            for name, weight in weights.items()
        }

    @property
    def named_variables(self) -> dict[str, Any]:
        """All variables by stable names for checkpoints: 0 is `iterations`, the moments of each weight begin at 2."""
        named = {"00000": self.iterations}
        for both in zip(*(self._slice(moments).values() for moments in self._moments), strict=True):
            for moments in both:
                named[f"{len(named) + 1:05}"] = moments
        return named

    @property
    def start_variables(self) -> dict[str, Any]:
        """The starting values by the names of their weights, for checkpoints; none without a pull."""
        return {} if self._start is None else self._slice(self._start)

    def note_start(self) -> None:
        """Takes the present weights as the starting values."""
        for name, start in self.start_variables.items():
            start.assign(self._weights[name].value.numpy())

    @property
    def slots(self) -> tuple[Any, ...]:
        """First and second moments of all weights; with a pull also the starting values."""
        return self._moments if self._start is None else (*self._moments, self._start)

    def _slice(self, packed: Any) -> dict[str, Any]:
        """The part of each weight in a packed variable, by the name of the weight."""
        slices, start = {}, 0
        for name, weight in self._weights.items():
            slices[name] = VariableSlice(packed, start, tuple(weight.shape), name)
            start += math.prod(weight.shape)
        return slices

    def make_update(self, weights: Sequence[Any]) -> Callable[..., list[Tensor]]:
        """Returns the update of these weights, which must be those that it was made for; see `_update`."""
        ids = [id(weight) for weight in weights]
        assert ids == [id(weight) for weight in self._weights.values()], "other weights than those of the optimizer"
        return partial(self._update, [self._decays[number] for number in ids])

    def _update(
        self,
        decays: Sequence[float],
        iterations: Any,
        weights: Sequence[Any],
        slots: tuple[Any, ...],
        gradient_P: Tensor,
        rate: Tensor,
        is_skipped: Tensor,
        kept: Sequence[Tensor],
    ) -> list[Tensor]:
        """Updates the variables of one device; returns the new weights.

        `gradient_P` are the gradients of the weights one behind the other. `kept` says for each weight whether nothing
        of it changes, because the step is skipped or the weight is frozen (see `assign_unless`).
        """
        first, second = self._betas
        count = tf.cast(iterations + 1, tf.float32)
        iterations.assign_add(tf.where(is_skipped, tf.constant(0, tf.int64), 1))
        alpha = rate * tf.sqrt(1 - tf.pow(second, count)) / (1 - tf.pow(first, count))
        sizes = [math.prod(weight.shape) for weight in weights]
        is_kept = spread_flags(kept, sizes)
        mean_P, square_P = (
            _move_moments(moments, values_P, 1 - beta, is_kept)
            for moments, values_P, beta in zip(slots[:2], (gradient_P, tf.square(gradient_P)), self._betas, strict=True)
        )
        changes = tf.split(mean_P * alpha / (tf.sqrt(square_P) + _EPSILON), sizes)
        # Made and read once: each operation of a weight is traced, lowered and compiled for hundreds of weights.
        shares = {decay: tf.constant(decay) for decay in dict.fromkeys(decays)}
        starts = [None] * len(sizes) if self._start is None else tf.split(slots[2].read_value(), sizes)
        updated = []
        for weight, change, decay, is_same, start in zip(weights, changes, decays, kept, starts, strict=True):
            old = weight.read_value()
            too_far = old if start is None else old - tf.reshape(start, weight.shape)
            decayed = old - too_far * shares[decay] * rate if decay else old
            updated.append(assign_unless(is_same, weight, decayed - tf.reshape(change, weight.shape), old))
        return updated


def _move_moments(moments: Any, values_P: Tensor, share: float, is_kept: Tensor) -> Tensor:
    """Moves moments towards new values by a share of the distance, and returns them."""
    old_P = moments.read_value()
    return assign_unless(is_kept, moments, old_P + (values_P - old_P) * share, old_P)


def assign_unless(is_kept: Tensor, variable: Any, value: Tensor, old: Tensor) -> Tensor:
    """Assigns a new value unless the old one is kept, and returns what the variable has then.

    A selection, not a branch, at which a GPU would wait for the host and copy every variable. It keeps the bits, and
    lets nothing pass that is not finite.
    """
    value = tf.where(is_kept, old, value)
    variable.assign(value, read_value=False)
    return value


def spread_flags(flags: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """The flag of each of the values [P] that these numbers of them have; a scalar where all have the same."""
    runs: list[tuple[Tensor, int]] = []
    for flag, size in zip(flags, sizes, strict=True):
        if runs and runs[-1][0] is flag:
            runs[-1] = (flag, runs[-1][1] + size)
        else:
            runs.append((flag, size))
    return runs[0][0] if len(runs) == 1 else tf.concat([tf.fill([size], flag) for flag, size in runs], axis=0)


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


class Freezing:
    """A switch on the device that excludes some weights from training, so that no graph has to be made again.

    Weights, moments and averages keep their bits from then on, and the gradient norm does not contain them. Their
    gradients are still computed. Make it in the scope of the strategy.
    """

    def __init__(self, weights: Sequence[Any]) -> None:
        self._ids = {id(weight) for weight in weights}
        # Not a boolean: devices have kernels for variables of floating-point numbers in any case.
        self.variable = tf.Variable(
            0.0, dtype=tf.float32, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )

    def includes(self, weight: Any) -> bool:
        return id(weight) in self._ids

    def turn_on(self) -> None:
        self.variable.assign(1.0)

    def read(self) -> Tensor:
        """Whether the weights are frozen, in the graph."""
        return self.variable.read_value() > 0


def find_frozen(freezing: Freezing | None, weights: Sequence[Any]) -> list[Tensor | None]:
    """For each weight whether it is frozen, in the graph; None where it cannot be."""
    can_freeze = [freezing is not None and freezing.includes(weight) for weight in weights]
    is_frozen = freezing.read() if freezing is not None and any(can_freeze) else None
    return [is_frozen if can else None for can in can_freeze]


def clear_frozen(gradients: Sequence[Tensor], frozen: Sequence[Tensor | None]) -> list[Tensor]:
    """The gradients, with zeros for the weights that are frozen."""
    zero = tf.constant(0.0)
    return [
        gradient if is_frozen is None else tf.where(is_frozen, zero, gradient)
        for gradient, is_frozen in zip(gradients, frozen, strict=True)
    ]


class WeightEma:
    """Exponential moving average (EMA) of the trainable weights, used for validation, samples and bundles.

    The decay of a step is min(decay, (1 + step) / (10 + step)), so that the initial weights are forgotten quickly.
    `TrainStep` moves the averages. Make it in the scope of the strategy. With `start_mix`, that share of the weights
    in `start` is mixed into the averages where they are used.
    """

    def __init__(
        self,
        weights: Mapping[str, Any],
        decay: float,
        strategy: Any,
        *,
        start: Mapping[str, Any] | None = None,
        start_mix: float = 0.0,
    ) -> None:
        assert 0 < decay < 1, f"a decay of {decay}"
        self._decay, self._strategy = decay, strategy
        self._start, self._start_mix = start or {}, start_mix
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
        """Context in which the weights are those of synthesis; afterwards they are restored bit by bit."""
        kept = {name: weight.numpy() for name, weight in self._weights.items()}
        self.settle(self._weights)
        if self._start_mix:
            for name, weight in self._weights.items():
                weight.assign(mix_weights(weight.numpy(), self._start[name].numpy(), self._start_mix))
        try:
            yield
        finally:
            for name, weight in self._weights.items():
                weight.assign(kept[name])


def move_averages(averages: Sequence[Any], weights: Sequence[Tensor], decay: Tensor, kept: Sequence[Tensor]) -> None:
    """Moves the averages of one device towards the weights, by the decay of a step; there may be no averages."""
    new_share = 1 - decay
    for average, weight, is_same in zip(averages, weights, kept, strict=False):
        old = average.read_value()
        assign_unless(is_same, average, old + new_share * (weight - old), old)
