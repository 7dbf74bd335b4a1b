"""Chooses how a training step runs: eager, graph or XLA; float32 or bfloat16; and micro-batches that fit the memory.

Pure functions of settings and device, with reasons for the user. `MicroBatchMemory` is a file of the micro-batch sizes
that were found to fit, so that a run does not run out of memory twice.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from myxtts.config.model import ModelConfig
from myxtts.config.schema import TrainingConfig
from myxtts.errors import HardwareError, StorageError
from myxtts.runtime.plan import BFLOAT16_CAPABILITY
from myxtts.storage.json_file import NO_OTHER_FIELDS, try_read_json, write_json
from myxtts.types import Say

STEPS_PER_COMPILED_SHAPE = {"CPU": 75, "GPU": 150}
"""Steps that pay for compiling one batch shape. On two CPU cores a compiled step of `tiny` saves 0.3 to 0.5 s, and a
shape takes 15 s longer to compile than to trace on a quiet machine, much longer on a busy one. For GPUs an estimate: a
shape takes about 30 s with eight cores, and a step that is not compiled starts about 20,000 operations from the host at
10 microseconds each, so that compiling saves 0.2 s a step. The cache of compiled steps does not count: the decision is
the same in every session of a run, whether something is in the cache or not."""
LANES_ON_CPU = 2
"""XLA leaves much of a step to one core, so two halves of a batch side by side are faster than the whole. Not as many
as there are cores: the numbers a run is made of must not depend on the machine that it is resumed on."""
_FLOAT32, _MIXED_BFLOAT16 = "float32", "mixed_bfloat16"


@dataclass(frozen=True)
class Device:
    """Kind (CPU, GPU) and CUDA compute capability, None for a CPU or an unknown GPU."""

    kind: str
    capability: tuple[int, int] | None = None

    @property
    def is_cpu(self) -> bool:
        return self.kind == "CPU"

    @property
    def has_bfloat16(self) -> bool:
        return self.capability is not None and self.capability >= BFLOAT16_CAPABILITY


@dataclass(frozen=True)
class Execution:
    """Mode of the step (graph, XLA, dtype policy, lanes), with the reasons as sentences for the user.

    `policy` is the Keras dtype policy that the model is built under.
    """

    is_graph: bool
    is_compiled: bool
    policy: str
    reasons: tuple[str, ...]
    num_lanes: int = 1
    """Pieces that the rows of a batch are split into and that run concurrently; more than 1 only with XLA on CPUs."""
    is_search_chunked: bool = False
    """Alignments are searched in chunks of frames, which is faster on GPUs, or frame by frame; both find the same."""
    sums_by_row: bool = False
    """Gradients of convolution kernels are added up over the rows first: faster with XLA on CPUs, slower without it."""


def choose_execution(
    training: TrainingConfig, device: Device, *, total_steps: int | None, num_shapes: int | None
) -> Execution:
    """Chooses graph mode, XLA and dtype policy; the same in every session of a run.

    The decision depends on the number of all steps of the run, not of those that are left. `num_shapes` is None where
    the corpus is not known yet, and auto takes no more shapes than pay.
    """
    is_graph = training.enable_graph_mode and not training.enable_eager_debug
    is_compiled, why = _choose_compiling(training, device, total_steps, num_shapes, is_graph)
    policy, in_numbers = _choose_policy(training, device)
    is_cpu_compiled = is_compiled and device.is_cpu
    return Execution(
        is_graph,
        is_compiled,
        policy,
        (why, in_numbers),
        num_lanes=LANES_ON_CPU if is_cpu_compiled else 1,
        is_search_chunked=not device.is_cpu,
        sums_by_row=is_cpu_compiled,
    )


def _choose_compiling(
    training: TrainingConfig, device: Device, total_steps: int | None, num_shapes: int | None, is_graph: bool
) -> tuple[bool, str]:
    """Whether to compile with XLA, and why. `auto` compiles only runs that are long enough to pay for it."""
    if not is_graph:
        key = "enable_eager_debug is true" if training.enable_eager_debug else "enable_graph_mode is false"
        return False, f"Step: eager mode, because {key}. This is slow."
    asked = training.enable_xla_compilation
    if asked != "auto":
        return asked, f"Step: {'compiled with XLA' if asked else 'graph mode without XLA'}, as asked."
    least = STEPS_PER_COMPILED_SHAPE["CPU" if device.is_cpu else "GPU"] * (num_shapes or 1)
    pays = total_steps is None or total_steps >= least
    length = _describe_length(training, total_steps)
    shapes = "its batch shapes"
    if num_shapes is not None:
        shapes = f"{num_shapes} batch {'shape' if num_shapes == 1 else 'shapes'}"
    if pays:
        return True, f"Step: compiled with XLA. {length} is long enough for {shapes} (enable_xla_compilation is auto)."
    return False, (
        f"Step: graph mode without XLA. {length} is too short to compile {shapes}: XLA pays from {least:,} steps "
        f"(enable_xla_compilation is auto)."
    )


def _describe_length(training: TrainingConfig, total_steps: int | None) -> str:
    if training.minutes is not None and training.steps is None and training.epochs is None:
        return f"A run of {training.minutes:g} minutes"
    return "A run of unknown length" if total_steps is None else f"A run of {total_steps:,} steps"


def _choose_policy(training: TrainingConfig, device: Device) -> tuple[str, str]:
    """Keras dtype policy, and why: `auto` takes bfloat16 wherever the device has it."""
    if training.mixed_precision == "auto":
        if device.has_bfloat16:
            return (
                _MIXED_BFLOAT16,
                "Precision: bfloat16 mixed precision, which this GPU supports (mixed_precision is auto).",
            )
        reason = "16-bit brings nothing on a CPU" if device.is_cpu else "this GPU does not support bfloat16"
        return _FLOAT32, f"Precision: float32, because {reason} (mixed_precision is auto)."
    if training.mixed_precision:
        slow = "" if device.has_bfloat16 else " This device does not support bfloat16, so it will be slow."
        return _MIXED_BFLOAT16, f"Precision: bfloat16 mixed precision, as asked.{slow}"
    return _FLOAT32, "Precision: float32, as asked."


@dataclass(frozen=True)
class MicroBatches:
    """One optimizer step: `accumulation` micro-batches of `batch_size` rows each."""

    __pydantic_config__ = NO_OTHER_FIELDS

    batch_size: int
    accumulation: int

    def __post_init__(self) -> None:
        assert self.batch_size >= 1, f"a micro-batch of {self.batch_size} rows"
        assert self.accumulation >= 1, f"{self.accumulation} micro-batches"

    @property
    def num_rows(self) -> int:
        """Rows that a batch is padded to; padding rows count for nothing in the step."""
        return self.batch_size * self.accumulation

    def halve(self, device: str = "the device") -> MicroBatches:
        """Half the rows (rounded up), twice the micro-batches: the same step with less memory.

        Raises HardwareError when one row is left.
        """
        if self.batch_size == 1:
            raise HardwareError(
                f"Out of memory on {device}, even with a micro-batch of one utterance.",
                next_step="Choose a smaller model (--model-size), set data.max_mel_frames lower, or end other "
                "programs on the device.",
            )
        return MicroBatches(-(-self.batch_size // 2), self.accumulation * 2)


def name_situation(device: str, model: str, asked: MicroBatches) -> str:
    """The key of what fits: another device, model or batch must be tried again."""
    return f"{device} | {model} | {asked.batch_size} x {asked.accumulation}"


def name_model(model: ModelConfig) -> str:
    return " ".join(f"{name}={value}" for name, value in model.model_dump().items())


class MicroBatchMemory:
    """A small JSON file of the micro-batches that fitted, by situation. A damaged one is ignored."""

    def __init__(self, path: Path, say: Say) -> None:
        self._path, self._say = path, say

    def recall(self, situation: str) -> MicroBatches | None:
        """Micro-batches that fitted in this situation; None if unknown."""
        return self._read().get(situation)

    def choose(self, situation: str, asked: MicroBatches) -> MicroBatches:
        """Micro-batches that fitted in this situation before, else the ones that are asked for."""
        found = self.recall(situation)
        if found is None or found == asked or found.accumulation % asked.accumulation:
            return asked
        self._say(f"Each step uses {found.accumulation} micro-batches, which fitted into memory before.")
        return found

    def remember(self, situation: str, found: MicroBatches) -> None:
        """Writes what fits; a failure becomes a warning."""
        content = self._read() | {situation: found}
        try:
            write_json(self._path, {key: asdict(value) for key, value in content.items()})
        except StorageError as error:
            self._say(f"{error} The micro-batch of {found.batch_size} will be searched for again next time.")

    def _read(self) -> dict[str, MicroBatches]:
        return try_read_json(self._path, dict[str, MicroBatches]) or {}
