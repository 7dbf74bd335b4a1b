"""Terms of a loss are declared once, and added up by one rule wherever they are needed."""

from __future__ import annotations

import math

import pytest

from myxtts.training.terms import VOCODER, VOICE, Measures, Term, add_weighted


def make_terms(*weights: float) -> list[Term]:
    return [Term(f"t{number}", weight, "real", "text", "") for number, weight in enumerate(weights)]


def test_weighted_terms_are_added_in_pairs() -> None:
    # In a running sum both small terms would be lost in the large one.
    values = {"t0": 1e16, "t1": 0.0, "t2": 1.0, "t3": 1.0}
    assert add_weighted(make_terms(1, 1, 1, 1), values) == 1e16 + 2
    assert add_weighted(make_terms(1, 2, 3, 4, 5), dict.fromkeys(("t0", "t1", "t2", "t3", "t4"), 1.0)) == 15


def test_what_is_only_measured_or_missing_adds_nothing() -> None:
    assert add_weighted(make_terms(2, 0, 3), {"t0": 1.0, "t1": math.nan}) == 2


@pytest.mark.parametrize("measures", [VOICE, VOCODER])
def test_names_are_unique_and_labelled(measures: Measures) -> None:
    names = [term.name for term in measures.terms]
    assert len(set(names)) == len(names)
    assert all(measures.labels.values())
    assert {term.name for term in measures.trained_terms} <= set(names)
