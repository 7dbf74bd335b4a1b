"""Base of the voice and vocoder learners: model, optimizer, EMA and train step under one `tf.distribute` strategy.

A batch that does not fit into the memory of the device is cut into smaller micro-batches, whose gradients are
accumulated to the same step. `freeze` and `set_micro_batches` make the step anew, and with it its graphs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.runtime.plan import Plan
from myxtts.storage.atomic import pass_fault_point
from myxtts.training.execution import Device, Execution, MicroBatches
from myxtts.training.run.state import AVERAGE, MODEL, OPTIMIZER, TrainingState, number_variables
from myxtts.training.schedule import LearningRate
from myxtts.training.step import GRADIENTS_POINT, MicroBatch, StepResult, distribute_parts, split_rows

_WARM_UP = 10
"""Warm-up of the EMA decay, (1 + step) / (10 + step): 0.1 at step 0, 0.91 at step 90, 0.99 at step 890."""


class WeightEma:
    """Exponential moving average (EMA) of the trainable weights, used for validation, samples and bundles.

    The decay of a step is min(decay, (1 + step) / (10 + step)), so that the initial weights are forgotten quickly.
    Make it in the scope of the strategy.
    """

    def __init__(self, weights: Mapping[str, Any], decay: float, strategy: Any) -> None:
        assert 0 < decay < 1, f"a decay of {decay}"
        self._decay, self._strategy = decay, strategy
        # `value` is the TensorFlow variable inside a Keras variable, which strategies can update.
        self._weights = {name: weight.value for name, weight in weights.items()}
        with strategy.scope():
            self.variables = {
                name: tf.Variable(weight, trainable=False, name="average") for name, weight in self._weights.items()
            }
        self._update_all = tf.function(self._move, autograph=False)

    def update(self, step: int) -> None:
        """Moves the averages towards the weights, after the step of this number."""
        decay = min(self._decay, (1 + step) / (_WARM_UP + step))
        with self._strategy.scope():
            self._update_all(tf.constant(decay, tf.float32))

    def trace(self) -> None:
        """Traces the graph of an update without updating."""
        with self._strategy.scope():
            self._update_all.get_concrete_function(tf.TensorSpec([], tf.float32))

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

    def _move(self, decay: Any) -> None:
        def approach(average: Any, weight: Any, decay: Any) -> Any:
            return average.assign(average + (1 - decay) * (weight - average))

        for name, average in self.variables.items():
            # Each device updates its own copy: no communication.
            self._strategy.extended.update(average, approach, args=(self._weights[name], decay), group=False)


class BaseLearner(ABC):
    """Everything that training changes, on the devices of the strategy; `state` reads and restores it."""

    micro_batches: MicroBatches
    train_step: Any
    """Called with the micro-batches of a step, its number, and whether to inject NaN gradients (see `TrainStep`)."""

    def __init__(
        self,
        config: XTTSConfig,
        strategy: Any,
        execution: Execution,
        total_steps: int | None,
        model: Any,
        weights: Mapping[str, Any],
        optimizer: Any,
        more_state: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`weights` are all of the model, by name. Model and optimizer were made in the scope of the strategy.

        `more_state` are groups of variables beside those of model and optimizer, for checkpoints.
        """
        self._config, self.strategy, self._execution = config, strategy, execution
        training = config.training
        self.rate = LearningRate(training.learning_rate, training.warmup_steps, total_steps)
        """May be set anew between two steps, when the number of steps of the run changes."""
        self.model, self.optimizer = model, optimizer
        self._trained = select_trained(model, weights)
        with strategy.scope():
            optimizer.build(model.trainable_variables)
        self._rate_shares = [(optimizer, 1.0)]
        groups = {MODEL: weights, OPTIMIZER: number_variables(optimizer.variables)}
        self.ema: WeightEma | None = None
        if config.training.ema_decay > 0:
            self.ema = WeightEma(self._trained, config.training.ema_decay, strategy)
            groups[AVERAGE] = self.ema.variables
        self.state = TrainingState(groups | dict(more_state or {}))

    @property
    def num_parameters(self) -> int:
        return sum(int(weight.value.shape.num_elements() or 1) for weight in self._trained.values())

    @property
    def num_batches_per_step(self) -> int:
        return self._config.training.gradient_accumulation_steps

    @property
    def num_traces(self) -> int:
        """Graphs made so far."""
        return int(self.train_step.num_traces)

    def train(self, batches: Sequence[Any], step: int) -> StepResult:
        """One optimizer step from `num_batches_per_step` batches; `step` counts from 0."""
        rate = self.rate.at(step)
        for optimizer, share in self._rate_shares:
            optimizer.learning_rate.assign(share * rate)
        result: StepResult = self.train_step(self.cut(batches), step, is_spoiled=pass_fault_point(GRADIENTS_POINT))
        if self.ema is not None:
            self.ema.update(step)
        return result

    def cut(self, batches: Sequence[Any]) -> list[MicroBatch]:
        """The micro-batches of one step, distributed over the replicas."""
        return self._cut_parts([self._split_by_replica(batch) for batch in batches])

    def set_micro_batches(self, micro_batches: MicroBatches) -> None:
        """Cuts every batch so that a step is `micro_batches.accumulation` of them from now on."""
        num_cuts, rest = divmod(micro_batches.accumulation, self.num_batches_per_step)
        assert rest == 0, f"{micro_batches.accumulation} micro-batches of {self.num_batches_per_step} batches"
        self.micro_batches, self._num_cuts = micro_batches, num_cuts
        self._make_step(micro_batches.accumulation)

    def freeze(self, layers: Sequence[Any]) -> None:
        """Excludes these layers from training; from now on they keep the values of their EMA."""
        frozen = {id(weight) for layer in layers for weight in layer.weights}
        if self.ema is not None:
            self.ema.settle(name for name, weight in self._trained.items() if id(weight) in frozen)
        for layer in layers:
            layer.trainable = False
        self.set_micro_batches(self.micro_batches)

    def reset_average(self) -> None:
        """Begins the EMA anew at the present weights, after they were loaded from a bundle."""
        if self.ema is not None:
            self.ema.reset()

    @contextmanager
    def use_average(self) -> Iterator[Any]:
        """The model with its EMA weights, or with its own where no EMA is kept."""
        if self.ema is None:
            yield self.model
            return
        with self.ema.swapped_in():
            yield self.model

    @abstractmethod
    def _make_step(self, accumulation: int) -> None:
        """Builds the train step for this number of micro-batches."""

    def _choose_options(self, accumulation: int) -> dict[str, Any]:
        """Options of `TrainStep` that both models share."""
        return {
            "accumulation_steps": accumulation,
            "clip_norm": self._config.training.clip_norm,
            "jit_compile": self._execution.is_compiled,
            "graph": self._execution.is_graph,
        }

    @abstractmethod
    def _split_by_replica(self, batch: Any) -> list[MicroBatch]:
        """The rows of a batch for each replica of this process."""

    def _trace(self, empty: Iterable[Sequence[MicroBatch]], step: int) -> None:
        """Traces the graphs of a step by running it on batches of padding rows, which updates nothing.

        Without real rows the loss is not finite, and such a step is skipped.
        """
        for parts in empty:
            self.train_step(self._cut_parts([parts] * self.num_batches_per_step), step)
        if self.ema is not None:
            self.ema.trace()

    @property
    def _num_local_replicas(self) -> int:
        is_one = self.strategy.num_replicas_in_sync == 1
        return 1 if is_one else len(self.strategy.extended.worker_devices)

    def _cut_parts(self, batches: Sequence[Sequence[MicroBatch]]) -> list[MicroBatch]:
        """Micro-batches of batches that are given as the rows of each replica of this process."""
        micro_batches: list[MicroBatch] = []
        for parts in batches:
            cut = [split_rows(_pad_rows(part, self._num_cuts), self._num_cuts) for part in parts]
            micro_batches += [distribute_parts(self.strategy, pieces) for pieces in zip(*cut, strict=True)]
        return micro_batches


def select_trained(model: Any, weights: Mapping[str, Any]) -> dict[str, Any]:
    """Selects the trainable weights."""
    trainable = {id(variable) for variable in model.trainable_variables}
    return {name: weight for name, weight in weights.items() if id(weight) in trainable}


def _pad_rows(part: MicroBatch, multiple_of: int) -> MicroBatch:
    """Appends padding rows up to the next multiple of `multiple_of`."""
    num_rows = next(iter(part.values())).shape[0]
    num_missing = -num_rows % multiple_of
    if num_missing == 0:
        return part
    return {name: tf.pad(t, [[0, num_missing], *([[0, 0]] * (len(t.shape) - 1))]) for name, t in part.items()}


@contextmanager
def use_dtype_policy(policy: str) -> Iterator[None]:
    """Layers made within the block follow this dtype policy of Keras."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def detect_device(plan: Plan) -> Device:
    """Kind and CUDA compute capability of the first training device."""
    if "CPU" in plan.model_devices[0]:
        return Device("CPU")
    visible = tf.config.get_visible_devices("GPU")
    details: dict[str, Any] = tf.config.experimental.get_device_details(visible[0]) if visible else {}
    return Device("GPU", details.get("compute_capability"))
