"""Tries one training step in a process of its own.

Run as `python -m myxtts.training.voice.batch_probe CONFIG BUDGET_BYTES LIMIT_S`.

The step is on an empty batch of the heaviest shape, which takes the memory of a full one. It ends with exit code 0 if
there was room, with TOO_LARGE if not; a process that the system kills for its memory says the same.
"""

from __future__ import annotations

import resource
import signal
import sys

import psutil
import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.pipeline.buckets import Shape
from myxtts.runtime.hardware import detect_hardware
from myxtts.runtime.plan import Plan, choose_plan
from myxtts.runtime.strategy import make_strategy, translate_plan
from myxtts.training.execution import choose_execution
from myxtts.training.learner import detect_device
from myxtts.training.voice.batch_size import TOO_LARGE
from myxtts.training.voice.data import measure_spec, open_training_data
from myxtts.training.voice.learner import build_learner


def probe(config: XTTSConfig, budget_bytes: int) -> bool:
    """Whether a step fits into the budget."""
    plan = choose_plan(config, detect_hardware())
    data = open_training_data(config, plan)
    strategy, device = make_strategy(plan), detect_device(plan)
    spec, training = measure_spec(config, plan, data), config.training
    if device.is_cpu:
        # Compiling takes longer than all else, and changes little about memory here.
        training = training.model_copy(update={"enable_xla_compilation": False})
        _limit_memory(budget_bytes)
    execution = choose_execution(training, device, total_steps=training.steps, num_shapes=len(set(data.shapes)))
    heaviest = max(data.shapes, key=_weigh)
    try:
        learner = build_learner(config, plan, spec, data, execution, strategy, total_steps=training.steps)
        learner.trace([heaviest], data.num_reference_frames)
    except (tf.errors.ResourceExhaustedError, MemoryError):
        return False
    return device.is_cpu or _measure_peak(plan) <= budget_bytes


def _weigh(shape: Shape) -> int:
    return shape.num_utterances * shape.num_frames * max(1, shape.num_tokens)


def _limit_memory(budget_bytes: int) -> None:
    """Without it the system would rather end some other process than refuse memory to this one."""
    present = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (present + budget_bytes, resource.RLIM_INFINITY))


def _measure_peak(plan: Plan) -> int:
    names = [name.removeprefix("/") for name in translate_plan(plan).model_devices]
    return max(int(tf.config.experimental.get_memory_info(name)["peak"]) for name in names)


def main() -> None:
    config_file, budget_bytes, limit_s = sys.argv[1:]
    # Ends with the limit even where nobody waits for it any more.
    signal.alarm(int(limit_s))
    sys.exit(0 if probe(XTTSConfig.load(config_file), int(budget_bytes)) else TOO_LARGE)


if __name__ == "__main__":
    main()
