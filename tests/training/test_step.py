"""One optimiser step gives the same weights however its batch is spread, and survives what is not a number.

Mirrored strategies run over two logical CPU devices. The measure is plain training on whole batches, without the code
under test, with the optimizers of Keras. SGD shows a gradient that is too large or too small at once; Adam would hide
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.device_process import DeviceProcess

FULL = [8] * 10
# Rows to spare: some replicas and micro-batches have few real rows, some have none.
UNEVEN = [8, 5, 3, 1, 8, 6, 2, 7, 4, 8]

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with DeviceProcess(4) as process:
        yield lambda name, **arguments: process.run(
            f"tests.training.{name if ':' in name else f'programs:{name}'}", **arguments
        )


@pytest.fixture(scope="module")
def train_plainly(run: Run) -> Run:
    @cache
    def train(rows: str, optimizer: str, clip_norm: float | None) -> Any:
        num_reals = {"full": FULL, "uneven": UNEVEN}[rows]
        return run("train_plainly", num_reals=num_reals, optimizer=optimizer, clip_norm=clip_norm)

    return train


def assert_close(values: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-5)


# strategy, micro-batches, rows, optimizer, clip, how it runs
CASES: list[tuple[str, int, str, str, float | None, str]] = [
    ("default", 1, "full", "sgd", None, "graph"),
    ("default", 4, "uneven", "sgd", 0.2, "graph"),
    ("one device", 1, "uneven", "sgd", 0.2, "graph"),
    ("one device", 2, "full", "sgd", None, "graph"),
    ("one device", 2, "uneven", "adam", 0.2, "graph"),
    ("one device", 4, "uneven", "adamw", None, "graph"),
    ("mirrored", 1, "full", "sgd", None, "graph"),
    ("mirrored", 1, "uneven", "sgd", 0.2, "graph"),
    ("mirrored", 2, "full", "sgd", None, "graph"),
    ("mirrored", 4, "uneven", "sgd", 0.2, "graph"),
    ("mirrored", 1, "uneven", "adam", 0.2, "graph"),
    ("mirrored", 2, "uneven", "adamw", 0.2, "graph"),
    ("one device", 1, "uneven", "sgd", 0.2, "eager"),
    ("one device", 2, "uneven", "adam", 0.2, "eager"),
    ("mirrored", 1, "uneven", "adamw", 0.2, "eager"),
    ("mirrored", 2, "uneven", "sgd", 0.2, "eager"),
    ("one device", 1, "uneven", "sgd", 0.2, "compiled"),
    ("one device", 2, "uneven", "adam", 0.2, "compiled"),
    ("one device", 1, "uneven", "adamw", 0.2, "lanes"),
    ("default", 1, "uneven", "sgd", 0.2, "lanes"),
    ("mirrored", 1, "uneven", "sgd", 0.2, "compiled"),
    ("mirrored", 2, "uneven", "adamw", 0.2, "compiled"),
    ("default", 1, "uneven", "pulled", None, "graph"),
    ("one device", 2, "uneven", "pulled", None, "compiled"),
    ("mirrored", 2, "uneven", "pulled", None, "graph"),
]


@pytest.mark.parametrize(("strategy", "accumulation_steps", "rows", "optimizer", "clip_norm", "mode"), CASES)
def test_weights_do_not_depend_on_how_a_batch_is_spread(
    run: Run,
    train_plainly: Run,
    strategy: str,
    accumulation_steps: int,
    rows: str,
    optimizer: str,
    clip_norm: float | None,
    mode: str,
) -> None:
    num_reals = {"full": FULL, "uneven": UNEVEN}[rows]
    plain = train_plainly(rows, optimizer, clip_norm)
    trained = run(
        "train",
        strategy=strategy,
        num_reals=num_reals,
        optimizer=optimizer,
        accumulation_steps=accumulation_steps,
        clip_norm=clip_norm,
        jit_compile=mode in ("compiled", "lanes"),
        num_lanes=2 if mode == "lanes" else 1,
        graph=mode != "eager",
    )
    assert_close(trained["weights"], plain["weights"])
    assert_close(trained["losses"], plain["losses"])
    assert_close(trained["norms"], plain["norms"])
    assert trained["num_reals"] == num_reals
    assert trained["num_updates"] == 10
    assert trained["spread"] == 0


def test_a_pull_keeps_weights_nearer_to_where_they_started(run: Run, train_plainly: Run) -> None:
    start = run("train_plainly", num_reals=[])["weights"]
    free, pulled = (train_plainly("uneven", name, None)["weights"] for name in ("adam", "pulled"))
    free_way, pulled_way = (np.linalg.norm(np.subtract(weights, start)) for weights in (free, pulled))
    assert 0 < pulled_way < 0.8 * free_way


def test_clipping_and_rows_to_spare_matter_in_these_runs(train_plainly: Run) -> None:
    """Otherwise the comparison above would not see them."""
    free, clipped = (train_plainly("uneven", "sgd", clip_norm) for clip_norm in (None, 0.2))
    assert min(clipped["norms"]) > 0.2
    assert np.abs(np.subtract(free["weights"], clipped["weights"])).max() > 0.05
    full = train_plainly("full", "sgd", None)
    assert np.abs(np.subtract(free["weights"], full["weights"])).max() > 0.05


@pytest.mark.parametrize("strategy", ["one device", "mirrored"])
def test_micro_batches_may_differ_in_shape_and_count_by_their_utterances(run: Run, strategy: str) -> None:
    result = run("train_unlike_micro_batches", strategy=strategy)
    assert_close(result["weights"], result["expected"])
    assert result["num_real"] == 11
    assert result["frames"] == pytest.approx(result["expected_frames"], abs=1e-3)


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("one device", {}),
        ("one device", {"accumulation_steps": 2, "optimizer": "adamw"}),
        ("one device", {"jit_compile": True}),
        ("mirrored", {"graph": False}),
        ("mirrored", {"optimizer": "adamw"}),
        ("mirrored", {"accumulation_steps": 2}),
    ],
)
def test_a_step_that_is_not_finite_is_skipped_by_all_and_counted(
    run: Run, strategy: str, options: dict[str, Any]
) -> None:
    # The last row is on the last replica, in the last micro-batch.
    spoiled = run("train_past_nan", strategy=strategy, num_steps=5, spoiled=2, row=7, **options)
    plain = run("train_plainly", num_reals=[8] * 5, optimizer=options.get("optimizer", "sgd"), leave_out=2)
    assert spoiled["is_finite"] == [True, True, False, True, True]
    assert spoiled["num_updates"] == 4
    assert_close(spoiled["weights"], plain["weights"])


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_either_loss_or_gradient_suffices_to_skip(run: Run, what: str) -> None:
    only_third, never = [True, True, False, True, True], [True] * 5
    spoiled = run("train_past_spoiled_step", strategy="mirrored", what=what)
    assert spoiled["is_finite"] == only_third
    assert spoiled["finite_losses"] == (only_third if what == "loss" else never)
    assert spoiled["finite_norms"] == (only_third if what == "gradient" else never)
    assert_close(spoiled["weights"], run("train_plainly", num_reals=[8] * 5, leave_out=2)["weights"])


def test_a_batch_without_any_utterance_is_skipped(run: Run) -> None:
    empty = run("train_on_nothing", strategy="mirrored")
    assert empty["num_updates"] == 0
    assert empty["weights"] == empty["weights_before"]


@pytest.mark.parametrize(
    ("strategy", "options"), [("one device", {}), ("mirrored", {}), ("one device", {"jit_compile": True})]
)
def test_a_shape_is_traced_once(run: Run, strategy: str, options: dict[str, Any]) -> None:
    shapes = [5, 7, 5, 7]
    traces = run("train_on_shapes", strategy=strategy, shapes=shapes, accumulation_steps=1, **options)
    assert traces == [1, 2, 2, 2]


@pytest.mark.parametrize("strategy", ["one device", "mirrored"])
def test_accumulation_adds_one_trace_for_all_shapes(run: Run, strategy: str) -> None:
    traces = run("train_on_shapes", strategy=strategy, shapes=[5, 7, 5], accumulation_steps=2)
    assert traces == [2, 3, 3]


def test_an_eager_step_has_no_graph(run: Run) -> None:
    assert run("train_on_shapes", strategy="one device", shapes=[5, 7], accumulation_steps=2, graph=False) == [0, 0]


@pytest.mark.parametrize("strategy", ["one device", "mirrored"])
def test_a_step_that_failed_half_way_can_be_done_again(run: Run, strategy: str) -> None:
    again = run("train_after_failure", strategy=strategy)
    plain = run("train_plainly", num_reals=[8])
    assert again["num_updates"] == 1
    assert_close(again["weights"], plain["weights"])


@pytest.mark.parametrize(("strategy", "jit_compile"), [("one device", False), ("mirrored", False), ("mirrored", True)])
def test_training_in_16_bits_learns_and_keeps_32_bit_weights(run: Run, strategy: str, jit_compile: bool) -> None:
    trained = run("train_in_16_bits", strategy=strategy, accumulation_steps=2, jit_compile=jit_compile)
    assert trained["losses"][-1] < 0.9 * trained["losses"][0]
    assert trained["dtypes"] == ["float32"]
    assert trained["spread"] == 0


def test_replicas_exchange_each_gradient_once(run: Run) -> None:
    exchange = run("measure_exchange")
    assert exchange["num_per_replica"] == [exchange["num_weights"] + exchange["num_totals"]] * 2


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("model outside the scope", "scope"),
        ("compiled and eager", "eager"),
        ("", ""),
    ],
)
def test_what_would_train_wrongly_is_refused(run: Run, kind: str, words: str) -> None:
    message = run("refuse", kind=kind)
    assert words in message
    assert bool(message) == bool(kind)


def test_a_batch_is_cut_without_losing_a_row(run: Run) -> None:
    cut = run("cut_programs:cut_batch")
    assert cut["names"] == [
        "language",
        "mel",
        "mel_lengths",
        "reference",
        "reference_lengths",
        "speaker",
        "token_lengths",
        "tokens",
    ]
    assert cut["speakers"] == [[0, 1], [2, 3], [4, 5]]
    assert cut["num_real"] == [2, 2, 0]
    assert "cannot be cut into 4" in cut["refusal"]


@pytest.mark.parametrize(
    ("strategy", "accumulation_steps", "options"),
    [
        ("one device", 1, {}),
        ("one device", 2, {}),
        ("mirrored", 1, {}),
        ("one device", 1, {"jit_compile": True, "num_lanes": 2}),
    ],
)
def test_graphs_of_many_shapes_are_not_warned_of_as_retracing(
    run: Run, strategy: str, accumulation_steps: int, options: dict[str, Any]
) -> None:
    outcome = run("trace_shapes", strategy=strategy, num_shapes=7, accumulation_steps=accumulation_steps, **options)
    assert outcome["warned"] == []
    assert outcome["num_traces"] == 7 + (accumulation_steps > 1)
    assert outcome["num_more"] == 0


@pytest.mark.parametrize("accumulation_steps", [1, 2])
def test_nothing_but_calls_is_outside_the_compiled_functions_of_lanes(run: Run, accumulation_steps: int) -> None:
    counted = run("count_outside", num_lanes=2, accumulation_steps=accumulation_steps)
    # The number of the step, for both lanes.
    assert counted["outside"] == ["ReadVariableOp"]
    assert counted["num_calls"] == 3
    assert counted["num_lane_graphs"] == 1


REPLICAS = {"default": ["CPU:0"], "one device": ["CPU:1"], "mirrored": ["CPU:1", "CPU:2"]}


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("strategy", ["default", "one device", "mirrored"])
def test_micro_batches_are_cut_by_one_operation_where_the_model_is_and_keep_their_bits(
    run: Run, strategy: str, jit_compile: bool
) -> None:
    """Eager operations without a device would copy every batch to the first device and back."""
    cut = run("cut_programs:cut_packed", strategy=strategy, num_rows=7, num_cuts=4, jit_compile=jit_compile)
    assert cut["devices"] == [REPLICAS[strategy]] * 4
    assert cut["has_same_bits"]
    assert cut["num_padded"] == 1
    assert cut["num_started"] == 1


def test_a_batch_that_is_not_cut_costs_nothing(run: Run) -> None:
    cut = run("cut_programs:cut_packed", strategy="one device", num_rows=4, num_cuts=1, jit_compile=False)
    assert cut["is_same"]
    assert cut["num_started"] == 0
    assert cut["has_same_bits"]


@pytest.mark.parametrize(
    ("strategy", "accumulation_steps", "options"),
    [
        ("default", 1, {"graph": False}),
        ("default", 1, {"jit_compile": True, "num_lanes": 2}),
        ("one device", 1, {}),
        ("one device", 2, {"jit_compile": True}),
        ("mirrored", 2, {}),
    ],
)
def test_batches_in_one_piece_train_to_the_same_bits_as_separate_tensors(
    run: Run, strategy: str, accumulation_steps: int, options: dict[str, Any]
) -> None:
    arguments = {"strategy": strategy, "accumulation_steps": accumulation_steps, **options}
    plain, packed = run("cut_programs:compare_packed", **arguments)
    assert packed == plain


@pytest.mark.parametrize(("strategy", "jit_compile"), [("one device", True), ("mirrored", False), ("mirrored", True)])
def test_the_average_follows_the_weights_within_the_step(run: Run, strategy: str, jit_compile: bool) -> None:
    trained = run("train_with_average", strategy=strategy, num_steps=6, spoiled=3, jit_compile=jit_compile)
    assert_close(trained["averages"], trained["expected"])
    assert trained["spread"] == 0


@pytest.mark.parametrize("strategy", ["one device", "mirrored"])
@pytest.mark.parametrize(("num_cuts", "num_started"), [(1, 1), (2, 1 + 2 + 1)])
def test_a_step_is_few_operations_for_the_host(run: Run, strategy: str, num_cuts: int, num_started: int) -> None:
    """Every other one would leave a GPU waiting while the host starts it: cutting, micro-batches, the update."""
    assert run("cut_programs:count_operations", strategy=strategy, num_cuts=num_cuts) == num_started


def test_a_number_of_a_step_that_does_not_follow_the_last_one_counts(run: Run) -> None:
    assert run("see_numbers", numbers=[0, 1, 7, 8, 3, 4]) == [0, 1, 7, 8, 3, 4]


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("one device", {"jit_compile": True}),
        ("default", {"jit_compile": True, "num_lanes": 2}),
        ("one device", {"accumulation_steps": 2}),
        ("mirrored", {}),
    ],
)
def test_frozen_weights_keep_their_bits_without_a_new_graph(run: Run, strategy: str, options: dict[str, Any]) -> None:
    trained = run("train_frozen", strategy=strategy, num_before=3, num_after=2, **options)
    assert trained["num_new_traces"] == 0
    assert len(trained["unchanged"]) == trained["num_frozen"] > 0
    assert len(trained["changed"]) == trained["num_weights"] - trained["num_frozen"]
    assert trained["norm"] == pytest.approx(trained["expected_norm"], rel=1e-5)
