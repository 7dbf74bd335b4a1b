"""Compiles graphs for cards that are not there, one process at a time: TensorFlow exports, XLA's GPU compiler compiles.

XLA writes the optimized HLO and the memory plan before it generates code, which takes most of the time and changes
neither: the compiler's process is ended as soon as both files are written.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from benchmarks.card.cards import CARDS
from benchmarks.card.records import BUILD, ROOT, Record, Request, find_record, make_record, read_record, write_record

CPU = "cpu"
ENVIRONMENT = ROOT / "build" / "card-venv"
PACKAGES = (
    *(f"{name}==0.9.0.1" for name in ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda12-pjrt")),
    "nvidia-cuda-nvcc-cu12==12.9.86",
)
"""The compiler: the XLA in this version of JAX is of about the age of TensorFlow 2.21's."""
_COMPILER = Path(__file__).parent / "compiler.py"
_LIMIT_S = 3600
_LOOK_S = 0.5
_LAST_DUMP = "*memory-usage-report.txt"
"""XLA writes it right after the HLO and the buffer assignment."""


class CompilerError(Exception):
    """A graph could not be exported or compiled."""


def make_environment(say: Callable[[str], None]) -> Path | None:
    """The interpreter of the compiler's environment, made where it is missing; None where it cannot be made."""
    python, ready = ENVIRONMENT / "bin" / "python", ENVIRONMENT / ".ready"
    if ready.is_file() and ready.read_text(encoding="utf-8") == "\n".join(PACKAGES):
        return python
    say(f"Installing XLA's GPU compiler into {ENVIRONMENT.relative_to(ROOT)} (1.1 GB) …")
    commands = (
        [sys.executable, "-m", "venv", str(ENVIRONMENT)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES],
    )
    for command in commands:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            say(f"The environment cannot be made: {(result.stderr or result.stdout).strip().splitlines()[-1:]}")
            return None
    ready.write_text("\n".join(PACKAGES), encoding="utf-8")
    return python


def compile_graph(request: Request, card: str, python: Path | None) -> Record:
    """The record of a graph on a card or on the CPU, from its file where it was made before."""
    path = find_record(request, card)
    known = read_record(path)
    if known is not None:
        return known
    if card == CPU:
        record = make_record(request, CPU, _export(request, "optimized_hlo").read_text(encoding="utf-8"))
    elif python is None:
        raise CompilerError(f"There is no compiler for {card}.")
    else:
        record = _compile_for(request, card, python)
    write_record(path, record)
    return record


def _export(request: Request, stage: str) -> Path:
    """The file with the HLO of a graph, lowered by TensorFlow in a process of its own."""
    path = BUILD / "hlo" / f"{request.name_file()}.{stage}"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "benchmarks.card.graphs", json.dumps(asdict(request)), stage, str(path)]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if result.returncode:
            raise CompilerError(f"TensorFlow could not lower {request}:\n{result.stderr[-2000:]}")
    return path


def _compile_for(request: Request, card: str, python: Path) -> Record:
    hlo_path = _export(request, "hlo_serialized")
    dump = BUILD / "dump" / f"{hlo_path.stem}-{card}"
    shutil.rmtree(dump, ignore_errors=True)
    dump.mkdir(parents=True)
    described = dump / "card.txt"
    described.write_text(CARDS[card].describe(), encoding="utf-8")
    with (dump / "log.txt").open("w", encoding="utf-8") as log:
        command = [str(python), str(_COMPILER), str(hlo_path), str(dump), str(described)]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait_for_dump(process, dump, request)
        finally:
            process.kill()
            process.wait()
    hlo = next(dump.glob("*gpu_after_optimizations.txt")).read_text(encoding="utf-8")
    buffers = next(dump.glob("*buffer-assignment.txt")).read_text(encoding="utf-8")
    record = make_record(request, card, hlo, buffers)
    shutil.rmtree(dump)
    return record


def _wait_for_dump(process: subprocess.Popen[bytes], dump: Path, request: Request) -> None:
    end = time.monotonic() + _LIMIT_S
    while not list(dump.glob(_LAST_DUMP)):
        if process.poll() is not None or time.monotonic() > end:
            if list(dump.glob(_LAST_DUMP)):
                return
            log = (dump / "log.txt").read_text(encoding="utf-8", errors="replace")
            raise CompilerError(f"XLA could not compile {request}:\n{log[-2000:]}")
        time.sleep(_LOOK_S)
