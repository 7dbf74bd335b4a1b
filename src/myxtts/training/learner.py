"""Base of the voice and vocoder learners: model, optimizer, EMA and train step under one `tf.distribute` strategy.

A batch that does not fit into the memory of the device is cut into smaller micro-batches, whose gradients are
accumulated to the same step: `set_micro_batches` makes the step again, and with it its graphs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.pipeline.packed import Packed, PackedLayout, cut_vector, join_vector, resize_rows
from myxtts.runtime.plan import Plan, is_cpu
from myxtts.storage.atomic import is_fault_planned, pass_fault_point
from myxtts.training.compiling import make_graph_first
from myxtts.training.execution import Device, Execution, MicroBatches
from myxtts.training.micro_batches import (
    MicroBatch,
    StepInput,
    count_rows,
    distribute_parts,
    enter_device,
    select_tensors,
    split_rows,
)
from myxtts.training.optimizer import Freezing, WeightEma
from myxtts.training.run.state import AVERAGE, MODEL, OPTIMIZER, START, TrainingState
from myxtts.training.schedule import LearningRate
from myxtts.training.step import GRADIENTS_POINT, StepResult
from myxtts.types import Batch

NUM_FLAGS = 3
"""Flags that a step exchanges between the processes of a cluster; the training loop gives them their meaning."""


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
        freezable: Sequence[Any] = (),
    ) -> None:
        """`weights` are all of the model, by name. Model and optimizer were made in the scope of the strategy.

        `more_state` are groups of variables beside those of model and optimizer, for checkpoints. `freezable` are
        the layers that `freeze` excludes from training.
        """
        self._config, self.strategy, self._execution = config, strategy, execution
        training = config.training
        self._rate = LearningRate(training.learning_rate, training.warmup_steps, total_steps)
        with strategy.scope():
            # On the device, so that the rate of a step is computed there; -1 where the end is not known.
            self._last_step = tf.Variable(
                -1, dtype=tf.int64, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
            )
            self._freezing = Freezing([weight for layer in freezable for weight in layer.weights])
        self.rate = self._rate
        self._flags = _make_flags(strategy)
        self._raised = (False,) * NUM_FLAGS
        self._has_faults = is_fault_planned(GRADIENTS_POINT)
        self.model, self.optimizer = model, optimizer
        self._trained = select_trained(model, weights)
        groups = {MODEL: weights, OPTIMIZER: optimizer.named_variables}
        self.ema: WeightEma | None = None
        if config.training.ema_decay > 0:
            start = (more_state or {}).get(START)
            self.ema = WeightEma(self._trained, training.ema_decay, strategy, start=start, start_mix=training.start_mix)
            groups[AVERAGE] = self.ema.variables
        self.state = TrainingState(groups | dict(more_state or {}))

    @property
    def rate(self) -> LearningRate:
        """May be set again between two steps, when the number of steps of the run changes."""
        return self._rate

    @rate.setter
    def rate(self, rate: LearningRate) -> None:
        self._rate = rate
        with self.strategy.scope():
            self._last_step.assign(-1 if rate.num_steps is None else rate.num_steps)

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

    def raise_flags(self, flags: tuple[bool, ...]) -> None:
        """Sets what this process tells the others of its cluster with every step from the next one on."""
        if self._flags is not None and flags != self._raised:
            with self.strategy.scope():
                self._flags.assign([float(flag) for flag in flags])
            self._raised = flags

    def train(self, batches: Sequence[Batch], step: int) -> StepResult:
        """One optimizer step from `num_batches_per_step` batches; `step` counts from 0."""
        is_spoiled = self._has_faults and pass_fault_point(GRADIENTS_POINT)
        result: StepResult = self.train_step(self.cut(batches), step, is_spoiled=is_spoiled)
        return result

    def cut(self, batches: Sequence[Batch]) -> list[StepInput]:
        """The micro-batches of one step, distributed over the replicas."""
        return self._cut_parts([[select_tensors(share) for share in batch.shares or (batch,)] for batch in batches])

    def set_micro_batches(self, micro_batches: MicroBatches) -> None:
        """Cuts every batch so that a step is `micro_batches.accumulation` of them from now on."""
        num_cuts, rest = divmod(micro_batches.accumulation, self.num_batches_per_step)
        assert rest == 0, f"{micro_batches.accumulation} micro-batches of {self.num_batches_per_step} batches"
        self.micro_batches = micro_batches
        self._cutter = MicroBatchCutter(self.strategy, self._execution, num_cuts)
        self._make_step(micro_batches.accumulation)

    def freeze(self) -> None:
        """Excludes the freezable layers from training; from now on they keep the values of their EMA.

        The graphs stay the same: compiling smaller ones takes longer than the backward pass of these layers.
        """
        if self.ema is not None:
            self.ema.settle(name for name, weight in self._trained.items() if self._freezing.includes(weight))
        with self.strategy.scope():
            self._freezing.turn_on()

    def start_here(self) -> None:
        """Starts the EMA, and the pull of the optimizer, at the present weights, which were loaded from a bundle."""
        if self.ema is not None:
            self.ema.reset()
        self.optimizer.note_start()

    @contextmanager
    def use_average(self) -> Iterator[Any]:
        """The model with the weights of synthesis: its EMA weights, or its own where no EMA is kept."""
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
            "rate": lambda step: self._rate.at_tensor(step, self._last_step.read_value()),
            "accumulation_steps": accumulation,
            "clip_norm": self._config.training.clip_norm,
            "flags": self._flags,
            "jit_compile": self._execution.is_compiled,
            "graph": self._execution.is_graph,
            "freezing": self._freezing,
            "rate_variables": [self._last_step],
        }

    def _trace(self, empty: Iterable[Sequence[StepInput]], step: int) -> None:
        """Traces the graphs of a step by running it on batches of padding rows, which updates nothing.

        Without real rows the loss is not finite, and such a step is skipped.
        """
        for parts in empty:
            self.train_step.trace(self._cut_parts([parts] * self.num_batches_per_step), step)

    def _make_graphs(self, parts: Sequence[StepInput]) -> None:
        """Traces the graphs of batches of this shape, given as the rows of each replica, without a step."""
        self.train_step.make_graphs(self._cut_parts([parts] * self.num_batches_per_step))

    def _cut_parts(self, batches: Sequence[Sequence[StepInput]]) -> list[StepInput]:
        """Micro-batches of batches that are given as the rows of each replica of this process."""
        wholes = [distribute_parts(self.strategy, parts) for parts in batches]
        return [micro_batch for whole in wholes for micro_batch in self._cutter(whole)]


class MicroBatchCutter:
    """Cuts the rows of every replica into `num_cuts` equal micro-batches, on its device.

    It is one operation for the host, whatever is cut: others would each leave the device waiting.
    """

    def __init__(self, strategy: Any, execution: Execution, num_cuts: int) -> None:
        self._strategy, self._num_cuts = strategy, num_cuts
        self._traced: set[PackedLayout] = set()
        self._cut: Any = self._cut_rows
        if execution.is_compiled:
            self._cut = tf.function(self._cut, jit_compile=True, autograph=False)
        self._run: Any = self._cut_in_replicas
        if execution.is_graph:
            self._run = tf.function(self._run, autograph=False)

    def __call__(self, whole: StepInput) -> list[StepInput]:
        """The micro-batches in order; the last rows are padding if the rows cannot be divided."""
        if self._num_cuts == 1:
            return [whole]
        with self._strategy.scope(), enter_device(self._strategy):
            if isinstance(whole, Packed) and whole.layout not in self._traced:
                make_graph_first(self._run, whole)
                self._traced.add(whole.layout)
            pieces: list[Any] = self._run(whole)
        if not isinstance(whole, Packed):
            return pieces
        layout = resize_rows(whole.layout, -(-whole.num_rows // self._num_cuts))
        return [Packed(vector_W, layout) for vector_W in pieces]

    def _cut_in_replicas(self, whole: StepInput) -> list[Any]:
        pieces: list[Any] = self._strategy.run(self._cut_in_replica, args=(whole,))
        return pieces

    def _cut_in_replica(self, part: StepInput) -> list[Any]:
        make_graph_first(self._cut, part)
        pieces: list[Any] = self._cut(part)
        return pieces

    def _cut_rows(self, part: StepInput) -> list[Any]:
        """The tensors of each micro-batch, or its vector."""
        if not isinstance(part, Packed):
            return split_rows(_pad_rows(part, self._num_cuts), self._num_cuts)
        return [join_vector(piece) for piece in split_rows(_pad_rows(cut_vector(part), self._num_cuts), self._num_cuts)]


def _make_flags(strategy: Any) -> Any:
    """Variable of what this process tells the others; None where it trains alone."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return None
    same = tf.VariableAggregation.ONLY_FIRST_REPLICA
    with strategy.scope():
        return tf.Variable(tf.zeros([NUM_FLAGS]), trainable=False, aggregation=same)


def select_trained(model: Any, weights: Mapping[str, Any]) -> dict[str, Any]:
    """The trainable weights by name, in the order of the model, by which checkpoints number their moments."""
    names = {id(weight): name for name, weight in weights.items()}
    return {names[id(weight)]: weight for weight in model.trainable_variables}


def _pad_rows(part: MicroBatch, multiple_of: int) -> MicroBatch:
    """Appends padding rows up to the next multiple of `multiple_of`."""
    num_missing = -count_rows(part) % multiple_of
    if num_missing == 0:
        return part
    return {
        name: tf.pad(tensor, [[0, num_missing], *([[0, 0]] * (len(tensor.shape) - 1))]) for name, tensor in part.items()
    }


def detect_device(plan: Plan) -> Device:
    """Kind of the training devices, and the lowest CUDA compute capability among them; None where one is unknown.

    The GPU that prepares data does not count: the numbers of a step follow from the GPUs that compute it.
    """
    if is_cpu(plan.model_devices[0]):
        return Device("CPU")
    gpus = {gpu.name.rpartition(":")[2]: gpu for gpu in tf.config.list_physical_devices("GPU")}
    details = [
        tf.config.experimental.get_device_details(gpus[number]) if number in gpus else {}
        for number in (name.rpartition(":")[2] for name in plan.model_devices)
    ]
    capabilities = [detail.get("compute_capability") for detail in details]
    return Device("GPU", None if None in capabilities else min(capabilities))
