"""What is made before the first step: strategy, spec, model and optimiser, and how much of a batch the device holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tensorflow as tf

from myxtts.config.schema import XTTSConfig
from myxtts.errors import StorageError
from myxtts.models.bundle import Bundle
from myxtts.models.spec import ModelSpec
from myxtts.pipeline.feed import Feed
from myxtts.pipeline.open import open_batches
from myxtts.runtime.hardware import Hardware
from myxtts.runtime.plan import Plan
from myxtts.runtime.strategy import make_strategy
from myxtts.storage.atomic import write_atomically
from myxtts.storage.json_file import JsonRefusedError, parse_json_object
from myxtts.store.reader import FeatureStore
from myxtts.training.execution import (
    Device,
    Execution,
    MicroBatches,
    MicroBatchMemory,
    choose_execution,
    name_situation,
)
from myxtts.training.run.cluster_sync import ClusterSync
from myxtts.training.run.folder import SPEC_FILE_NAME, RunFolder
from myxtts.training.run.state import RunState
from myxtts.training.schedule import LearningRate, count_total_steps, guess_total_steps
from myxtts.training.voice.bundle import VoiceSaver
from myxtts.training.voice.data import TrainingData, describe_durations, measure_spec
from myxtts.training.voice.fine_tuning import choose_scale, take_weights
from myxtts.training.voice.learner import Learner
from myxtts.types import Say

_MAX_SPEC_BYTES = 100_000_000


@dataclass(frozen=True)
class PreparedVoice:
    """What a session of the voice needs. `memory` and `situation` are for what is found to fit into the device."""

    config: XTTSConfig
    plan: Plan
    data: TrainingData
    total_steps: int | None
    execution: Execution
    learner: Learner
    memory: MicroBatchMemory
    situation: str
    unit: str = "utterances"

    @property
    def num_batches_per_epoch(self) -> int:
        return self.data.num_batches_per_epoch

    @property
    def num_shapes(self) -> int:
        return len(set(self.data.shapes))

    def open_feed(self, start: int, loader_name: str, telemetry_file: Path, say: Say) -> Feed:
        return open_batches(
            self.config,
            split="train",
            epochs=self.config.training.epochs,
            start=start,
            plan=self.plan,
            gradient_bytes=4 * self.learner.num_parameters,
            loader_name=loader_name,
            telemetry_file=telemetry_file,
            say=say,
        )

    def trace(self, step: int) -> None:
        self.learner.trace(list(dict.fromkeys(self.data.shapes)), self.data.num_reference_frames)

    def make_saver(self, run: RunFolder, state: RunState, say: Say) -> VoiceSaver:
        return VoiceSaver(self.config, run, self.data, self.learner, state, say)


def prepare_training(
    config: XTTSConfig,
    plan: Plan,
    hardware: Hardware,
    data: TrainingData,
    run: RunFolder,
    origin: Bundle | None,
    say: Say,
) -> PreparedVoice:
    """Makes the model on its devices, with the weights of `origin` where it is trained further from a bundle."""
    # First of all: TensorFlow must not have started its devices when a strategy is made.
    strategy = make_strategy(plan)
    training = config.training
    spec = _agree_on_spec(ClusterSync(strategy, plan.cluster), lambda: _find_spec(config, plan, data, run, origin))
    batches_per_step = training.gradient_accumulation_steps
    total_steps = count_total_steps(training.steps, training.epochs, data.num_batches_per_epoch, batches_per_step)
    expected_steps = guess_total_steps(total_steps, training.minutes)
    execution = choose_execution(
        training, detect_device(plan), total_steps=expected_steps, num_shapes=len(set(data.shapes))
    )
    rate = LearningRate(training.learning_rate, training.warmup_steps, total_steps)
    for line in (*execution.reasons, *describe_rate(rate, training.minutes)):
        say(line)
    if data.durations and isinstance(data.utterances, FeatureStore):
        say(describe_durations(data.utterances.folder))
    asked = _ask_for_micro_batches(plan, data, batches_per_step)
    memory = MicroBatchMemory(run.micro_batches_path, say)
    situation = name_situation(name_device(plan, hardware), _name_model(config), asked)
    found = memory.recall(situation) if plan.cluster is None else None
    micro_batches = found if found is not None and found.accumulation % batches_per_step == 0 else asked
    learner = Learner(config, spec, strategy, execution, rate, micro_batches)
    say(f"Model: {learner.num_parameters / 1e6:.1f} million parameters.")
    if micro_batches != asked:
        say(f"Each step is made of {micro_batches.accumulation} micro-batches, as was found to fit before.")
    if origin is not None and run.checkpoint is None:
        for line in take_weights(learner.model, origin, data.frontend):
            say(line)
        learner.reset_average()
    return PreparedVoice(config, plan, data, total_steps, execution, learner, memory, situation)


def detect_device(plan: Plan) -> Device:
    """What the first of the training devices can do."""
    name = plan.model_devices[0]
    if "CPU" in name:
        return Device("CPU")
    visible = tf.config.get_visible_devices("GPU")
    details: dict[str, Any] = tf.config.experimental.get_device_details(visible[0]) if visible else {}
    return Device("GPU", details.get("compute_capability"))


def _agree_on_spec(agreement: ClusterSync, find_spec: Callable[[], ModelSpec]) -> ModelSpec:
    """One process measures for all: each sees another part of the data when features are made on the fly."""
    if agreement.is_alone:
        return find_spec()
    return ModelSpec.from_json(agreement.share(find_spec().to_json() if agreement.is_chief else {}))


def _find_spec(config: XTTSConfig, plan: Plan, data: TrainingData, run: RunFolder, origin: Bundle | None) -> ModelSpec:
    """The spec the run was begun with, or a new one: measured twice it could differ in the last bit."""
    path = run.path / SPEC_FILE_NAME
    if run.checkpoint is not None and path.is_file():
        try:
            return ModelSpec.from_json(parse_json_object(path.read_bytes()[:_MAX_SPEC_BYTES]))
        except JsonRefusedError as error:
            run.messages.append(f"{path} cannot be read ({error}): the data are measured anew.")
    spec = measure_spec(config, plan, data)
    if origin is not None:
        spec = replace(spec, **choose_scale(config, origin))
    try:
        with write_atomically(path) as file:
            file.write(json.dumps(spec.to_json(), indent=1).encode())
    except StorageError as error:
        run.messages.append(f"{error} The data will be measured again when the run goes on.")
    return spec


def _ask_for_micro_batches(plan: Plan, data: TrainingData, batches_per_step: int) -> MicroBatches:
    most = max(shape.num_utterances for shape in data.shapes)
    return MicroBatches(max(1, most // len(plan.model_devices)), batches_per_step)


def name_device(plan: Plan, hardware: Hardware) -> str:
    """What a device is remembered by."""
    names = [gpu.name for gpu in hardware.gpus if f"/GPU:{gpu.index}" in plan.model_devices]
    return f"{len(plan.model_devices)} x {names[0]}" if names else f"{hardware.num_cpus} CPUs"


def _name_model(config: XTTSConfig) -> str:
    return " ".join(f"{name}={value}" for name, value in config.model.model_dump().items())


def describe_rate(rate: LearningRate, minutes: float | None) -> list[str]:
    """What the user is told of the learning rate."""
    is_endless = rate.num_steps is None and minutes is None
    end = "without an end: give training.steps or minutes to let it fall" if is_endless else "then falls to the end"
    lines = [f"Learning rate: rises to {rate.highest:g} over {rate.num_rising:,} steps, {end}."]
    if rate.num_rising < rate.num_rising_steps:
        lines.append(f"warmup_steps is {rate.num_rising_steps:,}, too many for a run of {rate.num_steps:,} steps.")
    return lines
