"""A profile finds the times that were planted, and its page shows them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import keras
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tests.device_process import DeviceProcess
from tests.outline import Outline

from myxtts.errors import DataError
from myxtts.tools.charts import Flame, draw_flame
from myxtts.tools.profile.page import make_op_flame, make_profile_page
from myxtts.tools.profile.parts import measure_ops, measure_parts
from myxtts.tools.profile.result import (
    Compilation,
    DataLoading,
    OpTime,
    PartTimes,
    SavingTimes,
    Spread,
    StepCounts,
    StepSample,
    TrainingProfile,
)
from myxtts.tools.words import Translator
from myxtts.training.run.folder import describe_environment
from myxtts.training.step import TrainStep

FORWARD_S, BACKWARD_S, OPTIMIZER_S = 0.03, 0.06, 0.04


class SlowOptimizer:
    def __init__(self) -> None:
        self.iterations = tf.Variable(0, dtype=tf.int64)

    slots = ()

    def make_update(self, _weights: Any) -> Any:
        def update(_iterations: Any, weights: Any, *_: Any) -> Any:
            time.sleep(OPTIMIZER_S)
            return weights

        return update


class PlantedLearner:
    """A step whose parts take a known time each, run eagerly so that they can sleep."""

    def __init__(self, num_micro_batches: int) -> None:
        self._model = keras.layers.Dense(1)
        self._model.build((None, 2))
        self.micro_batches = SimpleNamespace(accumulation=num_micro_batches)
        self.train_step = TrainStep(
            self._model,
            SlowOptimizer(),
            self._loss,
            tf.distribute.get_strategy(),
            rate=lambda _step: tf.constant(0.1),
            graph=False,
            count_real=lambda part: tf.shape(part["x"])[0],
        )

    def cut(self, batches: Sequence[Any]) -> list[dict[str, Any]]:
        return [{"x": batches[0]}] * self.micro_batches.accumulation

    def _loss(self, model: Any, part: dict[str, Any], training: bool, _step: Any) -> tuple[Any, dict[str, Any]]:
        assert training

        @tf.custom_gradient
        def compute(x: Any) -> tuple[Any, Any]:
            time.sleep(FORWARD_S)

            def differentiate(upstream: Any) -> Any:
                time.sleep(BACKWARD_S)
                return upstream * tf.ones_like(x)

            return tf.identity(x), differentiate

        return tf.reduce_sum(compute(model(part["x"]))), {}

    def train(self, batches: Sequence[Any], _step: int) -> None:
        for _ in self.cut(batches):
            time.sleep(FORWARD_S + BACKWARD_S)
        time.sleep(OPTIMIZER_S)


@pytest.mark.parametrize("num_micro_batches", [1, 2])
def test_the_parts_of_a_step_take_what_was_planted(num_micro_batches: int) -> None:
    learner: Any = PlantedLearner(num_micro_batches)
    times = measure_parts(learner, [tf.ones([3, 2])], "3x2", num_repeats=3)
    assert times.forward_s >= num_micro_batches * FORWARD_S
    # A difference of two medians: what disturbs one of them may take from it.
    assert times.backward_s > num_micro_batches * BACKWARD_S / 2
    assert times.optimizer_s >= OPTIMIZER_S
    assert times.whole_s >= num_micro_batches * (FORWARD_S + BACKWARD_S) + OPTIMIZER_S
    assert times.shape == "3x2"


def test_a_step_is_taken_apart_on_several_devices_and_compiled(devices: DeviceProcess) -> None:
    for strategy in ("one device", "mirrored"):
        times = devices.run(
            "tests.tools.profile_programs:take_apart", strategy=strategy, accumulation_steps=2, jit_compile=True
        )
        assert min(times["whole"], times["forward"], times["optimizer"]) > 0
        # Three rounds of a whole step and of the optimiser alone.
        assert times["updates"] == 6
        # A toy model has few kernels. On several devices they cannot be read from the compiler.
        assert (4 < times["kernels"] < 200) == (strategy == "one device")


def test_the_slow_operation_of_a_dataset_is_found() -> None:
    def square(x: Any) -> Any:
        return tf.reduce_sum(tf.linalg.matmul(tf.fill([200, 200], tf.cast(x, tf.float32)), tf.ones([200, 200])))

    dataset = tf.data.Dataset.range(60).map(square, num_parallel_calls=2).batch(5).prefetch(3)
    ops = measure_ops(dataset, 8)
    slowest = max(ops, key=lambda op: op.own_ms)
    assert "Map" in slowest.name
    assert slowest.parallelism == 2
    assert [op.level for op in ops] == list(range(len(ops)))
    first, last = ops[0], ops[-1]
    assert (first.name, first.buffer_size, first.num_elements) == ("Prefetch", 3, 8)
    assert last.name == "Range"
    with pytest.raises(DataError, match="empty"):
        measure_ops(tf.data.Dataset.range(0), 3)


def make_profile(**changes: Any) -> TrainingProfile:
    steps = tuple(StepSample(number, ("8x200x40", "4x400x80")[number % 2], 0.001, 0.05) for number in range(1, 7))
    ops = (
        OpTime("Prefetch", 0, 0.1, 6, 1, None, 2, 1.5),
        OpTime("ParallelMapV2", 1, 9.0, 6, 0, 2, None, 1.5),
        OpTime("TensorSlice", 2, 0.02, 8, 0, None, None, 0.1),
    )
    profile = TrainingProfile(
        mode="graph",
        num_parameters=4_300_000,
        steps=steps,
        data=DataLoading("native", Spread.of([0.001] * 6), Spread.of([0.09, 0.095]), {}, 3.0, 0.98, 0.2, 2, 50.0),
        parts=PartTimes("8x200x40", 0.05, 0.015, 0.025, 0.007),
        counts=StepCounts(1.0, 0.0, 2.0, 1.0, 3200, 12, 2, 0, num_kernels=1450.0),
        saving=SavingTimes(0.5, 1.0, 100, 0.004, 10),
        ops=ops,
        no_ops_reason="",
        compilations=(Compilation("8x200x40", 12.5, None, False), Compilation("4x400x80", 9.5, 3, False)),
    )
    return replace(profile, **changes)


def test_stages_add_up_to_an_average_step() -> None:
    stages = dict(make_profile().list_stages())
    assert stages["data_wait"] == pytest.approx(0.001)
    assert stages["checkpoint"] == pytest.approx(0.005)
    assert stages["logging"] == pytest.approx(0.0004)
    assert stages["rest"] == pytest.approx(0.05 - 0.047)
    assert sum(stages.values()) == pytest.approx(0.05 + 0.001 + 0.0054)


@pytest.mark.parametrize(
    ("mean_s", "au", "rating"),
    [(0.05, 1.0, "good"), (0.09, 1.0, "moderate"), (0.09, 0.5, "slow"), (0.2, 1.0, "moderate")],
)
def test_loading_is_judged_by_the_step_that_waits_for_it(mean_s: float, au: float, rating: str) -> None:
    # Two threads load, and a step takes 50 ms.
    steady = replace(make_profile().data, load=Spread.of([mean_s, 1.1 * mean_s]), au=au)
    assert (steady.rating, steady.is_stable) == (rating, True)
    assert not replace(steady, load=Spread.of([mean_s, 2 * mean_s])).is_stable


def test_the_result_is_plain_json() -> None:
    result = json.loads(json.dumps(make_profile().to_json()))
    assert result["num_retraces"] == 1
    assert result["data_loading"]["rating"] == "moderate"
    assert set(result["shapes"]) == {"4x400x80", "8x200x40"}
    assert result["parts"]["sum_s"] == pytest.approx(0.047)
    assert result["counts"]["num_kernels"] == 1450
    assert result["counts"]["num_eager_ops"] == 1


def test_operations_are_as_wide_as_all_they_wait_for() -> None:
    flame = make_op_flame(make_profile().ops, Translator("en"))
    (prefetch,) = flame.children
    assert prefetch.value == pytest.approx(9.12)
    assert [child.label for child in prefetch.children] == ["ParallelMapV2"]
    branches = (OpTime("Zip", 0, 1.0, 1, 0, None, None, 0), *(OpTime("Range", 1, 2.0, 1, 0, None, None, 0),) * 2)
    assert len(make_op_flame(branches, Translator("en")).children[0].children) == 2


@given(st.lists(st.floats(0.0, 100.0), max_size=6), st.floats(0.1, 100.0))
def test_bars_stay_inside_the_bar_above_them(values: list[float], whole: float) -> None:
    picture = draw_flame(Flame("whole", whole, [Flame("part", value) for value in values]), str)
    assert 'viewBox="0 0 1000 ' in picture
    bars = [tuple(map(float, bar)) for bar in re.findall(r'x="([\d.]+)" y="\d+" width="([\d.]+)"', picture)]
    assert bars[0] == (0.0, 999.0)
    assert all(start >= 0 and start + width <= 1000.2 for start, width in bars)
    assert all(left[0] + left[1] <= right[0] + 0.2 for left, right in pairwise(bars[1:]))
    Outline(picture)


@pytest.fixture(scope="module")
def machine() -> dict[str, Any]:
    return describe_environment(["myxtts", "profile"])


def test_page_is_whole_and_shows_every_stage(machine: dict[str, Any]) -> None:
    page = make_profile_page(make_profile(trace_dir="<traces>"), machine, Translator()).render()
    outline = Outline(page)
    # Two flames and the curves of the steps.
    assert outline.count["svg"] == 2
    stages = ("forward", "backward", "optimiser", "checkpoint")
    for text in (*stages, "moderate, stable", "ParallelMapV2", "step 3", "copies to the device"):
        assert text in outline.text
    assert "share of time not waiting for data" in outline.text
    assert "together they took 47.0 ms, the whole step 50.0 ms" in outline.text
    assert "<traces>" not in page
    assert "Look at it with xprof" in outline.text


def test_busy_time_of_a_gpu_is_shown_as_its_utilisation(machine: dict[str, Any]) -> None:
    profile = make_profile(counts=replace(make_profile().counts, device_busy=0.31))
    text = Outline(make_profile_page(profile, machine, Translator()).render()).text
    assert "31.0 %" in text
    assert "time in which the GPU ran kernels" in text


def test_the_table_of_graphs_has_its_own_heading(machine: dict[str, Any]) -> None:
    text = Outline(make_profile_page(make_profile(), machine, Translator()).render()).text
    for column in ("Seconds", "Kind", "When"):
        assert column in text


def test_a_profile_without_graphs_or_operations_gets_a_page_too(machine: dict[str, Any]) -> None:
    plain = make_profile(ops=(), no_ops_reason="no_ops_stored", compilations=(), mode="eager")
    outline = Outline(make_profile_page(plain, machine, Translator("en")).render())
    assert "read without tf.data" in outline.text
    assert "no graph is traced" in outline.text


def test_persian_page_reads_from_right_to_left(machine: dict[str, Any]) -> None:
    outline = Outline(make_profile_page(make_profile(), machine, Translator("fa")).render())
    for text in ("به تفکیک مرحله", "چک‌پوینت", "optimizer", "کارایی بارگذاری داده", "۴٫۳۰", "ParallelMapV2"):
        assert text in outline.text
    assert "checkpoint" not in outline.text
