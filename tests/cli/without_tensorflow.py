"""Commands in a process of their own that fails if it has loaded TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = (
    "import sys\nfrom myxtts.cli.main import run\ntry:\n    run(sys.argv[1:])\n    code = 0\n"
    "except SystemExit as end:\n    code = end.code or 0\n"
    "sys.exit(99 if {'tensorflow', 'keras'} & set(sys.modules) else code)"
)


def run_without_tensorflow(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`myxtts ARGUMENTS` in a folder; 99 is the exit code of one that has loaded TensorFlow."""
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments], cwd=folder, capture_output=True, text=True, timeout=60
    )
