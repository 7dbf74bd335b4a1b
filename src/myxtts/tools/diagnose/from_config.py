"""Measures a configuration for `diagnose`: its real feed, with its real training step or an emulated one.

Order of measurements in `examine_config`: full loop, loading alone, step alone on batches in memory, stages of the
loader, then trials (graph mode, trimmed padding, fewer threads). The full loop comes first, because it chooses the
loader.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from myxtts.config.schema import XTTSConfig
from myxtts.pipeline.order import BatchOrder
from myxtts.runtime.hardware import Hardware, detect_hardware
from myxtts.runtime.plan import Plan, choose_plan
from myxtts.runtime.strategy import make_strategy
from myxtts.tools.diagnose.causes import MUCH_PADDING
from myxtts.tools.diagnose.evidence import USUAL_PADDING, Evidence, LoopTimes, StageTime, Trials
from myxtts.tools.diagnose.feed_probe import FeedSource, LoaderProbe, choose_num_shapes, probe_loader
from myxtts.tools.diagnose.from_dataset import (
    MANY_THREADS_PER_CORE,
    EmulatedStep,
    count_eager_ops,
    describe_machine,
    try_trimmed,
)
from myxtts.tools.diagnose.timing import (
    Limits,
    run_alone,
    run_calmly,
    run_together,
    take_samples,
    time_step,
)
from myxtts.tools.emulate import StepTime
from myxtts.training.execution import choose_execution
from myxtts.training.learner import detect_device
from myxtts.training.voice.batch_size import resolve_batch_size
from myxtts.training.voice.data import measure_spec, open_training_data
from myxtts.training.voice.learner import build_learner
from myxtts.types import Batch, Say

_NUM_SAMPLES = 3
"""Batches kept in memory to time the step alone."""
_TRIAL_SHARE = 0.6
"""Batches of a trial of other settings, as a share of those of the diagnosis."""
_NUM_TAKEN_FREE = 0.1
"""Quantile of the waits that stands for taking a batch that is ready: the quickest waits are no waiting at all."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A configuration with its plan and a callable step. `gradient_bytes` is 0 for an emulated step."""

    config: XTTSConfig
    hardware: Hardware
    plan: Plan
    step: RealStep | EmulatedStep

    @property
    def gradient_bytes(self) -> int:
        return 4 * self.step.num_parameters if isinstance(self.step, RealStep) else 0

    @property
    def is_eager(self) -> bool:
        """Whether the step is real and runs without `tf.function`."""
        return isinstance(self.step, RealStep) and not self.step.is_graph

    def run(self, limits: Limits) -> LoopTimes:
        """Times the full loop with a new feed."""
        source = self.make_source()
        return _separate_transfer(source, run_together(source, self.step, None, limits))

    def make_source(self) -> FeedSource:
        return FeedSource(self.config, self.hardware, self.plan)


def prepare_subject(
    config: XTTSConfig, *, step_s: float | StepTime | None, num_batches: int, say: Say = lambda _line: None
) -> Subject:
    """Resolves plan and batch size and builds the step: emulated if `step_s` is given, else that of the real model."""
    hardware = detect_hardware()
    plan = choose_plan(config, hardware)
    config = resolve_batch_size(config, plan, hardware, say)
    if step_s is not None:
        return Subject(config, hardware, plan, EmulatedStep(StepTime.make(step_s)))
    return Subject(config, hardware, plan, RealStep(config, plan, num_batches, say))


def examine_config(subject: Subject, limits: Limits) -> tuple[Evidence, BatchOrder]:
    """Runs all measurements and trials; also returns the batch order, whose shapes size the machine settings."""
    config, plan, source = subject.config, subject.plan, subject.make_source()
    loop = run_calmly(partial(run_together, source, subject.step, None), limits)
    loop = _separate_transfer(source, loop)
    stats = source.stats
    assert stats is not None, "the feed was not closed"
    alone = run_calmly(partial(run_alone, source), limits)
    samples = take_samples(source, _NUM_SAMPLES)
    step_s = time_step(subject.step, samples, num_rounds=3)
    probe = probe_loader(config, plan, source.loader_name)
    stages = _list_stages(probe, stats.mean_stage_s, stats.mean_load_s / max(1, plan.num_workers), step_s)
    better_shapes, padding_after = (
        choose_num_shapes(config, plan) if stats.padding >= MUCH_PADDING else (8, USUAL_PADDING)
    )
    trials = _try_out(subject, samples, stats.padding, padding_after, probe, limits)
    evidence = Evidence(
        subject="configuration",
        loop=loop,
        alone_s=alone.alone_s,
        step_s=step_s,
        take_s=float(np.quantile(loop.waits_s, _NUM_TAKEN_FREE)) if float(np.mean(loop.waits_s)) < step_s else 0.0,
        stages=stages,
        machine=describe_machine(alone, tuple(gpu.name for gpu in subject.hardware.gpus)),
        is_step_emulated=isinstance(subject.step, EmulatedStep),
        num_threads=plan.num_workers,
        buffer_depth=source.buffer_depth,
        padding=stats.padding,
        padding_after=padding_after,
        num_eager_ops=count_eager_ops(subject.step, samples[0]) if subject.is_eager else 0,
        trials=trials,
        # What `advice` reads: keys with a dot are configuration keys, the others measurements.
        settings={
            "data.preprocessing_mode": config.data.preprocessing_mode,
            "data.batch_size": config.data.batch_size,
            "store_gb": probe.store_bytes / 2**30,
            "better_num_shapes": better_shapes,
        },
    )
    return evidence, probe.order


def _separate_transfer(source: FeedSource, loop: LoopTimes) -> LoopTimes:
    """Counts the copy to the device as transfer, not as waiting, where the feed copies on demand."""
    if not source.is_transfer_inline or source.stats is None:
        return loop
    transfers_s = np.minimum(loop.waits_s, source.stats.mean_stage_s.get("transfer", 0.0))
    return replace(loop, waits_s=loop.waits_s - transfers_s, transfers_s=transfers_s)


def _list_stages(
    probe: LoaderProbe, mean_stage_s: dict[str, float], load_s: float, step_s: float
) -> tuple[StageTime, ...]:
    """Returns the loader's stages as probed; features on a data device and transfer come from the feed's telemetry."""
    stages = list(probe.stages) or [StageTime("batch", load_s)]
    if "features" in mean_stage_s:
        stages.append(StageTime("features", mean_stage_s["features"]))
    return (*stages, StageTime("transfer", mean_stage_s.get("transfer", 0.0)), StageTime("step", step_s))


def _try_out(
    subject: Subject, samples: list[Any], padding: float, padding_after: float, probe: LoaderProbe, limits: Limits
) -> Trials:
    """Measures the changes that may help: trimmed batches, graph mode for an eager step, fewer worker threads."""
    config = subject.config
    is_on_the_fly = config.data.preprocessing_mode == "on_the_fly"
    trials = Trials(cached_s=probe.copy_s if is_on_the_fly else None)
    if padding >= MUCH_PADDING:
        trials = replace(trials, trimmed_step_s=try_trimmed(subject.step, samples, padding, padding_after))
    if subject.is_eager:
        graph = config.model_copy(update={"training.enable_graph_mode": True, "training.enable_eager_debug": False})
        changed = prepare_subject(graph, step_s=None, num_batches=limits.num_batches)
        trials = replace(trials, graph_step_s=time_step(changed.step, samples, num_rounds=3))
    if subject.plan.num_workers > MANY_THREADS_PER_CORE * subject.hardware.num_cpus:
        calmer = config.model_copy(update={"data.num_workers": "auto", "data.optimize_cpu_gpu_overlap": True})
        fewer = replace(subject, config=calmer, plan=choose_plan(calmer, subject.hardware))
        shorter = Limits(max(8, int(_TRIAL_SHARE * limits.num_batches)), limits.time_limit_s)
        trials = replace(trials, fewer_threads_s=run_calmly(fewer.run, shorter).interval_s)
    return trials


class RealStep:
    """Training step of the configured model on its devices, without a run folder or checkpoints.

    A call takes one batch; with gradient accumulation, batches are collected and the step runs at the last one. It
    blocks until the loss is on the host, so that the measured time is complete.
    """

    def __init__(self, config: XTTSConfig, plan: Plan, num_batches: int, say: Say) -> None:
        # First, because the strategy must be created before TensorFlow initialises its devices.
        strategy = make_strategy(plan)
        data = open_training_data(config, plan)
        shapes = list(dict.fromkeys(data.shapes))
        device = detect_device(plan)
        # On a CPU decided for a run as short as this one: XLA compilation may take minutes.
        total_steps = num_batches if device.is_cpu else config.training.steps
        execution = choose_execution(config.training, device, total_steps=total_steps, num_shapes=len(shapes))
        say(execution.reasons[0])
        spec = measure_spec(config, plan, data)
        self._learner = build_learner(config, plan, spec, data, execution, strategy)
        self.is_graph = execution.is_graph
        self.num_parameters = self._learner.num_parameters
        if execution.is_graph:
            say(f"Tracing {len(shapes)} batch shapes …")
            self._learner.trace(shapes, data.num_reference_frames)
        self._waiting: list[Batch] = []
        self._num_steps = 0

    def __call__(self, batch: Any) -> None:
        self._waiting.append(batch)
        if len(self._waiting) < self._learner.num_batches_per_step:
            return
        result = self._learner.train(self._waiting, self._num_steps)
        self._waiting = []
        self._num_steps += 1
        result.read()
