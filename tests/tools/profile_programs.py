"""A tiny step taken apart, for a process with logical devices."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from tests.training.programs import Run, compute_loss, cut, make_batch

from myxtts.config.schema import XTTSConfig
from myxtts.tools.profile.parts import StepParts
from myxtts.training.execution import Execution
from myxtts.training.step import MicroBatch


class ToyLearner:
    """What a learner offers to whoever takes its step apart."""

    num_batches_per_step, average = 1, None

    def __init__(self, strategy: str, accumulation_steps: int, jit_compile: bool) -> None:
        self._run = Run(strategy, "momentum", accumulation_steps, jit_compile=jit_compile)
        self.strategy, self.model, self.optimizer = self._run.strategy, self._run.model, self._run.optimizer
        self.loss = compute_loss
        self.micro_batches = SimpleNamespace(accumulation=accumulation_steps)

    def cut(self, batches: Sequence[MicroBatch]) -> list[MicroBatch]:
        return cut(self.strategy, batches[0], self.micro_batches.accumulation)

    def train(self, batches: Sequence[MicroBatch], step: int) -> None:
        self._run.train(step, batches[0])


def take_apart(strategy: str, accumulation_steps: int, jit_compile: bool) -> dict[str, float]:
    learner: Any = ToyLearner(strategy, accumulation_steps, jit_compile)
    batch: Any = make_batch(0)
    parts = StepParts(learner, XTTSConfig(), Execution(True, jit_compile, "float32", ()))
    times = parts.measure([batch], "8x7x5", num_repeats=2)
    return {
        "whole": times.whole_s,
        "forward": times.forward_s,
        "optimizer": times.optimizer_s,
        "average": times.average_s,
        "updates": float(learner.optimizer.iterations.numpy()),
    }
