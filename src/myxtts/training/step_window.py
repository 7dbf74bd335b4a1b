"""Means of losses, step times, throughput and utilisation over the steps of one line of metrics.jsonl."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from myxtts.training.step import StepNumbers


@dataclass
class StepWindow:
    """Sums over the steps since the last record; those that were skipped count for time only.

    Steps are timed from the request for their batches to the next step. What lies between two steps, such as
    validation, samples and checkpoints, is only in the wall-clock time since the window was made.
    """

    seconds: float = 0.0
    wait_s: float = 0.0
    num_steps: int = 0
    num_good: int = 0
    num_utterances: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)
    started_at: float = field(default_factory=time.perf_counter)

    def add_time(self, seconds: float, wait_s: float) -> None:
        """Adds the duration of a step, and how long it waited for its batches."""
        self.seconds += seconds
        self.wait_s += wait_s
        self.num_steps += 1

    def add_numbers(self, numbers: StepNumbers) -> None:
        """The numbers of one step, read from the device."""
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

    def measure_rates(self, device_busy: float | None = None) -> dict[str, float]:
        """Time and throughput. Accelerator utilisation `au` is `device_busy`, measured on the GPU, where it is known.

        Otherwise it is `not_waiting`, the share of step time without data wait. `wall_share` is the share of the wall
        clock spent in steps, `wall_au` the same share of `au`: checkpoints, validation and samples count against both.
        """
        seconds, num_steps = max(self.seconds, 1e-9), max(1, self.num_steps)
        wall_s = max(time.perf_counter() - self.started_at, seconds)
        not_waiting = 1 - min(1.0, self.wait_s / seconds)
        au = not_waiting if device_busy is None else device_busy
        return {
            "seconds": self.seconds / num_steps,
            "utterances_per_s": self.num_utterances / seconds,
            "au": au,
            **({} if device_busy is None else {"device_busy": device_busy}),
            "not_waiting": not_waiting,
            "data_wait_s": self.wait_s / num_steps,
            "wall_seconds": wall_s / num_steps,
            "wall_utterances_per_s": self.num_utterances / wall_s,
            "wall_share": seconds / wall_s,
            "wall_au": au * seconds / wall_s,
        }
