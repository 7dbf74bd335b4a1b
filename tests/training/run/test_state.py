"""Variables become named arrays and come back bit by bit, whatever they lie on, and a mismatch is named."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
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
    AVERAGE,
    START,
    Best,
    Clock,
    DurationsLook,
    GuardState,
    Patience,
    RunState,
    TrainingState,
    WrittenDurations,
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


def number_variables(variables: Sequence[FakeVariable]) -> dict[str, FakeVariable]:
    return {f"{number:05}": variable for number, variable in enumerate(variables)}


NAMES = st.sampled_from(["dense.kernel", "dense.bias", "norm.scale", "block.0.kernel", "a_1"])


@st.composite
def variables(draw: st.DrawFn, path: str) -> FakeVariable:
    dtype = draw(st.sampled_from([dtype for dtype in DTYPES.values() if dtype != np.bool_]))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    num_bytes = int(np.prod(shape)) * dtype.itemsize
    raw = draw(st.binary(min_size=num_bytes, max_size=num_bytes))
    return FakeVariable(path, np.frombuffer(raw, dtype).reshape(shape))


@st.composite
def groups(draw: st.DrawFn) -> dict[str, dict[str, FakeVariable]]:
    model = {name: draw(variables(f"xtts/{name}")) for name in draw(st.lists(NAMES, max_size=6, unique=True))}
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


def make_state() -> tuple[TrainingState, list[FakeVariable]]:
    kernel, bias = FakeVariable("m/kernel", np.ones((2, 3), np.float32)), FakeVariable("m/bias", np.ones(3, np.float32))
    average = FakeVariable("", np.full((2, 3), 2, np.float32))
    count = FakeVariable("adamw/iterations", np.array(5, np.int64))
    groups = {
        "model": {"kernel": kernel, "bias": bias},
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


def test_a_share_of_the_starting_weights_is_mixed_into_the_averages() -> None:
    state, _ = make_state()
    arrays = state.collect()
    start = {f"{START}/{name}": np.zeros_like(array) for name, array in select_group(arrays, AVERAGE).items()}
    weights = select_synthesis_weights(arrays | start, start_mix=0.25)
    # What has no average, here the bias, is not mixed.
    assert {name: float(array.flat[0]) for name, array in weights.items()} == {"kernel": 1.5, "bias": 1.0}


STATE = RunState(
    step=12,
    feed_position=40,
    loader_name="cached",
    text_frozen_step=8,
    durations_look=DurationsLook(step=8, frames=[3, 0, 4], num_stable=1),
    durations=WrittenDurations(step=9, fingerprint="0123abcd"),
    clock=Clock(spent_s=1.5, total_steps=100),
    best=Best(step=10, score=1 / 3),
    early_stopping=Patience(best_step=10, best_score=1 / 3, num_without_improvement=1),
    text_patience=Patience(),
    guard=GuardState(losses=[0.1, 0.2], num_skipped=1),
)


@pytest.mark.parametrize("state", [RunState(step=0, feed_position=0), STATE])
def test_a_run_state_comes_back_through_json(state: RunState) -> None:
    assert RunState.from_json(json.loads(json.dumps(state.to_json()))) == state


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", -1),
        ("step", None),
        ("step", 1.5),
        ("step", True),
        ("feed_position", "3"),
        ("best", {"step": 3, "score": float("nan")}),
        ("guard", []),
        ("early_stopping", {"best_step": -1}),
        ("further", 1),
    ],
)
def test_a_run_state_that_makes_no_sense_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(DataError, match=name):
        RunState.from_json({**STATE.to_json(), name: value})


def test_a_run_state_without_its_step_is_refused() -> None:
    fields = STATE.to_json()
    del fields["step"]
    with pytest.raises(DataError, match="step"):
        RunState.from_json(fields)


# As version 0.1 wrote it: a run of 30 minutes whose text side was frozen at step 2.
OLD_STATE = {
    "step": 4,
    "feed_position": 6,
    "num_skipped": 1,
    "num_rollbacks": 0,
    "best_step": 2,
    "best_score": 0.550869956612587,
    "micro_batch_size": 4,
    "accumulation": 1,
    "tuning": {
        "loader_name": "cached",
        "text_rest_step": 2,
        "time": {"spent_s": 31.625, "total_steps": 170},
    },
    "guard": {
        "losses": [14.170186042785645, 9.608246803283691, 10.044031143188477],
        "num_good_in_row": 2,
        "num_recent_rollbacks": 0,
        "is_in_spike": False,
        "num_skipped": 1,
        "num_spikes": 0,
        "num_rollbacks": 0,
    },
}


def test_the_state_of_an_old_checkpoint_is_understood() -> None:
    assert RunState.from_json(OLD_STATE) == RunState(
        step=4,
        feed_position=6,
        loader_name="cached",
        text_frozen_step=2,
        clock=Clock(spent_s=31.625, total_steps=170),
        best=Best(step=2, score=0.550869956612587),
        guard=GuardState(
            losses=[14.170186042785645, 9.608246803283691, 10.044031143188477], num_good_in_row=2, num_skipped=1
        ),
    )
    plain = {**OLD_STATE, "best_step": None, "best_score": None, "tuning": {}, "guard": {}}
    assert RunState.from_json(plain) == RunState(step=4, feed_position=6)


@pytest.mark.parametrize(("name", "value"), [("step", -1), ("tuning", []), ("guard", None), ("best_score", "low")])
def test_an_old_state_that_makes_no_sense_is_refused(name: str, value: Any) -> None:
    with pytest.raises(DataError, match="cannot be used"):
        RunState.from_json({**OLD_STATE, name: value})


def test_patience_counts_evaluations_without_improvement() -> None:
    patience = Patience()
    scores = [3.0, 2.0, 2.0, math.nan, 1.0]
    seen = [(patience.note(step, score), patience.num_without_improvement) for step, score in enumerate(scores)]
    assert seen == [(True, 0), (True, 0), (False, 1), (False, 2), (True, 0)]
    assert (patience.best_step, patience.best_score) == (4, 1.0)


def test_narrow_numbers_keep_their_type() -> None:
    variable = FakeVariable("m/kernel", np.array([1.5, -2], ml_dtypes.bfloat16))
    state = TrainingState({"model": {"kernel": variable}})
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
