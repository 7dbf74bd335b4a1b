"""When the text side of a voice is frozen."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myxtts.training.run.state import Patience
from myxtts.training.voice.validation import TextFreeze

# In thousandths: of smaller differences a sum with the other terms knows nothing.
PRIORS = st.integers(0, 10_000).map(lambda thousandths: thousandths / 1000)
LOSSES = st.lists(st.one_of(PRIORS, st.none(), st.just(float("nan"))), min_size=1, max_size=20)


def make_numbers(prior: float | None) -> dict[str, float | None]:
    return {"prior": prior, "duration": 0.5, "pitch": 1.0, "score": 0.1}


@given(LOSSES, st.integers(1, 5))
def test_patience_ends_so_many_steps_after_the_best(priors: list[float | None], num_steps: int) -> None:
    patience = TextFreeze(num_steps, Patience())
    known: dict[int, float] = {}
    for step, prior in enumerate(priors, start=1):
        is_over = patience.note(step, make_numbers(prior))
        if prior is not None and prior < min(known.values(), default=math.inf):
            known[step] = prior
        assert patience.best_step == max(known, default=None)
        assert is_over == (bool(known) and step - max(known) >= num_steps)


@given(LOSSES)
def test_no_patience_steps_mean_patience_for_ever(priors: list[float | None]) -> None:
    patience = TextFreeze(0, Patience())
    assert not any(patience.note(step, make_numbers(prior)) for step, prior in enumerate(priors))


@pytest.mark.parametrize("name", ["prior", "duration", "pitch"])
def test_each_of_the_text_sides_losses_counts(name: str) -> None:
    patience = TextFreeze(1, Patience())
    numbers: dict[str, float | None] = {"prior": 0.2, "duration": 0.5, "pitch": 1.0}
    assert not patience.note(1, numbers)
    assert not patience.note(2, {**numbers, name: 0.1})
    assert patience.note(3, numbers)


def test_the_score_of_the_decoder_does_not_count() -> None:
    patience = TextFreeze(2, Patience())
    assert [patience.note(step, make_numbers(0.2) | {"score": 1 / step}) for step in (1, 2, 3)] == [False, False, True]
