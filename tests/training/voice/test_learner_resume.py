"""The voice model goes on bit by bit from its checkpoint: mirrored over devices, in bfloat16, and compiled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.device_process import DeviceProcess

PARTS = {"text_encoder", "reference_encoder", "prosody_predictor", "decoder", "speaker_classifier"}


@pytest.fixture(scope="module")
def process() -> Iterator[DeviceProcess]:
    with DeviceProcess(num_devices=3) as process:
        yield process


@pytest.mark.parametrize(
    ("strategy", "execution"),
    [
        ("default", "bfloat16"),
        ("mirrored", "eager"),
        pytest.param("mirrored", "graph", marks=pytest.mark.soak),
        # Compiling takes most of a minute.
        pytest.param("default", "compiled", marks=pytest.mark.soak),
        pytest.param("mirrored", "compiled", marks=pytest.mark.soak),
    ],
)
def test_a_second_learner_ends_where_the_first_does(
    process: DeviceProcess, strategy: str, execution: str, tmp_path: Path
) -> None:
    program = "tests.training.learner_resume_program:train_with_interruption"
    does_rest = strategy == "mirrored"
    result = process.run(program, strategy=strategy, execution=execution, folder=str(tmp_path), does_rest=does_rest)
    assert result["is_bit_equal"]
    assert result["has_learned"]
    assert result["spread"] == 0
    # Weights and averages stay in full precision, whatever is computed in.
    assert result["dtypes"] == ["float32", "int64"]


@pytest.mark.parametrize(("adapt", "frozen"), [("voice", {"reference_encoder"}), ("all", set())])
def test_an_adaptation_goes_on_bit_by_bit_and_leaves_frozen_weights_alone(
    process: DeviceProcess, adapt: str, frozen: set[str], tmp_path: Path
) -> None:
    program = "tests.training.learner_resume_program:train_with_interruption"
    result = process.run(program, strategy="mirrored", execution="eager", folder=str(tmp_path), adapt=adapt)
    assert result["is_bit_equal"]
    assert result["has_learned"]
    assert result["spread"] == 0
    moved = [name.split("/") for name in result["moved"]]
    assert {name.partition(".")[0] for group, name in moved if group == "model"} == PARTS - frozen
    # The pull of a resumed run leads to the weights that the first session started with.
    assert result["num_starts"] > 0
    assert "start" not in {group for group, _ in moved}
