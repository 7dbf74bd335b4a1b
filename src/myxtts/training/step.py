"""One optimizer step: forward and backward pass, accumulation over micro-batches, all-reduce, clipping, update.

Losses and gradients are *sums* over real utterances until the micro-batches of all replicas are added up, and are
divided once by the number of utterances in all of them. So the step is the same on one device, mirrored ones and
several hosts, with any number of micro-batches and of padding rows.
Everything that a step needs besides its batch is on the device, the number of the step among it, and everything that it
has measured comes back as one tensor: so the host can start steps without waiting for the one before.
Shape legend: B utterances of a batch, P parameters of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import tensorflow as tf

from myxtts.pipeline.packed import unpack
from myxtts.storage.atomic import is_fault_planned
from myxtts.training.compiling import GraphPerShape, make_graph_first, name_functions_alike
from myxtts.training.kept_graphs import KeptGraphs
from myxtts.training.micro_batches import (
    MicroBatch,
    StepInput,
    count_real_utterances,
    count_rows,
    enter_device,
    take_rows,
)
from myxtts.training.optimizer import Freezing, WeightEma, clear_frozen, find_frozen, move_averages
from myxtts.types import Tensor

LossFunction = Callable[[Any, MicroBatch, bool, Tensor], tuple[Tensor, dict[str, Tensor]]]
"""Called with (model, micro-batch, training, step): sums over its real utterances of the loss and of its terms.
Padding rows must count for nothing, and a micro-batch may have no others."""

_OUT_OF_MEMORY = (
    "out of memory",
    "out_of_memory",
    "alloc_failed",
    "failed to allocate",
    "status_not_initialized",
    "failed to create cublas handle",
    "could not create cudnn handle",
    "autotuning failed",
)
"""How CUDA libraries on a full GPU say it, in lower case: a library that cannot allocate its workspace or handle, and
autotuning of XLA that finds no memory to try in, fail with internal or unknown errors."""


def is_out_of_memory(error: Exception) -> bool:
    """Whether the memory of a device was exhausted, whichever library noticed it. A full disk is another matter."""
    if "no space left" in str(error).lower() or "disk quota" in str(error).lower():
        return False
    if isinstance(error, tf.errors.ResourceExhaustedError | MemoryError):
        return True
    message = str(error).lower()
    kinds = (tf.errors.InternalError, tf.errors.UnknownError, tf.errors.AbortedError, tf.errors.FailedPreconditionError)
    return isinstance(error, kinds) and any(mark in message for mark in _OUT_OF_MEMORY)


GRADIENTS_POINT = "gradients"
"""Fault point at which MYXTTS_FAULT turns the gradients of a step into NaN."""


_IS_FINITE = 3
"""Position of `is_finite` in the tensor of a `StepResult`."""


class StepNumbers(NamedTuple):
    """Means over utterances: of the loss over all, of each term over those that have it.

    `gradient_norm` is taken before clipping. When it or the loss is not finite, nothing was updated.
    """

    loss: float
    metrics: dict[str, float]
    gradient_norm: float
    num_real: float
    is_finite: bool
    flags: tuple[bool, ...] = ()
    """For each flag of `TrainStep`: whether any process had raised it."""


class StepResult(NamedTuple):
    """The numbers of a step in one tensor on the device: loss, gradient norm, utterances, is finite, metrics, flags."""

    values: Tensor
    metric_names: tuple[str, ...]
    average: Callable[[dict[str, float]], dict[str, float]] = dict
    """Turns means over all rows into means over the rows that have the term."""

    def read(self) -> StepNumbers:
        """Copies the numbers to the host, which blocks until the device has done the step."""
        loss, norm, num_real, is_finite, *others = self.values.numpy().tolist()
        metrics = dict(zip(self.metric_names, others, strict=False))
        flags = tuple(number > 0 for number in others[len(metrics) :])
        return StepNumbers(loss, self.average(metrics), norm, num_real, bool(is_finite), flags)


class _Totals(NamedTuple):
    """Sums over real utterances."""

    loss: Tensor
    num_real: Tensor
    metrics: dict[str, Tensor]


class _Piece(NamedTuple):
    """What one lane has computed: the sum of the gradients of all weights [P], and of the losses."""

    gradient_P: Tensor  # noqa: N815 - carries its shape
    totals: _Totals


class TrainStep:
    """Trains `model` by one step per call. Model and optimizer must have been made in the scope of `strategy`.

    `rate` gives the learning rate for the number of a step, as a tensor; `ema` moves with the weights. `graph=False`
    runs every operation eagerly, for a debugger. `jit_compile` compiles the whole step for one device, and for several
    the gradients and the update of each: XLA cannot reach over devices. With `num_lanes` the rows of a device are split
    into equal pieces, as far as they divide evenly, which run concurrently. `freezing` can exclude weights later.
    `average` is that of `StepResult`. `flags` [F], above zero where this process has raised one, are added up over all
    processes by the all-reduce of the gradients. `graph_key` tells what graphs depend on besides the batch shape, for
    the cache of graphs, and `rate_variables` are those that `rate` reads; without a key no graph is kept.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        compute_loss: LossFunction,
        strategy: Any,
        *,
        rate: Callable[[Tensor], Tensor],
        ema: WeightEma | None = None,
        accumulation_steps: int = 1,
        clip_norm: float | None = None,
        jit_compile: bool = False,
        graph: bool = True,
        num_lanes: int = 1,
        count_real: Callable[[MicroBatch], Tensor] = count_real_utterances,
        flags: Any = None,
        freezing: Freezing | None = None,
        average: Callable[[dict[str, float]], dict[str, float]] = dict,
        graph_key: str = "",
        rate_variables: Sequence[Any] = (),
    ) -> None:
        assert graph or not jit_compile, "an eager step cannot be compiled"
        self._model, self._optimizer, self._strategy = model, optimizer, strategy
        self._compute_loss, self._count_real, self._average = compute_loss, count_real, average
        self._rate, self._ema, self._clip_norm, self._flags = rate, ema, clip_norm, flags
        self.accumulation_steps = accumulation_steps
        trained = model.trainable_variables
        # `value` is the TensorFlow variable inside a Keras variable, which strategies can update.
        self._weights = [variable.value for variable in trained]
        self._sizes = [math.prod(weight.shape) for weight in self._weights]
        averages = [] if ema is None else ema.find(trained)
        self._targets = (self._weights, optimizer.slots, averages)
        self._apply_gradients = optimizer.make_update(trained)
        self._freezing, self._find_frozen = freezing, partial(find_frozen, freezing, trained)
        self._can_freeze = [freezing is not None and freezing.includes(variable) for variable in trained]
        self._name = f"update of {len(self._sizes)} weights, {sum(self._sizes)} numbers"
        self._metric_names: tuple[str, ...] = ()
        self._make_variables()
        self._next_step: int | None = None
        self._has_leftovers = False
        self._num_lanes = num_lanes
        self._compile(graph, jit_compile, self._find_kept(graph_key, rate_variables))

    def __call__(self, micro_batches: Sequence[StepInput], step: int, is_spoiled: bool = False) -> StepResult:
        """One update from `accumulation_steps` micro-batches, which may differ in shape.

        `is_spoiled` makes its gradients NaN: the fault injection of MYXTTS_FAULT, with which the guard is tested.
        """
        assert len(micro_batches) == self.accumulation_steps, f"{len(micro_batches)} micro-batches were given"
        with self._strategy.scope(), enter_device(self._strategy):
            if self._spoiler is not None:
                self._spoiler.assign(float("nan") if is_spoiled else 1.0)
            if step != self._next_step:
                self._step.assign(step)
            # A step that fails may have counted already.
            self._next_step = None
            values = self._run(micro_batches)
            self._next_step = step + 1
        return StepResult(values, self._metric_names, self._average)

    def _run(self, micro_batches: Sequence[StepInput]) -> Tensor:
        if self.accumulation_steps == 1:
            return self._train(micro_batches[0])
        if self._has_leftovers:
            self._strategy.run(self._clear_accumulator)
        self._has_leftovers = True
        totals = [self._accumulate(micro_batch) for micro_batch in micro_batches]
        with name_functions_alike(f"{self._name} after {self.accumulation_steps} micro-batches"):
            values = self._finish(totals)
        self._has_leftovers = False
        return values

    def make_graphs(self, micro_batches: Sequence[StepInput]) -> None:
        """Traces the graphs of micro-batches of these shapes. Another thread may run steps of other shapes meanwhile.

        XLA compiles a graph when it is first called.
        """
        with self._strategy.scope(), enter_device(self._strategy):
            function = self._train if self.accumulation_steps == 1 else self._accumulate
            for micro_batch in micro_batches:
                make_graph_first(function, micro_batch)

    def trace(self, micro_batches: Sequence[StepInput], step: int) -> None:
        """Traces and compiles the graphs of micro-batches of these shapes by a step on them."""
        self.make_graphs(micro_batches)
        self(micro_batches, step)

    def take_apart(self) -> dict[str, Callable[..., Any]]:
        """Returns forward pass, gradients and update as separate functions, compiled as within the step, for a profile.

        `forward` and `gradients` take a micro-batch; `update` takes what `gradients` returns.
        """
        compute_totals = self._compute_totals
        if self._is_compiled_by_part:
            compute_totals = tf.function(compute_totals, jit_compile=True, autograph=False)

        def forward(part: StepInput) -> list[_Totals]:
            return [compute_totals(part, lane, self._step.read_value()) for lane in self.list_lanes(part)]

        parts: dict[str, Callable[..., Any]] = {
            "forward": lambda part: self._strategy.run(forward, args=(part,)),
            "gradients": lambda part: self._strategy.run(self._compute, args=(part,)),
            "update": self._conclude,
        }

        def run(function: Callable[..., Any], *arguments: Any) -> Any:
            with self._strategy.scope(), enter_device(self._strategy):
                return function(*arguments)

        return {name: partial(run, self._make_graph(function)) for name, function in parts.items()}

    @property
    def num_traces(self) -> int:
        """Graphs made so far: one for each shape of a micro-batch, and one more with accumulation."""
        functions = (self._train, self._accumulate, self._finish)
        return sum(function.num_traces for function in functions if isinstance(function, GraphPerShape))

    def _make_variables(self) -> None:
        """Makes the number of the step, the accumulator (where needed) and the switch of the fault injection."""
        is_ours = self._strategy.extended.variable_created_in_scope
        same = tf.VariableAggregation.ONLY_FIRST_REPLICA
        with self._strategy.scope():
            assert all(map(is_ours, (*self._weights, self._optimizer.iterations))), "made outside the scope"
            self._step = tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=same)
            # ON_READ: each replica accumulates its own gradients; all-reduced once, after the last micro-batch.
            self._accumulator: Any = None
            if self.accumulation_steps > 1:
                on_read = tf.VariableSynchronization.ON_READ
                zeros = tf.zeros([sum(self._sizes)])
                self._accumulator = tf.Variable(zeros, trainable=False, synchronization=on_read)
            # Only with fault injection; otherwise no graph contains it.
            self._spoiler = None
            if is_fault_planned(GRADIENTS_POINT):
                self._spoiler = tf.Variable(1.0, trainable=False, dtype=tf.float32, aggregation=same)

    def _compile(self, graph: bool, jit_compile: bool, kept: KeptGraphs | None) -> None:
        """Chooses which functions XLA compiles: the whole step, or on several devices and lanes only its pieces."""
        is_one_device = self._strategy.num_replicas_in_sync == 1
        self._is_graph, self._is_compiled_whole = graph, jit_compile and is_one_device and self._num_lanes == 1
        self._is_compiled_by_part = jit_compile and not self._is_compiled_whole
        self.compute_piece: Callable[[StepInput, Tensor, Tensor], _Piece] = self._compute_gradients
        self._conclude: Callable[[Sequence[_Piece]], Tensor] = self._conclude_with
        self._add_piece: Callable[[Sequence[_Piece]], _Totals] = self._add_to_accumulator
        self._change: Callable[..., Tensor] = self._apply
        if self._is_compiled_by_part:
            self.compute_piece = tf.function(self._compute_gradients, jit_compile=True, autograph=False)
        # A function of its own is traced once for all batch shapes; the update has a third of all operations.
        if self._is_compiled_by_part and is_one_device:
            self._conclude = tf.function(self._conclude_with, jit_compile=True, autograph=False)
            self._add_piece = tf.function(self._add_to_accumulator, jit_compile=True, autograph=False)
        elif graph and (is_one_device or jit_compile):
            self._change = tf.function(self._apply, jit_compile=self._is_compiled_by_part or None, autograph=False)
        self._train = self._make_graph(self._train_on, kept=kept if jit_compile and is_one_device else None)
        self._accumulate = self._make_graph(self._accumulate_on)
        self._finish = self._make_graph(self._finish_with, is_compiled=jit_compile and is_one_device)

    def _make_graph(self, function: Callable[..., Any], *, is_compiled: bool | None = None, kept: Any = None) -> Any:
        if not self._is_graph:
            return function
        jit_compile = self._is_compiled_whole if is_compiled is None else is_compiled
        return GraphPerShape(function, jit_compile=jit_compile, kept=kept)

    def _find_kept(self, graph_key: str, rate_variables: Sequence[Any]) -> KeptGraphs | None:
        """The graphs of earlier starts; None where none are kept, or where they would contain the fault injection."""
        if not graph_key or self._spoiler is not None:
            return None
        own = [self._optimizer.iterations, self._step, *([] if self._freezing is None else [self._freezing.variable])]
        of_model = [variable.value for variable in self._model.variables]
        variables = [*of_model, *tf.nest.flatten(self._targets), *own, *rate_variables]
        take_notes = partial(setattr, self, "_metric_names")
        return KeptGraphs(graph_key, variables, lambda: self._metric_names, take_notes)

    # Methods below run once for all replicas or, where the docstring says so, in each replica.

    def _train_on(self, micro_batch: StepInput) -> Tensor:
        """Step without accumulation: one micro-batch per replica, in one graph."""
        pieces = self._strategy.run(self._compute, args=(micro_batch,))
        # All batch shapes share the graph of the rest, so its name does not depend on the one that comes first.
        with name_functions_alike(f"{self._name} from {len(pieces)} pieces"):
            return self._conclude(pieces)

    def _conclude_with(self, pieces: Sequence[_Piece]) -> Tensor:
        """Last part of a step without accumulation: adds up the pieces of each replica, reduces and updates."""

        def reduce(pieces: Sequence[_Piece]) -> tuple[Tensor, Tensor]:
            return self._reduce(*_join(pieces))

        return self._update(*self._strategy.run(reduce, args=(pieces,)))

    def _accumulate_on(self, micro_batch: StepInput) -> _Totals:
        """Adds the gradients of one micro-batch to the accumulator of each replica; returns its totals."""
        totals: _Totals = self._strategy.run(lambda part: self._add_piece(self._compute(part)), args=(micro_batch,))
        return totals

    def _add_to_accumulator(self, pieces: Sequence[_Piece]) -> _Totals:
        """In each replica."""
        gradient_P, totals = _join(pieces)
        self._accumulator.assign_add(gradient_P)
        return totals

    def _finish_with(self, totals: list[_Totals]) -> Tensor:
        """Last part of an accumulated step: reduces the accumulator, clears it and updates the weights."""

        def reduce(totals: list[_Totals]) -> tuple[Tensor, Tensor]:
            gradient_P = self._accumulator.read_value()
            self._clear_accumulator()
            return self._reduce(gradient_P, _add_up(totals))

        return self._update(*self._strategy.run(reduce, args=(totals,)))

    def _compute(self, part: StepInput) -> list[_Piece]:
        """In each replica: gradients and totals of its rows, from pieces that do not wait for each other."""
        lanes, step = self.list_lanes(part), self._step.read_value()
        make_graph_first(self.compute_piece, part, lanes[0], step)
        return [self.compute_piece(part, lane, step) for lane in lanes]

    def list_lanes(self, part: StepInput) -> list[Tensor]:
        """Numbers of the equal pieces that the rows are split into; None for one piece of all rows."""
        num_lanes = self._count_lanes(part)
        return [None] if num_lanes == 1 else [tf.constant(lane) for lane in range(num_lanes)]

    def _count_lanes(self, part: StepInput) -> int:
        """The greatest common divisor of the rows and `num_lanes`."""
        return math.gcd(count_rows(part), self._num_lanes)

    def _compute_gradients(self, part: StepInput, lane: Tensor, step: Tensor) -> _Piece:
        """In each replica: the gradients of all weights one behind the other [P], so that few kernels handle them."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self._weights)
            totals = self._compute_totals(part, lane, step)
        gradients = tape.gradient(totals.loss, self._weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        # Embedding gradients are IndexedSlices, which cannot be joined.
        flat_shape = tf.constant([-1])
        flat = [tf.reshape(tf.convert_to_tensor(gradient), flat_shape) for gradient in gradients]
        gradient_P = tf.concat(clear_frozen(flat, self._find_frozen()), axis=0)
        return _Piece(gradient_P if self._spoiler is None else gradient_P * self._spoiler, totals)

    def _compute_totals(self, part: StepInput, lane: Tensor, step: Tensor) -> _Totals:
        """In each replica: the forward pass of the rows of a lane."""
        tensors = unpack(part) if lane is None else take_rows(unpack(part), lane, self._count_lanes(part))
        loss, metrics = self._compute_loss(self._model, tensors, True, step)
        totals: _Totals = tf.nest.map_structure(
            lambda value: tf.cast(value, tf.float32), _Totals(loss, self._count_real(tensors), metrics)
        )
        return totals

    def _reduce(self, gradient_P: Tensor, totals: _Totals) -> tuple[Tensor, Tensor]:
        """In each replica: the clipped mean gradient over all of them, and the numbers, by one all-reduce.

        Without a single real utterance this divides by zero, and the step is skipped like any that is not finite.
        """
        replica = tf.distribute.get_replica_context()
        flags = [] if self._flags is None else [self._flags.read_value()]
        gradient_P, totals, flags = replica.all_reduce(tf.distribute.ReduceOp.SUM, (gradient_P, totals, flags))
        loss, metrics = tf.nest.map_structure(lambda total: total / totals.num_real, (totals.loss, totals.metrics))
        norm = tf.sqrt(tf.reduce_sum(tf.square(gradient_P))) / totals.num_real
        scale = 1 / totals.num_real
        if self._clip_norm is not None:
            scale *= self._clip_norm / tf.maximum(norm, self._clip_norm)
        is_finite = tf.cast(tf.math.is_finite(norm) & tf.math.is_finite(loss), tf.float32)
        # Set when a graph is traced; the metrics are the same for all batch shapes.
        self._metric_names = tuple(metrics)
        values = tf.stack([loss, norm, totals.num_real, is_finite, *metrics.values()])
        return gradient_P * scale, tf.concat([values, *flags], axis=0)

    def _update(self, gradient_P: Tensor, per_replica: Tensor) -> Tensor:
        """Applies the reduced gradient unless it is not finite; counts the step in any case."""
        values: Tensor = self._strategy.experimental_local_results(per_replica)[0]
        step = self._step.read_value()
        rate, decay = self._rate(step), tf.constant(0.0) if self._ema is None else self._ema.decay_at(step)
        is_skipped = values[_IS_FINITE] <= 0
        is_kept = is_skipped if self._freezing is None else is_skipped | self._freezing.read()
        # Each device updates its own copies with the same values: no communication.
        arguments = (self._targets, gradient_P, rate, decay, is_skipped, is_kept)
        # All batch shapes share the graph of the update, so its name does not depend on the one that comes first.
        with name_functions_alike(self._name):
            self._strategy.extended.update(self._optimizer.iterations, self._change, args=arguments, group=False)
        self._step.assign_add(1)
        return values

    def _apply(
        self,
        iterations: Any,
        targets: tuple[Any, Any, Any],
        gradient_P: Tensor,
        rate: Tensor,
        decay: Tensor,
        is_skipped: Tensor,
        is_kept: Tensor,
    ) -> Tensor:
        """On each device, with its own copies of the variables: optimizer and EMA.

        A step that `is_skipped` changes nothing; weights that can be frozen do not change where `is_kept`.
        """
        weights, slots, averages = targets
        kept = [is_kept if can_freeze else is_skipped for can_freeze in self._can_freeze]
        updated = self._apply_gradients(iterations, weights, slots, gradient_P, rate, is_skipped, kept)
        move_averages(averages, updated, decay, kept)
        return rate

    def _clear_accumulator(self) -> None:
        """In each replica. Assigning, unlike multiplying, also clears what is not finite."""
        self._accumulator.assign(tf.zeros_like(self._accumulator))


def _join(pieces: Sequence[_Piece]) -> _Piece:
    """The sum of all pieces."""
    if len(pieces) == 1:
        return pieces[0]
    gradients, totals = zip(*pieces, strict=True)
    return _Piece(tf.add_n(gradients), _add_up(totals))


def _add_up(totals: Sequence[_Totals]) -> _Totals:
    summed: _Totals = tf.nest.map_structure(lambda *sums: tf.add_n(sums), *totals)
    return summed
