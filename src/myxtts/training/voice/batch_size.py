"""`batch_size: auto`: finds the largest batch that fits into the memory of the device, and remembers it.

The memory of a step is estimated from the sizes of the model and of the longest utterance; then one step is tried in a
process of its own (`batch_probe`), with half as many utterances until it fits. That process releases all its memory at
its end, may be killed by the OOM killer, and has a time limit.
"""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path
from tempfile import TemporaryDirectory

from myxtts.config.load import RESOLVED_FILE_NAME
from myxtts.config.model import ModelConfig
from myxtts.config.schema import XTTSConfig
from myxtts.errors import ConfigError, HardwareError
from myxtts.pipeline.order import Shape
from myxtts.pipeline.splits import count_reference_frames
from myxtts.runtime.hardware import Hardware
from myxtts.runtime.plan import Plan
from myxtts.training.execution import MicroBatches, MicroBatchMemory, name_model, name_situation
from myxtts.training.voice.data import open_training_data
from myxtts.types import Say

MEMORY_FILE_NAME = "batch_sizes.json"
"""In the folder above the runs, because the size that fits depends on device, model and data, not on the run."""
MAX_ON_CPU = 32
"""A larger batch keeps a CPU no busier, and leaves fewer steps in the same time."""
MAX_ON_GPU = 256
TOO_LARGE = 12
"""The exit code of a probe that ran out of memory."""
_SHARE_OF_RAM, SHARE_OF_VRAM = 0.5, 0.7
"""Shares of the free memory that the estimate of a step may take."""
_TRIED_SHARE = 0.85
"""Share of the free memory that a tried step may take: the rest is for the feed, validation and samples."""
_CPU_TRIAL_S, _GPU_TRIAL_S = 120.0, 900.0
"""Time limits of all trials together."""
_KILLED_FOR_MEMORY = (TOO_LARGE, -signal.SIGKILL, -signal.SIGABRT, -signal.SIGSEGV)
"""Return codes of a probe that ran out of memory: its own, the OOM killer, and failed allocations in C++."""
_MAX_REASON_CHARACTERS = 300
_BYTES = 4
"""Bytes of a float32."""
_COPIES_OF_WEIGHTS = 6
"""Weights, gradients, two moments of AdamW, the EMA, and one temporary copy."""
_COPIES_OF_SCORES = 6
"""Copies of the scores [T, S] of the alignment search that exist at once."""
_COPIES_OF_LAYER = 14
"""Activations of a block that the backward pass needs, in multiples of its width."""
_FRAMES_PER_STACK = 2
"""As `decoder.STACKED_FRAMES`, which cannot be imported here without TensorFlow."""


def resolve_batch_size(config: XTTSConfig, plan: Plan, hardware: Hardware, say: Say) -> XTTSConfig:
    """Replaces `batch_size: auto` by a number: that of the run if it is resumed, else the largest that fits."""
    if config.data.batch_size != "auto":
        return config
    number = _recall_run(config) or _find_batch_size(config, plan, hardware, say)
    say(f"Batch size: {number} utterances (batch_size is auto).")
    return config.model_copy(update={"data.batch_size": number})


def _recall_run(config: XTTSConfig) -> int | None:
    """Batch size of the run in this folder; another one would change the order of its utterances."""
    path = config.training.run_path / RESOLVED_FILE_NAME
    if not path.is_file():
        return None
    try:
        number = XTTSConfig.load(path).data.batch_size
    except ConfigError:
        return None  # Opening the run explains what is wrong with it.
    return number if isinstance(number, int) else None


def _find_batch_size(config: XTTSConfig, plan: Plan, hardware: Hardware, say: Say) -> int:
    """Looks up or estimates the batch size, tries it and stores what fitted."""
    if plan.cluster is not None:
        raise ConfigError(
            "batch_size is auto, but several processes train together, and each would find a size of its own.",
            next_step="Give data.batch_size a number.",
        )
    data = open_training_data(config.model_copy(update={"data.batch_size": plan.num_replicas}), plan)
    longest = max(data.shapes, key=lambda shape: shape.num_frames * max(1, shape.num_tokens))
    memory = MicroBatchMemory(config.training.run_path.parent / MEMORY_FILE_NAME, say)
    asked = MicroBatches(longest.num_frames, longest.num_tokens)
    situation = name_situation(plan.name_model_devices(hardware), name_model(config.model), asked)
    found = memory.recall(situation)
    if found is None:
        num_utterances = len(data.utterances.rows_of_split("train"))
        estimated = _estimate_largest(config, plan, hardware, longest, num_utterances)
        say(f"Trying whether a step of {estimated} utterances fits (batch_size is auto) …")
        trials = StepTrials(config, *_choose_limits(plan, hardware), say)
        found = MicroBatches(find_fitting(estimated, plan.num_replicas, trials.try_size, say), 1)
        memory.remember(situation, found)
    return found.batch_size


def _list_free_bytes(plan: Plan, hardware: Hardware) -> list[int]:
    """Free memory of each GPU that trains; empty where CPUs do."""
    return [gpu.free_memory_bytes for gpu in plan.find_model_gpus(hardware)]


def _choose_limits(plan: Plan, hardware: Hardware) -> tuple[int, float]:
    """Memory budget in bytes of a tried step, and time limit in seconds of all trials."""
    gpus = _list_free_bytes(plan, hardware)
    free_bytes = min(gpus) if gpus else hardware.available_ram_bytes
    return int(_TRIED_SHARE * free_bytes), _GPU_TRIAL_S if gpus else _CPU_TRIAL_S


def _estimate_largest(config: XTTSConfig, plan: Plan, hardware: Hardware, longest: Shape, num_utterances: int) -> int:
    """Largest batch size within the memory budget, the limits above and the number of utterances."""
    gpus = _list_free_bytes(plan, hardware)
    budget = int(SHARE_OF_VRAM * min(gpus)) if gpus else int(_SHARE_OF_RAM * hardware.available_ram_bytes)
    num_rows = (budget - estimate_model_bytes(config.model)) // estimate_row_bytes(config, longest)
    most = min(MAX_ON_GPU if gpus else MAX_ON_CPU, num_rows, max(1, num_utterances // plan.num_replicas))
    return plan.num_replicas * list_candidates(max(1, most))[-1]


def list_candidates(largest: int) -> list[int]:
    """Powers of two and the halves between them, up to `largest`: 1, 2, 3, 4, 6, 8, 12 …"""
    powers = [2**exponent for exponent in range(largest.bit_length())]
    return sorted({size for power in powers for size in (power, power * 3 // 2) if size <= largest})


def estimate_row_bytes(config: XTTSConfig, shape: Shape) -> int:
    """Upper bound of the memory that one utterance of a shape takes in a training step.

    Twice the float32 bytes of alignment scores, spectrograms, and activations of text encoder, decoder (on its crop)
    and speaker encoder.
    """
    model, n_mels = config.model, config.data.n_mels
    frames, tokens, stacks = shape.num_frames, shape.num_tokens, count_reference_frames(config.data) // 2
    crop_stacks = config.training.crop_frames // _FRAMES_PER_STACK
    values = frames * 2 * tokens * _COPIES_OF_SCORES + 8 * frames * n_mels
    values += _COPIES_OF_LAYER * tokens * model.text_width * (model.text_layers + 2)
    values += _COPIES_OF_LAYER * crop_stacks * model.decoder_width * model.decoder_layers
    values += _COPIES_OF_LAYER * stacks * model.reference_width * (model.reference_layers + 1)
    values += 3 * model.attention_heads * stacks**2
    if model.block == "transformer":
        values += 3 * model.attention_heads * (tokens**2 * model.text_layers + crop_stacks**2 * model.decoder_layers)
    return 2 * _BYTES * values


def estimate_model_bytes(model: ModelConfig) -> int:
    """Memory of the weights with their gradients, moments and EMA."""
    num_weights = 8 * (
        model.text_layers * model.text_width**2
        + model.decoder_layers * model.decoder_width**2
        + (model.reference_layers + 2) * model.reference_width**2
    )
    return _COPIES_OF_WEIGHTS * _BYTES * num_weights


class Trial(Enum):
    """Outcome of a step that was tried. UNKNOWN: it took too long, or failed for another reason."""

    FITS = auto()
    TOO_LARGE = auto()
    UNKNOWN = auto()


def find_fitting(estimated: int, multiple_of: int, try_size: Callable[[int], Trial], say: Say) -> int:
    """Halves the estimated size until a trial fits; a trial without an outcome accepts its size.

    Raises HardwareError if not even the smallest fits.
    """
    size = estimated
    while True:
        trial = try_size(size)
        if trial is not Trial.TOO_LARGE:
            if trial is Trial.FITS:
                say(f"A step of {size} utterances was tried, and fits.")
            return size
        if size <= multiple_of:
            raise HardwareError(
                f"The memory does not suffice for a batch of {size}.",
                next_step="Choose a smaller model (--model-size), set data.max_mel_frames lower, or free the device.",
            )
        say(f"A step of {size} utterances was tried, and does not fit.")
        size = max(1, size // 2 // multiple_of) * multiple_of


class StepTrials:
    """Tries training steps in processes of their own, all of them together within `time_limit_s`."""

    def __init__(self, config: XTTSConfig, budget_bytes: int, time_limit_s: float, say: Say) -> None:
        self._config, self._budget_bytes, self._say = config, budget_bytes, say
        self._deadline = time.monotonic() + time_limit_s

    def try_size(self, size: int) -> Trial:
        limit_s = math.ceil(self._deadline - time.monotonic())
        if limit_s <= 0:
            self._say("There is no time left to try smaller steps.")
            return Trial.UNKNOWN
        config = self._config.model_copy(update={"data.batch_size": size})
        with TemporaryDirectory(prefix="myxtts-probe-") as folder:
            file = Path(folder) / "config.yaml"
            file.write_text(config.to_yaml(), encoding="utf-8")
            command = [sys.executable, "-P", "-m", "myxtts.training.voice.batch_probe"]
            command += [str(file), str(self._budget_bytes), str(limit_s)]
            done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return Trial.FITS
        if done.returncode in _KILLED_FOR_MEMORY:
            return Trial.TOO_LARGE
        reason = f"it took longer than {limit_s} s" if done.returncode == -signal.SIGALRM else _find_reason(done.stderr)
        self._say(f"A step of {size} utterances could not be tried ({reason}): the size is only estimated.")
        return Trial.UNKNOWN


def _find_reason(output: str) -> str:
    """Last line that a process printed, usually the exception."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:_MAX_REASON_CHARACTERS] if lines else "it said nothing"
