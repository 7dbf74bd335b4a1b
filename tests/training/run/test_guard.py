"""The guard says what to do after a step: nothing, skip, report, go back, or give up."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from myxtts.errors import MyXTTSError
from myxtts.training.run.guard import MAX_BAD_STEPS, MAX_ROLLBACKS, Action, Guard
from myxtts.training.run.state import GuardState

IDS = ["clip1", "clip2", ""]


class Diary:
    def __init__(self) -> None:
        self.lines: list[Mapping[str, Any]] = []

    def __call__(self, fields: Mapping[str, Any]) -> None:
        json.dumps(fields, allow_nan=False)
        self.lines.append(fields)


def make_guard() -> tuple[Guard, Diary]:
    diary = Diary()
    return Guard(GuardState(), diary), diary


def judge(guard: Guard, step: int, loss: float = 1.0, norm: float = 1.0, is_finite: bool = True) -> Action:
    return guard.judge(step, loss, norm, is_finite, IDS).action


def fail(guard: Guard, step: int) -> Action:
    return judge(guard, step, loss=math.nan, is_finite=False)


@pytest.mark.parametrize(
    ("loss", "norm", "is_finite"),
    [(math.nan, 1.0, False), (1.0, math.inf, False), (math.inf, 1.0, True), (1.0, math.nan, True), (1.0, 1.0, False)],
)
def test_a_step_that_is_not_finite_is_counted_and_its_batch_recorded(loss: float, norm: float, is_finite: bool) -> None:
    guard, diary = make_guard()
    finding = guard.judge(7, loss, norm, is_finite, IDS)
    assert finding.action is Action.SKIPPED
    assert "Step 7 was skipped" in finding.message
    assert "clip1, clip2" in finding.message
    assert guard.state.num_skipped == 1
    (line,) = diary.lines
    assert (line["step"], line["kind"], line["ids"]) == (7, "skipped", ["clip1", "clip2"])


def test_good_steps_pass_without_a_word() -> None:
    guard, diary = make_guard()
    generator = np.random.default_rng(1)
    for step in range(2000):
        loss = 5 * math.exp(-step / 500) + 1 + generator.normal(0, 0.1)
        finding = guard.judge(step, loss, 1.0, True, IDS)
        assert (finding.action, finding.message) == (Action.GO_ON, "")
    assert diary.lines == []


def test_several_bad_steps_in_a_row_ask_for_going_back() -> None:
    guard, _ = make_guard()
    actions = [fail(guard, step) for step in range(MAX_BAD_STEPS)]
    assert actions == [Action.SKIPPED] * (MAX_BAD_STEPS - 1) + [Action.ROLL_BACK]


def test_bad_steps_with_good_ones_between_do_not() -> None:
    guard, _ = make_guard()
    for step in range(0, 100, 2):
        assert fail(guard, step) is Action.SKIPPED
        assert judge(guard, step + 1) is Action.GO_ON
    assert guard.state.num_skipped == 50


def roll_back(guard: Guard) -> None:
    for step in range(MAX_BAD_STEPS):
        action = fail(guard, step)
    assert action is Action.ROLL_BACK
    guard.note_rollback(0)


def test_going_back_too_often_gives_up_with_a_next_step() -> None:
    guard, diary = make_guard()
    for _ in range(MAX_ROLLBACKS):
        roll_back(guard)
    for step in range(MAX_BAD_STEPS - 1):
        assert fail(guard, 100 + step) is Action.SKIPPED
    with pytest.raises(MyXTTSError) as caught:
        fail(guard, 104)
    assert "at step 104" in caught.value.problem
    assert f"{MAX_ROLLBACKS} times" in caught.value.problem
    assert "clip1" in caught.value.problem
    assert "training.learning_rate" in caught.value.next_step
    assert sum(line["kind"] == "rolled back" for line in diary.lines) == MAX_ROLLBACKS


def test_many_good_steps_forgive_what_was_before() -> None:
    guard, _ = make_guard()
    for _ in range(3 * MAX_ROLLBACKS):
        roll_back(guard)
        for step in range(1000):
            judge(guard, step)
    assert guard.state.num_rollbacks == 3 * MAX_ROLLBACKS


def warm_up(guard: Guard, num_steps: int = 100, level: float = 2.0) -> None:
    generator = np.random.default_rng(2)
    for step in range(num_steps):
        assert judge(guard, step, level + float(generator.normal(0, 0.05))) is Action.GO_ON


def test_a_spike_is_reported_once_with_its_batch() -> None:
    guard, diary = make_guard()
    warm_up(guard)
    finding = guard.judge(100, 40.0, 9.0, True, IDS)
    assert finding.action is Action.SPIKE
    assert "The loss of step 100 is 40, far above the usual 2" in finding.message
    assert judge(guard, 101, 35.0) is Action.GO_ON
    assert judge(guard, 102, 2.0) is Action.GO_ON
    assert judge(guard, 103, 40.0) is Action.SPIKE
    assert [line["step"] for line in diary.lines] == [100, 103]


def test_a_loss_that_settles_higher_becomes_the_usual() -> None:
    guard, _ = make_guard()
    warm_up(guard)
    actions = [judge(guard, step, 8.0 + step % 2) for step in range(100, 500)]
    assert actions.count(Action.SPIKE) == 1
    assert judge(guard, 501, 9.0) is Action.GO_ON


def test_few_steps_are_too_few_to_tell_a_spike() -> None:
    guard, _ = make_guard()
    assert [judge(guard, step, loss) for step, loss in enumerate([900.0, 3.0, 500.0, 2.0])] == [Action.GO_ON] * 4


@given(st.floats(0.01, 1000), st.floats(0.001, 1000))
def test_what_is_a_spike_does_not_depend_on_the_scale_of_the_loss(level: float, scale: float) -> None:
    losses = [1 + 0.05 * math.sin(step) for step in range(50)]
    outcomes = []
    for factor in (1.0, scale):
        guard, _ = make_guard()
        for step, loss in enumerate(losses):
            judge(guard, step, loss * factor)
        outcomes.append(judge(guard, 50, (1 + level) * factor))
    # Exactly at the limit rounding decides.
    if not math.isclose(level, 0.5, rel_tol=0.1):
        assert outcomes[0] is outcomes[1]


@given(st.lists(st.sampled_from([1.0, 1.1, 0.9, 50.0, math.nan]), min_size=30, max_size=80), st.integers(0, 29))
def test_a_restored_guard_judges_as_one_that_was_not_interrupted(losses: list[float], cut: int) -> None:
    def run(interrupt: bool) -> list[Action]:
        guard, _ = make_guard()
        warm_up(guard, 25, 1.0)
        actions = []
        for step, loss in enumerate(losses):
            # A checkpoint is never taken amid bad steps: what follows one is judged afresh.
            if interrupt and step == cut and not math.isnan(losses[step - 1]):
                saved = json.loads(json.dumps(guard.state.model_dump()))
                guard = Guard(GuardState.model_validate(saved), Diary())
            try:
                actions.append(judge(guard, step, loss))
            except MyXTTSError:
                break
            if actions[-1] is Action.ROLL_BACK:
                guard.note_rollback(step)
        return actions

    assert run(interrupt=True) == run(interrupt=False)
