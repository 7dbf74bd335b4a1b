"""Processes that are forked from one that has everything imported, instead of importing it themselves.

Python, pydantic and TensorFlow take 1 to 6 s of processor time to import; a fork takes milliseconds. TensorFlow is
imported in the template but never started there, so each process has its own devices, threads and flags. There are two
templates for each worker of the tests: with TensorFlow, and without.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).parents[1]
_LIGHT = (
    "myxtts.cli.main",
    "myxtts.corpus.prepare",
    "myxtts.store.provide",
    "myxtts.store.verify",
    "myxtts.pipeline.open",
    "myxtts.pipeline.loaders.store",
)
_HEAVY = (
    *_LIGHT,
    "myxtts.training.loop",
    "myxtts.training.voice.setup",
    "myxtts.training.voice.validation",
    "myxtts.training.vocoder.setup",
    "myxtts.synthesis.engine",
    "myxtts.synthesis.synthesizer",
)
_templates: list[subprocess.Popen[str]] = []


class StartedProcess:
    """A process that was started by `start_forked`; it is talked to by its standard input and output."""

    def __init__(self, number: int, stdin: TextIO, stdout: TextIO) -> None:
        self._number, self.stdin, self.stdout = number, stdin, stdout

    def end(self) -> None:
        """Closes its standard input, and waits until it has ended."""
        self.stdin.close()
        self.stdout.read()
        self.stdout.close()

    def kill(self) -> None:
        os.kill(self._number, signal.SIGKILL)
        self.end()


def run_forked(
    function: str, arguments: Mapping[str, Any], *, cwd: Path, env: Mapping[str, str], tensorflow: bool
) -> int:
    """Exit code of a process that calls `function` ("package.module:name"), or minus the signal that ended it."""
    order = {"function": function, "arguments": arguments, "cwd": str(cwd), "env": dict(env), "is_awaited": True}
    return _ask(order, tensorflow)


def start_forked(function: str, arguments: Mapping[str, Any], env: Mapping[str, str]) -> StartedProcess:
    """Starts a process with TensorFlow imported, in which warnings are errors, and returns at once."""
    with tempfile.TemporaryDirectory() as folder:
        streams = [str(Path(folder, name)) for name in ("stdin", "stdout")]
        for stream in streams:
            os.mkfifo(stream)
        order = {"function": function, "arguments": arguments, "cwd": str(ROOT), "env": dict(env), "streams": streams}
        number = _ask(order, tensorflow=True)
        stdin = Path(streams[0]).open("w", encoding="utf-8")  # noqa: SIM115 - closed by StartedProcess.end
        return StartedProcess(number, stdin, Path(streams[1]).open(encoding="utf-8"))


def run_code(code: str, arguments: Sequence[str], output: str) -> None:
    """In a forked process: the code, as `python -c` runs it; both streams are written to the file `output`."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = ["-c", *arguments]
    exec(compile(code, "<string>", "exec"), vars(sys.modules["__main__"]))  # noqa: S102 - it is the test's own


def end_templates() -> None:
    """Called when the tests end."""
    for template in _templates:
        template.communicate()
    _templates.clear()


def _ask(order: Mapping[str, Any], tensorflow: bool) -> int:
    template = _start_template(tensorflow)
    assert template.stdin is not None
    assert template.stdout is not None
    template.stdin.write(json.dumps(order) + "\n")
    template.stdin.flush()
    answer = template.stdout.readline()
    assert answer, f"the template ended with {template.wait()}"
    return int(answer)


@cache
def _start_template(tensorflow: bool) -> subprocess.Popen[str]:
    program = f"from tests.template_process import serve; serve({tensorflow})"
    template = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"} if tensorflow else None,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    _templates.append(template)
    return template


def serve(tensorflow: bool) -> None:
    """Forks for each line of standard input; the child returns from here as the main program of a process does."""
    before = dict(os.environ)
    for module in _HEAVY if tensorflow else _LIGHT:
        import_module(module)
    # Variables that an import sets unless the user has: the forked process would set them too.
    added = {name: value for name, value in os.environ.items() if name not in before}
    started: set[int] = set()
    while line := sys.stdin.readline():
        started -= {number for number in started if os.waitpid(number, os.WNOHANG)[0]}
        order = json.loads(line)
        process = os.fork()
        if process == 0:
            _call(**{**order, "env": {**added, **order["env"]}})
            return
        if order.get("is_awaited"):
            answer = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        else:
            started.add(process)
            answer = process
        print(answer, flush=True)


def _call(
    function: str,
    arguments: Mapping[str, Any],
    cwd: str,
    env: Mapping[str, str],
    streams: Sequence[str] = (),
    is_awaited: bool = False,
) -> None:
    if not is_awaited:
        for number, stream in enumerate(streams):
            os.dup2(os.open(stream, os.O_WRONLY if number else os.O_RDONLY), number)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        warnings.simplefilter("error")
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    module, _, name = function.partition(":")
    getattr(import_module(module), name)(**arguments)
