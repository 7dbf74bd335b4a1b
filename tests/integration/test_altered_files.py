"""Altered files of all kinds are refused with a clear error, or read as valid values: no traceback, hang or giant."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.integration import altered_files
from tests.template_process import ROOT

MAX_SECONDS = 20.0
MAX_GROWN_MB = 400
ORDINARY = range(120)
LARGE = range(10_000, 12_000)


class Worker:
    """A process that runs cases one after the other, and is started again after one that hangs or kills it."""

    def __init__(self, templates: Path, scratch: Path) -> None:
        self._command = [sys.executable, "-m", altered_files.__name__, str(templates), str(scratch)]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, seed: int) -> dict[str, Any]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{seed}\n")
        process.stdin.flush()
        # A fresh worker imports its libraries first.
        ready, _, _ = select.select([process.stdout], [], [], MAX_SECONDS)
        line = process.stdout.readline() if ready else ""
        if line:
            result: dict[str, Any] = json.loads(line)
            return result
        self.close()
        outcome = f"exit code {process.returncode}" if ready else f"no answer within {MAX_SECONDS} s"
        self._process = self._start()
        return {"case": f"seed {seed}", "outcome": outcome, "grown_mb": 0}

    def close(self) -> None:
        with self._process as process:
            process.kill()


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    folder = tmp_path_factory.mktemp("altered")
    altered_files.write_templates(folder / "templates")
    worker = Worker(folder / "templates", folder / "scratch")
    yield worker
    worker.close()


def run_campaign(worker: Worker, seeds: Sequence[int]) -> None:
    started, failures, num_refused = time.monotonic(), [], 0
    for seed in seeds:
        result = worker.run(seed)
        num_refused += result["outcome"] == "refused"
        if result["outcome"] not in ("refused", "accepted") or result["grown_mb"] > MAX_GROWN_MB:
            failures.append(f"{result['case']}: {result['outcome']} (+{result['grown_mb']} MB)")
    seconds = time.monotonic() - started
    print(f"{len(seeds)} cases in {seconds:.1f} s: {num_refused} refused, {len(failures)} failures")
    assert not failures, "\n".join(failures)


def test_altered_files_are_refused_clearly_or_valid(worker: Worker) -> None:
    run_campaign(worker, ORDINARY)


@pytest.mark.soak
def test_many_altered_files_are_refused_clearly_or_valid(worker: Worker) -> None:
    run_campaign(worker, LARGE)
