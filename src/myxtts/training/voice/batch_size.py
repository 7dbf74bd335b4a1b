"""`batch_size: auto`: finds the largest batch that fits into the memory of the device, and remembers it.

The memory of a step is calculated (`training.step_memory`), and a step of the size that should fit is tried in a
process of its own (`batch_probe`). Its peak tells whether still more fits; what does not fit is halved. That process
releases all its memory at its end, may be killed by the OOM killer, and has a time limit.
Memory is not the only limit: see `MAX_ON_GPU` and `MIN_STEPS_PER_EPOCH`.
"""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from myxtts.config.load import RESOLVED_FILE_NAME
from myxtts.config.schema import DataConfig, XTTSConfig
from myxtts.errors import ConfigError, HardwareError
from myxtts.pipeline.order import Shape
from myxtts.runtime.hardware import Gpu, Hardware
from myxtts.runtime.plan import Plan
from myxtts.training.execution import (
    Device,
    MicroBatches,
    MicroBatchMemory,
    choose_execution,
    name_model,
    name_situation,
)
from myxtts.training.step_memory import BFLOAT16_BYTES, FLOAT32_BYTES, StepMemory, estimate_memory
from myxtts.training.voice.data import open_training_data
from myxtts.types import Say

MEMORY_FILE_NAME = "batch_sizes.json"
"""In the folder above the runs, because the size that fits depends on device, model and data, not on the run."""
MAX_ON_CPU = 16
"""A larger batch keeps a CPU no busier, and leaves fewer steps in the same time."""
MAX_ON_GPU = 128
"""Of one GPU. With so many utterances the starts of kernels are a small part of a step on the fastest GPUs. More would
only make fewer updates of the same data, with the same learning rate: 128 crops of 1.5 s are 3 minutes of speech."""
MIN_STEPS_PER_EPOCH = 16
"""Updates in an epoch, which a small corpus needs more than full batches."""
FEWEST = 8
"""Utterances in a step that are allowed whatever the corpus: means over fewer are noisy."""
TOO_LARGE = 12
"""The exit code of a probe that ran out of memory."""
_SHARE_OF_RAM, _SHARE_OF_VRAM = 0.5, 0.9
"""Shares of the free memory that a step may take: the rest is for the feed, validation, samples and fragmentation."""
_CUDA_BYTES = 768 << 20
"""GPU memory outside of TensorFlow's allocator: CUDA context, kernels, handles of cuBLAS, cuDNN and NCCL."""
_MAX_TRIALS = 4
_FIXED_SHARE = 0.9
"""Of the peak of a trial that may be independent of the batch: a larger batch never takes as little."""
_CPU_TRIAL_S, _GPU_TRIAL_S = 60.0, 420.0
"""Time limits of one trial; all together may take twice as long."""
_KILLED_FOR_MEMORY = (TOO_LARGE, -signal.SIGKILL, -signal.SIGABRT, -signal.SIGSEGV)
"""Return codes of a probe that ran out of memory: its own, the OOM killer, and failed allocations in C++."""
_MAX_REASON_CHARACTERS = 300


def resolve_batch_size(config: XTTSConfig, plan: Plan, hardware: Hardware, say: Say) -> XTTSConfig:
    """Replaces `batch_size: auto` by a number: that of the run if it is resumed, else the largest that fits."""
    if config.data.batch_size != "auto":
        return config
    known = _recall_run(config)
    number = known.batch_size if known is not None and known.batch_size != "auto" else None
    number = number or _find_batch_size(config, plan, hardware, say)
    say(f"Batch size: {number} utterances (batch_size is auto).")
    return config.model_copy(update={"data.batch_size": number})


def keep_num_shapes(config: XTTSConfig) -> XTTSConfig:
    """Replaces `num_shapes: auto` by the number of the run in this folder, where there is one."""
    known = _recall_run(config) if config.data.num_shapes == "auto" else None
    return config if known is None else config.model_copy(update={"data.num_shapes": known.num_shapes})


def _recall_run(config: XTTSConfig) -> DataConfig | None:
    """Data settings of the run in this folder; others would change the order of its utterances."""
    path = config.training.run_path / RESOLVED_FILE_NAME
    if not path.is_file():
        return None
    try:
        return XTTSConfig.load(path).data
    except ConfigError:
        return None  # Opening the run explains what is wrong with it.


def _find_batch_size(config: XTTSConfig, plan: Plan, hardware: Hardware, say: Say) -> int:
    """Looks up the batch size, or calculates it, tries it and stores what fitted."""
    if plan.cluster is not None:
        raise ConfigError(
            "batch_size is auto, but in a cluster each process would find another size.",
            next_step="Set data.batch_size to a number.",
        )
    data = open_training_data(config.model_copy(update={"data.batch_size": plan.num_replicas}), plan)
    longest = max(data.shapes, key=lambda shape: shape.num_frames * max(1, shape.num_tokens))
    limit = _limit_rows(config, plan, hardware, len(data.order.rows))
    remembered = MicroBatchMemory(config.training.run_path.parent / MEMORY_FILE_NAME, say)
    situation = _name_situation(config, plan, hardware, longest, limit)
    found = remembered.recall(situation)
    if found is None:
        gpus = plan.find_model_gpus(hardware)
        budget_bytes = choose_budget(gpus, hardware.available_ram_bytes)
        memory = estimate_memory(config, longest, choose_compute_bytes(config, gpus))
        sizes = [plan.num_replicas * rows for rows in list_candidates(limit)]
        fitting = list_candidates(max(1, min(limit, memory.count_rows(budget_bytes))))[-1]
        for line in _explain(memory, longest, fitting, limit, plan, hardware):
            say(line)
        search = SizeSearch(sizes, budget_bytes, memory.state)
        trials = StepTrials(config, budget_bytes, _GPU_TRIAL_S if gpus else _CPU_TRIAL_S, say)
        found = MicroBatches(search.run(plan.num_replicas * fitting, trials.try_size, say), 1)
        remembered.remember(situation, found)
    return found.batch_size


def _name_situation(config: XTTSConfig, plan: Plan, hardware: Hardware, longest: Shape, limit: int) -> str:
    """Everything that the size depends on: devices and their memory, model, step, longest utterance, limit."""
    gpus, training = plan.find_model_gpus(hardware), config.training
    total_bytes = min((gpu.memory_bytes for gpu in gpus), default=hardware.ram_bytes)
    devices = f"{plan.name_model_devices(hardware)} of {_show(total_bytes)}"
    step = f"crop_frames={training.crop_frames} durations={training.durations} up to {limit}"
    step += f" accumulation={training.gradient_accumulation_steps} bytes={choose_compute_bytes(config, gpus)}"
    asked = MicroBatches(longest.num_frames, max(1, longest.num_tokens))
    return name_situation(devices, f"{name_model(config.model)} {step}", asked)


def _limit_rows(config: XTTSConfig, plan: Plan, hardware: Hardware, num_utterances: int) -> int:
    """The most utterances of one device that are sensible, whatever the memory."""
    num_batches = plan.num_replicas * config.training.gradient_accumulation_steps
    by_corpus = max(num_utterances // MIN_STEPS_PER_EPOCH, min(FEWEST, num_utterances)) // num_batches
    return max(1, min(MAX_ON_GPU if plan.find_model_gpus(hardware) else MAX_ON_CPU, by_corpus))


def choose_budget(gpus: Sequence[Gpu], available_ram_bytes: int) -> int:
    """Bytes that a step may take on the GPU with the least free memory, or on the CPU if no GPU trains."""
    if not gpus:
        return int(_SHARE_OF_RAM * available_ram_bytes)
    return int(_SHARE_OF_VRAM * (min(gpu.free_memory_bytes for gpu in gpus) - _CUDA_BYTES))


def choose_compute_bytes(config: XTTSConfig, gpus: Sequence[Gpu]) -> int:
    """Bytes of the dtype that the devices compute in."""
    device = Device("GPU", min(gpu.compute_capability for gpu in gpus)) if gpus else Device("CPU")
    execution = choose_execution(config.training, device, total_steps=None, num_shapes=1)
    return FLOAT32_BYTES if execution.policy == "float32" else BFLOAT16_BYTES


def list_candidates(largest: int) -> list[int]:
    """Powers of two and the halves between them, up to `largest`: 1, 2, 3, 4, 6, 8, 12 …"""
    powers = [2**exponent for exponent in range(largest.bit_length())]
    return sorted({size for power in powers for size in (power, power * 3 // 2) if size <= largest})


def _explain(
    memory: StepMemory, longest: Shape, num_rows: int, limit: int, plan: Plan, hardware: Hardware
) -> list[str]:
    """The calculation in sentences."""
    gpus = plan.find_model_gpus(hardware)
    free_bytes = min((gpu.free_memory_bytes for gpu in gpus), default=hardware.available_ram_bytes)
    device = f"{_show(free_bytes)} are free on {gpus[0].name}" if gpus else f"{_show(free_bytes)} of memory are free"
    calculation = (
        f"Memory of a step (batch_size is auto): {device}. Weights and optimizer take {_show(memory.state)}, an "
        f"utterance of {longest.num_frames:,} frames and {longest.num_tokens:,} tokens "
        f"{_show(memory.row + memory.waiting_row)}: {num_rows} utterances take {_show(memory.measure(num_rows))}."
    )
    if num_rows < list_candidates(limit)[-1]:
        return [calculation]
    is_by_corpus = limit < (MAX_ON_GPU if gpus else MAX_ON_CPU)
    why = f"an epoch would have fewer than {MIN_STEPS_PER_EPOCH} steps" if is_by_corpus else "larger ones gain nothing"
    return [calculation, f"Batches of more than {num_rows} utterances on a device are not tried: {why}."]


def _show(num_bytes: int) -> str:
    if num_bytes >= 2**30:
        return f"{num_bytes / 2**30:.1f} GB"
    return f"{num_bytes / 2**20:.0f} MB" if num_bytes >= 10 << 20 else f"{num_bytes / 2**20:.1f} MB"


@dataclass(frozen=True)
class Trial:
    """Outcome of a step that was tried: whether it fits (None: it took too long, or failed for another reason).

    `peak_bytes` is the memory it took on a device, where it fits.
    """

    fits: bool | None
    peak_bytes: int = 0


class SizeSearch:
    """Searches the largest of `sizes` whose step stays within the budget.

    `state_bytes` are independent of the size: only what a trial takes beyond them grows with the batch.
    """

    def __init__(self, sizes: Sequence[int], budget_bytes: int, state_bytes: int) -> None:
        self._sizes, self._budget_bytes, self._state_bytes = sizes, budget_bytes, state_bytes
        self._fitting, self._peak_bytes, self._too_large = 0, 0, sys.maxsize

    def run(self, first: int, try_size: Callable[[int], Trial], say: Say) -> int:
        """Tries `first`, then what follows from each outcome. A trial without an outcome ends the search.

        Raises HardwareError if not even the smallest fits.
        """
        size: int | None = first
        for _ in range(_MAX_TRIALS):
            assert size is not None
            trial = try_size(size)
            if trial.fits is None:
                return self._fitting or size
            if trial.fits:
                self._fitting, self._peak_bytes = size, trial.peak_bytes
                say(f"A step of {size} utterances fits into memory: it takes {_show(trial.peak_bytes)}.")
            else:
                self._too_large = size
                say(f"A step of {size} utterances does not fit into memory.")
            size = self._choose_next()
            if size is None:
                break
        if self._fitting or size is not None:
            return self._fitting or size or first
        raise HardwareError(
            f"Out of memory with a batch of {self._too_large}.",
            next_step="Choose a smaller model (--model-size), set data.max_mel_frames lower, or end other programs "
            "on the device.",
        )

    def _choose_next(self) -> int | None:
        """The largest untried size that should fit; None if there is none."""
        untried = [size for size in self._sizes if self._fitting < size < self._too_large]
        if self._fitting:
            return max((size for size in untried if self._predict(size) <= self._budget_bytes), default=None)
        return max((size for size in untried if size <= self._too_large // 2), default=min(untried, default=None))

    def _predict(self, size: int) -> float:
        """Bytes of a step of another size, from the one that fitted."""
        fixed_bytes = min(self._state_bytes, _FIXED_SHARE * self._peak_bytes)
        return fixed_bytes + (self._peak_bytes - fixed_bytes) * size / self._fitting


class StepTrials:
    """Tries training steps in processes of their own, each within `time_limit_s`, all together within twice that."""

    def __init__(self, config: XTTSConfig, budget_bytes: int, time_limit_s: float, say: Say) -> None:
        self._config, self.budget_bytes, self._say = config, budget_bytes, say
        self._time_limit_s, self._deadline = time_limit_s, time.monotonic() + 2 * time_limit_s

    def try_size(self, size: int) -> Trial:
        limit_s = math.ceil(min(self._time_limit_s, self._deadline - time.monotonic()))
        if limit_s <= 0:
            self._say("There is no time left to try other sizes.")
            return Trial(None)
        self._say(f"Trying a step of {size} utterances …")
        config = self._config.model_copy(update={"data.batch_size": size})
        with TemporaryDirectory(prefix="myxtts-probe-") as folder:
            file = Path(folder) / "config.yaml"
            file.write_text(config.to_yaml(), encoding="utf-8")
            command = [sys.executable, "-P", "-m", "myxtts.training.voice.batch_probe"]
            command += [str(file), str(self.budget_bytes), str(limit_s)]
            done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return Trial(True, int(_find_last_line(done.stdout)))
        if done.returncode in _KILLED_FOR_MEMORY:
            return Trial(False)
        reason = f"it took longer than {limit_s} s"
        if done.returncode != -signal.SIGALRM:
            reason = _find_last_line(done.stderr)[:_MAX_REASON_CHARACTERS] or "it said nothing"
        self._say(f"A step of {size} utterances could not be tried ({reason}): the size is only calculated.")
        return Trial(None)


def _find_last_line(output: str) -> str:
    """Last line that a process printed: the result of a probe, or the exception that ended it."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else ""
