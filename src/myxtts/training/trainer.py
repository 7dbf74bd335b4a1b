"""`Trainer`: from a configuration to a trained model in a run directory.

    Trainer(XTTSConfig.load("config.yaml")).fit()
    Trainer(XTTSConfig.load("config.yaml"), part="vocoder").fit()

Everything that can be wrong with settings, data and run directory is found before TensorFlow is loaded.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, get_args

from myxtts.config.schema import XTTSConfig
from myxtts.errors import BusyError, UsageError
from myxtts.models.base_model import BASE_FOLDER, BASE_NAME, find_model
from myxtts.models.bundle import Bundle, find_bundle, read_bundle, refuse_foreign_vocoder
from myxtts.models.vocoder_bundle import VocoderBundle, find_vocoder
from myxtts.runtime.cluster import read_cluster
from myxtts.runtime.compile_cache import start_compile_cache
from myxtts.runtime.hardware import detect_hardware
from myxtts.runtime.load_tensorflow import load_tensorflow
from myxtts.runtime.plan import Plan, choose_plan
from myxtts.store.provide import Report, ensure_features
from myxtts.training.callbacks import Callback, ProgressDisplay, TrainResult
from myxtts.training.run.folder import SPEC_FILE_NAME, RunFolder
from myxtts.training.run.resume import refuse_impossible
from myxtts.training.run.signals import StopRequest, watch_signals
from myxtts.training.task import OpenTask, PreparedTask
from myxtts.training.vocoder.data import (
    USUAL_RUN_NAME,
    VOCODER_SPEC_FILE_NAME,
    VocoderData,
    open_vocoder_data,
    resolve_vocoder_settings,
)
from myxtts.training.voice.adapt import begin_adaptation, choose_adaptation, refuse_mixing_unknown_weights
from myxtts.training.voice.batch_size import keep_num_shapes, resolve_batch_size
from myxtts.training.voice.data import TrainingData, open_training_data
from myxtts.training.voice.fine_tuning import follow_bundle
from myxtts.types import Say

__all__ = ["PartName", "TrainResult", "Trainer"]

PartName = Literal["voice", "vocoder"]
"""Parts that can be trained: the model that turns text into spectrograms, or the vocoder that turns them into sound."""

_WAIT_S = 1.0
"""How often a process looks whether another one of its cluster has made the features."""
USUAL_RUN_NAMES = {"voice": "run", "vocoder": USUAL_RUN_NAME}
"""Names of the runs where none is given, by part."""


def print_line(line: str) -> None:
    """Writes a line to standard error."""
    sys.stderr.write(f"{line}\n")


class Trainer:
    """Trains a voice model or a vocoder: a new run, a resumed run, or a fine-tuning.

    Missing features are computed first. As the configuration says, it validates, keeps the best checkpoint, stops
    early, freezes the text encoder, and writes samples and TensorBoard files.

    `part` is "voice" or "vocoder". `init_from` is a run or bundle whose weights are loaded; `override` accepts changed
    settings that `resume` refuses. `make_observers` returns your own callbacks; it is called when the run is open and
    TensorFlow is loaded. `say` gets each line of the log, `report` the progress of computing features.
    `discriminators_from` is the step at which the discriminators of a vocoder start; None takes the default.
    `resume_flags` are added to the command that is shown after an interruption.
    """

    def __init__(
        self,
        config: XTTSConfig,
        *,
        part: PartName = "voice",
        say: Say = print_line,
        report: Report | None = None,
        resume: bool = False,
        override: bool = False,
        init_from: str | Path | None = None,
        make_observers: Callable[[], Sequence[Callback]] = tuple,
        arguments: Sequence[str] | None = None,
        discriminators_from: int | None = None,
        resume_flags: Sequence[str] = (),
    ) -> None:
        if part not in get_args(PartName):
            raise UsageError(f"There is no part {part!r}.", next_step="Choose voice or vocoder.")
        self._part, self._discriminators_from, self._report = part, discriminators_from, report or Report(say)
        self._config, self._say, self._make_observers = config, say, make_observers
        self._resume, self._override, self._arguments = resume, override, arguments
        self._init_from = Path(init_from) if init_from is not None else None
        self._resume_flags = resume_flags

    def fit(self) -> TrainResult:
        """Trains until `steps`, `epochs` or `minutes` are reached, or until a signal; then the state is saved."""
        origin = self._read_origin()
        config = keep_num_shapes(self._settle(origin))
        if self._part == "vocoder":
            config = resolve_vocoder_settings(config, self._say)
        else:
            path, goes_on = config.training.run_path, self._goes_on(config)
            config = begin_adaptation(config, path, has_origin=origin is not None, goes_on=goes_on)
        refuse_other_part(config.training.run_path, self._part)
        if self._resume:
            refuse_impossible(config)
        # GPUs that do not exist are refused here, before features are computed for minutes.
        choose_plan(config, detect_hardware())
        if config.training.compile_cache:
            # TensorFlow reads its flags when it is loaded, and making features may load it.
            start_compile_cache(detect_hardware().gpus, self._say)
        config = self._ensure_features(config)
        opened = self._open_task(config, origin)
        self._say(opened.data.describe())
        with (
            ProgressDisplay(say=self._say) as display,
            self._open_run(opened, display) as run,
            watch_signals(display.say, run.checkpoints.list_steps) as request,
        ):
            result = self._train(opened, run, request, display)
        if request.is_requested and result.is_chief:
            command = ["myxtts", "train", "--resume", str(result.run_path), *self._resume_flags]
            self._say(f"Step {result.step:,} is saved. Continue with: {shlex.join(command)}")
        request.raise_if_requested()
        return result

    def _goes_on(self, config: XTTSConfig) -> bool:
        """Whether a run is resumed from one of its checkpoints."""
        return self._resume and bool(RunFolder(config.training.run_path).checkpoints.list_steps())

    def _ensure_features(self, config: XTTSConfig) -> XTTSConfig:
        """Makes or updates features; of several processes that train together one does so, and the others wait."""
        goes_on = self._goes_on(config)
        is_told = False
        while True:
            try:
                return ensure_features(
                    config,
                    self._report,
                    keep_sound=self._part == "vocoder",
                    may_update=self._override or not goes_on,
                )
            except BusyError as error:
                if read_cluster(os.environ) is None:
                    raise
                if not is_told:
                    self._say(f"{error.problem} This process waits until it is done.")
                is_told = True
                time.sleep(_WAIT_S)

    def _open_run(self, opened: OpenTask, display: ProgressDisplay) -> RunFolder:
        return RunFolder.open(
            opened.config,
            resume=self._resume,
            override=self._override,
            fingerprints=opened.data.fingerprint(),
            arguments=self._arguments,
            init_from=self._name_origin(),
            warn=display.say,
            is_chief=opened.plan.cluster is None or opened.plan.cluster.is_chief,
        )

    def _train(self, opened: OpenTask, run: RunFolder, request: StopRequest, display: ProgressDisplay) -> TrainResult:
        load_tensorflow()
        from myxtts.training.loop import TrainingLoop
        from myxtts.training.run.cluster_sync import explain_lost_worker

        with explain_lost_worker(opened.plan.cluster, run):
            prepared = self._prepare(opened, run, display.say)
            display.unit = prepared.unit
            request.reinstall()
            for message in run.messages:
                display.say(message)
            if opened.origin is not None and run.checkpoint is not None:
                display.say("--init-from is ignored: this run continues from its own checkpoint.")
            # One process of a cluster is enough to validate, to write samples and to show the progress.
            callbacks = (display, *prepared.make_callbacks(), *self._make_observers()) if run.is_chief else ()
            return TrainingLoop(prepared, run, request, display.say, callbacks).train()

    def _prepare(self, opened: OpenTask, run: RunFolder, say: Say) -> PreparedTask:
        """Builds the learner on its devices, and reports how."""
        if self._part == "voice":
            from myxtts.training.voice.setup import prepare_voice

            return prepare_voice(opened, run, say)
        from myxtts.training.vocoder.setup import prepare_vocoder

        return prepare_vocoder(opened, run, say)

    def _read_origin(self) -> Bundle | VocoderBundle | None:
        """The bundle of --init-from."""
        if self._init_from is None:
            return None
        path = find_model(self._init_from, self._say)
        return read_bundle(find_bundle(path)) if self._part == "voice" else find_vocoder(path)

    def _name_origin(self) -> str | None:
        """The model of --init-from as another command finds it."""
        if self._init_from is None:
            return None
        path = find_model(self._init_from)
        return BASE_NAME if path == BASE_FOLDER else str(path.absolute())

    def _settle(self, origin: Bundle | VocoderBundle | None) -> XTTSConfig:
        """The configuration, with the settings of the bundle that training begins from where the user chose none."""
        if origin is None:
            return self._config
        config, lines = follow_bundle(self._config, origin)
        for line in lines:
            self._say(line)
        return config

    def _open_task(self, config: XTTSConfig, origin: Bundle | VocoderBundle | None) -> OpenTask:
        hardware = detect_hardware()
        plan = choose_plan(config, hardware)
        data: TrainingData | VocoderData
        if self._part == "voice":
            config = resolve_batch_size(config, plan, hardware, self._say)
            data = open_training_data(config, plan)
            if isinstance(origin, Bundle) and not self._goes_on(config):
                config, data = self._adapt(config, plan, data, origin)
            refuse_mixing_unknown_weights(config)
            if data.shape_choice is not None:
                self._say(data.shape_choice.reason)
                config = config.model_copy(update={"data.num_shapes": data.shape_choice.number})
        else:
            data = open_vocoder_data(config, plan, hardware)
            if isinstance(origin, VocoderBundle):
                refuse_foreign_vocoder(dict(data.mel.to_json()), origin.describe())
        return OpenTask(config, plan, hardware, data, origin, self._discriminators_from)

    def _adapt(
        self, config: XTTSConfig, plan: Plan, data: TrainingData, origin: Bundle
    ) -> tuple[XTTSConfig, TrainingData]:
        """Settings and data of an adaptation; those given where it is a normal run."""
        adapted, lines = choose_adaptation(config, origin, data)
        for line in lines:
            self._say(line)
        # The shapes of batches are among the settings, or follow from the number of steps.
        return adapted, data if adapted == config else open_training_data(adapted, plan)


def find_part(run_path: Path) -> PartName | None:
    """Part that the run in a folder trains; None where there is no run yet."""
    if (run_path / VOCODER_SPEC_FILE_NAME).is_file():
        return "vocoder"
    is_voice = (run_path / SPEC_FILE_NAME).is_file() or RunFolder(run_path).checkpoints.list_steps()
    return "voice" if is_voice else None


def refuse_other_part(run_path: Path, part: PartName) -> None:
    """Raises UsageError where a run of another part is in the folder: neither could go on from the other."""
    found = find_part(run_path)
    if found is not None and found != part:
        raise UsageError(
            f"{run_path} contains a {found} run, but you want to train a {part}.",
            next_step=f"Use another name (--run-name NAME), or continue it with --part {found}.",
        )
