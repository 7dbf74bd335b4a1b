"""Measures a configuration for `diagnose`: its real feed, with its real training step or an emulated one.

Order of measurements in `examine_config`: full loop, loading alone, step alone on batches in memory, stages of the
loader, then trials (graph mode, trimmed padding, fewer threads). The full loop comes first, because it chooses the
loader.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.pipeline.order import BatchOrder, Shape
from myxtts.runtime.device_trace import BusySampler
from myxtts.runtime.hardware import Hardware, detect_hardware
from myxtts.runtime.plan import Plan, choose_plan, find_gpus, is_cpu
from myxtts.runtime.strategy import make_strategy, translate_plan
from myxtts.runtime.timing import time_calls
from myxtts.store.reader import FeatureStore
from myxtts.tools.diagnose.causes import MUCH_PADDING
from myxtts.tools.diagnose.evidence import USUAL_PADDING, Evidence, LoopTimes, StageTime, StepFacts, Trials
from myxtts.tools.diagnose.feed_probe import FeedSource, LoaderProbe, choose_num_shapes, probe_loader
from myxtts.tools.diagnose.from_dataset import MANY_THREADS_PER_CORE, EmulatedStep, count_eager_ops, try_trimmed
from myxtts.tools.diagnose.timing import Limits, run_alone, run_calmly, run_together, take_samples, time_step
from myxtts.tools.emulate import StepTime
from myxtts.tools.watch_loop import watch_training
from myxtts.training.execution import choose_execution
from myxtts.training.learner import detect_device
from myxtts.training.run.folder import RunFolder
from myxtts.training.task import OpenTask, plan_steps
from myxtts.training.voice.batch_size import resolve_batch_size
from myxtts.training.voice.data import measure_spec, open_training_data
from myxtts.training.voice.learner import build_learner
from myxtts.training.voice.setup import PreparedVoice
from myxtts.types import Batch, Say

_NUM_SAMPLES = 3
"""Batches kept in memory to time the step alone."""
_TRIAL_SHARE = 0.6
"""Batches of a trial of other settings, as a share of those of the diagnosis."""
_HALF_FULL = 0.5
"""Share of a GPU's memory in use from which a batch of twice the size is not tried."""
_NUM_TAKEN_FREE = 0.1
"""Quantile of the waits that stands for taking a batch that is ready: the quickest waits are no waiting at all."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A configuration with its plan and a callable step."""

    config: XTTSConfig
    hardware: Hardware
    plan: Plan
    step: RealStep | EmulatedStep

    def run(self, limits: Limits) -> LoopTimes:
        """Times the full loop with a new feed."""
        source = self.make_source()
        return _separate_transfer(source, run_together(source, self.step, None, limits))

    def make_source(self) -> FeedSource:
        return FeedSource(self.config, self.hardware, self.plan, self.step.batches_per_step)


def prepare_subject(
    config: XTTSConfig, *, step_s: float | StepTime | None, num_batches: int, say: Say = lambda _line: None
) -> Subject:
    """Resolves plan and batch size and builds the step: emulated if `step_s` is given, else that of the real model."""
    hardware = detect_hardware()
    plan = choose_plan(config, hardware)
    config = resolve_batch_size(config, plan, hardware, say)
    if step_s is not None:
        return Subject(config, hardware, plan, EmulatedStep(StepTime.make(step_s)))
    return Subject(config, hardware, plan, RealStep(config, hardware, plan, num_batches, say))


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
    load_s = stats.mean_load_s / max(1, plan.num_workers)
    stages = _list_stages(probe, stats.mean_stage_s, load_s, step_s, source.batches_per_step)
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
        machine=replace(alone.machine, gpu_names=tuple(gpu.name for gpu in subject.hardware.gpus)),
        is_step_emulated=subject.step.is_emulated,
        num_threads=plan.num_workers,
        buffer_depth=source.buffer_depth,
        padding=stats.padding,
        padding_after=padding_after,
        num_eager_ops=0 if subject.step.is_graph else count_eager_ops(subject.step, samples[0]),
        step_facts=subject.step.examine(),
        trials=trials,
        # What `advice` reads: keys with a dot are configuration keys, the others measurements.
        settings={
            "data.preprocessing_mode": config.data.preprocessing_mode,
            "data.batch_size": config.data.batch_size,
            "store_gb": probe.store_bytes / 2**30,
            "better_num_shapes": better_shapes,
            "training.checkpoint_steps": config.training.checkpoint_steps,
            "training.sample_steps": config.training.sample_steps,
        },
    )
    return evidence, probe.order


def _separate_transfer(source: FeedSource, loop: LoopTimes) -> LoopTimes:
    """Counts the copy to the device as transfer, not as waiting, where the feed copies on demand."""
    if not source.is_transfer_inline or source.stats is None:
        return loop
    copy_s = source.batches_per_step * source.stats.mean_stage_s.get("transfer", 0.0)
    transfers_s = np.minimum(loop.waits_s, copy_s)
    return replace(loop, waits_s=loop.waits_s - transfers_s, transfers_s=transfers_s)


def _list_stages(
    probe: LoaderProbe, mean_stage_s: dict[str, float], load_s: float, step_s: float, batches_per_step: int
) -> tuple[StageTime, ...]:
    """Returns the loader's stages as probed; features on a data device and transfer come from the feed's telemetry.

    All are times of a step, which may take several batches.
    """
    stages = list(probe.stages) or [StageTime("batch", load_s)]
    if "features" in mean_stage_s:
        stages.append(StageTime("features", mean_stage_s["features"]))
    stages.append(StageTime("transfer", mean_stage_s.get("transfer", 0.0)))
    of_step = [
        replace(
            stage,
            seconds=batches_per_step * stage.seconds,
            num_bytes=batches_per_step * stage.num_bytes,
            num_reads=batches_per_step * stage.num_reads,
        )
        for stage in stages
    ]
    return (*of_step, StageTime("step", step_s))


def _try_out(
    subject: Subject, samples: list[Any], padding: float, padding_after: float, probe: LoaderProbe, limits: Limits
) -> Trials:
    """Measures the changes that may help: trimmed batches, graph mode for an eager step, fewer worker threads."""
    config = subject.config
    is_on_the_fly = config.data.preprocessing_mode == "on_the_fly"
    trials = Trials(cached_s=probe.copy_s if is_on_the_fly else None, double_ratio=subject.step.try_double_batch())
    if padding >= MUCH_PADDING:
        trials = replace(trials, trimmed_step_s=try_trimmed(subject.step, samples, padding, padding_after))
    if not subject.step.is_graph:
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

    A call takes a batch or, with gradient accumulation, the list of all batches of a step. It blocks until the loss is
    on the host, so that the measured time is complete.
    """

    is_emulated = False

    def __init__(self, config: XTTSConfig, hardware: Hardware, plan: Plan, num_batches: int, say: Say) -> None:
        # First, because the strategy must be created before TensorFlow initialises its devices.
        strategy = make_strategy(plan)
        self._device, data = detect_device(plan), open_training_data(config, plan)
        self._shapes = list(dict.fromkeys(data.shapes))
        # On a CPU decided for a run as short as this one: XLA compilation may take minutes.
        total_steps = num_batches if self._device.is_cpu else config.training.steps
        execution = choose_execution(
            config.training, self._device, total_steps=total_steps, num_shapes=len(self._shapes)
        )
        say(execution.reasons[0])
        spec = measure_spec(config, plan, data)
        self._learner = build_learner(config, plan, spec, data, execution, strategy)
        self._task = OpenTask(config, plan, hardware, data)
        self.is_graph = execution.is_graph
        self.num_parameters = self._learner.num_parameters
        if execution.is_graph:
            say(f"Tracing {len(self._shapes)} batch shapes …")
            self._learner.trace(self._shapes, data.num_reference_frames)
        self.batches_per_step = self._learner.num_batches_per_step
        self._num_steps = 0

    def __call__(self, batches: Batch | list[Batch]) -> None:
        taken = batches if isinstance(batches, list) else [batches]
        result = self._learner.train(taken, self._num_steps)
        self._num_steps += 1
        result.read()

    def examine(self) -> StepFacts:
        """Runs the real training loop for a few steps in a temporary run folder, and returns what its step does."""
        data = self._task.data
        # Due at once, and again as soon as it is done.
        busy = BusySampler(self._task.plan.model_devices, 1e-6, lambda _line: None)
        with TemporaryDirectory(prefix="myxtts-diagnose-") as folder:
            config = self._task.config.model_copy(update={"training.run_dir": str(Path(folder) / "run")})
            task = replace(self._task, config=config)
            with RunFolder.open(config, fingerprints=data.fingerprint()) as run:
                steps = plan_steps(
                    task, self._device, self._learner.micro_batches, "", len(self._shapes), run, lambda _line: None
                )
                prepared = PreparedVoice(config, task.plan, data, steps, self._learner)
                loop = watch_training(prepared, run, prepared.make_callbacks(), on_step=busy.note_step)
        return StepFacts(
            loop=loop,
            is_gpu=not self._device.is_cpu,
            has_bfloat16=self._device.has_bfloat16,
            device_busy=busy.share,
            has_durations=self._has_durations(),
            num_frames=max(shape.num_frames for shape in self._shapes),
            num_shapes=len(self._shapes),
        )

    def _has_durations(self) -> bool:
        """Returns whether the store holds the durations of every utterance, although the step searches for them."""
        data = self._task.data
        if self._learner.has_durations or not isinstance(data.utterances, FeatureStore):
            return False
        columns = data.utterances.columns
        return bool((columns["durations_length"] == columns["tokens_length"]).all())

    def try_double_batch(self) -> float | None:
        """Returns the time of a step on twice as many rows by that of a step as configured; None where it is of no use.

        Only on GPUs whose memory is less than half used: a CPU has no idle units that a larger batch would fill.
        """
        if is_cpu(self._task.plan.model_devices[0]) or not self.is_graph:
            return None
        if _measure_memory_share(self._task) > _HALF_FULL:
            return None
        shape = max(self._shapes, key=lambda one: one.num_utterances * one.num_frames)
        double = replace(shape, num_utterances=2 * shape.num_utterances)
        num_frames = self._task.data.num_reference_frames
        times = [time_calls(partial(self._run_empty, one, num_frames), 3) for one in (shape, double)]
        return times[1] / times[0]

    def _run_empty(self, shape: Shape, num_reference_frames: int) -> None:
        """Runs a step on a batch of padding, which computes as long as any other of its shape."""
        self._learner.trace([shape], num_reference_frames)
        tf.test.experimental.sync_devices()


def _measure_memory_share(task: OpenTask) -> float:
    """Returns the share of the first training GPU's memory that was in use at the peak."""
    device, gpu = translate_plan(task.plan).model_devices[0], find_gpus(task.plan.model_devices, task.hardware)[0]
    peak_bytes = tf.config.experimental.get_memory_info(device.strip("/"))["peak"]
    return float(peak_bytes / gpu.memory_bytes)
