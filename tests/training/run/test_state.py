"""Variables become named arrays and come back bit by bit, whatever they lie on, and a mismatch is named."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.device_process import DeviceProcess

from myxtts.errors import DataError
from myxtts.storage.tensor_file import DTYPES, Array
from myxtts.training.run.state import (
    Progress,
    TrainingState,
    name_variables,
    number_variables,
    select_group,
    select_synthesis_weights,
)


@dataclass
class FakeVariable:
    """What is needed of a variable, without TensorFlow."""

    path: str
    array: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> str:
        return str(self.array.dtype.name)

    def numpy(self) -> Array:
        return self.array

    def assign(self, value: Array) -> None:
        assert (value.shape, value.dtype) == (self.array.shape, self.array.dtype)
        self.array = value.copy()


PARTS = st.sampled_from(["dense", "dense_1", "dense_17", "norm", "norm_2", "block_1_2", "kernel", "bias", "a_1"])
PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)


@st.composite
def variables(draw: st.DrawFn, path: str) -> FakeVariable:
    dtype = draw(st.sampled_from([dtype for dtype in DTYPES.values() if dtype != np.bool_]))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    num_bytes = int(np.prod(shape)) * dtype.itemsize
    raw = draw(st.binary(min_size=num_bytes, max_size=num_bytes))
    return FakeVariable(path, np.frombuffer(raw, dtype).reshape(shape))


@st.composite
def groups(draw: st.DrawFn) -> dict[str, dict[str, FakeVariable]]:
    model = name_variables([draw(variables(f"xtts/{path}")) for path in draw(st.lists(PATHS, max_size=6))])
    average = {name: replace(variable, array=variable.array.copy()) for name, variable in model.items()}
    optimizer = number_variables([draw(variables("adamw/same")) for _ in range(draw(st.integers(0, 4)))])
    return {"model": model, "average": average, "optimizer": optimizer}


@given(groups())
def test_every_bit_comes_back(groups: dict[str, dict[str, FakeVariable]]) -> None:
    state = TrainingState(groups)
    everything = [variable for named in groups.values() for variable in named.values()]
    saved = {name: array.copy() for name, array in state.collect().items()}
    assert len(saved) == len(everything)
    before = [variable.array.tobytes() for variable in everything]
    for variable in everything:
        variable.array = np.zeros_like(variable.array)
    state.restore(saved)
    assert [variable.array.tobytes() for variable in everything] == before


@given(st.lists(PATHS, max_size=12), st.integers(1, 50))
def test_names_are_unique_and_do_not_depend_on_what_was_made_before(paths: list[str], offset: int) -> None:
    """A second model in a process has higher numbers in its names, in the same order."""

    def shift(path: str) -> str:
        return re.sub(r"_(\d+)(?=/|$)", lambda number: f"_{int(number[1]) + offset}", path)

    first = [FakeVariable(f"xtts/{path}", np.zeros(1)) for path in paths]
    second = [FakeVariable(f"xtts_9/{shift(path)}", np.zeros(1)) for path in paths]
    names = name_variables(first)
    assert [id(variable) for variable in names.values()] == [id(variable) for variable in first]
    assert list(name_variables(second)) == list(names)


def test_names_are_readable() -> None:
    paths = ["xtts_3/text/dense_7/kernel", "xtts_3/text/dense_7/bias", "xtts_3/text/dense_8/kernel", "xtts_3/text/x:0"]
    found = name_variables([FakeVariable(path, np.zeros(1)) for path in paths])
    assert list(found) == ["text/dense/kernel", "text/dense/bias", "text/dense_1/kernel", "text/x"]


def make_state() -> tuple[TrainingState, list[FakeVariable]]:
    kernel, bias = FakeVariable("m/kernel", np.ones((2, 3), np.float32)), FakeVariable("m/bias", np.ones(3, np.float32))
    average = FakeVariable("", np.full((2, 3), 2, np.float32))
    count = FakeVariable("adamw/iterations", np.array(5, np.int64))
    groups = {
        "model": name_variables([kernel, bias]),
        "average": {"kernel": average},
        "optimizer": number_variables([count]),
    }
    return TrainingState(groups), [kernel, bias, average, count]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model/bias": None}, "model/bias is missing"),
        ({"model/bias": np.ones(4, np.float32)}, r"model/bias has the shape \[4\] instead of \[3\]"),
        ({"model/bias": np.ones(3, np.float64)}, "model/bias is of type float64 instead of float32"),
        ({"model/other": np.ones(3, np.float32)}, "model/other is not known"),
        ({"optimizer/00000": None}, r"optimizer/00000 \(adamw/iterations\) is missing"),
        ({"optimizer/00000": np.array(5, np.int32)}, "int32 instead of int64"),
        ({"average/kernel": np.ones((3, 2), np.float32)}, "average/kernel has the shape"),
    ],
)
def test_a_mismatch_is_named_and_changes_nothing(change: dict[str, Array | None], words: str) -> None:
    state, variables = make_state()
    arrays = {name: array + np.ones((), array.dtype) for name, array in state.collect().items()}
    wrong = {name: array for name, array in {**arrays, **change}.items() if array is not None}
    before = [variable.array.tobytes() for variable in variables]
    with pytest.raises(DataError, match=words):
        state.restore(wrong)
    assert [variable.array.tobytes() for variable in variables] == before
    state.restore(arrays)
    assert variables[-1].array == 6


def test_a_model_speaks_with_its_averages() -> None:
    state, _ = make_state()
    weights = select_synthesis_weights(state.collect())
    assert {name: float(array.flat[0]) for name, array in weights.items()} == {"kernel": 2.0, "bias": 1.0}
    assert list(select_group(state.collect(), "optimizer")) == ["00000"]


PROGRESS = Progress(
    step=12,
    feed_position=40,
    num_skipped=1,
    best_step=10,
    best_score=1 / 3,
    micro_batch_size=8,
    accumulation=4,
    tuning={"batch_size": 32, "buffer": [1, 2.5]},
    guard={"losses": [0.1, 0.2]},
)


@pytest.mark.parametrize("progress", [Progress(), PROGRESS])
def test_progress_comes_back_through_json(progress: Progress) -> None:
    assert Progress.from_json(json.loads(json.dumps(progress.to_json()))) == progress


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", -1),
        ("step", None),
        ("step", 1.5),
        ("step", True),
        ("feed_position", "3"),
        ("best_score", float("nan")),
        ("tuning", []),
        ("accumulation", -2),
    ],
)
def test_progress_that_makes_no_sense_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(DataError, match=name):
        Progress.from_json({**PROGRESS.to_json(), name: value})


def test_progress_with_missing_or_further_parts_is_refused() -> None:
    fields = PROGRESS.to_json()
    with pytest.raises(DataError, match="further"):
        Progress.from_json({**fields, "further": 1})
    del fields["step"]
    with pytest.raises(DataError, match="step"):
        Progress.from_json(fields)


def test_narrow_numbers_keep_their_type() -> None:
    variable = FakeVariable("m/kernel", np.array([1.5, -2], ml_dtypes.bfloat16))
    state = TrainingState({"model": name_variables([variable])})
    arrays = state.collect()
    assert arrays["model/kernel"].dtype == ml_dtypes.bfloat16
    state.restore(arrays)


@pytest.fixture(scope="module")
def process() -> Iterator[DeviceProcess]:
    with DeviceProcess(num_devices=3) as process:
        yield process


@pytest.mark.parametrize("strategy", ["default", "one device", "mirrored"])
def test_a_training_goes_on_bit_by_bit_from_its_checkpoint(
    process: DeviceProcess, strategy: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = str(tmp_path_factory.mktemp("checkpoints"))
    result = process.run("tests.training.resume_program:train_with_interruption", strategy=strategy, folder=folder)
    assert result["names"] == result["names_again"]
    assert result["is_bit_equal"]
    assert result["differs_without_restoring"]
    assert result["spread"] == 0
    assert set(result["dtypes"]) >= {"float32", "int64"}
