"""A vocoder is compared with Griffin-Lim by its last validation before it is put into a voice."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from myxtts.storage.json_file import JsonLines
from myxtts.training.vocoder.attach import compare_with_griffin_lim


def validate(folder: Path, *distances: tuple[float, float]) -> None:
    metrics = JsonLines(folder / "metrics.jsonl")
    for number, (own, other) in enumerate(distances, start=1):
        metrics.append({"step": 10 * number, "loss": 1.0})
        numbers = {"spectral_distance": own, "griffin_lim_spectral_distance": other, "mel_distance": 9.0}
        metrics.append({"step": 10 * number, "validation": numbers})


@pytest.mark.parametrize(("own", "is_worse"), [(0.5, False), (0.7, False), (0.8, True), (math.inf, True)])
def test_the_last_validation_counts(tmp_path: Path, own: float, is_worse: bool) -> None:
    validate(tmp_path, (0.1 if is_worse else 0.9, 0.7), (own, 0.7))
    comparison = compare_with_griffin_lim(tmp_path)
    assert comparison.is_known
    assert comparison.is_worse == is_worse
    assert "At step 20" in comparison.describe()
    assert ("further from the recordings" in comparison.describe()) == is_worse


def test_without_a_validation_nothing_is_known(tmp_path: Path) -> None:
    comparison = compare_with_griffin_lim(tmp_path)
    assert not comparison.is_known
    assert not comparison.is_worse
    assert "never validated" in comparison.describe()
