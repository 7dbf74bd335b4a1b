"""Trainers that do nothing but save, for processes that are killed, starved or cut off from their disk.

A checkpoint of a step holds nothing but what follows from its step, so that any mixture of two can be told.
"""

from __future__ import annotations

import threading
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from myxtts.storage.tensor_file import Array
from myxtts.training.run.checkpoint import Checkpoint, CheckpointFolder
from myxtts.training.run.saver import BackgroundSaver

SHAPES = {"model/kernel": (40, 50), "model/bias": (50,), "average/kernel": (40, 50), "optimizer/00001": (40, 50)}


def make_arrays(step: int) -> dict[str, Array]:
    named: dict[str, Array] = {"optimizer/00000": np.array(step, np.int64)}
    for number, (name, shape) in enumerate(SHAPES.items()):
        named[name] = np.full(shape, step + number / 8, np.float32)
    return named


def make_state(step: int) -> dict[str, Any]:
    return {"step": step, "feed_position": 3 * step, "nested": {"score": step / 7}}


def is_of_one_step(checkpoint: Checkpoint) -> bool:
    expected = make_arrays(checkpoint.step)
    return (
        checkpoint.state == make_state(checkpoint.step)
        and list(checkpoint.arrays) == list(expected)
        and all(
            checkpoint.arrays[name].dtype == array.dtype and np.array_equal(checkpoint.arrays[name], array)
            for name, array in expected.items()
        )
    )


def load_best(checkpoints: CheckpointFolder) -> Checkpoint | None:
    best = checkpoints.read_best()
    return checkpoints.load(best.step) if best is not None else None


def save_one(folder: str, step: int) -> None:
    """Saves one checkpoint in the foreground and marks it as the best."""
    checkpoints = CheckpointFolder(Path(folder))
    checkpoints.sweep()
    checkpoints.save(step, make_arrays(step), make_state(step))
    checkpoints.mark_best(step, 1 / step)


def save_in_background(folder: str, num_steps: int) -> dict[str, Any]:
    """A training that saves after every step, whatever happens; gives what it told the user."""
    warnings: list[str] = []
    checkpoints = CheckpointFolder(Path(folder), warn=warnings.append)
    first = (checkpoints.list_steps() or [0])[-1] + 1
    with BackgroundSaver(checkpoints, warnings.append) as saver:
        for step in range(first, first + num_steps):
            saver.save(step, make_arrays(step), make_state(step), best_score=1.0 if step % 5 == 1 else None)
    names = [thread.name for thread in threading.enumerate()]
    return {"warnings": warnings, "threads": names}


def save_until_killed(folder: str) -> None:
    """Goes on from the newest checkpoint, as a resumed training does, and saves after every step."""
    checkpoints = CheckpointFolder(Path(folder))
    checkpoints.sweep()
    newest = checkpoints.load_newest()
    start = 0
    if newest is not None:
        assert is_of_one_step(newest), f"step {newest.step} is mixed"
        start = newest.step
    with BackgroundSaver(checkpoints) as saver:
        for step in count(start + 1):
            saver.save(step, make_arrays(step), make_state(step), best_score=1 / step if step % 3 == 0 else None)
