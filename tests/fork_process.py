"""A process with everything imported that forks for each call: a call costs milliseconds, and may be killed or starved.

A fault is planned, a file size limited or a kill sent in the child only, so that it falls into the work and not into
the start of Python.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, Self

from tests.template_process import start_forked

import myxtts.storage.atomic
from myxtts.errors import MyXTTSError

KILLED = -signal.SIGKILL


@dataclass(frozen=True)
class Outcome:
    """`status` is the exit code, or minus the number of the signal that ended the child; `error` what it raised."""

    status: int
    seconds: float
    result: Any = None
    error: str = ""


class ForkProcess:
    """Runs functions of one test module by name; use it as a context."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __enter__(self) -> Self:
        self._process = start_forked("tests.fork_process:serve", {"module": self._module}, os.environ)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.end()

    def run(
        self,
        function: str,
        *,
        fault: str = "",
        kill_after_s: float | None = None,
        max_file_bytes: int | None = None,
        **arguments: Any,
    ) -> Outcome:
        """What became of `function` in a child of its own."""
        order = [function, arguments, fault, kill_after_s, max_file_bytes]
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._process.stdout.readline()))


def serve(module: str) -> None:
    """Takes orders from standard input until it ends."""
    functions = import_module(module)
    for line in sys.stdin:
        function, arguments, fault, kill_after_s, max_file_bytes = json.loads(line)
        call = getattr(functions, function)
        print(json.dumps(asdict(_carry_out(call, arguments, fault, kill_after_s, max_file_bytes))), flush=True)


def _carry_out(
    call: Any, arguments: dict[str, Any], fault: str, kill_after_s: float | None, max_file_bytes: int | None
) -> Outcome:
    read_end, write_end = os.pipe()
    started = time.monotonic()
    process = os.fork()
    if process == 0:
        if fault:
            myxtts.storage.atomic.plan_faults(fault)
        if max_file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))
        os._exit(_work(call, arguments, write_end))
    os.close(write_end)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        os.kill(process, signal.SIGKILL)
    with os.fdopen(read_end, encoding="utf-8") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(process, 0)
    told = json.loads(answer) if answer else {}
    return Outcome(os.waitstatus_to_exitcode(status), time.monotonic() - started, **told)


def _work(call: Any, arguments: dict[str, Any], pipe: int) -> int:
    try:
        told, status = {"result": call(**arguments)}, 0
    except MyXTTSError as error:
        told, status = {"error": str(error)}, error.exit_code
    except BaseException:  # noqa: BLE001 -- whatever it is, the test shall see it
        told, status = {"error": traceback.format_exc()}, 1
    os.write(pipe, json.dumps(told).encode())
    return status
