"""Profiler of real training steps on a user's configuration, in a temporary run folder.

Order: trace the graphs, train `num_steps` steps, time checkpoints and logging, read the `tf.data` model, then time
forward, backward, optimizer and EMA separately; the last destroys the weights. Devices are synchronised after every
step, so that each step's time is its own. The training loop does not wait for a step before it starts the next one, so
on a GPU it is faster than the sum shown here; `watch_training` runs it too, to count what a step starts. Called by
`myxtts profile`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from myxtts.config.schema import XTTSConfig
from myxtts.errors import DataError, HardwareError
from myxtts.pipeline.recordings import RecordingSource
from myxtts.pipeline.telemetry import FeedStats
from myxtts.runtime.hardware import detect_hardware
from myxtts.runtime.load_tensorflow import load_tensorflow
from myxtts.runtime.plan import choose_plan
from myxtts.tools.profile.result import (
    Compilation,
    DataLoading,
    OpTime,
    SavingTimes,
    Spread,
    StepCounts,
    StepSample,
    TrainingProfile,
)
from myxtts.tools.run_files import FeedTimes, read_telemetry
from myxtts.tools.watch_loop import watch_training
from myxtts.training.run.folder import RunFolder
from myxtts.training.run.state import RunState
from myxtts.training.task import OpenTask
from myxtts.training.voice.batch_size import resolve_batch_size
from myxtts.training.voice.data import open_training_data
from myxtts.types import Batch, Say

if TYPE_CHECKING:
    from myxtts.training.voice.setup import PreparedVoice

_NUM_TRACED = 5
"""Steps in the xprof trace; it grows with every step."""
_NUM_RECORDS = 50
"""Log entries to time; the median counts."""
_MAX_REPEATS = 10
"""Rounds in which the parts of the step are timed, or fewer for a short profile."""
_MAX_OP_BATCHES = 6
"""Batches drawn from the `tf.data` pipeline to read its model."""
_NATIVE = "native"
"""Name of the loader of recordings that is a `tf.data` pipeline."""
_PATIENCE_S, _POLL_S = 60.0, 0.02
"""Longest wait for a checkpoint of the background writer, and the interval of checking, in seconds."""


def profile_training(
    config: XTTSConfig, *, num_steps: int = 20, trace_dir: Path | None = None, say: Say = lambda _line: None
) -> TrainingProfile:
    """Profiles `num_steps` training steps; with `trace_dir`, also writes an xprof trace of a few more there.

    Settings and data are checked before TensorFlow is loaded. Raises `HardwareError` if a batch does not fit into
    memory: unlike training, a profile does not retry with smaller micro-batches.
    """
    with TemporaryDirectory(prefix="myxtts-profile-") as folder:
        config = config.model_copy(update={"training.run_dir": str(Path(folder) / "run")})
        hardware = detect_hardware()
        plan = choose_plan(config, hardware)
        config = resolve_batch_size(config, plan, hardware, say)
        opened = OpenTask(config, plan, hardware, open_training_data(config, plan))
        with RunFolder.open(config, fingerprints=opened.data.fingerprint(), warn=say) as run:
            load_tensorflow()
            import tensorflow as tf

            from myxtts.training.step import is_out_of_memory
            from myxtts.training.voice.setup import prepare_voice

            try:
                return _Profiler(prepare_voice(opened, run, say), run, say).profile(num_steps, trace_dir)
            except tf.errors.OpError as error:
                if not is_out_of_memory(error):
                    raise
                raise HardwareError(
                    f"The memory of {plan.model_devices[0]} does not suffice for a batch of {config.data.batch_size}.",
                    next_step="Give a smaller --batch-size; myxtts train cuts batches by itself.",
                ) from error


class _Profiler:
    """State of one profile: samples, compilations, and one example of the batches of a step for every shape."""

    def __init__(self, prepared: PreparedVoice, run: RunFolder, say: Say) -> None:
        self._prepared, self._run, self._say = prepared, run, say
        self._learner = prepared.learner
        self._compilations: list[Compilation] = []
        self._samples: list[StepSample] = []
        self._examples: dict[str, list[Batch]] = {}

    def profile(self, num_steps: int, trace_dir: Path | None) -> TrainingProfile:
        """Runs all measurements. The parts of the step are timed on the most frequent batch shape."""
        prepared = self._prepared
        self._trace_shapes()
        self._say(f"Training {num_steps:,} steps …")
        data = self._train(num_steps, trace_dir)
        self._say("Saving a checkpoint and writing records …")
        saving = self._measure_saving()
        ops, no_ops_reason = self._measure_ops(data.loader)
        self._say("Counting what a step starts …")
        shape = Counter(one.shape for one in self._samples).most_common(1)[0][0]
        counts = self._count(self._examples[shape])
        self._say(f"Taking the step of shape {shape} apart …")
        from myxtts.tools.profile.parts import measure_parts

        execution = prepared.execution
        return TrainingProfile(
            mode="xla" if execution.is_compiled else "graph" if execution.is_graph else "eager",
            num_parameters=self._learner.num_parameters,
            steps=tuple(self._samples),
            data=data,
            parts=measure_parts(self._learner, self._examples[shape], shape, min(_MAX_REPEATS, num_steps)),
            counts=counts,
            saving=saving,
            ops=tuple(ops),
            no_ops_reason=no_ops_reason,
            compilations=tuple(self._compilations),
            trace_dir=str(trace_dir) if trace_dir is not None else None,
        )

    def _trace_shapes(self) -> None:
        """Traces the graph of each batch shape and times it, as training does before its first step."""
        data = self._prepared.data
        if not self._prepared.execution.is_graph:
            return
        for shape in dict.fromkeys(data.shapes):
            name = f"{shape.num_utterances}x{shape.num_frames}x{shape.num_tokens}"
            self._say(f"Making the graph of shape {name} …")
            started = time.perf_counter()
            self._learner.trace([shape], data.num_reference_frames)
            self._note_compilation(name, time.perf_counter() - started, None)

    def _note_compilation(self, shape: str, seconds: float, step: int | None) -> None:
        self._compilations.append(Compilation(shape, seconds, step, self._prepared.execution.is_compiled))

    def _train(self, num_steps: int, trace_dir: Path | None) -> DataLoading:
        """Trains the steps and returns the feed's statistics; one extra step is the warm-up and not counted."""
        path = self._run.telemetry_path
        from myxtts.pipeline.open import open_batches

        with open_batches(
            self._prepared.config,
            plan=self._prepared.plan,
            gradient_bytes=4 * self._learner.num_parameters,
            telemetry_file=path,
            say=self._say,
        ) as feed:
            batches = iter(feed)
            for step in range(num_steps + 1):
                sample = self._train_step(batches, step)
                if step:
                    self._samples.append(sample)
            stats = feed.stats()
            if trace_dir is not None:
                self._write_trace(batches, trace_dir, num_steps + 1)
            loader = feed.loader_name
        times = read_telemetry(path)
        assert times is not None, "the feed has kept no record"
        return self._describe_loading(loader, times, stats)

    def _describe_loading(self, loader: str, times: FeedTimes, stats: FeedStats) -> DataLoading:
        """Summarises the feed's telemetry for the batches of the samples; later ones belong to the xprof trace."""
        waits_s, steps_s = (np.array([getattr(one, name) for one in self._samples]) for name in ("wait_s", "step_s"))
        per_step = self._learner.num_batches_per_step
        num_batches = per_step * len(self._samples)
        return DataLoading(
            loader=loader,
            wait=Spread.of(waits_s),
            load=Spread.of(times.load_s[:num_batches]),
            stages={name: Spread.of(seconds[:num_batches]) for name, seconds in times.stages.items()},
            mean_depth=stats.mean_depth,
            au=1 - float(waits_s.sum() / max(1e-12, (waits_s + steps_s).sum())),
            padding=stats.padding,
            num_threads=max(1, self._prepared.plan.num_workers),
            step_ms=1000 * float(steps_s.mean()) / per_step,
        )

    def _train_step(self, batches: Iterator[Batch], step: int) -> StepSample:
        """Times the wait for data and one synchronised step; a new trace in it counts as a compilation."""
        from myxtts.tools.profile.parts import wait_for_devices

        learner, num_traces = self._learner, self._learner.num_traces
        started = time.perf_counter()
        taken = list(islice(batches, learner.num_batches_per_step))
        arrived = time.perf_counter()
        learner.train(taken, step)
        wait_for_devices()
        ended = time.perf_counter()
        shape = _name_shape(taken[0])
        self._examples.setdefault(shape, taken)
        if learner.num_traces != num_traces:
            self._note_compilation(shape, ended - arrived, step)
        return StepSample(step, shape, arrived - started, ended - arrived)

    def _write_trace(self, batches: Iterator[Batch], trace_dir: Path, first_step: int) -> None:
        """Records further steps with the TensorFlow profiler; they are not part of the statistics."""
        import tensorflow as tf

        self._say(f"Tracing {_NUM_TRACED} steps for xprof …")
        trace_dir.mkdir(parents=True, exist_ok=True)
        with tf.profiler.experimental.Profile(str(trace_dir)):
            for step in range(first_step, first_step + _NUM_TRACED):
                with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
                    self._train_step(batches, step)

    def _measure_saving(self) -> SavingTimes:
        """Times the second checkpoint with its bundle, and log entries; the first checkpoint traces graphs.

        Training pauses until `save` has returned; leaving the saver waits for its background writer.
        """
        prepared, training = self._prepared, self._prepared.config.training
        state = RunState(step=1, feed_position=0)
        with prepared.make_saver(self._run, state, self._say) as saver:
            saver.load_calibration()
            saver.calibrate()
            saver.save()
            self._wait_for_checkpoint(1)
            saver.complete_bundle()
            started = time.perf_counter()
            saver.calibrate()
            state.step = 2
            saver.save()
            held_s = time.perf_counter() - started
        write_s = time.perf_counter() - started - held_s
        return SavingTimes(held_s, write_s, training.checkpoint_steps, self._measure_logging(), training.log_steps)

    def _count(self, batches: Sequence[Batch]) -> StepCounts:
        """Runs the real training loop for a few steps; kernels are counted on the GPU, else in the step's HLO."""
        from myxtts.runtime.device_trace import BusySampler
        from myxtts.tools.profile.parts import count_kernels

        busy = BusySampler(self._prepared.plan.model_devices, 1e-6, self._say)
        loop = watch_training(self._prepared, self._run, (), on_step=busy.note_step)
        graph, num_kernels = loop.graph, busy.num_kernels
        if num_kernels is None and graph.num_compiled:
            num_kernels = count_kernels(self._learner, batches)
        return StepCounts(
            num_eager_ops=loop.num_eager_ops,
            num_host_reads=loop.num_host_reads,
            num_steps_ahead=loop.num_steps_ahead,
            num_copies=loop.num_copies,
            num_compiled_ops=graph.num_compiled,
            num_outside_ops=graph.num_outside,
            num_loops=graph.num_loops,
            num_unknown_loops=len(graph.unknown_loops),
            num_kernels=num_kernels,
            device_busy=busy.share,
            wall_share=loop.wall_share,
        )

    def _wait_for_checkpoint(self, step: int) -> None:
        """Blocks until the checkpoint is on disk, at most `_PATIENCE_S` seconds."""
        end = time.monotonic() + _PATIENCE_S
        while step not in self._run.checkpoints.list_steps() and time.monotonic() < end:
            time.sleep(_POLL_S)

    def _measure_logging(self) -> float:
        """Returns the median seconds of a line in metrics.jsonl plus the same scalars for TensorBoard."""
        from myxtts.training.tensorboard import TensorBoardWriter

        board = TensorBoardWriter(self._run.path / "tensorboard", self._prepared.config.data.sample_rate, self._say)
        numbers = {f"number{place}": float(place) for place in range(16)}
        seconds = []
        for step in range(_NUM_RECORDS):
            started = time.perf_counter()
            self._run.metrics.append({"step": step, **numbers})
            board.write_scalars(step, numbers)
            seconds.append(time.perf_counter() - started)
        board.close()
        return median(seconds)

    def _measure_ops(self, loader: str) -> tuple[Sequence[OpTime], str]:
        """Returns the `tf.data` operations, or none and the reason, a key of the page's `_NO_OPS`."""
        source = self._prepared.data.utterances
        if not isinstance(source, RecordingSource):
            return (), "no_ops_stored"
        if loader != _NATIVE:
            return (), "no_ops_python"
        from myxtts.tools.profile.parts import measure_native_ops

        num_batches = min(_MAX_OP_BATCHES, self._prepared.data.num_batches_per_epoch)
        try:
            return measure_native_ops(self._prepared.config, self._prepared.plan, source, num_batches), ""
        except DataError:
            return (), "no_ops_mixed"


def _name_shape(batch: Batch) -> str:
    return f"{batch.mel.shape[0]}x{batch.mel.shape[1]}x{batch.tokens.shape[1]}"
