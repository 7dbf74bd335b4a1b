"""What a diagnosis is made of: causes of lost time, the changes that are advised, and the gain to expect of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal


class Cause(StrEnum):
    """Causes of lost time. The values are written to the JSON report."""

    RATE_DEFICIT = "rate_deficit"
    BURSTS = "bursts"
    NO_OVERLAP = "no_overlap"
    TRANSFER = "transfer_not_overlapped"
    TOO_MANY_THREADS = "too_many_threads"
    RETRACING = "retracing"
    EPOCH_END = "epoch_end_stall"
    PYTHON_FUNCTIONS = "python_functions"
    SLOW_READS = "small_files_or_slow_disk"
    PADDING = "padding_waste"
    EAGER = "eager_mode"
    WRONG_DEVICE = "wrong_device"
    COMPILE_STORM = "compile_storm"
    HOST_SYNC = "host_synchronisation"
    UNKNOWN_LOOP = "loop_without_trip_count"
    OUTSIDE = "kernels_outside_compiled_step"
    NO_XLA = "xla_off_on_gpu"
    EAGER_OPS = "eager_operations_per_step"
    MANY_COPIES = "many_copies_per_batch"
    FLOAT32 = "float32_on_bfloat16_device"
    SEARCH = "alignment_search_in_step"
    SMALL_BATCH = "batch_too_small"
    PAUSES = "pauses_between_steps"
    IDLE = "device_idle_between_kernels"
    COMPUTE_BOUND = "compute_bound"
    HEALTHY = "healthy"

    @property
    def is_harmless(self) -> bool:
        return self in (Cause.COMPUTE_BOUND, Cause.HEALTHY)

    @property
    def is_of_data(self) -> bool:
        """Whether the cause is that data comes too late."""
        return self in _OF_DATA


_OF_DATA = (
    Cause.RATE_DEFICIT,
    Cause.BURSTS,
    Cause.NO_OVERLAP,
    Cause.TOO_MANY_THREADS,
    Cause.EPOCH_END,
    Cause.PYTHON_FUNCTIONS,
    Cause.SLOW_READS,
)
Basis = Literal["tried", "modelled", "estimated"]
Facts = Mapping[str, float | str]
"""Numbers and names for the placeholders of a sentence."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Speed-up factor (new over old steps per second) with its bounds; `basis` says how it was found."""

    factor: float
    low: float
    high: float
    basis: Basis


@dataclass(frozen=True, slots=True)
class Advice:
    """A change to make. `reason` is a key of `terminal.REASONS`.

    `is_setting` tells a configuration key from a call in the user's own dataset code.
    """

    setting: str
    value: Any
    reason: str
    gain: Gain
    is_setting: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause, the seconds of an average step that it costs, facts for its explanation, and advice, the best first."""

    cause: Cause
    loss_s: float
    facts: Facts = field(default_factory=dict)
    advice: tuple[Advice, ...] = ()

    @property
    def gain(self) -> float:
        """Predicted speed-up of the first advice; 1 without one."""
        return self.advice[0].gain.factor if self.advice else 1.0
