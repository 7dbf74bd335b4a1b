"""`myxtts` commands in processes of their own, forked from a template: each costs what it does, and not its imports.

A command has its own folder, environment and streams, and ends as a program does; one that loads TensorFlow unasked
ends with 99. That the real program starts and answers is tested with real ones, as is everything about signals and
colours.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.template_process import run_forked


def run_myxtts(
    *arguments: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    tensorflow: bool = False,
) -> subprocess.CompletedProcess[str]:
    """What `myxtts ARGUMENTS` did; `tensorflow` says that the command needs TensorFlow, which it then finds loaded."""
    done = run_myxtts_bytes(*arguments, cwd=cwd, env=env, tensorflow=tensorflow)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def run_myxtts_bytes(
    *arguments: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    tensorflow: bool = False,
) -> subprocess.CompletedProcess[bytes]:
    """As `run_myxtts`, for commands that write sound to standard output."""
    words = [str(argument) for argument in arguments]
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        streams[0].write_bytes(stdin)
        code = run_forked(
            "tests.myxtts_process:run_command",
            {"arguments": words, "streams": [str(stream) for stream in streams]},
            cwd=cwd or Path.cwd(),
            env={**os.environ, "COLUMNS": "160", **(env or {})},
            tensorflow=tensorflow,
        )
        return subprocess.CompletedProcess(words, code, *(stream.read_bytes() for stream in streams[1:]))


def run_command(arguments: list[str], streams: Sequence[str]) -> None:
    """In the forked process: the command, as `python -m myxtts` runs it."""
    from myxtts.cli.main import run
    from myxtts.storage.atomic import plan_faults

    for number, path in enumerate(streams):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND if number else os.O_RDONLY
        os.dup2(os.open(path, flags, 0o600), number)
    plan_faults(os.environ.get("MYXTTS_FAULT", ""))
    sys.argv = ["myxtts", *arguments]
    is_loaded = "tensorflow" in sys.modules
    try:
        run(arguments)
    finally:
        if not is_loaded and {"tensorflow", "keras"} & set(sys.modules):
            sys.exit(99)
