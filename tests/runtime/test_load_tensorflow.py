"""TensorFlow starts without a word about its build, unless somebody wants to hear it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
from myxtts.runtime.load_tensorflow import load_tensorflow
load_tensorflow()
os.write(2, f"behind it, level {os.environ['TF_CPP_MIN_LOG_LEVEL']}\\n".encode())
"""
HARMLESS = "I0000 00:00:1.1 1 port.cc:153] oneDNN custom operations are on. You may see slightly different results.\n"
VITAL = "W0000 00:00:1.1 1 gpu_device.cc:2342] Cannot dlopen some GPU libraries.\n"


@pytest.fixture
def talker(tmp_path: Path) -> Path:
    """A folder with a TensorFlow that only talks, straight to the error stream, as the real one does."""
    (tmp_path / "tensorflow.py").write_text(f"import os; os.write(2, {(HARMLESS + VITAL).encode()!r})", "utf-8")
    return tmp_path


def start(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    environment = {**plain, "PYTHONPATH": str(folder), "CUDA_VISIBLE_DEVICES": "-1", **variables}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_only_what_is_known_to_be_harmless_is_left_out(talker: Path) -> None:
    assert start(talker).stderr == VITAL + "behind it, level 3\n"


def test_whoever_asks_for_the_lines_gets_them(talker: Path) -> None:
    done = start(talker, TF_CPP_MIN_LOG_LEVEL="0")
    assert done.stderr == HARMLESS + VITAL + "behind it, level 0\n"


def test_a_failing_import_is_not_swallowed(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("raise ImportError('a library is missing')", "utf-8")
    done = start(tmp_path)
    assert done.returncode == 1
    assert "a library is missing" in done.stderr
