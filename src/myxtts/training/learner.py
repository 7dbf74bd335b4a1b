"""What every model in training has, whichever part of the voice it is: average, state, and steps cut to fit memory.

A batch that does not fit into the device's memory is cut into smaller micro-batches, which give the same step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.storage.tensor_file import Array
from myxtts.training.execution import MicroBatches
from myxtts.training.run.state import AVERAGE, MODEL, OPTIMIZER, TrainingState, number_variables
from myxtts.training.schedule import LearningRate
from myxtts.training.step import MicroBatch, StepResult, distribute_parts, split_rows

# The running average of the weights, which synthesis speaks with: smoother than any single step.

Variable = Any
_WARM_UP = 10


class WeightEma:
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


class BaseLearner(ABC):
    """Everything that training changes. The strategy's devices hold it; `state` gives it to the disk and back."""

    micro_batches: MicroBatches
    rate: LearningRate
    """May be set anew between two steps, when the last step turns out to lie elsewhere."""

    def __init__(self, config: XTTSConfig, strategy: Any, model: Any, named: Mapping[str, Any], optimizer: Any) -> None:
        """`named` are all weights of the model. Model and optimizer were made in the scope of the strategy."""
        self._config, self._strategy = config, strategy
        self.model, self.optimizer = model, optimizer
        self._trained = select_trained(model, named)
        with strategy.scope():
            optimizer.build(model.trainable_variables)
        self._groups: dict[str, Mapping[str, Any]] = {MODEL: named, OPTIMIZER: number_variables(optimizer.variables)}
        self._average: WeightEma | None = None
        if config.training.ema_decay > 0:
            self._average = WeightEma(self._trained, config.training.ema_decay, strategy)
            self._groups[AVERAGE] = self._average.variables
        self.state = TrainingState(self._groups)

    @property
    def average(self) -> WeightEma | None:
        """The average of the weights, None where none is kept."""
        return self._average

    @property
    def strategy(self) -> Any:
        return self._strategy

    @property
    def num_parameters(self) -> int:
        return sum(int(weight.value.shape.num_elements() or 1) for weight in self._trained.values())

    @property
    def num_batches_per_step(self) -> int:
        return self._config.training.gradient_accumulation_steps

    @property
    @abstractmethod
    def num_traces(self) -> int:
        """Graphs made so far."""

    @abstractmethod
    def train(self, batches: Sequence[Any], step: int) -> StepResult:
        """One step from as many batches as make one; `step` counts from 0."""

    @abstractmethod
    def _make_step(self, accumulation: int) -> None:
        """Makes the step anew, from so many micro-batches."""

    def set_micro_batches(self, micro_batches: MicroBatches) -> None:
        """Cuts every batch so that a step is `micro_batches.accumulation` of them from now on."""
        num_cuts, rest = divmod(micro_batches.accumulation, self.num_batches_per_step)
        assert rest == 0, f"{micro_batches.accumulation} micro-batches of {self.num_batches_per_step} batches"
        self.micro_batches, self._num_cuts = micro_batches, num_cuts
        self._make_step(micro_batches.accumulation)

    def rest(self, layers: Sequence[Any]) -> None:
        """Trains these layers of the model no further: from now on they are what their average is."""
        resting = {id(weight) for layer in layers for weight in layer.weights}
        if self._average is not None:
            self._average.settle(name for name, weight in self._trained.items() if id(weight) in resting)
        for layer in layers:
            layer.trainable = False
        self.set_micro_batches(self.micro_batches)

    def reset_average(self) -> None:
        """Begins the average anew at the present weights, after they were set from elsewhere."""
        if self._average is not None:
            self._average.reset()

    @contextmanager
    def use_average(self) -> Iterator[Any]:
        """The model with the weights it shall speak with."""
        if self._average is None:
            yield self.model
            return
        with self._average.swapped_in():
            yield self.model

    def collect(self) -> dict[str, Array]:
        return self.state.collect()

    @property
    def _num_local_replicas(self) -> int:
        is_one = self._strategy.num_replicas_in_sync == 1
        return 1 if is_one else len(self._strategy.extended.worker_devices)

    def _cut_batches(self, batches: Sequence[Sequence[MicroBatch]]) -> list[MicroBatch]:
        """Micro-batches of batches that are given as a part for each replica of this process."""
        micro_batches: list[MicroBatch] = []
        for parts in batches:
            cut = [split_rows(fill_rows(part, self._num_cuts), self._num_cuts) for part in parts]
            micro_batches += [distribute_parts(self._strategy, pieces) for pieces in zip(*cut, strict=True)]
        return micro_batches


def select_trained(model: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """The weights that training changes."""
    trainable = {id(variable) for variable in model.trainable_variables}
    return {name: weight for name, weight in named.items() if id(weight) in trainable}


def fill_rows(part: MicroBatch, multiple_of: int) -> MicroBatch:
    """The part with as many empty rows behind it as make it a multiple; they count for nothing."""
    num_rows = next(iter(part.values())).shape[0]
    num_missing = -num_rows % multiple_of
    if num_missing == 0:
        return part
    return {name: tf.pad(t, [[0, num_missing], *([[0, 0]] * (len(t.shape) - 1))]) for name, t in part.items()}


@contextmanager
def compute_under(policy: str) -> Iterator[None]:
    """Layers made within the block follow this policy of Keras."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
