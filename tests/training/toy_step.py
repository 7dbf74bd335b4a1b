"""A tiny model with its data and optimizers, and a training step of it, for processes with logical devices.

Shape legend: B utterances, N tokens, T frames, M mel bands.
"""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from myxtts.pipeline.batch import allocate_aligned
from myxtts.pipeline.packed import Packed, pack_copies
from myxtts.runtime.strategy import setup_gpu_strategy
from myxtts.training.micro_batches import (
    MicroBatch,
    StepInput,
    distribute_parts,
    list_replica_devices,
    split_rows,
)
from myxtts.training.optimizer import AdamW, assign_unless
from myxtts.training.step import StepNumbers, TrainStep

Tensor = Any

NUM_SYMBOLS, WIDTH, NUM_TOKENS, NUM_FRAMES, NUM_BANDS = 11, 6, 5, 7, 4
NUM_ROWS = 8
RATES = {"sgd": 0.3, "adam": 0.02, "adamw": 0.02, "pulled": 0.02}
BETAS, DECAY, PULL = (0.9, 0.98), 0.1, 5.0


def make_plain_optimizer(name: str) -> Any:
    """What the optimizers under test are measured by."""
    if name == "sgd":
        return keras.optimizers.SGD(RATES[name])
    decay = DECAY if name == "adamw" else 0.0
    optimizer = keras.optimizers.AdamW(RATES[name], weight_decay=decay, beta_1=BETAS[0], beta_2=BETAS[1])
    if decay:
        optimizer.exclude_from_weight_decay(var_names=["bias"])
    return PulledPlainly(optimizer) if name == "pulled" else optimizer


class PulledPlainly:
    """An optimizer of Keras whose weights are first moved towards where they were at the first update."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer, self._starts = optimizer, list[Any]()

    def apply(self, gradients: Any, variables: Any) -> None:
        self._starts = self._starts or [variable.numpy() for variable in variables]
        for variable, start in zip(variables, self._starts, strict=True):
            variable.assign(variable - RATES["pulled"] * PULL * (variable - start))
        self._optimizer.apply(gradients, variables)


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
    decay, pull = DECAY if name == "adamw" else 0.0, PULL if name == "pulled" else 0.0
    optimizer = AdamW(weights, decay, betas=BETAS, pull=pull)
    optimizer.note_start()
    return optimizer


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


def pack_on(device: str, arrays: dict[str, Any]) -> Packed:
    """The arrays in one piece on a device."""
    arrays = {name: np.asarray(values) for name, values in arrays.items()}
    num_bytes = sum(values.nbytes + 64 for values in arrays.values())
    return pack_copies(arrays, allocate_aligned(num_bytes)).to_device(device)
