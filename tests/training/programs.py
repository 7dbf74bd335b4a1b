"""Training runs of a tiny model, for a process with logical devices; each returns numbers that a test compares.

Shape legend: B utterances, N tokens, T frames, M mel bands.
"""

from __future__ import annotations

import logging
import math
from contextlib import ExitStack
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python import pywrap_tfe

from myxtts.pipeline.batch import allocate_aligned
from myxtts.pipeline.packed import Packed, pack_copies, unpack
from myxtts.runtime.strategy import setup_gpu_strategy
from myxtts.training.execution import Execution
from myxtts.training.learner import MicroBatchCutter
from myxtts.training.micro_batches import (
    MicroBatch,
    StepInput,
    count_real_utterances,
    distribute_parts,
    enter_device,
    list_replica_devices,
    select_tensors,
    split_rows,
)
from myxtts.training.optimizer import AdamW, Freezing, WeightEma, assign_unless
from myxtts.training.step import StepNumbers, TrainStep, is_out_of_memory
from myxtts.types import Batch

Tensor = Any

NUM_SYMBOLS, WIDTH, NUM_TOKENS, NUM_FRAMES, NUM_BANDS = 11, 6, 5, 7, 4
NUM_ROWS = 8
RATES = {"sgd": 0.3, "adam": 0.02, "adamw": 0.02}
BETAS, DECAY = (0.9, 0.98), 0.1


def make_plain_optimizer(name: str) -> Any:
    """What the optimizers under test are measured by."""
    if name == "sgd":
        return keras.optimizers.SGD(RATES[name])
    decay = DECAY if name == "adamw" else 0.0
    optimizer = keras.optimizers.AdamW(RATES[name], weight_decay=decay, beta_1=BETAS[0], beta_2=BETAS[1])
    if decay:
        optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


class Sgd:
    """Gradient descent with the methods that a step needs: it shows a wrong gradient at once."""

    def __init__(self) -> None:
        self.iterations = tf.Variable(0, dtype=tf.int64, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

    slots = ()

    def make_update(self, _weights: Any) -> Any:
        return self._update

    def _update(
        self,
        iterations: Any,
        weights: Any,
        _slots: Any,
        gradient_P: Tensor,
        rate: Tensor,
        is_skipped: Tensor,
        kept: Any,
    ) -> list[Tensor]:
        iterations.assign_add(tf.cast(~is_skipped, tf.int64))
        parts = tf.split(gradient_P, [math.prod(weight.shape) for weight in weights])
        return [
            assign_unless(is_same, weight, weight - rate * tf.reshape(part, weight.shape), weight.read_value())
            for weight, part, is_same in zip(weights, parts, kept, strict=True)
        ]


def make_optimizer(name: str, model: Any) -> Any:
    if name == "sgd":
        return Sgd()
    weights = {f"{number}.{v.name}": v for number, v in enumerate(model.trainable_variables)}
    return AdamW(weights, DECAY if name == "adamw" else 0.0, betas=BETAS)


STRATEGIES: dict[str, Any] = {
    "default": tf.distribute.get_strategy,
    "one device": lambda: setup_gpu_strategy(visible_gpus="1", device_type="CPU"),
    "mirrored": lambda: setup_gpu_strategy(True, "1,2", device_type="CPU"),
}


def make_model() -> Any:
    """Tokens in, one mean spectrum out; always with the same weights."""
    tokens_BN = keras.Input((NUM_TOKENS,), dtype="int32")
    embedded = keras.layers.Embedding(NUM_SYMBOLS, WIDTH)(tokens_BN)
    hidden = keras.layers.Dense(WIDTH, activation="tanh")(keras.layers.Flatten()(embedded))
    model = keras.Model(tokens_BN, keras.layers.Dense(NUM_BANDS, dtype="float32")(hidden))
    generator = np.random.default_rng(7)
    model.set_weights([generator.normal(0, 0.5, weight.shape) for weight in model.get_weights()])
    return model


def make_batch(
    step: int, num_real: int = NUM_ROWS, num_frames: int = NUM_FRAMES, num_rows: int = NUM_ROWS
) -> MicroBatch:
    """A batch of utterances of many lengths; rows behind `num_real` only fill it."""
    generator = np.random.default_rng(100 + step)
    lengths_B = np.where(np.arange(num_rows) < num_real, generator.integers(1, num_frames + 1, num_rows), 0)
    return {
        "tokens": tf.constant(generator.integers(0, NUM_SYMBOLS, (num_rows, NUM_TOKENS)), tf.int32),
        "mel": tf.constant(generator.normal(0, 1, (num_rows, num_frames, NUM_BANDS)), tf.float32),
        "mel_lengths": tf.constant(lengths_B, tf.int32),
    }


def measure_rows(model: Any, part: MicroBatch) -> Tensor:
    """The loss of each row [B]: the mean over its frames, 0 for a row without any."""
    lengths_B = part["mel_lengths"]
    error_BT = tf.reduce_mean((model(part["tokens"])[:, None] - part["mel"]) ** 2, axis=-1)
    is_real_BT = tf.sequence_mask(lengths_B, tf.shape(error_BT)[1], tf.float32)
    return tf.reduce_sum(error_BT * is_real_BT, axis=1) / tf.cast(tf.maximum(lengths_B, 1), tf.float32)


def compute_loss(model: Any, part: MicroBatch, training: bool, step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    assert training
    loss = tf.reduce_sum(measure_rows(model, part))
    return loss, {"frames": tf.reduce_sum(part["mel_lengths"]), "step": tf.cast(step, tf.float32) * 0 + loss}


def flatten_weights(model: Any) -> list[float]:
    return [float(value) for weight in model.get_weights() for value in weight.ravel()]


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


def cut(strategy: Any, batch: MicroBatch, num_micro_batches: int, is_packed: bool = False) -> list[StepInput]:
    """A whole batch as micro-batches for the replicas of a strategy, each in one piece or as separate tensors."""
    micro_batches: list[StepInput] = []
    for micro_batch in split_rows(batch, num_micro_batches):
        shares = split_rows(micro_batch, strategy.num_replicas_in_sync)
        parts: list[StepInput] = [*shares]
        if is_packed:
            parts = [pack_on(*pair) for pair in zip(list_replica_devices(strategy), shares, strict=True)]
        micro_batches.append(distribute_parts(strategy, parts))
    return micro_batches


class Run:
    """A model, its optimizer and the step under test."""

    def __init__(self, strategy: str, optimizer: str = "sgd", accumulation_steps: int = 1, **options: Any) -> None:
        self.strategy = STRATEGIES[strategy]()
        with self.strategy.scope():
            self.model = make_model()
            self.optimizer = make_optimizer(optimizer, self.model)
        self._options = {"compute_loss": compute_loss, "rate": lambda _step: tf.constant(RATES[optimizer])}
        self.make_step(accumulation_steps=accumulation_steps, **options)

    def make_step(self, **options: Any) -> None:
        self.step = TrainStep(self.model, self.optimizer, strategy=self.strategy, **{**self._options, **options})

    def train(self, step: int, batch: MicroBatch, is_packed: bool = False) -> StepNumbers:
        return self.step(cut(self.strategy, batch, self.step.accumulation_steps, is_packed), step).read()

    @property
    def num_updates(self) -> int:
        return int(self.optimizer.iterations.numpy())


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
        graph = function.get_concrete_function(part).graph
    without_work = ("Placeholder", "Const", "Identity", "NoOp", "PartitionedCall", "StatefulPartitionedCall")
    types = [node.type for node in graph.get_operations()]
    return {
        "outside": [name for name in types if name not in without_work],
        "num_calls": sum(name.endswith("PartitionedCall") for name in types),
        "num_lane_graphs": run.step.compute_piece.experimental_get_tracing_count(),
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


def cut_batch() -> dict[str, Any]:
    numbers = np.arange(6, dtype=np.int32)
    batch = Batch(
        position=0,
        ids=("a", "b", "c", "d", "", ""),
        num_real=4,
        tokens=tf.zeros([6, NUM_TOKENS], tf.int32),
        token_lengths=tf.constant(numbers),
        mel=tf.zeros([6, NUM_FRAMES, NUM_BANDS]),
        mel_lengths=tf.constant([3, 1, 2, 7, 0, 0]),
        speaker=tf.constant(numbers),
        language=tf.constant(numbers),
        reference=tf.zeros([6, 2, NUM_BANDS]),
        reference_lengths=tf.constant(numbers),
    )
    part = select_tensors(batch)
    assert isinstance(part, dict)
    parts = split_rows(part, 3)
    try:
        split_rows(part, 4)
        refusal = ""
    except AssertionError as error:
        refusal = str(error)
    return {
        "names": sorted(part),
        "speakers": [cut_part["speaker"].numpy().tolist() for cut_part in parts],
        "num_real": [int(count_real_utterances(cut_part)) for cut_part in parts],
        "refusal": refusal,
    }


def pack_on(device: str, arrays: dict[str, Any]) -> Packed:
    """The arrays in one piece on a device."""
    arrays = {name: np.asarray(values) for name, values in arrays.items()}
    num_bytes = sum(values.nbytes + 64 for values in arrays.values())
    return pack_copies(arrays, allocate_aligned(num_bytes)).to_device(device)


AWKWARD = np.array([0, 1, 5, 2**31 - 1, -1, -(2**31), 0x7F800001, 0x7FC12345], np.int64).astype(np.int32)
"""Integers that are denormal numbers or NaN of both kinds when their bits are read as floats."""


def cut_packed(strategy: str, num_rows: int, num_cuts: int, jit_compile: bool) -> dict[str, Any]:
    """Micro-batches of a batch in one piece: where they are, which bits they have, and what they cost the host."""
    made = STRATEGIES[strategy]()
    arrays, parts = [], []
    for number, device in enumerate(list_replica_devices(made)):
        labels_BN = np.resize(np.roll(AWKWARD, number), (num_rows, NUM_TOKENS))
        arrays.append(
            {"tokens": labels_BN, "mel": labels_BN[:, :3].copy().view(np.float32), "speaker": labels_BN[:, 0]}
        )
        parts.append(pack_on(device, arrays[-1]))
    cutter = MicroBatchCutter(made, Execution(True, jit_compile, "float32", ()), num_cuts)
    whole = distribute_parts(made, parts)
    cutter(whole)
    micro_batches: list[Any] = []
    num_started = count_started(lambda: micro_batches.extend(cutter(whole)))
    local = [made.experimental_local_results(one.vector) for one in micro_batches]
    found = [
        [unpack(Packed(vectors[number], one.layout)) for one, vectors in zip(micro_batches, local, strict=True)]
        for number in range(len(parts))
    ]
    joined = [{name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]} for pieces in found]
    num_padded = len(joined[0]["speaker"]) - num_rows
    return {
        "devices": [[vector.backing_device.rpartition("/device:")[2] for vector in vectors] for vectors in local],
        "has_same_bits": all(
            (after[name][:num_rows].tobytes(), before[name].dtype) == (before[name].tobytes(), after[name].dtype)
            and not after[name][num_rows:].any()
            for after, before in zip(joined, arrays, strict=True)
            for name in before
        ),
        "num_padded": num_padded,
        "num_started": num_started,
        "is_same": micro_batches[0] is whole,
    }


def compare_packed(strategy: str, accumulation_steps: int, **options: Any) -> list[dict[str, Any]]:
    """The same training on batches in one piece and on separate tensors."""
    results = []
    for is_packed in (False, True):
        run = Run(strategy, "adam", accumulation_steps, **options)
        losses = [
            run.train(step, make_batch(step, num_real), is_packed).loss for step, num_real in enumerate((8, 5, 3))
        ]
        results.append({"losses": losses, "weights": flatten_weights(run.model), "num_traces": run.step.num_traces})
    return results


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


def count_started(run: Any) -> int:
    """Operations that the host starts one by one."""
    num_started = 0

    def count(plain: Any) -> Any:
        def start(*arguments: Any) -> Any:
            nonlocal num_started
            num_started += 1
            return plain(*arguments)

        return start

    names = ("TFE_Py_Execute", "TFE_Py_FastPathExecute")
    with ExitStack() as patched:
        for name in names:
            patched.enter_context(mock.patch.object(pywrap_tfe, name, count(getattr(pywrap_tfe, name))))
        run()
    return num_started


def count_eager_operations(strategy: str, num_cuts: int) -> int:
    """Operations that the host starts for a step, behind the first ones, with the cutting of its batch."""
    run = Run(strategy, "adam", num_cuts)
    wholes = [cut(run.strategy, make_batch(step), 1, is_packed=True)[0] for step in range(3)]
    cutter = MicroBatchCutter(run.strategy, Execution(True, False, "float32", ()), num_cuts)
    for step in (0, 1):
        run.step(cutter(wholes[step]), step)
    return count_started(lambda: run.step(cutter(wholes[2]), 2))


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
