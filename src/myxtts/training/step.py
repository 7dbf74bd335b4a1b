"""One optimiser step, the same whatever it is spread over: one device, mirrored ones, several hosts, micro-batches.

Losses and gradients are *sums* over real utterances until all parts are added up, and are divided once by the number
of utterances in all of them. So it does not matter how rows fall to parts, nor how many of them only fill a shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import tensorflow as tf

from myxtts.storage.atomic import is_fault_planned
from myxtts.types import Batch, Tensor

# What a training step is fed: tensors of a batch, cut by rows for replicas and micro-batches.
#
# Shape legend: B utterances of a batch.

MicroBatch = dict[str, Tensor]
"""Named tensors whose first axis is B, or values per replica of such tensors."""


def select_tensors(batch: Batch) -> MicroBatch:
    """The part of a batch that a graph can take; its names and numbers would make a new graph for every batch."""
    return batch.arrays()


def count_real_utterances(part: MicroBatch) -> Tensor:
    """How many rows are utterances; those that only fill the shape have no frames."""
    return tf.math.count_nonzero(part["mel_lengths"], dtype=tf.float32)


def split_rows(part: MicroBatch, num_parts: int) -> list[MicroBatch]:
    """The part cut into so many of equal size, in order."""
    sizes = {name: tensor.shape[0] for name, tensor in part.items()}
    assert all(size % num_parts == 0 for size in sizes.values()), f"{sizes} rows cannot be cut into {num_parts} parts"
    return [
        {name: tensor[place * sizes[name] // num_parts :][: sizes[name] // num_parts] for name, tensor in part.items()}
        for place in range(num_parts)
    ]


def distribute_parts(strategy: Any, parts: Sequence[MicroBatch]) -> MicroBatch:
    """One micro-batch made of a part for each replica of this process."""
    if strategy.num_replicas_in_sync == 1:
        (part,) = parts
        return part
    num_local = len(strategy.extended.worker_devices)
    assert len(parts) == num_local, f"{len(parts)} parts for {num_local} replicas"
    per_replica: MicroBatch = strategy.experimental_distribute_values_from_function(
        # Replicas are numbered over all workers, parts within this one.
        lambda context: parts[context.replica_id_in_sync_group % num_local]
    )
    return per_replica


LossFunction = Callable[[Any, MicroBatch, bool, Tensor], tuple[Tensor, dict[str, Tensor]]]
"""Called with (model, part, training, step): the sum of the loss over the real utterances of the part, and sums of
whatever else is worth knowing. Rows that fill the shape must count for nothing, and a part may have no others."""

GRADIENTS_POINT = "gradients"
"""Where MYXTTS_FAULT makes the gradients of a step unusable."""
_DONE_HERE = ("clipnorm", "global_clipnorm", "clipvalue", "gradient_accumulation_steps", "loss_scale_factor")


class StepResult(NamedTuple):
    """What a step did, as tensors: reading one waits for the device. Loss and metrics are means over utterances.

    `gradient_norm` is taken before clipping. When it or the loss is not finite, nothing was updated.
    """

    loss: Tensor
    metrics: dict[str, Tensor]
    gradient_norm: Tensor
    num_real: Tensor
    is_finite: Tensor


class _Totals(NamedTuple):
    """Sums over the real utterances of one part, or of many."""

    loss: Tensor
    num_real: Tensor
    metrics: dict[str, Tensor]


class TrainStep:
    """Trains `model` by one step per call. Model and optimizer must have been made in the scope of `strategy`.

    `graph=False` runs every operation eagerly, for a debugger. `jit_compile` compiles the whole step for one device,
    and for several the computation of each: XLA cannot reach over devices. With `num_lanes` the part of a device is
    cut by rows where that comes out even, and the pieces are computed at the same time.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        compute_loss: LossFunction,
        strategy: Any,
        *,
        accumulation_steps: int = 1,
        clip_norm: float | None = None,
        jit_compile: bool = False,
        graph: bool = True,
        num_lanes: int = 1,
        count_real: Callable[[MicroBatch], Tensor] = count_real_utterances,
    ) -> None:
        assert graph or not jit_compile, "an eager step cannot be compiled"
        taken = [name for name in _DONE_HERE if getattr(optimizer, name, None)]
        assert not taken, f"the optimizer must leave {', '.join(taken)} to the step: it would act on parts"
        self._model, self._optimizer, self._strategy = model, optimizer, strategy
        self._compute_loss, self._count_real = compute_loss, count_real
        self._clip_norm = clip_norm
        self.accumulation_steps = accumulation_steps
        self._weights = [variable.value for variable in model.trainable_variables]
        self._make_variables()
        self._has_leftovers = False
        self._num_lanes = num_lanes
        self._compile(graph, jit_compile)

    def __call__(self, micro_batches: Sequence[MicroBatch], step: int, is_spoiled: bool = False) -> StepResult:
        """One update from `accumulation_steps` micro-batches, which may differ in shape.

        With `is_spoiled` its gradients are not finite: a fault that was planned is happening.
        """
        assert len(micro_batches) == self.accumulation_steps, f"{len(micro_batches)} micro-batches were given"
        with self._strategy.scope(), self._enter_device():
            if self._spoiler is not None:
                self._spoiler.assign(float("nan") if is_spoiled else 1.0)
            number = tf.constant(step, tf.int64)
            if self.accumulation_steps == 1:
                result: StepResult = self._train(micro_batches[0], number)
                return result
            if self._has_leftovers:
                self._strategy.run(self._clear_accumulators)
            self._has_leftovers = True
            totals = [self._accumulate(micro_batch, number) for micro_batch in micro_batches]
            result = self._finish(totals)
            self._has_leftovers = False
            return result

    @property
    def num_skipped(self) -> int:
        """Steps without an update, because loss or gradient was not finite."""
        return int(self._num_skipped.numpy())

    @property
    def num_traces(self) -> int:
        """Graphs made so far: one for each shape of a micro-batch, and one more when they are accumulated."""
        functions = (self._train, self._accumulate, self._finish)
        return sum(
            f.experimental_get_tracing_count()
            for f in functions
            if isinstance(f, tf.types.experimental.GenericFunction)
        )

    def _make_variables(self) -> None:
        is_ours = self._strategy.extended.variable_created_in_scope
        with self._strategy.scope():
            if not self._optimizer.built:
                self._optimizer.build(self._model.trainable_variables)
            assert all(map(is_ours, (*self._weights, self._optimizer.iterations.value))), "made outside the scope"
            # Each replica adds up its own; they meet once, when all micro-batches are done.
            self._accumulators = [
                tf.Variable(tf.zeros_like(weight), trainable=False, synchronization=tf.VariableSynchronization.ON_READ)
                for weight in self._weights
                if self.accumulation_steps > 1
            ]
            # In no graph unless a fault is planned.
            self._spoiler = _make_shared_number(1.0, tf.float32) if is_fault_planned(GRADIENTS_POINT) else None
            self._num_skipped = _make_shared_number(0, tf.int64)

    def _compile(self, graph: bool, jit_compile: bool) -> None:
        is_one_device = self._strategy.num_replicas_in_sync == 1
        is_one_whole = is_one_device and self._num_lanes == 1
        self._needs_device = jit_compile and isinstance(self._strategy, tf.distribute.OneDeviceStrategy)
        self._compute_piece: Callable[[MicroBatch, Tensor], tuple[list[Tensor], _Totals]] = self._compute_part
        self._change = self._apply
        if jit_compile and not is_one_whole:
            self._compute_piece = tf.function(self._compute_part, jit_compile=True, autograph=False)
        if jit_compile and is_one_device and not is_one_whole:
            self._change = tf.function(self._apply, jit_compile=True, autograph=False)

        def make_graph(function: Callable[..., Any]) -> Any:
            if not graph:
                return function
            return tf.function(function, jit_compile=jit_compile and is_one_whole, autograph=False)

        self._train = make_graph(self._train_on)
        self._accumulate = make_graph(self._accumulate_on)
        self._finish = make_graph(self._finish_with)

    def _enter_device(self) -> AbstractContextManager[Any]:
        """A compiled function runs where it is called, not where its variables are."""
        return tf.device(self._strategy.extended.worker_devices[0]) if self._needs_device else nullcontext()

    # What follows is either said once for all replicas, or, where it says so, by each replica for itself.

    def _train_on(self, micro_batch: MicroBatch, step: Tensor) -> StepResult:
        def compute(part: MicroBatch) -> tuple[list[Tensor], StepResult]:
            return self._reduce(*self._compute(part, step))

        return self._update(*self._strategy.run(compute, args=(micro_batch,)))

    def _accumulate_on(self, micro_batch: MicroBatch, step: Tensor) -> _Totals:
        def accumulate(part: MicroBatch) -> _Totals:
            gradients, totals = self._compute(part, step)
            for accumulator, gradient in zip(self._accumulators, gradients, strict=True):
                accumulator.assign_add(gradient)
            return totals

        totals: _Totals = self._strategy.run(accumulate, args=(micro_batch,))
        return totals

    def _finish_with(self, totals: list[_Totals]) -> StepResult:
        def reduce(totals: list[_Totals]) -> tuple[list[Tensor], StepResult]:
            gradients = [accumulator.read_value() for accumulator in self._accumulators]
            self._clear_accumulators()
            return self._reduce(gradients, _add_up(totals))

        return self._update(*self._strategy.run(reduce, args=(totals,)))

    def _compute(self, part: MicroBatch, step: Tensor) -> tuple[list[Tensor], _Totals]:
        """By each replica: gradients and totals of its part, from pieces that do not wait for each other."""
        num_rows = next(iter(part.values())).shape[0]
        pieces = split_rows(part, math.gcd(num_rows, self._num_lanes))
        computed = [self._compute_piece(piece, step) for piece in pieces]
        if len(computed) == 1:
            return computed[0]
        gradients, totals = zip(*computed, strict=True)
        return list(map(tf.add_n, zip(*gradients, strict=True))), _add_up(totals)

    def _compute_part(self, part: MicroBatch, step: Tensor) -> tuple[list[Tensor], _Totals]:
        """By each replica: gradients and totals of its part."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self._weights)
            loss, metrics = self._compute_loss(self._model, part, True, step)
        gradients = tape.gradient(loss, self._weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        # Gradients of embeddings come as slices, which neither add up nor reduce well.
        gradients = list(map(tf.convert_to_tensor, gradients))
        if self._spoiler is not None:
            gradients = [gradient * self._spoiler for gradient in gradients]
        totals = _Totals(loss, self._count_real(part), metrics)
        return gradients, tf.nest.map_structure(_to_float32, totals)

    def _reduce(self, gradients: list[Tensor], totals: _Totals) -> tuple[list[Tensor], StepResult]:
        """By each replica: the clipped mean gradient over all of them, and the result. One exchange for everything.

        Without a single real utterance this divides by zero, and the step is skipped like any that is not finite.
        """
        replica = tf.distribute.get_replica_context()
        gradients, totals = replica.all_reduce(tf.distribute.ReduceOp.SUM, (gradients, totals))
        loss, metrics = tf.nest.map_structure(lambda total: total / totals.num_real, (totals.loss, totals.metrics))
        norm = tf.linalg.global_norm(gradients) / totals.num_real
        scale = 1 / totals.num_real
        if self._clip_norm is not None:
            scale *= self._clip_norm / tf.maximum(norm, self._clip_norm)
        is_finite = tf.math.is_finite(norm) & tf.math.is_finite(loss)
        result = StepResult(loss, metrics, norm, totals.num_real, is_finite)
        return [gradient * scale for gradient in gradients], result

    def _update(self, gradients: list[Tensor], per_replica: StepResult) -> StepResult:
        """Applies the reduced gradients unless they are not finite."""
        result = tf.nest.map_structure(lambda value: self._strategy.experimental_local_results(value)[0], per_replica)

        def apply() -> None:
            with _take_as_reduced(self._optimizer):
                self._strategy.run(self._change, args=(gradients,))

        def skip() -> None:
            self._num_skipped.assign_add(1)

        # All replicas hold the same sums, so all of them decide alike.
        tf.cond(result.is_finite, apply, skip)
        return StepResult(*result)

    def _apply(self, gradients: list[Tensor]) -> None:
        """By each replica."""
        self._optimizer.apply(gradients, self._model.trainable_variables)

    def _clear_accumulators(self) -> None:
        """By each replica. Assigning, unlike multiplying, also clears what is not finite."""
        for accumulator in self._accumulators:
            accumulator.assign(tf.zeros_like(accumulator))


def _make_shared_number(value: float, dtype: Any) -> Any:
    """One number that all replicas agree on."""
    return tf.Variable(value, trainable=False, dtype=dtype, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)


def _add_up(totals: Sequence[_Totals]) -> _Totals:
    summed: _Totals = tf.nest.map_structure(lambda *sums: tf.add_n(sums), *totals)
    return summed


def _to_float32(value: Tensor) -> Tensor:
    return tf.cast(value, tf.float32)


@contextmanager
def _take_as_reduced(optimizer: Any) -> Iterator[None]:
    """Keras adds up gradients over the replicas inside `apply`. They are added up already: once more would multiply
    them by the number of replicas, and send all of them over the wire again."""
    assert hasattr(optimizer, "_all_reduce_sum_gradients"), "Keras adds up gradients in another place now"
    optimizer._all_reduce_sum_gradients = list
    try:
        yield
    finally:
        del optimizer._all_reduce_sum_gradients
