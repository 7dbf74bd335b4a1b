"""`myxtts monitor` as people run it: in a process of its own, beside a training, on a terminal and without one."""

from __future__ import annotations

import csv
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.tools.fake_watch import add_lines, make_steps, take_run

from myxtts.cli.main import app
from myxtts.errors import MyXTTSError

ROOT = Path(__file__).parents[2]
LIGHT = (
    "import sys\nfrom myxtts.cli.main import run\ntry:\n    run(sys.argv[1:])\n"
    "finally:\n    assert not {'tensorflow', 'keras'} & set(sys.modules)"
)
TRAINING = """
import json, os, sys, time
from pathlib import Path
run = Path(sys.argv[1])
run.mkdir(parents=True)
(run / ".lock").write_text(f"process {os.getpid()} (training)")
time.sleep(float(sys.argv[2]))
with (run / "telemetry.jsonl").open("a", buffering=1) as file:
    for position in range(int(sys.argv[3])):
        time.sleep(0.02)
        step = {"position": position, "wait_s": 0.015, "step_s": 0.005, "depth": 3, "num_utterances": 8}
        line = json.dumps(step)
        # Half a line is what a reader may find at any moment.
        file.write(line[:20]); file.flush(); file.write(line[20:] + chr(10))
"""


def start(*arguments: str, cwd: Path, **streams: Any) -> subprocess.Popen[str]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **streams}
    return subprocess.Popen([sys.executable, "-c", LIGHT, "monitor", *arguments], cwd=cwd, **streams)


def run_monitor(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs the command and checks that TensorFlow was not loaded."""
    process = start(*arguments, cwd=cwd)
    out, error = process.communicate(timeout=120)
    assert "Traceback" not in error, error
    return subprocess.CompletedProcess(process.args, process.returncode, out, error)


def wait_until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not is_true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def read_log(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def test_once_looks_once_and_says_that_there_is_no_gpu(tmp_path: Path) -> None:
    add_lines(tmp_path / "runs" / "anna" / "telemetry.jsonl", make_steps(0, 60))
    take_run(tmp_path / "runs" / "anna")
    done = run_monitor("--once", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.count("No NVIDIA GPU: ") == 1
    assert "Run runs/anna  running" in done.stdout
    assert "CPU" in done.stdout
    assert "40.0 batches" in done.stdout


def test_json_is_one_object_and_the_log_is_named_in_it(tmp_path: Path) -> None:
    arguments = ["--duration", "0.6", "--interval", "0.2", "--log-file", "log.csv"]
    done = run_monitor(*arguments, "--json", cwd=tmp_path)
    assert done.returncode == 0
    summary = json.loads(done.stdout)
    assert summary["log_file"] == "log.csv"
    assert 1 <= summary["num_samples"] <= 3
    assert summary["seconds"] > 0.5
    assert summary["run"] is None
    with (tmp_path / "log.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == summary["num_samples"]


def test_warnings_are_in_the_language_that_was_asked_for(tmp_path: Path) -> None:
    add_lines(tmp_path / "runs" / "anna" / "telemetry.jsonl", make_steps(0, 60, wait_s=0.1))
    take_run(tmp_path / "runs" / "anna")
    done = run_monitor("--once", "--lang", "fa", "--json", cwd=tmp_path)
    assert done.returncode == 0
    (warning,) = json.loads(done.stdout)["warnings"]
    assert warning["kind"] == "starvation"
    for text in (warning["message"], done.stderr):
        assert "۵۰٪" in text
        assert "waits for data" not in text


def test_launcher_is_the_same_command(tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "utilities" / "gpu_monitor.py")]
    program += ["--log-file", "gpu.jsonl", "--duration", "0.3", "--interval", "0.1"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert 1 <= len(read_log(tmp_path / "gpu.jsonl")) <= 3


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (["--log-file", "log.txt"], 2, ".csv"),
        (["--lang", "de"], 2, "one of en, fa"),
        (["--run", "file"], 2, "is a file"),
        (["--run", "file", "--wait"], 2, "is a file"),
        (["--run", "nowhere"], 2, "nowhere does not exist"),
        (["--run", "."], 2, "no run in ."),
        (["--log-file", "file/log.csv"], 7, "Could not write"),
    ],
)
def test_what_cannot_be_is_refused_before_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], exit_code: int, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(MyXTTSError) as caught:
        app(["monitor", *arguments, "--once"], standalone_mode=False)
    assert caught.value.exit_code == exit_code
    assert words in str(caught.value)


def test_a_training_of_another_process_is_followed_from_before_its_start_to_its_end(tmp_path: Path) -> None:
    run, log = tmp_path / "runs" / "anna", tmp_path / "log.jsonl"
    arguments = ["--run", "runs/anna", "--wait", "--interval", "0.1", "--log-file", "log.jsonl", "--json"]
    watcher = start(*arguments, cwd=tmp_path)
    wait_until(lambda: len(read_log(log)) > 0)
    training = subprocess.Popen([sys.executable, "-c", TRAINING, str(run), "0.5", "150"])
    training.wait(timeout=120)
    wait_until(lambda: read_log(log)[-1]["run"]["state"] == "ended")
    watcher.send_signal(signal.SIGINT)
    out, error = watcher.communicate(timeout=120)
    assert watcher.returncode == 130, error
    samples = read_log(log)
    states = [sample["run"]["state"] for sample in samples]
    # How long it starts depends on how busy the machine is.
    assert [state for state in dict.fromkeys(states) if state != "starting"] == ["absent", "running", "ended"]
    assert sum(sample["run"]["num_new_steps"] for sample in samples) == 150
    positions = [sample["run"]["position"] for sample in samples if sample["run"]["position"] is not None]
    assert positions == sorted(positions)
    assert positions[-1] == 149
    assert "starvation" in {kind for sample in samples for kind in sample["warnings"]}
    summary = json.loads(out)
    assert summary["num_samples"] == len(samples)
    assert summary["run"]["au"]["last"] == pytest.approx(0.25, abs=0.01)
    assert summary["run"]["last"]["depth"] == pytest.approx(3)


@contextmanager
def open_terminal(screen: list[bytes]) -> Iterator[int]:
    """A terminal of 100 by 30; what is written to it ends up in `screen`."""
    reader, terminal = pty.openpty()

    def read() -> None:
        try:
            while content := os.read(reader, 65536):
                screen.append(content)
        except OSError:
            return

    thread = threading.Thread(target=read)
    thread.start()
    yield terminal
    os.close(terminal)
    thread.join()
    os.close(reader)


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_cleanly_with_a_whole_log(tmp_path: Path, number: int, exit_code: int) -> None:
    log, screen = tmp_path / "log.csv", list[bytes]()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    environment.pop("NO_COLOR", None)
    with open_terminal(screen) as terminal:
        arguments = ["--interval", "0.1", "--log-file", str(log)]
        process = start(
            *arguments, cwd=tmp_path, stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, env=environment
        )
        wait_until(lambda: log.is_file() and log.read_text().count("\n") >= 6)
        process.send_signal(number)
        _, error = process.communicate(timeout=120)
    assert process.returncode == exit_code, error
    assert "Traceback" not in error
    text = log.read_text()
    assert text.endswith("\n")
    rows = list(csv.reader(text.splitlines()))
    assert {len(row) for row in rows} == {len(rows[0])}
    shown = b"".join(screen).decode()
    # It used the other screen of the terminal, left it, showed the cursor again, and left its last look behind.
    before, _, after = shown.rpartition("\x1b[?1049l")
    assert before.count("\x1b[?1049h") == 1
    assert before.count("myxtts monitor") >= 3
    assert "No NVIDIA GPU" in after
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l")


def test_help_names_every_option_with_examples(tmp_path: Path) -> None:
    done = run_monitor("--help", cwd=tmp_path)
    assert done.returncode == 0
    for part in ("Examples", "--run", "--wait", "--interval", "--duration", "--once", "--log-file", "--lang", "--json"):
        assert part in done.stdout
