"""Builds the vocoder for training, with its discriminators: strategy, spec, execution, micro-batches, learner, saver.

Called by `Trainer` once TensorFlow is loaded. The spec (architecture, warm-up) is written into the run
directory at the first start and read from there afterwards, so that later settings cannot change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from myxtts.config.schema import XTTSConfig
from myxtts.errors import ConfigError, DataError
from myxtts.features.definition import MelDefinition
from myxtts.models.bundle import check_weights
from myxtts.models.layers import iterate_weights
from myxtts.models.pitch import PitchTracker
from myxtts.models.vocoder import VocoderConfig
from myxtts.models.vocoder_bundle import VOCODER_DESCRIPTION_NAME, VocoderBundle, write_vocoder_bundle
from myxtts.pipeline.choose_loader import LoaderSetup
from myxtts.pipeline.feed import Feed
from myxtts.pipeline.open import make_feed
from myxtts.pipeline.splits import choose_range
from myxtts.runtime.hardware import detect_hardware
from myxtts.runtime.strategy import make_strategy
from myxtts.storage.json_file import read_json, write_json
from myxtts.storage.tensor_file import Array
from myxtts.training.compiling import StepGraph
from myxtts.training.execution import MicroBatches
from myxtts.training.learner import detect_device
from myxtts.training.run.folder import RunFolder
from myxtts.training.run.saver import Saver
from myxtts.training.run.state import RunState, select_synthesis_weights
from myxtts.training.task import OpenTask, PreparedTask, plan_steps
from myxtts.training.vocoder.data import NUM_WARM_STEPS, VOCODER_SPEC_FILE_NAME, VocoderData
from myxtts.training.vocoder.discriminators import DiscriminatorConfig
from myxtts.training.vocoder.learner import VocoderLearner, VocoderSpec
from myxtts.training.vocoder.validation import VocoderValidation
from myxtts.types import Say

_TINY_SHAPE = {"width": 192, "num_blocks": 6}


@dataclass(frozen=True)
class PreparedVocoder(PreparedTask):
    """The vocoder, its discriminators and its data, ready for the first step."""

    data: VocoderData
    learner: VocoderLearner
    num_warm_steps: int
    unit = "segments"
    validation = VocoderValidation

    def open_feed(self, start: int, loader_name: str, telemetry_file: Path, say: Say) -> Feed:
        """Opens the feed of segments; they are always read by threads of this process."""
        source = self.data.source
        batches = choose_range(source, self.plan, start=start, epochs=self.config.training.epochs)
        setup = LoaderSetup(source, source.make_layout(batches.shapes), (self.data.sound.origin,))
        return make_feed(
            self.config,
            self.plan,
            detect_hardware(),
            batches,
            setup,
            telemetry_file=telemetry_file,
            say=say,
        )

    def list_graphs(self, step: int, position: int) -> list[StepGraph]:
        """Those of the warm-up (if it is not over) and with discriminators (if the run gets there)."""
        steps = [step] if step < self.num_warm_steps else []
        if self.steps.total_steps is None or self.steps.total_steps > self.num_warm_steps:
            steps.append(max(step, self.num_warm_steps))
        num_segments, num_frames = self.data.num_segments // self.plan.shard[1], self.data.num_frames
        return [
            StepGraph(
                self.name_graph(of, position),
                partial(self.learner.make_graphs, num_segments, num_frames, of),
                partial(self.learner.trace, num_segments, num_frames, [of]),
            )
            for of in steps
        ]

    def name_graph(self, step: int, position: int) -> str:
        return (
            f"{self.data.num_segments} segments, {'with' if step >= self.num_warm_steps else 'before'} discriminators"
        )

    def make_saver(self, run: RunFolder, state: RunState, say: Say) -> VocoderSaver:
        return VocoderSaver(self.config, run, self.learner, state, self.data.mel, say)


def prepare_vocoder(task: OpenTask, run: RunFolder, say: Say) -> PreparedVocoder:
    """Builds the vocoder on its devices, with the weights of `task.origin` where training begins from a bundle."""
    config, plan, data, origin = task.config, task.plan, task.data, task.origin
    # First: a strategy must be made before TensorFlow initialises its devices.
    strategy = make_strategy(plan)
    training, device, spec = config.training, detect_device(plan), _find_spec(task, run)
    # Micro-batches that are whole batches: the segments that one batch gives to a device.
    asked = MicroBatches(max(1, data.num_segments // plan.num_replicas), training.gradient_accumulation_steps)
    steps = plan_steps(task, device, asked, f"vocoder {spec.shape}", 1, run, say)
    # On CPUs XLA doubles the speed of the warm-up, but halves that of the discriminators' convolutions.
    compiles_both = not device.is_cpu or training.enable_xla_compilation is True
    learner = VocoderLearner(
        config,
        spec,
        data.mel,
        strategy,
        steps.execution,
        steps.total_steps,
        steps.micro_batches,
        jit_compile_gan=steps.execution.is_compiled and compiles_both,
    )
    for line in (*learner.rate.describe(training.minutes), *_describe(learner, data, spec, steps.total_steps)):
        say(line)
    if origin is not None and run.checkpoint is None:
        _take_weights(learner, origin)
        say("The vocoder starts with the weights of --init-from, its discriminators from scratch.")
    return PreparedVocoder(config, plan, data, steps, learner, spec.num_warm_steps)


def _find_spec(task: OpenTask, run: RunFolder) -> VocoderSpec:
    """Spec that the run was begun with, else a new one: of --init-from, or by the size of the model.

    Raises ConfigError if a resumed run has none that can be read: its weights would not fit.
    """
    mel, origin, num_warm_steps = task.data.mel, task.origin, task.num_warm_steps
    path = run.path / VOCODER_SPEC_FILE_NAME
    if run.checkpoint is not None:
        try:
            known = read_json(path, VocoderSpec)
        except (DataError, OSError) as error:
            raise ConfigError(
                f"The vocoder of the run cannot be read from {path}: {error}",
                next_step="Restore the file from a backup, or start a new run with --run-name NAME.",
            ) from error
        if num_warm_steps is not None and num_warm_steps != known.num_warm_steps:
            run.messages.append(
                f"GAN training (discriminators) starts at step {known.num_warm_steps:,}, as set when the run was "
                "started."
            )
        return known
    is_tiny = task.config.model_size == "tiny"
    if origin is not None:
        shape = VocoderConfig.from_json(origin.config)
        shape.refuse_more_than(sum(array.size for array in origin.weights.values()))
    else:
        shape = choose_vocoder_shape(mel, is_tiny=is_tiny)
    spec = VocoderSpec(
        shape=shape,
        discriminators=DiscriminatorConfig.tiny() if is_tiny else DiscriminatorConfig(),
        num_warm_steps=num_warm_steps or NUM_WARM_STEPS,
    )
    if run.is_chief:
        write_json(path, spec.model_dump(mode="json", by_alias=True))
    return spec


def choose_vocoder_shape(mel: MelDefinition, *, is_tiny: bool) -> VocoderConfig:
    """The vocoder for these spectrograms: 10 million weights, or 1.8 million, which two CPU cores can train.

    It has a source at F0 unless the mel bands are too coarse to read F0 from them.
    """
    names = ("n_mels", "n_fft", "hop_length", "win_length", "sample_rate")
    fields = {name: getattr(mel, name) for name in names} | (_TINY_SHAPE if is_tiny else {})
    band_hz = tuple(mel.band_hz.tolist())
    return VocoderConfig(**fields, band_hz=band_hz if PitchTracker(band_hz).is_able else ())


def _take_weights(learner: VocoderLearner, origin: VocoderBundle) -> None:
    """Copies the weights of a vocoder bundle into the learner, whose EMA begins there."""
    named = dict(iterate_weights(learner.model))
    check_weights(origin.weights, {name: tuple(weight.shape) for name, weight in named.items()}, "--init-from")
    for name, weight in named.items():
        weight.assign(origin.weights[name])
    learner.start_here()


def _describe(learner: VocoderLearner, data: VocoderData, spec: VocoderSpec, total_steps: int | None) -> list[str]:
    """Sentences for the user: size, segments of a step, and when discriminators join."""
    seconds = data.num_frames * data.mel.hop_length / data.mel.sample_rate
    size = f"Vocoder: {learner.num_parameters / 1e6:.1f} million parameters"
    if total_steps is not None and total_steps <= spec.num_warm_steps:
        joining = f"GAN training (discriminators) would start at step {spec.num_warm_steps:,}: this run ends before."
    else:
        joining = f"GAN training (discriminators) starts at step {spec.num_warm_steps:,}."
    return [f"{size}; each step takes {data.num_segments} segments of {seconds:.2f} s.", joining]


class VocoderSaver(Saver):
    """Checkpoints of the vocoder and its discriminators, and a bundle of the EMA weights of the vocoder alone."""

    def __init__(
        self,
        config: XTTSConfig,
        run: RunFolder,
        learner: VocoderLearner,
        state: RunState,
        definition: MelDefinition,
        say: Say,
    ) -> None:
        super().__init__(config, run, learner, state, run.bundle_path / VOCODER_DESCRIPTION_NAME, say)
        self._folder, self._definition = run.bundle_path, definition

    def _start_bundle(self, step: int, arrays: Mapping[str, Array]) -> None:
        """Writes the vocoder bundle of a step in the background."""
        bundle = VocoderBundle(
            mel=dict(self._definition.to_json()),
            config=dict(self._learner.model.config.to_json()),
            weights=select_synthesis_weights(arrays),
            notes=self._make_notes(step),
        )
        self._write_in_background(step, lambda: write_vocoder_bundle(self._folder, bundle))
