"""Runs writers of a store in processes of their own, and kills them: at a named point, or at any moment.

A helper process has everything imported and forks for each run, so that a run costs milliseconds and a kill falls into
the work, not into the start of Python.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from tests.store.corpora import DATA, SmallCorpus, small_segments

import myxtts.storage.atomic
from myxtts.errors import MyXTTSError
from myxtts.store.durations import write_durations
from myxtts.store.update import compact_store
from myxtts.store.verify import verify_store

KILLED = -signal.SIGKILL


@dataclass(frozen=True)
class Order:
    """One run: what to do with the corpus in a folder, and what happens to the process meanwhile."""

    folder: str
    action: str = "precompute"
    fault: str = ""
    kill_after_s: float | None = None
    max_file_bytes: int | None = None
    settings: dict[str, Any] | None = None


@dataclass(frozen=True)
class Outcome:
    """`status` is the exit code, or minus the number of the signal that ended the process."""

    status: int
    seconds: float
    error: str = ""


class Runner:
    """The helper process; use it as a context."""

    def __enter__(self) -> Self:
        program = "from tests.store.runner import serve; serve()"
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def run(self, folder: Path, action: str = "precompute", **options: Any) -> Outcome:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(Order(str(folder), action, **options))) + "\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._process.stdout.readline()))


def serve() -> None:
    """Takes orders from standard input until it ends."""
    for line in sys.stdin:
        print(json.dumps(asdict(_carry_out(Order(**json.loads(line))))), flush=True)


def _carry_out(order: Order) -> Outcome:
    read_end, write_end = os.pipe()
    started = time.monotonic()
    process = os.fork()
    if process == 0:
        os._exit(_work(order, write_end))
    os.close(write_end)
    if order.kill_after_s is not None:
        time.sleep(order.kill_after_s)
        os.kill(process, signal.SIGKILL)
    with os.fdopen(read_end, encoding="utf-8") as pipe:
        error = pipe.read()
    _, status = os.waitpid(process, 0)
    return Outcome(os.waitstatus_to_exitcode(status), time.monotonic() - started, error)


def _work(order: Order, pipe: int) -> int:
    if order.fault:
        myxtts.storage.atomic.plan_faults(order.fault)
    if order.max_file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order.max_file_bytes, order.max_file_bytes))
    try:
        ACTIONS[order.action](SmallCorpus(Path(order.folder)), order.settings or {})
    except MyXTTSError as error:
        os.write(pipe, str(error).encode())
        return error.exit_code
    except Exception as error:  # noqa: BLE001 -- whatever it is, the test shall see it
        os.write(pipe, repr(error).encode())
        return 1
    return 0


def _precompute(corpus: SmallCorpus, settings: dict[str, Any]) -> None:
    corpus.precompute(DATA.model_copy(update=settings))


def _rebuild(corpus: SmallCorpus, settings: dict[str, Any]) -> None:
    corpus.precompute(DATA.model_copy(update=settings), rebuild=True)


def _compact(corpus: SmallCorpus, _: dict[str, Any]) -> None:
    with small_segments(3):
        compact_store(corpus.store_folder)


def _fix(corpus: SmallCorpus, _: dict[str, Any]) -> None:
    verify_store(corpus.store_folder, fix=True, num_threads=1)


def _align(corpus: SmallCorpus, _: dict[str, Any]) -> None:
    """Gives every utterance durations: all of its frames to its first token."""
    store = corpus.open_store()
    durations = {}
    for row in range(len(store)):
        values = np.zeros(store.entry(row, "tokens").length, np.int32)
        values[0] = store.entry(row, "mel").length
        durations[store.id_of(row)] = values
    with small_segments(4):
        write_durations(corpus.store_folder, durations)


ACTIONS: dict[str, Callable[[SmallCorpus, dict[str, Any]], None]] = {
    "precompute": _precompute,
    "rebuild": _rebuild,
    "compact": _compact,
    "fix": _fix,
    "align": _align,
}
