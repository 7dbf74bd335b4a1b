"""How the step is run: eagerly, as a graph or compiled, and in which numbers. Decided once, purely, with reasons."""

from __future__ import annotations

from dataclasses import dataclass

from myxtts.config.schema import TrainingConfig

STEPS_PER_COMPILED_SHAPE = 75
"""On two CPU cores a compiled step of `tiny` saves 0.3 to 0.5 s, and a shape takes 15 s longer to compile than to trace
on a quiet machine, much longer on a busy one: so many steps pay for a shape in any case."""
BFLOAT16_CAPABILITY = (8, 0)
"""The CUDA compute capability from which on GPUs compute in bfloat16."""
LANES_ON_CPU = 2
"""XLA leaves much of a step to one core, so two halves of a batch side by side are faster than the whole. Not as many
as there are cores: the numbers a run is made of must not depend on the machine that it is resumed on."""
_ORDINARY, _MIXED = "float32", "mixed_bfloat16"


@dataclass(frozen=True)
class Device:
    """What of a device matters here. `capability` is that of CUDA, None for a CPU or an unknown GPU."""

    kind: str
    capability: tuple[int, int] | None = None

    @property
    def is_cpu(self) -> bool:
        return self.kind == "CPU"

    @property
    def has_bfloat16(self) -> bool:
        return self.kind == "TPU" or (self.capability is not None and self.capability >= BFLOAT16_CAPABILITY)


@dataclass(frozen=True)
class Execution:
    """`policy` is the Keras dtype policy the model is made under."""

    is_graph: bool
    is_compiled: bool
    policy: str
    reasons: tuple[str, ...]
    num_lanes: int = 1
    """Pieces of a batch that are computed at the same time."""


def choose_execution(
    training: TrainingConfig, device: Device, *, total_steps: int | None, num_shapes: int
) -> Execution:
    """The same for every session of a run: the number of all steps counts, not of those that are left."""
    is_graph = training.enable_graph_mode and not training.enable_eager_debug
    is_compiled, why = _choose_compiling(training, device, total_steps, num_shapes, is_graph)
    policy, in_numbers = _choose_policy(training, device)
    num_lanes = LANES_ON_CPU if is_compiled and device.is_cpu else 1
    return Execution(is_graph, is_compiled, policy, (why, in_numbers), num_lanes)


def _choose_compiling(
    training: TrainingConfig, device: Device, total_steps: int | None, num_shapes: int, is_graph: bool
) -> tuple[bool, str]:
    if not is_graph:
        key = "enable_eager_debug is true" if training.enable_eager_debug else "enable_graph_mode is false"
        return False, f"Step: eager, operation by operation, because {key}. This is slow."
    asked = training.enable_xla_compilation
    if asked != "auto":
        return asked, f"Step: {'compiled with XLA' if asked else 'graph mode without XLA'}, as asked."
    if not device.is_cpu:
        return True, "Step: compiled with XLA, which pays on GPUs (enable_xla_compilation is auto)."
    least = STEPS_PER_COMPILED_SHAPE * num_shapes
    pays = total_steps is None or total_steps >= least
    verdict = "pays for compiling" if pays else f"does not pay for compiling, one of {least:,} steps would"
    length = _describe_length(training, total_steps)
    return pays, (
        f"Step: {'compiled with XLA' if pays else 'graph mode without XLA'}. {length} on a CPU with {num_shapes} batch "
        f"{'shape' if num_shapes == 1 else 'shapes'} {verdict} (enable_xla_compilation is auto)."
    )


def _describe_length(training: TrainingConfig, total_steps: int | None) -> str:
    if training.minutes is not None and training.steps is None and training.epochs is None:
        return f"A run of {training.minutes:g} minutes"
    return "A run without an end" if total_steps is None else f"A run of {total_steps:,} steps"


def _choose_policy(training: TrainingConfig, device: Device) -> tuple[str, str]:
    if training.mixed_precision == "auto":
        if device.has_bfloat16:
            return _MIXED, "Numbers: bfloat16 where precision allows, which this device has (mixed_precision is auto)."
        reason = "a CPU gains nothing from 16 bits" if device.is_cpu else "this GPU has no bfloat16"
        return _ORDINARY, f"Numbers: float32, because {reason} (mixed_precision is auto)."
    if training.mixed_precision:
        slow = "" if device.has_bfloat16 else " This device has no bfloat16, so it will be slow."
        return _MIXED, f"Numbers: bfloat16 where precision allows, as asked.{slow}"
    return _ORDINARY, "Numbers: float32, as asked."
