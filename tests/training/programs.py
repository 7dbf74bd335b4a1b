"""Training runs of a tiny model, for a process with logical devices; each returns numbers that a test compares.

Shape legend: B utterances, N tokens, T frames, M mel bands.
"""

from __future__ import annotations

import logging
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tests.training.toy_step import (
    NUM_ROWS,
    STRATEGIES,
    Run,
    Sgd,
    compute_loss,
    cut,
    flatten_weights,
    make_batch,
    make_model,
    make_optimizer,
    make_plain_optimizer,
    measure_rows,
)

from myxtts.training.micro_batches import (
    MicroBatch,
    distribute_parts,
    enter_device,
    split_rows,
)
from myxtts.training.optimizer import Freezing, WeightEma
from myxtts.training.step import TrainStep, is_out_of_memory

Tensor = Any


def train_plainly(
    num_reals: list[int], optimizer: str = "sgd", clip_norm: float | None = None, leave_out: int | None = None
) -> dict[str, Any]:
    """The same training without any of the code under test: one device, whole batches, a mean over real rows."""
    model = make_model()
    chosen = make_plain_optimizer(optimizer)
    losses, norms = [], []
    for step, num_real in enumerate(num_reals):
        if step == leave_out:
            continue
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(measure_rows(model, make_batch(step, num_real))[:num_real])
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, [v.value for v in model.trainable_variables])]
        losses.append(float(loss))
        norms.append(float(tf.linalg.global_norm(gradients)))
        if clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, clip_norm)
        chosen.apply(gradients, model.trainable_variables)
    return {"weights": flatten_weights(model), "losses": losses, "norms": norms}


def train(
    strategy: str,
    num_reals: list[int],
    optimizer: str = "sgd",
    accumulation_steps: int = 1,
    clip_norm: float | None = None,
    **options: Any,
) -> dict[str, Any]:
    run = Run(strategy, optimizer, accumulation_steps, clip_norm=clip_norm, **options)
    results = [run.train(step, make_batch(step, num_real)) for step, num_real in enumerate(num_reals)]
    return {
        "weights": flatten_weights(run.model),
        "losses": [float(result.loss) for result in results],
        "norms": [float(result.gradient_norm) for result in results],
        "num_reals": [int(result.num_real) for result in results],
        "num_traces": run.step.num_traces,
        "num_updates": run.num_updates,
        "spread": measure_spread(run),
    }


def measure_spread(run: Run) -> float:
    """How far the replicas' copies of the weights are apart."""
    copies = [run.strategy.experimental_local_results(v.value) for v in run.model.trainable_variables]
    return max(float(tf.reduce_max(tf.abs(copy - several[0]))) for several in copies for copy in several)


def train_past_nan(
    strategy: str, num_steps: int, spoiled: int, row: int, optimizer: str = "sgd", **options: Any
) -> dict[str, Any]:
    """A run in which one row of one step is not a number."""
    run = Run(strategy, optimizer, **options)
    is_finite = []
    for step in range(num_steps):
        batch = make_batch(step)
        if step == spoiled:
            is_row = tf.reshape(tf.range(NUM_ROWS) == row, [-1, 1, 1])
            batch["mel"] = tf.where(is_row, np.nan, batch["mel"])
        is_finite.append(bool(run.train(step, batch).is_finite))
    return {
        "weights": flatten_weights(run.model),
        "is_finite": is_finite,
        "num_updates": run.num_updates,
    }


def train_past_spoiled_step(strategy: str, what: str) -> dict[str, Any]:
    """A run in which the third step has a gradient that is not finite under a finite loss, or the other way round."""

    def spoil(model: Any, part: MicroBatch, training: bool, step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metrics = compute_loss(model, part, training, step)
        if what == "loss":
            return loss + tf.where(step == 2, np.inf, 0.0), metrics
        # The root has no slope at zero.
        root = tf.sqrt(0 * tf.reduce_sum(model.trainable_variables[0]) + tf.where(step == 2, 0.0, 1.0))
        return loss + root - tf.stop_gradient(root), metrics

    run = Run(strategy, compute_loss=spoil)
    results = [run.train(step, make_batch(step)) for step in range(5)]
    return {
        "weights": flatten_weights(run.model),
        "is_finite": [bool(result.is_finite) for result in results],
        "finite_losses": [bool(np.isfinite(result.loss)) for result in results],
        "finite_norms": [bool(np.isfinite(result.gradient_norm)) for result in results],
    }


def train_on_shapes(strategy: str, shapes: list[int], accumulation_steps: int, **options: Any) -> list[int]:
    """The number of traces after each step; `shapes` are the frames of one step's batch after another."""
    run = Run(strategy, accumulation_steps=accumulation_steps, **options)
    counts = []
    for step, num_frames in enumerate(shapes):
        run.train(step, make_batch(step, num_frames=num_frames))
        counts.append(run.step.num_traces)
    return counts


def trace_shapes(strategy: str, num_shapes: int, accumulation_steps: int, **options: Any) -> dict[str, Any]:
    """Traces many shapes before training on them; gives the number of graphs, and what TensorFlow warned of."""
    warned: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warned.append(record.getMessage())  # type: ignore[method-assign]
    tf.get_logger().addHandler(handler)
    run = Run(strategy, accumulation_steps=accumulation_steps, **options)
    batches = [make_batch(number, num_real=0, num_frames=7 + number) for number in range(num_shapes)]
    for batch in batches:
        run.step.trace(cut(run.strategy, batch, accumulation_steps), 0)
    num_traces = run.step.num_traces
    for number in range(num_shapes):
        run.train(number, make_batch(number, num_frames=7 + number))
    tf.get_logger().removeHandler(handler)
    return {"warned": warned, "num_traces": num_traces, "num_more": run.step.num_traces - num_traces}


def count_outside(num_lanes: int, accumulation_steps: int) -> dict[str, Any]:
    """Operations of the step's graph that are not inside a compiled function, and graphs made for the lanes."""
    run = Run("one device", accumulation_steps=accumulation_steps, jit_compile=True, num_lanes=num_lanes)
    part, *_ = cut(run.strategy, make_batch(0), accumulation_steps)
    with run.strategy.scope(), enter_device(run.strategy):
        function = run.step._train if accumulation_steps == 1 else run.step._accumulate
        piece: Any = run.step.compute_piece
        graph = function.get_concrete_function(part).graph
    without_work = ("Placeholder", "Const", "Identity", "NoOp", "PartitionedCall", "StatefulPartitionedCall")
    types = [node.type for node in graph.get_operations()]
    return {
        "outside": [name for name in types if name not in without_work],
        "num_calls": sum(name.endswith("PartitionedCall") for name in types),
        "num_lane_graphs": piece.experimental_get_tracing_count(),
    }


def train_unlike_micro_batches(strategy: str) -> dict[str, Any]:
    """One step from two micro-batches of different shapes, against the plain gradient over both."""
    parts = [make_batch(0, num_frames=7), make_batch(1, num_real=3, num_frames=9, num_rows=4)]
    run = Run(strategy, accumulation_steps=2)
    num_replicas = run.strategy.num_replicas_in_sync
    result = run.step([distribute_parts(run.strategy, split_rows(part, num_replicas)) for part in parts], 0).read()
    model = make_model()
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(measure_rows(model, part)) for part in parts]) / 11
    make_plain_optimizer("sgd").apply(
        tape.gradient(loss, [v.value for v in model.trainable_variables]), model.trainable_variables
    )
    return {
        "weights": flatten_weights(run.model),
        "expected": flatten_weights(model),
        "num_real": int(result.num_real),
        "frames": float(result.metrics["frames"]) * 11,
        "expected_frames": float(sum(tf.reduce_sum(part["mel_lengths"]) for part in parts)),
    }


def train_after_failure(strategy: str) -> dict[str, Any]:
    """A step whose second micro-batch fails once, and is then done again, as after running out of memory."""
    failures = iter([False, True])

    def fail_once(model: Any, part: MicroBatch, training: bool, step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        if next(failures, False):
            raise tf.errors.ResourceExhaustedError(None, None, "out of memory")
        return compute_loss(model, part, training, step)

    run = Run(strategy, accumulation_steps=2, graph=False, compute_loss=fail_once)
    batch = make_batch(0)
    try:
        run.train(0, batch)
    except tf.errors.ResourceExhaustedError:
        run.train(0, batch)
        return {"weights": flatten_weights(run.model), "num_updates": run.num_updates}
    raise AssertionError("the failure was swallowed")


def train_in_16_bits(strategy: str, accumulation_steps: int, jit_compile: bool) -> dict[str, Any]:
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        run = Run(strategy, "adam", accumulation_steps, jit_compile=jit_compile)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    batch = make_batch(0)
    losses = [float(run.train(step, batch).loss) for step in range(10)]
    return {
        "losses": losses,
        "dtypes": sorted({v.dtype for v in run.model.trainable_variables}),
        "spread": measure_spread(run),
    }


def refuse(kind: str) -> str:
    """What the step says to an optimizer or a model that it cannot serve."""
    strategy = STRATEGIES["mirrored"]()
    model = make_model()
    with strategy.scope():
        if kind != "model outside the scope":
            model = make_model()
        optimizer = Sgd()
    options: dict[str, Any] = {"graph": False, "jit_compile": True} if kind == "compiled and eager" else {}
    try:
        TrainStep(model, optimizer, compute_loss, strategy, rate=tf.identity, **options)
    except (AssertionError, ValueError) as error:
        return str(error)
    return ""


def train_on_nothing(strategy: str) -> dict[str, Any]:
    run = Run(strategy, "adamw")
    before = flatten_weights(run.model)
    run.train(0, make_batch(0, num_real=0))
    return {
        "weights_before": before,
        "weights": flatten_weights(run.model),
        "num_updates": run.num_updates,
    }


def measure_exchange() -> dict[str, Any]:
    """How many numbers each replica sends in one step, from the graph of the step."""
    run = Run("mirrored", "adamw")
    (micro_batch,) = cut(run.strategy, make_batch(0), 1)
    with run.strategy.scope():
        graph = run.step._train.get_concrete_function(micro_batch).graph
    definition = graph.as_graph_def()
    in_branches = [node.op for function in definition.library.function for node in function.node_def]
    assert not any("Collective" in op for op in in_branches)
    sent = [op.inputs[0].shape.num_elements() for op in graph.get_operations() if op.type == "CollectiveReduceV2"]
    return {
        "num_per_replica": sent,
        "num_weights": run.model.count_params(),
        # The loss, the number of utterances, and two metrics.
        "num_totals": 4,
    }


def judge_errors(messages: list[str]) -> list[bool]:
    """Whether an internal error with each of these messages counts as exhausted memory."""
    return [is_out_of_memory(tf.errors.InternalError(None, None, message)) for message in messages]


def train_with_average(strategy: str, num_steps: int, spoiled: int, jit_compile: bool) -> dict[str, Any]:
    """Averages that the step moved, and the same computed from the weights after each step."""
    made = STRATEGIES[strategy]()
    with made.scope():
        model = make_model()
        optimizer = make_optimizer("adam", model)
    weights = {str(number): weight for number, weight in enumerate(model.trainable_variables)}
    ema = WeightEma(weights, 0.5, made)
    step = TrainStep(
        model, optimizer, compute_loss, made, rate=lambda _step: tf.constant(0.05), ema=ema, jit_compile=jit_compile
    )
    expected = [weight.numpy().astype(np.float64) for weight in weights.values()]
    for number in range(num_steps):
        num_real = 0 if number == spoiled else NUM_ROWS
        numbers = step(cut(made, make_batch(number, num_real), 1), number).read()
        decay = min(0.5, (1 + number) / (10 + number))
        if numbers.is_finite:
            pairs = zip(expected, weights.values(), strict=True)
            expected = [average + (1 - decay) * (weight.numpy() - average) for average, weight in pairs]
    copies = [made.experimental_local_results(average) for average in ema.variables.values()]
    return {
        "averages": [float(value) for average in ema.variables.values() for value in average.numpy().ravel()],
        "expected": [float(value) for average in expected for value in average.ravel()],
        "spread": max(float(tf.reduce_max(tf.abs(copy - several[0]))) for several in copies for copy in several),
    }


def see_numbers(numbers: list[int]) -> list[int]:
    """The number of each step as the loss sees it."""

    def show(model: Any, part: MicroBatch, training: bool, step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        loss, _ = compute_loss(model, part, training, step)
        return loss, {"number": tf.cast(step, tf.float32) * NUM_ROWS}

    run = Run("one device", compute_loss=show)
    return [round(run.train(number, make_batch(number)).metrics["number"]) for number in numbers]


def train_frozen(strategy: str, num_before: int, num_after: int, **options: Any) -> dict[str, Any]:
    """Trains, freezes the first layer and trains on; gives what changed then, and the gradient norms of both kinds."""
    chosen = STRATEGIES[strategy]()
    with chosen.scope():
        model = make_model()
        frozen = model.layers[1].weights
        freezing, optimizer = Freezing(frozen), make_optimizer("adamw", model)
        weights = {str(number): weight for number, weight in enumerate(model.trainable_variables)}
        ema = WeightEma(weights, 0.9, chosen)
    step = TrainStep(
        model,
        optimizer,
        compute_loss,
        chosen,
        rate=lambda _step: tf.constant(0.01),
        ema=ema,
        freezing=freezing,
        **options,
    )

    def read() -> dict[str, list[bytes]]:
        moments = [one.numpy() for name, one in optimizer.named_variables.items() if name != "00000"]
        return {
            name: [weight.numpy().tobytes(), ema.variables[name].numpy().tobytes()]
            + [moment.tobytes() for moment in moments[2 * number : 2 * number + 2]]
            for number, (name, weight) in enumerate(weights.items())
        }

    def train(number: int) -> float:
        micro_batches = cut(chosen, make_batch(number), options.get("accumulation_steps", 1))
        return step(micro_batches, number).read().gradient_norm

    for number in range(num_before):
        train(number)
    before, num_traces = read(), step.num_traces
    # The gradient of the present weights without those that are frozen.
    others = [weight.value for weight in model.trainable_variables if not freezing.includes(weight)]
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(measure_rows(model, make_batch(num_before)))
    expected = float(tf.linalg.global_norm([tf.convert_to_tensor(one) for one in tape.gradient(loss, others)]))
    with chosen.scope():
        freezing.turn_on()
    norms = [train(num_before + number) for number in range(num_after)]
    after = read()
    return {
        "num_frozen": len(frozen),
        "num_weights": len(weights),
        "num_new_traces": step.num_traces - num_traces,
        "unchanged": [name for name in weights if after[name] == before[name]],
        "changed": [name for name in weights if all(map(bytes.__ne__, after[name], before[name]))],
        "norm": norms[0],
        "expected_norm": expected,
    }
