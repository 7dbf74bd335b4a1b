"""Pipelines with one known fault each, and the same pipelines without it.

Where no Python shall run, waiting is done by TensorFlow's own sleeping dataset.
Shape legend: B rows, T frames, M bands.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.experimental.ops import testing

from myxtts.tools.diagnose.dataset_probe import DatasetSource
from myxtts.tools.diagnose.examine import Diagnosis, diagnose_dataset
from myxtts.tools.diagnose.findings import Cause
from myxtts.tools.diagnose.from_dataset import EmulatedStep
from myxtts.tools.diagnose.timing import Comparison, Limits, Work, compare_in_turn, run_together
from myxtts.tools.emulate import StepTime

B, T, M = 8, 100, 40
STEP_S = 0.012


@dataclass(frozen=True)
class Plant:
    """A faulty pipeline, and what it is when the first advice was followed."""

    cause: Cause
    make: Callable[[], Any]
    make_cured: Callable[[], Any]
    step: Work
    cured_step: Work
    transfer: Work | None = None
    other_cures: dict[str, Callable[[], Any]] = field(default_factory=dict)
    """By the reason of an advice that may come first instead, as on a machine without a free core."""

    def diagnose(self, num_batches: int = 40, time_limit_s: float = 10.0) -> Diagnosis:
        is_emulated = isinstance(self.step, EmulatedStep)
        return diagnose_dataset(
            self.make(),
            step_s=self.step.step_time if isinstance(self.step, EmulatedStep) else None,
            step=None if is_emulated else self.step,
            transfer=self.transfer,
            num_batches=num_batches,
            time_limit_s=time_limit_s,
        )

    def measure_gain(self, diagnosis: Diagnosis, num_rounds: int = 3) -> Comparison:
        """What following the first advice gains, old and new in turn."""
        reason = diagnosis.first.advice[0].reason if diagnosis.first.advice else ""
        old, new = self.make(), self.other_cures.get(reason, self.make_cured)()
        limits = Limits(30, 8.0)
        return compare_in_turn(
            lambda: run_together(DatasetSource(old), self.step, self.transfer, limits),
            lambda: run_together(DatasetSource(new), self.cured_step, None, limits),
            num_rounds,
        )


def nap(dataset: Any, seconds: float) -> Any:
    """Delays every element, without Python."""
    return dataset.apply(testing.sleep(int(seconds * 1e6)))


def nap_by(dataset: Any, find_seconds: Callable[[Any], Any]) -> Any:
    """Delays every element of a dataset of numbers by what a function of it says, in seconds."""

    def delay(number: Any) -> Any:
        micros = tf.cast(find_seconds(number) * 1e6, tf.int64)
        return tf.data.Dataset.from_tensors(number).apply(testing.sleep(micros)).take(1)

    return dataset.flat_map(delay)


def draw_rows(number: Any) -> Any:
    """A batch of noise [B, T, M]."""
    return tf.random.stateless_normal([B, T, M], tf.stack([number, 1]))


def rest(seconds: float) -> EmulatedStep:
    return EmulatedStep(StepTime(seconds))


def make_batches(nap_s: float, prefetch: int = 4) -> Any:
    dataset = nap(tf.data.Dataset.range(1_000_000), nap_s).map(draw_rows)
    return dataset.prefetch(prefetch) if prefetch else _without_injection(dataset)


def _without_injection(dataset: Any) -> Any:
    """As it is written: newer versions of TensorFlow put a prefetch behind it by themselves."""
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    options.autotune.enabled = False
    return dataset.with_options(options)


def plant(cause: Cause, faulty: Callable[[], Any], cured: Callable[[], Any], step: Work | None = None) -> Plant:
    work = step or rest(STEP_S)
    return Plant(cause, faulty, cured, work, work)


# Python in the graph.


def compute_mel(wave: Any) -> Any:
    import librosa
    from threadpoolctl import threadpool_limits

    # With more threads it spins, and takes twice or ten times as long as chance will have it.
    with threadpool_limits(1):
        mel = librosa.feature.melspectrogram(y=wave, sr=22050, n_fft=1024, hop_length=256, n_mels=M)
    return np.log(np.maximum(mel, 1e-5)).T.astype(np.float32)


def draw_wave(number: Any) -> Any:
    return tf.random.stateless_normal([22050], tf.stack([number, 2]))


def librosa_in_numpy_function() -> Plant:
    def make() -> Any:
        waves = tf.data.Dataset.range(100_000).map(draw_wave)
        mels = waves.map(lambda wave: tf.ensure_shape(tf.numpy_function(compute_mel, [wave], tf.float32), [None, M]))
        return mels.batch(4).prefetch(4)

    def make_cured() -> Any:
        stored = tf.random.stateless_normal([64, 87, M], [1, 2])
        return tf.data.Dataset.from_tensor_slices(stored).repeat().batch(4).prefetch(4)

    return plant(Cause.PYTHON_FUNCTIONS, make, make_cured)


def count_slowly(number: Any) -> Any:
    total = 0
    for place in range(60_000):
        total += place & 3
    return tf.cast(number, tf.float32) + 0 * float(total)


def loop_in_py_function() -> Plant:
    def make() -> Any:
        numbers = tf.data.Dataset.range(100_000)
        numbers = numbers.map(lambda n: tf.reshape(tf.py_function(count_slowly, [n], tf.float32), []))
        return numbers.batch(B).map(lambda n_B: n_B[:, None] + tf.random.normal([1, T])).prefetch(4)

    def make_cured() -> Any:
        numbers = tf.data.Dataset.range(100_000).map(lambda n: tf.cast(n, tf.float32))
        return numbers.batch(B).map(lambda n_B: n_B[:, None] + tf.random.normal([1, T])).prefetch(4)

    return plant(Cause.PYTHON_FUNCTIONS, make, make_cured)


def generate_slowly() -> Iterator[Any]:
    generator = np.random.default_rng(0)
    while True:
        time.sleep(0.004)
        yield generator.normal(size=(T, M)).astype(np.float32)


def python_generator() -> Plant:
    def make() -> Any:
        spec = tf.TensorSpec([T, M], tf.float32)
        return tf.data.Dataset.from_generator(generate_slowly, output_signature=spec).batch(B).prefetch(4)

    def make_cured() -> Any:
        stored = tf.random.stateless_normal([64, T, M], [1, 2])
        return tf.data.Dataset.from_tensor_slices(stored).repeat().batch(B).prefetch(4)

    return plant(Cause.PYTHON_FUNCTIONS, make, make_cured)


# Reading.


def write_files(folder: Path, num_files: int, num_bytes: int) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(num_files):
        (folder / f"{number:04}.raw").write_bytes(np.random.default_rng(number).bytes(num_bytes))
    return sorted(str(path) for path in folder.iterdir())


def _decode_rows(content: Any) -> Any:
    return tf.cast(tf.io.decode_raw(content, tf.int16), tf.float32)


def slow_reads(folder: Path, num_bytes: int, delay_s: float) -> Plant:
    paths = write_files(folder, 32, num_bytes)

    def read_slowly(path: Any) -> Any:
        return nap(tf.data.Dataset.from_tensors(path), delay_s).map(tf.io.read_file)

    def make(num_threads: int) -> Any:
        files = tf.data.Dataset.from_tensor_slices(paths).repeat()
        contents = files.interleave(read_slowly, cycle_length=num_threads, num_parallel_calls=num_threads)
        return contents.map(_decode_rows).batch(B).prefetch(4)

    return plant(Cause.SLOW_READS, lambda: make(1), lambda: make(16))


# Rate, buffer, bursts.


def sort_much(number: Any) -> Any:
    values = tf.random.stateless_normal([20_000], tf.stack([number, 3]))
    for _ in range(3):
        values = tf.sort(tf.cumsum(values) % 1.7)
    return tf.reshape(values, [200, 100])


def one_thread() -> Plant:
    def make(num_threads: int | None) -> Any:
        numbers = tf.data.Dataset.range(100_000)
        return numbers.map(sort_much, num_parallel_calls=num_threads).batch(4).prefetch(4)

    def make_cached() -> Any:
        return make(2).take(16).cache().repeat().prefetch(4)

    step = rest(0.004)
    return Plant(
        Cause.RATE_DEFICIT, lambda: make(None), lambda: make(2), step, step, other_cures={"cache": make_cached}
    )


def no_prefetch() -> Plant:
    return plant(Cause.NO_OVERLAP, lambda: make_batches(0.009, prefetch=0), lambda: make_batches(0.009, prefetch=16))


def buffer_of_one_with_bursts() -> Plant:
    return _make_bursts(every=10, short_s=0.003, long_s=0.075, prefetch=1)


def rare_bursts() -> Plant:
    return _make_bursts(every=16, short_s=0.001, long_s=0.100, prefetch=2)


def _make_bursts(every: int, short_s: float, long_s: float, prefetch: int) -> Plant:
    def make(depth: int) -> Any:
        numbers = tf.data.Dataset.range(1_000_000)
        delayed = nap_by(numbers, lambda n: tf.where(n % every == every - 1, long_s, short_s))
        return delayed.map(draw_rows).prefetch(depth)

    return plant(Cause.BURSTS, lambda: make(prefetch), lambda: make(16))


# Epochs.


def epoch_end_rebuild() -> Plant:
    def make_epoch() -> Any:
        numbers = tf.data.Dataset.range(14)
        return nap_by(numbers, lambda n: tf.where(n == 0, 0.110, 0.002)).map(draw_rows)

    return plant(Cause.EPOCH_END, lambda: make_epoch().prefetch(2), lambda: make_epoch().repeat().prefetch(16))


def shuffle_refill() -> Plant:
    def make_epoch() -> Any:
        numbers = nap(tf.data.Dataset.range(96), 0.0012)
        return numbers.shuffle(96).map(lambda n: tf.random.stateless_normal([T, M], tf.stack([n, 1]))).batch(B)

    return plant(Cause.EPOCH_END, lambda: make_epoch().prefetch(2), lambda: make_epoch().repeat().prefetch(16))
