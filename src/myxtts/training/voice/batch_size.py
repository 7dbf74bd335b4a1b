"""`batch_size: auto`: the largest batch that the device's memory holds with a margin, found once and remembered.

What a step takes is estimated from the sizes of the model and the longest utterance, then tried, and halved until it
fits.
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
from myxtts.pipeline.buckets import Shape
from myxtts.pipeline.splits import count_reference_frames
from myxtts.runtime.hardware import Hardware
from myxtts.runtime.plan import Plan
from myxtts.training.execution import MicroBatches, MicroBatchMemory, name_device, name_model, name_situation
from myxtts.training.voice.data import open_training_data
from myxtts.types import Say

# Finds the largest batch by trying: a step in a process of its own, with half as many utterances until one fits.
#
# A process of its own gives all its memory back, may be killed for want of it, and cannot take longer than it is
# allowed.

TOO_LARGE = 12
"""The exit code of a probe that ran out of memory."""
_KILLED_FOR_MEMORY = (TOO_LARGE, -signal.SIGKILL, -signal.SIGABRT, -signal.SIGSEGV)
_NUM_WORDS_SHOWN = 300


class Trial(Enum):
    """What became of a step that was tried. UNKNOWN: it took too long, or failed for another reason."""

    FITS = auto()
    TOO_LARGE = auto()
    UNKNOWN = auto()


TrySize = Callable[[int], Trial]


def find_fitting(estimated: int, multiple_of: int, try_size: TrySize, say: Say) -> int:
    """The estimated size or the first half of it that fits. Where a trial says nothing, what was reached is taken."""
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
    """Tries steps of a training, all of them together within `time_limit_s`."""

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
        reason = f"it took longer than {limit_s} s" if done.returncode == -signal.SIGALRM else _find_words(done.stderr)
        self._say(f"A step of {size} utterances could not be tried ({reason}): the size is only estimated.")
        return Trial.UNKNOWN


def _find_words(output: str) -> str:
    """The last thing that a process said."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:_NUM_WORDS_SHOWN] if lines else "it said nothing"


MEMORY_FILE_NAME = "batch_sizes.json"
"""Beside the runs, because what fits is a matter of device, model and data, not of a run."""
MAX_ON_CPU = 32
"""A larger batch keeps a CPU no busier, and makes fewer steps of the same time."""
MAX_ON_GPU = 256
_SHARE_OF_RAM = 0.5
_SHARE_OF_VRAM = 0.7
_TRIED_SHARE = 0.85
"""What is left is for the feed, for validation and for samples."""
_CPU_TRIAL_S, _GPU_TRIAL_S = 120.0, 900.0
_BYTES = 4
_COPIES_OF_WEIGHTS = 6
"""Weights, gradients, two moments, the average, and one on its way."""
_COPIES_OF_SCORES = 6
_COPIES_OF_LAYER = 14
_FRAMES_PER_STACK = 2


def resolve_batch_size(
    config: XTTSConfig, plan: Plan, hardware: Hardware, say: Say, try_size: TrySize | None = None
) -> XTTSConfig:
    """The configuration with a number for `batch_size`: that of the run where it goes on, else what fits.

    `try_size` says whether a step fits, by default by doing one.
    """
    if config.data.batch_size != "auto":
        return config
    run_path = config.training.run_path
    number = _recall_run(config)
    if number is None:
        _refuse_cluster(plan)
        alone = config.model_copy(update={"data.batch_size": plan.num_replicas})
        data = open_training_data(alone, plan)
        longest = max(data.shapes, key=lambda shape: shape.num_frames * max(1, shape.num_tokens))
        num_utterances = len(data.utterances.rows_of_split("train"))
        memory = MicroBatchMemory(run_path.parent / MEMORY_FILE_NAME, say)
        situation = _name_situation(config, plan, hardware, longest)
        found = memory.recall(situation)
        if found is None:
            estimated = _find_largest(config, plan, hardware, longest, num_utterances)
            say(f"Trying whether a step of {estimated} utterances fits (batch_size is auto) …")
            if try_size is None:
                try_size = StepTrials(config, *_choose_limits(plan, hardware), say).try_size
            found = MicroBatches(find_fitting(estimated, plan.num_replicas, try_size, say), 1)
            memory.remember(situation, found)
        number = found.batch_size
    say(f"Batch size: {number} utterances (batch_size is auto).")
    return config.model_copy(update={"data.batch_size": number})


def list_candidates(largest: int) -> list[int]:
    """Powers of two and the halves between them, up to `largest`: 1, 2, 3, 4, 6, 8, 12 …"""
    powers = [2**place for place in range(largest.bit_length())]
    return sorted({size for power in powers for size in (power, power * 3 // 2) if size <= largest})


def estimate_row_bytes(config: XTTSConfig, shape: Shape) -> int:
    """Memory that one utterance of a shape takes in a training step, at most."""
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
    """Memory that the weights take, with all that goes along with each."""
    num_weights = 8 * (
        model.text_layers * model.text_width**2
        + model.decoder_layers * model.decoder_width**2
        + (model.reference_layers + 2) * model.reference_width**2
    )
    return _COPIES_OF_WEIGHTS * _BYTES * num_weights


def _refuse_cluster(plan: Plan) -> None:
    if plan.cluster is not None:
        raise ConfigError(
            "batch_size is auto, but several processes train together, and each would find a size of its own.",
            next_step="Give data.batch_size a number.",
        )


def _list_free_bytes(plan: Plan, hardware: Hardware) -> list[int]:
    """The memory that is free on each GPU that trains; none where CPUs do."""
    return [gpu.free_memory_bytes for gpu in plan.select_model_gpus(hardware)]


def _choose_limits(plan: Plan, hardware: Hardware) -> tuple[int, float]:
    """Bytes that a step which is tried may take, and seconds that trying may take."""
    gpus = _list_free_bytes(plan, hardware)
    free_bytes = min(gpus) if gpus else hardware.available_ram_bytes
    return int(_TRIED_SHARE * free_bytes), _GPU_TRIAL_S if gpus else _CPU_TRIAL_S


def _find_largest(config: XTTSConfig, plan: Plan, hardware: Hardware, longest: Shape, num_utterances: int) -> int:
    gpus = _list_free_bytes(plan, hardware)
    budget = int(_SHARE_OF_VRAM * min(gpus)) if gpus else int(_SHARE_OF_RAM * hardware.available_ram_bytes)
    row_bytes = estimate_row_bytes(config, longest)
    num_rows = (budget - estimate_model_bytes(config.model)) // row_bytes
    most = min(MAX_ON_GPU if gpus else MAX_ON_CPU, num_rows, max(1, num_utterances // plan.num_replicas))
    return plan.num_replicas * list_candidates(max(1, most))[-1]


def _recall_run(config: XTTSConfig) -> int | None:
    """The number that a run in this folder was begun with: another would put its utterances in another order."""
    path = config.training.run_path / RESOLVED_FILE_NAME
    if not path.is_file():
        return None
    try:
        number = XTTSConfig.load(path).data.batch_size
    except ConfigError:
        return None  # Opening the run explains what is wrong with it.
    return number if isinstance(number, int) else None


def _name_situation(config: XTTSConfig, plan: Plan, hardware: Hardware, longest: Shape) -> str:
    asked = MicroBatches(longest.num_frames, longest.num_tokens)
    return name_situation(name_device(plan, hardware), name_model(config.model), asked)
