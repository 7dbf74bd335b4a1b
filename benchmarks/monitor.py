"""What watching costs: the share of a core that `myxtts monitor` and the live page beside a training take."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
from tests.tools.fake_run import write_fake_run

from benchmarks.harness import Measurement
from myxtts.live.server import PageProcess
from myxtts.tools.monitor.watch import DEFAULT_INTERVAL_S

_LIMIT_PERCENT = 1.0
_STEP_S = 0.02
_START_S = 60.0
_WATCHED_S = 20.0
_STEPS_BEFORE = 5_000
_EIGHT_GPUS = """
import sys
from tests.runtime.fake_nvml import FakeNvml, make_gpus
from myxtts.tools.monitor import gpus as monitor_gpus
monitor_gpus.load_nvml = lambda: FakeNvml(make_gpus(8, utilization_percent=90))
from myxtts.cli.main import run
run(sys.argv[1:])
"""
_NO_GPU = "import sys; from myxtts.cli.main import run; run(sys.argv[1:])"


def measure_monitor() -> list[Measurement]:
    note = (
        f"of a core, every {DEFAULT_INTERVAL_S:g} s on a terminal of 120 x 40, a run of {1000 * _STEP_S:.0f} ms steps"
    )
    return [
        Measurement("monitor without a GPU", _measure_cost(_NO_GPU, 0), "%", "at most", _LIMIT_PERCENT, note),
        Measurement(
            "monitor of 8 GPUs (fake NVML)", _measure_cost(_EIGHT_GPUS, 8), "%", "at most", _LIMIT_PERCENT, note
        ),
        Measurement(
            "live page beside a training",
            _measure_page_cost(),
            "%",
            "at most",
            _LIMIT_PERCENT,
            f"of a core, one reader, a run of {_STEPS_BEFORE:,} steps that grows by one every {1000 * _STEP_S:.0f} ms",
        ),
    ]


def _measure_page_cost() -> float:
    """Processor time of the page's process over its wall time, while a reader gets its events."""
    with (
        tempfile.TemporaryDirectory() as folder,
        _grow(run := Path(folder) / "voice"),
        PageProcess(run, "0", None, "en") as page,
        httpx.stream("GET", f"{page.url}/events", timeout=_START_S) as events,
    ):
        # The first line brings the whole run to the reader, the others what is new.
        lines = events.iter_lines()
        next(lines)
        server = psutil.Process(page.pid)
        before, started, num_lines = server.cpu_times(), time.monotonic(), 0
        while time.monotonic() < started + _WATCHED_S:
            num_lines += bool(next(lines))
        after, elapsed_s = server.cpu_times(), time.monotonic() - started
    if not num_lines:
        raise RuntimeError("the page told nothing new")
    return 100 * (after.user + after.system - before.user - before.system) / elapsed_s


@contextmanager
def _grow(run: Path) -> Iterator[None]:
    """Writes the files of a run, and adds the lines of a step for each that a training would make."""
    write_fake_run(run, _STEPS_BEFORE + int(4 * _WATCHED_S / _STEP_S))
    (run / ".lock").write_text(f"process {os.getpid()} (training)")
    is_over = threading.Event()
    rest = {}
    for name in ("metrics.jsonl", "telemetry.jsonl"):
        lines = (run / name).read_text(encoding="utf-8").splitlines(keepends=True)
        share = _STEPS_BEFORE * len(lines) // (_STEPS_BEFORE + int(4 * _WATCHED_S / _STEP_S))
        (run / name).write_text("".join(lines[:share]), encoding="utf-8")
        rest[name] = lines[share:]

    def write() -> None:
        num_steps = max(map(len, rest.values()))
        for step in range(num_steps):
            if is_over.wait(_STEP_S):
                return
            for name, lines in rest.items():
                with (run / name).open("a", encoding="utf-8") as file:
                    file.writelines(lines[step * len(lines) // num_steps : (step + 1) * len(lines) // num_steps])

    with _run_beside(write, is_over):
        yield


@contextmanager
def _run_beside(write: Callable[[], None], is_over: threading.Event) -> Iterator[None]:
    """Runs a function in a thread of its own, which ends when `is_over` is set."""
    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        is_over.set()
        writer.join()


def _measure_cost(program: str, num_gpus: int) -> float:
    """Processor time of a real watch over its wall time, its start left out."""
    with tempfile.TemporaryDirectory() as folder, _train_in_name(Path(folder) / "runs" / "voice"):
        log = Path(folder) / "log.jsonl"
        command = [sys.executable, "-c", program, "monitor", "--run", "runs/voice", "--log-file", str(log)]
        with _start_on_terminal(command, folder) as process:
            _wait_for(log)
            watcher = psutil.Process(process.pid)
            before, started = watcher.cpu_times(), time.monotonic()
            time.sleep(_WATCHED_S)
            after, elapsed_s = watcher.cpu_times(), time.monotonic() - started
        last = json.loads(log.read_text(encoding="utf-8").splitlines()[-1])
        if len(last["gpus"]) != num_gpus or last["run"]["state"] != "running":
            raise RuntimeError("the monitor did not watch what it should")
    return 100 * (after.user + after.system - before.user - before.system) / elapsed_s


@contextmanager
def _train_in_name(run: Path) -> Iterator[None]:
    """Adds a line of telemetry for each step that a training would make."""
    run.mkdir(parents=True)
    (run / ".lock").write_text(f"process {os.getpid()} (training)")
    is_over = threading.Event()

    def write() -> None:
        line = {"wait_s": 0.001, "step_s": _STEP_S - 0.001, "load_s": 0.01, "stages": {"transfer": 4e-4}, "depth": 40}
        line |= {"num_frames": 7000, "num_padded_frames": 7600, "num_utterances": 16, "is_retraced": False}
        with (run / "telemetry.jsonl").open("a", buffering=1) as file:
            position = 0
            while not is_over.wait(_STEP_S):
                file.write(json.dumps({"position": position, "shape": "16x475x90", **line}) + "\n")
                position += 1

    with _run_beside(write, is_over):
        yield


@contextmanager
def _start_on_terminal(command: list[str], folder: str) -> Iterator[subprocess.Popen[bytes]]:
    """What it draws is read and thrown away, as fast as it comes."""
    reader, terminal = pty.openpty()
    root = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=terminal, stdout=terminal, stderr=terminal, close_fds=True
    )
    os.close(terminal)
    drain = threading.Thread(target=_read_all, args=(reader,))
    drain.start()
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
        drain.join()
        os.close(reader)


def _read_all(descriptor: int) -> None:
    try:
        while os.read(descriptor, 65536):
            pass
    except OSError:
        # How Linux tells that nobody has the terminal open any more.
        return


def _wait_for(log: Path) -> None:
    end = time.monotonic() + _START_S
    while not (log.is_file() and log.stat().st_size):
        if time.monotonic() > end:
            raise RuntimeError(f"the monitor did not start within {_START_S:.0f} s")
        time.sleep(0.1)
