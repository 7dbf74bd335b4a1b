"""Gathers the evidence of a configuration: the real feed in front of the real training step, or of an emulated one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from myxtts.config.schema import XTTSConfig
from myxtts.pipeline.order import BatchOrder
from myxtts.runtime.hardware import Hardware, detect_hardware
from myxtts.runtime.plan import Plan, choose_plan
from myxtts.runtime.strategy import make_strategy
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
    Work,
    run_alone_calmly,
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
_MUCH_PADDING = 0.25
_TRIAL_SHARE = 0.6
_NUM_TAKEN_FREE = 0.1


@dataclass(frozen=True, slots=True)
class Subject:
    """A configuration made ready to be measured."""

    config: XTTSConfig
    hardware: Hardware
    plan: Plan
    step: Work
    is_emulated: bool
    gradient_bytes: int = 0

    def run(self, limits: Limits) -> LoopTimes:
        """The loop of this configuration, for as long as the limits say."""
        source = self.make_source()
        return _separate_transfer(source, run_together(source, self.step, None, limits))

    def make_source(self) -> FeedSource:
        return FeedSource(self.config, self.hardware, self.plan)


def prepare_subject(
    config: XTTSConfig,
    *,
    step_s: float | StepTime | None,
    num_batches: int,
    hardware: Hardware | None = None,
    say: Say = lambda _line: None,
) -> Subject:
    """With `step_s` the step is emulated, else it is that of the configuration's model."""
    machine = hardware or detect_hardware()
    plan = choose_plan(config, machine)
    config = resolve_batch_size(config, plan, machine, say)
    if step_s is not None:
        step_time = step_s if isinstance(step_s, StepTime) else StepTime(step_s)
        return Subject(config, machine, plan, EmulatedStep(step_time), True)

    step = RealStep(config, machine, plan, num_batches, say)
    return Subject(config, machine, plan, step, False, 4 * step.num_parameters)


def examine_config(subject: Subject, limits: Limits) -> tuple[Evidence, BatchOrder]:
    """What the feed gives alone and together, what the loader's stages take, and what trials show."""
    config, plan, source = subject.config, subject.plan, subject.make_source()
    loop = run_calmly(lambda block: run_together(source, subject.step, None, block), limits)
    loop = _separate_transfer(source, loop)
    stats = source.stats
    assert stats is not None, "the feed was not closed"
    alone = run_alone_calmly(source, limits)
    samples = take_samples(source, _NUM_SAMPLES)
    step_s = time_step(subject.step, samples, num_rounds=3)
    probe = probe_loader(config, plan, source.loader_name)
    stages = _list_stages(probe, stats.mean_stage_s, stats.mean_load_s / max(1, plan.num_workers), step_s)
    better_shapes, padding_after = (
        choose_num_shapes(config, plan) if stats.padding >= _MUCH_PADDING else (8, USUAL_PADDING)
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
        is_step_emulated=subject.is_emulated,
        num_threads=plan.num_workers,
        buffer_depth=source.buffer_depth,
        padding=stats.padding,
        padding_after=padding_after,
        num_eager_ops=_count_eager_ops(subject, samples[0]),
        trials=trials,
        settings=_list_settings(config, probe, better_shapes),
    )
    return evidence, probe.order


def _separate_transfer(source: FeedSource, loop: LoopTimes) -> LoopTimes:
    """A copy that is made when a batch is asked for looks like waiting for data; the feed knows which part it was."""
    if not source.is_transfer_inline or source.stats is None:
        return loop
    transfers_s = np.minimum(loop.waits_s, source.stats.mean_stage_s.get("transfer", 0.0))
    return replace(loop, waits_s=loop.waits_s - transfers_s, transfers_s=transfers_s)


def _list_stages(
    probe: LoaderProbe, mean_stage_s: dict[str, float], load_s: float, step_s: float
) -> tuple[StageTime, ...]:
    """The loader's stages as probed, those behind it as the feed itself measured them."""
    stages = list(probe.stages) or [StageTime("batch", load_s)]
    if "features" in mean_stage_s:
        stages.append(StageTime("features", mean_stage_s["features"]))
    return (*stages, StageTime("transfer", mean_stage_s.get("transfer", 0.0)), StageTime("step", step_s))


def _try_out(
    subject: Subject, samples: list[Any], padding: float, padding_after: float, probe: LoaderProbe, limits: Limits
) -> Trials:
    config = subject.config
    is_on_the_fly = config.data.preprocessing_mode == "on_the_fly"
    trials = Trials(cached_s=probe.copy_s if is_on_the_fly else None)
    if padding >= _MUCH_PADDING:
        trials = replace(trials, trimmed_step_s=try_trimmed(subject.step, samples, padding, padding_after))
    if _is_eager(subject):
        graph = config.model_copy(update={"training.enable_graph_mode": True, "training.enable_eager_debug": False})
        changed = prepare_subject(graph, step_s=None, num_batches=limits.num_batches, hardware=subject.hardware)
        trials = replace(trials, graph_step_s=time_step(changed.step, samples, num_rounds=3))
    if subject.plan.num_workers > MANY_THREADS_PER_CORE * subject.hardware.num_cpus:
        calmer = config.model_copy(update={"data.num_workers": "auto", "data.optimize_cpu_gpu_overlap": True})
        fewer = replace(subject, config=calmer, plan=choose_plan(calmer, subject.hardware))
        shorter = Limits(max(8, int(_TRIAL_SHARE * limits.num_batches)), limits.time_limit_s)
        trials = replace(trials, fewer_threads_s=run_calmly(fewer.run, shorter).interval_s)
    return trials


def _is_eager(subject: Subject) -> bool:
    return not subject.is_emulated and not getattr(subject.step, "is_graph", True)


def _count_eager_ops(subject: Subject, batch: Any) -> int:
    return count_eager_ops(subject.step, batch) if _is_eager(subject) else 0


def _list_settings(config: XTTSConfig, probe: LoaderProbe, better_shapes: int) -> dict[str, Any]:
    return {
        "data.preprocessing_mode": config.data.preprocessing_mode,
        "data.batch_size": config.data.batch_size,
        "store_gb": probe.store_bytes / 2**30,
        "better_num_shapes": better_shapes,
    }


# The training step of a configuration, on its devices but without a run, to be measured.


class RealStep:
    """Called with batch after batch; trains whenever there are as many as make a step, and waits for the result."""

    def __init__(self, config: XTTSConfig, hardware: Hardware, plan: Plan, num_batches: int, say: Say) -> None:
        # First of all: TensorFlow must not have started its devices when a strategy is made.
        strategy = make_strategy(plan)
        data = open_training_data(config, plan)
        shapes = list(dict.fromkeys(data.shapes))
        # Of a run as short as this one, so that nobody waits for minutes of compiling on a CPU.
        execution = choose_execution(
            config.training, detect_device(plan), total_steps=num_batches, num_shapes=len(shapes)
        )
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
        float(result.loss)
