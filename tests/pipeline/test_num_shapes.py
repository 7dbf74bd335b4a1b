"""`num_shapes: auto`: as many batch shapes as pay for the run, with the reason, and the batches of that number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pipeline.recordings import PLAIN_CLIPS, make_corpus

from myxtts.config.schema import XTTSConfig
from myxtts.pipeline.num_shapes import ShapeChoice, choose_num_shapes
from myxtts.pipeline.splits import open_split
from myxtts.runtime.hardware import detect_hardware
from myxtts.runtime.plan import choose_plan
from myxtts.store.precompute import precompute

LENGTHS = np.arange(100, 1100)
ALIKE = np.full(1024, 500)


def choose(lengths: Any = LENGTHS, *, on_cpu: bool = False, **settings: Any) -> ShapeChoice:
    return choose_num_shapes(lengths, XTTSConfig(**settings), is_on_cpu=on_cpu)


def test_a_longer_run_pays_for_more_shapes() -> None:
    for on_cpu in (True, False):
        numbers = [choose(on_cpu=on_cpu, steps=steps).number for steps in (1, 10**3, 10**4, 10**5, 10**6, 10**7)]
        assert numbers == sorted(numbers)
        assert numbers[0] == 1
        assert numbers[-1] >= 6
    assert choose(steps=10**4).number < choose(steps=10**4, on_cpu=True).number, "steps of a CPU take longer"


def test_minutes_and_epochs_are_lengths_too() -> None:
    assert choose(minutes=2.0).number == choose(epochs=1).number == 1
    assert choose(minutes=6000.0).number >= 6
    assert choose(epochs=10**5).number >= 6
    assert choose(minutes=6000.0, steps=10).number == 1


def test_compiling_twice_or_only_tracing_counts() -> None:
    switched, searched, traced = (
        [choose(steps=steps, **settings).number for steps in range(5_000, 60_000, 5_000)]
        for settings in ({"durations": "auto"}, {"durations": "search"}, {"enable_xla_compilation": False})
    )
    assert switched != searched != traced
    for fewest, more, most in zip(switched, searched, traced, strict=True):
        assert fewest <= more <= most


@pytest.mark.parametrize(
    ("settings", "number", "words"),
    [
        ({"steps": 100}, 1, "7 more would take 7 min to compile and save only"),
        ({"steps": 100, "enable_xla_compilation": False}, 1, "to trace and save only"),
        ({"steps": 10**8}, 6, "more would save less than 1% of the time"),
        ({}, 8, "the run has no given length"),
        ({"steps": 100, "enable_graph_mode": False}, 8, "eager mode"),
        ({"steps": 100, "frame_budget": 20_000}, 8, "frame_budget counts padding"),
    ],
)
def test_the_reason_says_what_decided(settings: dict[str, Any], number: int, words: str) -> None:
    choice = choose(**settings)
    assert choice.number == number
    assert words in choice.reason
    assert choice.reason.startswith(f"Batch shapes: {number}, because ")
    assert choice.reason.endswith("(num_shapes is auto).")


def test_very_different_lengths_pay_for_all_shapes() -> None:
    choice = choose(np.repeat(200 * np.arange(1, 9), 64), steps=10**8)
    assert choice.number == 8
    assert "is long enough to compile all of them" in choice.reason


def test_utterances_of_one_length_need_one_shape() -> None:
    choice = choose(ALIKE, steps=10**8)
    assert choice.number == 1
    assert "need no more" in choice.reason


def test_batches_are_those_of_the_chosen_number(tmp_path: Path) -> None:
    config = XTTSConfig(
        text_frontend="characters",
        batch_size=1,
        train_data=tmp_path / "recordings" / "corpus",
        cache_dir=tmp_path / "store",
        steps=10**8,
    )
    precompute(make_corpus(tmp_path / "recordings", PLAIN_CLIPS, config.data), tmp_path / "store", config.data)
    plan = choose_plan(config, detect_hardware())
    chosen, given = (
        open_split(config.model_copy(update=update), "train", plan)
        for update in ({"data.num_shapes": "auto"}, {"data.num_shapes": 8})
    )
    assert chosen.shape_choice is not None
    assert given.shape_choice is None
    expected = open_split(config.model_copy(update={"num_shapes": chosen.shape_choice.number}), "train", plan)
    assert len(set(chosen.order.shapes)) > 1
    assert chosen.order.shapes == expected.order.shapes
    for position in range(2 * expected.order.num_batches_per_epoch):
        np.testing.assert_array_equal(chosen.order.batch(position).rows, expected.order.batch(position).rows)
