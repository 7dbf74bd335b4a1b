"""Runs one training step in a process of its own, to find out whether it fits into the memory.

Run as `python -m myxtts.training.voice.batch_probe CONFIG BUDGET_BYTES LIMIT_S`. The step is on an empty batch of the
heaviest shape, which takes the memory of a full one. Exit code 0 if it fitted, and the bytes that it took as the last
line; TOO_LARGE if not; a process that the system kills for its memory counts as the latter. Called by
`batch_size.StepTrials`.
"""

from __future__ import annotations

import resource
import signal
import sys
from pathlib import Path

import psutil
import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.pipeline.order import Shape
from myxtts.runtime.hardware import detect_hardware
from myxtts.runtime.plan import Plan, choose_plan
from myxtts.runtime.strategy import make_strategy, translate_plan
from myxtts.training.execution import choose_execution
from myxtts.training.learner import detect_device
from myxtts.training.step import is_out_of_memory
from myxtts.training.voice.batch_size import TOO_LARGE
from myxtts.training.voice.data import measure_spec, open_training_data
from myxtts.training.voice.learner import build_learner


def probe(config: XTTSConfig, budget_bytes: int) -> int | None:
    """Runs a step of the heaviest shape; returns the bytes that it took on a device, None if more than the budget."""
    plan = choose_plan(config, detect_hardware())
    data = open_training_data(config, plan)
    strategy, device = make_strategy(plan), detect_device(plan)
    spec, training = measure_spec(config, plan, data), config.training
    if device.is_cpu:
        # On CPUs XLA would take most of the time of the trial, and hardly changes the memory.
        training = training.model_copy(update={"enable_xla_compilation": False})
        _limit_memory(budget_bytes)
    before_bytes = _measure_ram_peak()
    execution = choose_execution(training, device, total_steps=training.steps, num_shapes=len(set(data.shapes)))
    heaviest = max(data.shapes, key=_weigh)
    try:
        learner = build_learner(config, plan, spec, data, execution, strategy, total_steps=training.steps)
        learner.trace([heaviest], data.num_reference_frames)
    except (tf.errors.OpError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    taken_bytes = _measure_ram_peak() - before_bytes if device.is_cpu else _measure_gpu_peak(plan)
    return taken_bytes if taken_bytes <= budget_bytes else None


def _weigh(shape: Shape) -> int:
    """Rows x frames x tokens: proportional to the scores of the alignment search."""
    return shape.num_utterances * shape.num_frames * max(1, shape.num_tokens)


def _limit_memory(budget_bytes: int) -> None:
    """Limits the address space (RLIMIT_AS), or the kernel might end some other process for lack of memory."""
    present = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (present + budget_bytes, resource.RLIM_INFINITY))


def _measure_ram_peak() -> int:
    """The largest resident memory of this process so far.

    Not that of `getrusage`, which begins with the memory of the program that has started this one.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def _measure_gpu_peak(plan: Plan) -> int:
    """Peak of the allocator, which has the temporary memory of XLA and the workspaces of cuBLAS and cuDNN too."""
    names = [name.removeprefix("/") for name in translate_plan(plan).model_devices]
    return max(int(tf.config.experimental.get_memory_info(name)["peak"]) for name in names)


def main() -> None:
    config_file, budget_bytes, limit_s = sys.argv[1:]
    # SIGALRM ends the process at the limit, even if its parent is gone.
    signal.alarm(int(limit_s))
    taken_bytes = probe(XTTSConfig.load(config_file), int(budget_bytes))
    if taken_bytes is None:
        sys.exit(TOO_LARGE)
    print(taken_bytes)


if __name__ == "__main__":
    main()
