"""The step of `tiny` on the CPU against the usual way: Keras' AdamW, TensorFlow's clipping, an average beside the step.

Both train the same model from the same weights on the same batches, compiled alike and with the same two lanes. The
usual step updates variable by variable, keeps the exponential average in a graph of its own that is not compiled, sets
the learning rate from the host, reads its numbers one by one, and has the gradients of convolutions that TensorFlow
derives.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.alone import QuietMoments
from benchmarks.voice_data import make_config
from myxtts.config.schema import XTTSConfig
from myxtts.pipeline.open import open_batches
from myxtts.runtime.hardware import detect_hardware
from myxtts.runtime.plan import choose_plan
from myxtts.training.voice.data import measure_spec, open_training_data

if TYPE_CHECKING:
    from myxtts.training.voice.learner import Learner

_NUM_BATCHES = 4
_NUM_COMPARED_STEPS = 50
_NUM_STEPS_PER_BLOCK, _NUM_BLOCKS = 4, 9
_NUM_STEPS = 1000
_PATIENCE_S = 120.0


def race_steps(folder: str) -> dict[str, float]:
    """Seconds of both steps, their ratio, and how far their losses are apart over the first steps."""
    import tensorflow as tf

    config = make_config(folder)
    with open_batches(config, steps=_NUM_BATCHES) as feed:
        # Copies: the feed fills the memory of its batches again.
        parts = [{name: np.array(tensor) for name, tensor in batch.arrays().items()} for batch in feed]
    parts = [{name: tf.constant(array) for name, array in part.items()} for part in parts]
    ours = _OurStep(make_learner(config))
    usual = UsualStep(make_learner(config, sums_by_row=False), config)
    batches = list(islice(cycle(parts), _NUM_COMPARED_STEPS))
    losses = [[step(part, number) for number, part in enumerate(batches)] for step in (ours, usual)]
    furthest = max(abs(one - other) / max(1.0, abs(other)) for one, other in zip(*losses, strict=True))
    blocks = _run_blocks({"ours": ours, "usual": usual}, parts)
    return {
        "ratio": median(block["usual"] / block["ours"] for block in blocks),
        "difference": furthest,
        **{name: median(block[name] for block in blocks) for name in ("ours", "usual")},
        "first_loss": losses[0][0],
        "last_loss": losses[0][-1],
    }


def _run_blocks(steps: Mapping[str, Callable[[Any, int], float]], parts: Sequence[Any]) -> list[dict[str, float]]:
    """Seconds of a step in each block; every other block runs in reverse."""
    quiet, blocks = QuietMoments(_PATIENCE_S), []
    for block in range(_NUM_BLOCKS):
        seconds = {}
        for name in list(steps)[:: 1 if block % 2 else -1]:
            quiet.wait()
            started = time.perf_counter()
            for number in range(_NUM_STEPS_PER_BLOCK):
                steps[name](parts[number % len(parts)], _NUM_COMPARED_STEPS + number)
            seconds[name] = (time.perf_counter() - started) / _NUM_STEPS_PER_BLOCK
        blocks.append(seconds)
    return blocks


def make_learner(
    config: XTTSConfig, strategy: Any = None, num_lanes: int | None = None, sums_by_row: bool = True
) -> Learner:
    """A learner in float32, compiled; by default as this machine's processor trains."""
    import tensorflow as tf

    from myxtts.training.execution import LANES_ON_CPU, Execution
    from myxtts.training.voice.learner import build_learner

    plan = choose_plan(config, detect_hardware())
    data = open_training_data(config, plan)
    execution = Execution(True, True, "float32", (), num_lanes or LANES_ON_CPU, sums_by_row=sums_by_row)
    strategy, spec = strategy or tf.distribute.get_strategy(), measure_spec(config, plan, data)
    return build_learner(config, plan, spec, data, execution, strategy, total_steps=_NUM_STEPS)


class _OurStep:
    """The step of this product."""

    def __init__(self, learner: Learner) -> None:
        self._step = learner.train_step

    def __call__(self, part: dict[str, Any], number: int) -> float:
        return float(self._step([part], number).read().loss)


class UsualStep:
    """A step as it is usually written with Keras and `tf.function`, on the model of a learner."""

    def __init__(self, learner: Learner, config: XTTSConfig) -> None:
        import keras
        import tensorflow as tf

        from myxtts.training.execution import LANES_ON_CPU
        from myxtts.training.voice.learner import _TABLES, BETAS

        training = config.training
        self._tf, self._num_lanes = tf, LANES_ON_CPU
        self._model, self._loss, self._rate = learner.model, learner._loss, learner.rate
        self._weights = self._model.trainable_variables
        names = {id(weight): name for name, weight in self._model.named_weights().items()}
        self._optimizer = keras.optimizers.AdamW(
            1.0, weight_decay=training.weight_decay, beta_1=BETAS[0], beta_2=BETAS[1], epsilon=1e-7
        )
        plain = [weight for weight in self._weights if len(weight.shape) < 2 or names[id(weight)].startswith(_TABLES)]
        self._optimizer.exclude_from_weight_decay(var_list=plain)
        self._optimizer.build(self._weights)
        self._clip_norm, self._decay = training.clip_norm, training.ema_decay
        self._averages = [tf.Variable(weight.value, trainable=False) for weight in self._weights]
        self._compute = tf.function(self._compute_gradients, autograph=False, jit_compile=True)
        self._apply = tf.function(self._apply_gradients, autograph=False, jit_compile=True)
        self._train = tf.function(self._train_on, autograph=False)
        self._move = tf.function(self._move_averages, autograph=False)

    def __call__(self, part: dict[str, Any], number: int) -> float:
        tf = self._tf
        self._optimizer.learning_rate.assign(self._rate.at(number))
        lanes = [{} for _ in range(self._num_lanes)]  # type: list[dict[str, Any]]
        for name, tensor in part.items():
            size = tensor.shape[0] // self._num_lanes
            for place, lane in enumerate(lanes):
                lane[name] = tensor[place * size :][:size]
        numbers = self._train(lanes, tf.constant(number, tf.int64))
        self._move(tf.constant(min(self._decay, (1 + number) / (10 + number))))
        loss, *_ = [float(value.numpy()) for value in numbers]
        return loss

    def _train_on(self, lanes: list[dict[str, Any]], step: Any) -> list[Any]:
        tf = self._tf
        computed = [self._compute(lane, step) for lane in lanes]
        num_real = tf.add_n([count for _, _, count, _ in computed])
        gradients = [tf.add_n(several) / num_real for several in zip(*(one[0] for one in computed), strict=True)]
        loss = tf.add_n([total for _, total, _, _ in computed]) / num_real
        norm = tf.linalg.global_norm(gradients)
        if self._clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self._clip_norm, norm)
        tf.cond(tf.math.is_finite(norm) & tf.math.is_finite(loss), lambda: self._apply(gradients), lambda: None)
        terms = [tf.add_n(list(several)) / num_real for several in zip(*(one[3] for one in computed), strict=True)]
        return [loss, norm, num_real, *terms]

    def _compute_gradients(self, part: dict[str, Any], step: Any) -> tuple[list[Any], Any, Any, list[Any]]:
        tf = self._tf
        values = [weight.value for weight in self._weights]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            loss, terms = self._loss(self._model, part, True, step)
        gradients = tape.gradient(loss, values, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        num_real = tf.math.count_nonzero(part["mel_lengths"], dtype=tf.float32)
        return [tf.convert_to_tensor(one) for one in gradients], loss, num_real, list(terms.values())

    def _apply_gradients(self, gradients: list[Any]) -> None:
        self._optimizer.apply(gradients, self._weights)

    def _move_averages(self, decay: Any) -> None:
        for average, weight in zip(self._averages, self._weights, strict=True):
            average.assign(decay * average + (1 - decay) * weight.value)
