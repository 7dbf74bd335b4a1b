"""Builds the voice model for training: strategy, spec, execution, micro-batches that fit the device, learner.

Order of steps in `prepare_voice`: strategy first (TensorFlow must not have initialised its devices), spec from the run
directory or measured, XLA and dtype policy, micro-batches, learner, then weights of --init-from. Called by
`Trainer` once TensorFlow is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from myxtts.config.schema import XTTSConfig
from myxtts.errors import ConfigError, DataError, StorageError
from myxtts.models.bundle import Bundle
from myxtts.models.spec import ModelSpec
from myxtts.models.vocoder_bundle import VocoderBundle, take_from
from myxtts.pipeline.feed import Feed
from myxtts.pipeline.open import open_batches
from myxtts.pipeline.order import Shape
from myxtts.runtime.plan import Plan
from myxtts.runtime.strategy import make_strategy
from myxtts.storage.json_file import read_json, write_json
from myxtts.store.reader import FeatureStore
from myxtts.training.compiling import StepGraph
from myxtts.training.execution import name_model
from myxtts.training.learner import detect_device
from myxtts.training.run.cluster_sync import ClusterSync
from myxtts.training.run.folder import SPEC_FILE_NAME, RunFolder
from myxtts.training.run.state import RunState
from myxtts.training.task import OpenTask, PreparedTask, plan_steps
from myxtts.training.voice.adapt import list_frozen
from myxtts.training.voice.align import DurationsSwitch, make_switch
from myxtts.training.voice.bundle import VoiceSaver
from myxtts.training.voice.data import TrainingData, describe_durations, measure_spec
from myxtts.training.voice.fine_tuning import choose_scale, take_weights
from myxtts.training.voice.learner import Learner, ask_micro_batches
from myxtts.training.voice.validation import ValidationCallback
from myxtts.types import Say

_MAX_SPEC_BYTES = 100_000_000
"""Limit for model_spec.json, which lists the names of all speakers."""


@dataclass(frozen=True)
class PreparedVoice(PreparedTask):
    """The voice model, its optimizer and its data, ready for the first step."""

    data: TrainingData
    learner: Learner
    vocoder: VocoderBundle | None = None
    """Neural vocoder of the model that training began with, which works with this one too: same spectrograms."""
    unit = "utterances"
    validation = ValidationCallback

    def open_feed(self, start: int, loader_name: str, telemetry_file: Path, say: Say) -> Feed:
        """Opens the training batches. The size of the gradients decides whether a data GPU pays."""
        has_durations = {"training.durations": "stored"} if self.learner.has_durations else {}
        return open_batches(
            self.config.model_copy(update=has_durations),
            split="train",
            epochs=self.config.training.epochs,
            start=start,
            plan=self.plan,
            opened=self.data.opened,
            gradient_bytes=4 * self.learner.num_parameters,
            loader_name=loader_name,
            telemetry_file=telemetry_file,
            say=say,
        )

    def list_graphs(self, step: int, position: int) -> list[StepGraph]:
        data, learner = self.data, self.learner
        needed = [self._shape_at(position + ahead) for ahead in range(data.num_batches_per_epoch)]
        return [
            StepGraph(
                self._name_shape(shape),
                partial(learner.make_graphs, shape, data.num_reference_frames),
                partial(learner.trace, [shape], data.num_reference_frames),
            )
            for shape in dict.fromkeys([*needed, *data.shapes])
        ]

    def name_graph(self, step: int, position: int) -> str:
        return self._name_shape(self._shape_at(position))

    def _shape_at(self, position: int) -> Shape:
        """Shape of the batch at a position, as this process gets it."""
        return self.data.order.shape_at(position).share(self.plan.shard[1])

    def _name_shape(self, shape: Shape) -> str:
        more = ", with durations" if self.learner.has_durations else ""
        return f"{shape.num_utterances} utterances, {shape.num_frames} frames, {shape.num_tokens} tokens{more}"

    def make_switch(self, run: RunFolder, state: RunState, say: Say) -> DurationsSwitch | None:
        return make_switch(self.config, self.plan, self.data, self.learner, run, state, say)

    def make_saver(self, run: RunFolder, state: RunState, say: Say) -> VoiceSaver:
        return VoiceSaver(self.config, run, self.data, self.learner, state, say, self.vocoder)


def prepare_voice(task: OpenTask, run: RunFolder, say: Say) -> PreparedVoice:
    """Builds the model on its devices, with the weights of `task.origin` where training begins from a bundle."""
    config, plan, data, origin = task.config, task.plan, task.data, task.origin
    # First: a strategy must be made before TensorFlow initialises its devices.
    strategy = make_strategy(plan)
    spec = _share_spec(ClusterSync(strategy, plan.cluster), lambda: _find_spec(config, plan, data, run, origin))
    asked, num_shapes = ask_micro_batches(config, plan, data), len(set(data.shapes))
    steps = plan_steps(task, detect_device(plan), asked, name_model(config.model), num_shapes, run, say)
    learner = Learner(config, spec, strategy, steps.execution, steps.total_steps, steps.micro_batches)
    for line in learner.rate.describe(config.training.minutes):
        say(line)
    if data.durations and isinstance(data.utterances, FeatureStore):
        say(describe_durations(data.utterances.folder))
    say(_describe_size(learner, config))
    if origin is not None and run.checkpoint is None:
        for line in take_weights(learner.model, config.model, origin, data.frontend):
            say(line)
        learner.start_here()
    return PreparedVoice(config, plan, data, steps, learner, take_from(origin) if origin is not None else None)


def _describe_size(learner: Learner, config: XTTSConfig) -> str:
    num_all = sum(math.prod(weight.shape) for weight in learner.model.named_weights().values())
    is_part = list_frozen(config.training.adapt)
    trained = f", {learner.num_parameters / 1e6:.1f} million of them trained" if is_part else ""
    return f"Model: {num_all / 1e6:.1f} million parameters{trained}."


def _refuse_other_names(spec: ModelSpec, data: TrainingData, run_path: Path) -> None:
    """Raises ConfigError where symbols, languages or speakers are not those that the rows of the weights stand for.

    --override accepts other data, but not such: a speaker would be trained as another one.
    """
    found = {
        "symbols": (spec.factor_sizes, data.frontend.factor_sizes),
        "languages": (spec.languages, data.utterances.languages),
        "speakers": (spec.speakers, data.utterances.speakers),
    }
    changed = [name for name, (old, new) in found.items() if tuple(old) != tuple(new)]
    if changed:
        raise ConfigError(
            f"The {' and '.join(changed)} of the data are not those that the run {run_path} was started with, so that "
            "its weights do not fit.",
            next_step=f"Use the data that it was started with, or start a new run from its weights: --run-name NAME "
            f"--init-from {run_path}.",
        )


def _share_spec(sync: ClusterSync, find_spec: Callable[[], ModelSpec]) -> ModelSpec:
    """The chief measures the spec for all processes: with on-the-fly features each sees other utterances."""
    if sync.is_alone:
        return find_spec()
    return ModelSpec.from_json(sync.share(find_spec().to_json() if sync.is_chief else {}))


def _find_spec(config: XTTSConfig, plan: Plan, data: TrainingData, run: RunFolder, origin: Bundle | None) -> ModelSpec:
    """Spec of the run if it is resumed, else measured and written: measured twice it could differ in the last bit."""
    path = run.path / SPEC_FILE_NAME
    if run.checkpoint is not None and path.is_file():
        try:
            known = ModelSpec.from_json(read_json(path, dict[str, Any], max_bytes=_MAX_SPEC_BYTES))
        except DataError as error:
            run.messages.append(f"{path} cannot be read ({error.problem}): the data are measured again.")
        else:
            _refuse_other_names(known, data, run.path)
            return known
    spec = measure_spec(config, plan, data)
    if origin is not None:
        spec = replace(spec, **choose_scale(config, origin))
    try:
        write_json(path, spec.to_json())
    except StorageError as error:
        run.messages.append(f"{error} The data will be measured again when the run is resumed.")
    return spec
