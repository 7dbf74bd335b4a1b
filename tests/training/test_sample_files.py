"""Pictures of spectrograms and alignments: the same for the same numbers, and nothing is left behind by them."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from myxtts.training.sample_files import draw_alignment, draw_mel

GENERATOR = np.random.default_rng(0)
SHORT_TM, LONG_TM = GENERATOR.normal(-5, 2, (40, 80)), GENERATOR.normal(-5, 2, (400, 80))


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_picture_does_not_depend_on_the_one_before() -> None:
    first = draw_mel(SHORT_TM, 86.0)
    assert first.startswith(b"\x89PNG")
    assert draw_mel(LONG_TM, 86.0) != first
    assert draw_mel(SHORT_TM, 86.0) == first
    weights_TN, token_T = GENERATOR.random((40, 12)), np.arange(40) // 4
    alignment = draw_alignment(weights_TN, token_T, 86.0)
    assert draw_alignment(weights_TN, token_T // 2, 86.0) != alignment
    assert draw_alignment(weights_TN, token_T, 86.0) == alignment


@pytest.mark.usefixtures("no_collection")
def test_pictures_leave_no_objects_that_only_a_full_collection_frees() -> None:
    def draw_both(length: int) -> None:
        draw_mel(LONG_TM[:length], 86.0)
        draw_alignment(LONG_TM[:length], np.arange(length) // 5, 86.0)

    draw_both(200)
    before = len(gc.get_objects())
    for length in range(100, 400, 50):
        draw_both(length)
    # A figure of its own would be more than a thousand for each.
    assert len(gc.get_objects()) - before < 12 * 100
