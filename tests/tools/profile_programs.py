"""A tiny step taken apart, for a process with logical devices."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from tests.training.toy_step import Run, cut, make_batch

from myxtts.tools.profile.parts import count_kernels, measure_parts
from myxtts.training.micro_batches import MicroBatch, StepInput


class ToyLearner:
    """What a learner offers to whoever takes its step apart."""

    ema = None

    def __init__(self, strategy: str, accumulation_steps: int, jit_compile: bool) -> None:
        self._run = Run(strategy, "adam", accumulation_steps, jit_compile=jit_compile)
        self.optimizer, self.train_step, self.strategy = self._run.optimizer, self._run.step, self._run.strategy
        self.micro_batches = SimpleNamespace(accumulation=accumulation_steps)

    def cut(self, batches: Sequence[MicroBatch]) -> list[StepInput]:
        return cut(self._run.strategy, batches[0], self.micro_batches.accumulation)

    def train(self, batches: Sequence[MicroBatch], step: int) -> None:
        self._run.train(step, batches[0])


def take_apart(strategy: str, accumulation_steps: int, jit_compile: bool) -> dict[str, float]:
    learner: Any = ToyLearner(strategy, accumulation_steps, jit_compile)
    batch: Any = make_batch(0)
    times = measure_parts(learner, [batch], "8x7x5", num_repeats=2)
    return {
        "whole": times.whole_s,
        "forward": times.forward_s,
        "optimizer": times.optimizer_s,
        "updates": float(learner.optimizer.iterations.numpy()),
        "kernels": count_kernels(learner, [batch]) or 0.0,
    }
