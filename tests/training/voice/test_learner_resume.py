"""The voice model goes on bit by bit from its checkpoint: mirrored over devices, in bfloat16, and compiled."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.device_process import DeviceProcess


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
    device_process: DeviceProcess, strategy: str, execution: str, tmp_path: Path
) -> None:
    program = "tests.training.learner_resume_program:train_with_interruption"
    does_rest = strategy == "mirrored"
    result = device_process.run(
        program, strategy=strategy, execution=execution, folder=str(tmp_path), does_rest=does_rest
    )
    assert result["is_bit_equal"]
    assert result["has_learned"]
    assert result["spread"] == 0
    # Weights and averages stay in full precision, whatever is computed in.
    assert result["dtypes"] == ["float32", "int64"]
