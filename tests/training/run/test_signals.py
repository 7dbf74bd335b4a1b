"""Signals in real processes: the first asks for a stop, the second ends at once, and other code gets its own back."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from myxtts.training.run.signals import watch_signals

# A trainer: steps of some length, a save at the end, and then whatever the signal means.
TRAIN = """
import hashlib, os, sys, time
from myxtts.training.run import signals
from myxtts.training.run.signals import watch_signals
mode = sys.argv[1]
signals._SAME_REQUEST_S = float(sys.argv[2])
def work():
    if mode == "busy":  # one call that does not come back to Python for a long time, as a compiler might be
        hashlib.pbkdf2_hmac("sha512", b"x", b"y", 40_000_000)
    else:
        time.sleep(float(mode))
saved = [1500, 2000] if "with-checkpoints" in sys.argv else []
with watch_signals(lambda line: print(line, flush=True), lambda: saved) as stop:
    print("begun", flush=True)
    step = 0
    while not stop.is_requested and step < 3000:
        print("begins", step + 1, flush=True)
        work()
        step += 1
        print("step", step, flush=True)
    print("saved after", stop.name, flush=True)
stop.raise_if_requested()
print("done", flush=True)
"""


@contextmanager
def trainer(mode: str, same_request_s: float = 0.02, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A trainer in its first step; signals of one kind within `same_request_s` are one request."""
    command = [sys.executable, "-c", TRAIN, mode, str(same_request_s), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        read_up_to(process, "begins 1\n")
        try:
            yield process
        finally:
            process.kill()


def read_up_to(process: subprocess.Popen[str], words: str) -> None:
    """Reads what a program prints up to a line that begins with these words."""
    assert process.stdout is not None
    while not (line := process.stdout.readline()).startswith(words):
        assert line, "the program has ended"


def read_rest(process: subprocess.Popen[str]) -> list[str]:
    """The other lines that a program prints, once it has ended, without those that begin a step."""
    assert process.stdout is not None
    lines = [line for line in process.stdout.read().splitlines() if not line.startswith("begins")]
    process.wait(timeout=120)
    return lines


SIGNALS = [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)]
"""Python ends itself by the signal when KeyboardInterrupt is not caught; `myxtts` makes it 130, as its tests show."""


@pytest.mark.parametrize(("number", "status"), SIGNALS)
def test_the_first_signal_stops_at_the_end_of_the_step(number: int, status: int) -> None:
    with trainer("0.02") as process:
        process.send_signal(number)
        lines = [line for line in read_rest(process) if "training stops" not in line]
    assert lines[-1] == f"saved after {signal.Signals(number).name}"
    assert lines[-2].startswith("step "), "the step in which the signal came has ended"
    assert process.returncode == status


@pytest.mark.parametrize(("first", "second", "status"), [(15, 15, 143), (2, 2, 130), (2, 15, 143), (15, 2, 130)])
def test_the_second_signal_ends_at_once(first: int, second: int, status: int) -> None:
    with trainer("600") as process:
        process.send_signal(first)
        # Two signals that a busy machine delivers at once would be one.
        read_up_to(process, signal.Signals(first).name)
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(second)
        lines = read_rest(process)
    assert not any("saved" in line for line in lines)
    assert process.returncode == status


@pytest.mark.parametrize(
    ("words", "kept"), [((), "no step is kept"), (("with-checkpoints",), "step 2,000 is kept, later steps are lost")]
)
def test_both_signals_say_what_is_kept(words: tuple[str, ...], kept: str) -> None:
    with trainer("600", 0.02, *words) as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline().endswith(f"A second signal ends it immediately, without saving: {kept}.\n")
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == f"SIGINT again: training ended without saving: {kept}.\n"
        assert process.wait(timeout=120) == 130


def test_the_second_signal_ends_a_program_whose_output_hangs() -> None:
    program = """
import time
from myxtts.training.run.signals import watch_signals
with watch_signals(lambda _line: time.sleep(600)):
    print("begun", flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        read_up_to(process, "begun")
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 143


def test_the_second_signal_ends_even_a_call_that_never_returns_to_python() -> None:
    with trainer("busy") as process:
        process.send_signal(signal.SIGTERM)
        read_up_to(process, "SIGTERM")
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 143


def test_a_signal_to_process_and_group_is_one_request() -> None:
    with trainer("0.5", same_request_s=60.0) as process:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        assert "saved after SIGTERM" in read_rest(process)
    assert process.returncode == 143


def send_at_random_times(num_signals: int, seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(num_signals):
        number, status = generator.choice(SIGNALS)
        with trainer("0.003") as process:
            time.sleep(generator.uniform(0, 0.1))
            process.send_signal(number)
            lines = read_rest(process)
        assert f"saved after {signal.Signals(number).name}" in lines
        assert process.returncode == status


def test_signals_at_random_times_all_save() -> None:
    send_at_random_times(4, seed=1)


@pytest.mark.soak
def test_fifty_signals_at_random_times_all_save() -> None:
    send_at_random_times(50, seed=2)


def test_behind_the_block_signals_have_their_old_meaning() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    before_threads = set(threading.enumerate())
    with watch_signals() as stop:
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] != before
        assert not stop.is_requested
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    assert signal.set_wakeup_fd(-1) == -1
    assert set(threading.enumerate()) <= before_threads
    assert stop.exit_code == 0
    stop.raise_if_requested()


def wait_for(condition: threading.Event) -> None:
    assert condition.wait(60)


@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
def test_a_request_within_this_process_is_seen(number: int, error: type[BaseException]) -> None:
    announced = threading.Event()
    with watch_signals(lambda _line: announced.set()) as stop:
        os.kill(os.getpid(), number)
        wait_for(announced)
    assert stop.is_requested
    assert stop.name == signal.Signals(number).name
    assert stop.exit_code == 128 + number
    with pytest.raises(error):
        stop.raise_if_requested()


def test_another_thread_leaves_signals_alone() -> None:
    seen: list[object] = []

    def work() -> None:
        before = signal.getsignal(signal.SIGTERM)
        with watch_signals() as stop:
            seen.extend([signal.getsignal(signal.SIGTERM) is before, stop.is_requested])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True, False]


def test_a_signal_to_a_forked_child_does_not_stop_its_parent() -> None:
    program = """
import os, signal, time
from myxtts.training.run.signals import watch_signals
with watch_signals() as stop:
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    time.sleep(0.2)
    assert not stop.is_requested
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM, status
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == 0


def test_a_signal_is_answered_at_once_while_the_main_thread_is_busy_outside_python() -> None:
    """`ctypes.PyDLL`-free C code runs no Python handlers, as TensorFlow does not while it compiles."""
    program = """
import ctypes, os, signal, sys, threading, time
from myxtts.training.run.signals import watch_signals
started = time.monotonic()
def announce(line):
    print(f"{time.monotonic() - started:.2f}", line, flush=True)
with watch_signals(announce) as stop:
    stop.next_stop = "when this is done"
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    usleep = ctypes.CDLL(None).usleep
    while time.monotonic() - started < 3:
        usleep(ctypes.c_uint(3_000_000))
print("done", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=120, capture_output=True, text=True)
    answer, last = done.stdout.splitlines()
    assert 0.5 <= float(answer.split()[0]) < 2.9
    assert "SIGINT: training stops when this is done. A second signal ends it immediately, without saving: " in answer
    assert last == "done"
