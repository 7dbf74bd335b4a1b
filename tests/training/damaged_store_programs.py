"""Commands for a process that forks for each of them; the store of a training is harmed while it runs."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from tests.store.harms import HARMS
from tests.training.trainer_programs import leave_out_costly_parts

# Loaded once, before the first fork.
from myxtts.cli.main import run
from myxtts.training.loop import TrainingLoop
from myxtts.training.trainer import Trainer

__all__ = ["Trainer", "TrainingLoop", "run_command"]


def run_command(arguments: list[str], shown: str, harm: str = "", shard: str = "", run_dir: str = "") -> int:
    """The exit code of a command; what it writes to its error stream goes to the file `shown`."""
    leave_out_costly_parts()
    descriptor = os.open(shown, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 2)
    os.dup2(descriptor, 1)
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    if harm:
        threading.Thread(target=_harm_later, args=(harm, Path(shard), Path(run_dir)), daemon=True).start()
    try:
        run(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def _harm_later(harm: str, shard: Path, run_dir: Path) -> None:
    """As soon as there is a checkpoint to go on from."""
    while not list(run_dir.glob("checkpoints/*.safetensors")):
        time.sleep(0.01)
    HARMS[harm](shard)
