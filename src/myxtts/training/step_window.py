"""The numbers of the steps since the last record, and what a line of metrics.jsonl says of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class StepNumbers:
    """What one step gave, read from the device. `metrics` are the terms of the loss and the like."""

    step: int
    loss: float
    metrics: Mapping[str, float]
    gradient_norm: float
    num_real: float
    is_finite: bool


@dataclass
class StepWindow:
    """Sums over some steps; those that were skipped count for time only."""

    seconds: float = 0.0
    wait_s: float = 0.0
    num_steps: int = 0
    num_good: int = 0
    num_utterances: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)

    def add_time(self, seconds: float, wait_s: float) -> None:
        self.seconds += seconds
        self.wait_s += wait_s
        self.num_steps += 1

    def add_numbers(self, numbers: StepNumbers) -> None:
        if not numbers.is_finite:
            return
        self.num_good += 1
        self.num_utterances += numbers.num_real
        values = {"loss": numbers.loss, **numbers.metrics, "gradient_norm": numbers.gradient_norm}
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def average(self) -> dict[str, float]:
        """Means over the steps that were not skipped; not finite where there was none."""
        return {name: total / self.num_good for name, total in self.sums.items()} or {"loss": math.nan}

    def describe(self, step: int, learning_rate: float, skipped: int, epoch: float, elapsed_s: float) -> dict[str, Any]:
        """The record. Accelerator utilisation is the share of time in which the step did not wait for data."""
        seconds = max(self.seconds, 1e-9)
        return {
            "step": step,
            **self.average(),
            "learning_rate": learning_rate,
            "seconds": self.seconds / max(1, self.num_steps),
            "utterances_per_s": self.num_utterances / seconds,
            "au": 1 - min(1.0, self.wait_s / seconds),
            "data_wait_s": self.wait_s / max(1, self.num_steps),
            "skipped": skipped,
            "epoch": epoch,
            "elapsed_s": elapsed_s,
        }
