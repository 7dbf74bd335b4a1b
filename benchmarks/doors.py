"""How other programs reach a voice: word times, the server under load, ONNX graphs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.doors_onnx import measure_onnx
from benchmarks.doors_server import measure_server
from benchmarks.doors_words import measure_words
from benchmarks.harness import Measurement

_DEMO = Path(__file__).parents[1] / "build" / "doors" / "demo"


def measure_doors() -> list[Measurement]:
    run = make_demo_voice()
    return [*measure_words(run), *measure_server(run, "en01"), *measure_onnx()]


def make_demo_voice() -> Path:
    """The run of a demo, which is made in three minutes where there is none yet."""
    run = _DEMO / "run"
    if not (run / "bundle" / "bundle.json").is_file():
        subprocess.run([sys.executable, "-m", "myxtts", "demo", "--out", str(_DEMO)], check=True)
    return run
