"""`myxtts export`: mistakes are found before TensorFlow is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.myxtts_process import run_myxtts
from tests.synthesis.small_models import write_small_bundle


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--model", "nowhere", "--out", "x"), 3, "no trained model"),
        (("--model", "bundle", "--out", "x", "--words", "w.txt"), 2, "--words does nothing with --format onnx"),
        (
            ("--model", "bundle", "--out", "x", "--format", "piper", "--dtype", "int8", "--words", "w.txt"),
            2,
            "--dtype, --words do nothing with --format piper",
        ),
        (("--model", "bundle", "--out", "bundle", "--format", "piper"), 2, "bundle exists already"),
        (("--model", "bundle", "--out", "bundle"), 2, "bundle exists already"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    if "nowhere" not in arguments:
        write_small_bundle(tmp_path / "bundle")
    done = run_myxtts("export", *arguments, cwd=tmp_path)
    assert done.returncode == code
    assert words in " ".join(done.stderr.split())
    assert not (tmp_path / "x").exists()
