"""Ctrl-C and SIGTERM never leave a lock taken, and end a program that waits for its threads."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

LOCKING = """
import os, signal, threading, time
from myxtts.runtime.interrupt import raise_on_signals

raise_on_signals()
is_working, received, semaphore = threading.Event(), threading.Event(), threading.Semaphore(0)

def send():
    while True:
        is_working.wait()
        time.sleep(0.002)
        os.kill(os.getpid(), signal.SIGINT)
        received.wait()
        received.clear()

threading.Thread(target=send, daemon=True).start()
started = time.monotonic()
for number in range(100):
    # On a busy machine a round may take seconds.
    if number >= 10 and time.monotonic() - started > 60:
        break
    try:
        is_working.set()
        while True:
            semaphore.release()
            semaphore.acquire()
    except KeyboardInterrupt:
        is_working.clear()
    assert semaphore._cond._lock.acquire(timeout=60), "the lock is still taken"
    semaphore._cond._lock.release()
    received.set()
print("all released")
"""

WAITING = """
import threading
from myxtts.runtime.interrupt import raise_on_signals

raise_on_signals()
print("waits", flush=True)
try:
    threading.Event().wait()
finally:
    print("cleaned up", flush=True)
"""


def test_no_signal_leaves_a_lock_taken() -> None:
    done = subprocess.run([sys.executable, "-c", LOCKING], capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout == "all released\n", done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)])
def test_a_program_that_waits_for_a_thread_ends_cleanly(number: signal.Signals, code: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    time.sleep(0.05)
    process.send_signal(number)
    rest, _ = process.communicate(timeout=120)
    assert rest == "cleaned up\n"
    assert process.returncode == code
