"""`myxtts studio` as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class StudioProcess:
    """A running studio: its process, and what it printed with --json."""

    process: subprocess.Popen[str]
    printed: dict[str, Any]

    @property
    def address(self) -> str:
        return str(self.printed["address"])


@contextmanager
def run_studio(corpus: Path, *arguments: str, port: int | str = 0) -> Iterator[StudioProcess]:
    """Starts a studio and waits until it listens; kills it in the end if it still runs."""
    command = [sys.executable, "-m", "myxtts", "studio", str(corpus), "--json", "--port", str(port), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        printed = ""
        while not printed.endswith("}\n"):
            line = process.stdout.readline()
            assert line, process.communicate()
            printed += line
        yield StudioProcess(process, json.loads(printed))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
