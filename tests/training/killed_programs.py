"""Trainings for a process that forks for each of them, which leave behind what they said when they are killed."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

from tests.training.trainer_programs import train

# Loaded once, before the first fork.
from myxtts.training.loop import TrainingLoop
from myxtts.training.trainer import Trainer

__all__ = ["Trainer", "TrainingLoop", "train_until_killed"]

GOING_ON, NO_CHECKPOINT = "Resuming from step", "There is no checkpoint"
"""How a training with --resume says that it has opened its run."""


def train_until_killed(said_file: str, kill_after_opening_s: float | None = None, **options: Any) -> dict[str, Any]:
    """Trains; a kill may come some seconds after the run was opened."""

    def overhear(line: str) -> None:
        with Path(said_file).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        if kill_after_opening_s is not None and line.startswith((GOING_ON, NO_CHECKPOINT)):
            threading.Timer(kill_after_opening_s, os.kill, (os.getpid(), signal.SIGKILL)).start()

    return train(overhear=overhear, **options)
