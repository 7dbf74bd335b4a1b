"""What a training ran on and how it was called, for whoever wants to repeat it; without names of people or hosts."""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from myxtts.runtime.hardware import detect_hardware

_PACKAGES = ("myxtts", "tensorflow", "keras", "numpy", "scipy", "soundfile", "soxr", "ml_dtypes", "google-crc32c")
_ABSOLUTE_PATH = re.compile(r"(?<![\w./~])(?!//)/(?:[^\s/]+/)*([^\s/]*)")


def describe_environment(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Versions, machine and command of this process as plain JSON."""
    hardware = detect_hardware()
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [hide_private(text) for text in _name_program(sys.argv if arguments is None else arguments)],
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {name: _find_version(name) for name in _PACKAGES},
        "num_cpus": hardware.num_cpus,
        "ram_gb": round(hardware.ram_bytes / 1e9, 1),
        "gpus": [gpu.name for gpu in hardware.gpus],
    }


def hide_private(text: str) -> str:
    """The text without the home folder, names of the host and the user, and folders that lead to a file."""
    home = str(Path.home())
    if len(home) > 1:
        text = re.sub(rf"(?<![\w.]){re.escape(home)}(?=/|$)", "~", text)
    text = _ABSOLUTE_PATH.sub(r"…/\1", text)
    for name, stand_in in ((socket.gethostname(), "HOST"), (os.environ.get("USER", ""), "USER")):
        # Names that are words of every command line tell nothing.
        if len(name) > 2 and name not in ("localhost", "root"):
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", stand_in, text)
    return text


def _name_program(arguments: Sequence[str]) -> list[str]:
    return [Path(arguments[0]).name, *arguments[1:]] if arguments else []


def _find_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
