"""The run directory: its files, its lock, and whether a training may begin or resume there.

runs/NAME/
  config.yaml          the resolved configuration
  environment.json     versions, machine and command of each session, without names of people or hosts
  fingerprints.json    fingerprints of corpus, front end and durations, compared when the run is resumed
  system.jsonl         GPU, processor and memory over time, sampled by `myxtts train`
  metrics.jsonl        losses, rates and validation metrics by step
  skipped.jsonl        steps that were not finite, loss spikes, rollbacks, with the ids of their batches
  micro_batches.json   micro-batch sizes that fitted into memory
  durations.safetensors  durations of the training utterances, once training goes on from them
  checkpoints/         checkpoints that --resume continues from
  samples/             sentences synthesised during training
  bundle/              the model for synthesis
"""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from myxtts.config.load import write_resolved
from myxtts.config.schema import XTTSConfig
from myxtts.errors import BusyError, ConfigError, UsageError, warn_user
from myxtts.models.bundle import BUNDLE_FILE_NAME, BUNDLE_FOLDER_NAME
from myxtts.runtime.hardware import detect_hardware
from myxtts.storage.atomic import TEMPORARY_SUFFIX, explain_storage_errors, lock_directory, sweep_temporary_files
from myxtts.storage.json_file import JsonLines, try_read_json, write_json
from myxtts.training.run.checkpoint import CHECKPOINTS_FOLDER_NAME, Checkpoint, CheckpointFolder
from myxtts.training.run.resume import (
    ENVIRONMENT_FILE_NAME,
    Difference,
    accept_or_refuse,
    compare,
    compare_fingerprints,
    load_run_settings,
)
from myxtts.types import Say

_PACKAGES = ("myxtts", "tensorflow", "keras", "numpy", "scipy", "soundfile", "soxr", "ml_dtypes", "google-crc32c")
"""Packages whose versions may change the numbers of a training."""
_ABSOLUTE_PATH = re.compile(r"(?<![\w./~])(?!//)/(?:[^\s/]+/)*([^\s/]*)")
"""Absolute paths inside a command; the group is the file name. URLs (//) and relative paths do not match."""


def describe_environment(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Versions, machine and command of this process as plain JSON, without private names."""
    hardware = detect_hardware()
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [hide_private(text) for text in _name_program(sys.argv if arguments is None else arguments)],
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {name: _find_version(name) for name in _PACKAGES},
        "num_cpus": hardware.num_cpus,
        "ram_gb": round(hardware.ram_bytes / 1e9, 1),
        "gpus": [gpu.name for gpu in hardware.gpus],
    }


def hide_private(text: str) -> str:
    """Replaces the home folder, the names of host and user, and the folders of absolute paths."""
    home = str(Path.home())
    if len(home) > 1:
        text = re.sub(rf"(?<![\w.]){re.escape(home)}(?=/|$)", "~", text)
    text = _ABSOLUTE_PATH.sub(r"…/\1", text)
    for name, stand_in in ((socket.gethostname(), "HOST"), (os.environ.get("USER", ""), "USER")):
        # These names are no secret, and occur in many commands.
        if len(name) > 2 and name not in ("localhost", "root"):
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", stand_in, text)
    return text


def _name_program(arguments: Sequence[str]) -> list[str]:
    return [Path(arguments[0]).name, *arguments[1:]] if arguments else []


def _find_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


FINGERPRINTS_FILE_NAME = "fingerprints.json"
INIT_FROM = "init_from"
"""Key of a session in environment.json: the model whose weights the run began with, or null."""
METRICS_FILE_NAME = "metrics.jsonl"
TEXT_FROZEN = "text_rests"
"""Key of the line in metrics.jsonl that marks the step at which the text side was frozen."""
DURATIONS_WRITTEN = "durations_written"
"""Key of the line in metrics.jsonl that marks the step from which training goes on with written durations."""
SKIPPED_FILE_NAME = "skipped.jsonl"
TELEMETRY_FILE_NAME = "telemetry.jsonl"
SYSTEM_FILE_NAME = "system.jsonl"
MICRO_BATCHES_FILE_NAME = "micro_batches.json"
REPORT_FILE_NAME = "report.html"
SPEC_FILE_NAME = "model_spec.json"
DURATIONS_FILE_NAME = "durations.safetensors"
SAMPLES_FOLDER_NAME = "samples"
_MAX_SESSIONS = 100
"""Sessions kept in environment.json: a run that is killed every hour must not grow it without end."""


class RunFolder:
    """An open run directory, locked for this process until the context ends.

    `checkpoint` is the one to resume from, None at a fresh start; `messages` are sentences for the user. Of several
    processes that train one model only the chief writes here. The others read checkpoints, and write metrics and
    micro-batches to a temporary folder that is deleted with them.
    """

    def __init__(self, path: Path, warn: Say = warn_user, *, is_chief: bool = True) -> None:
        self.path, self.is_chief = path, is_chief
        self._held = ExitStack()
        own = path if is_chief else Path(self._held.enter_context(TemporaryDirectory(prefix="myxtts-worker-")))
        self.checkpoints = CheckpointFolder(path / CHECKPOINTS_FOLDER_NAME, warn=warn)
        self.samples_path = path / SAMPLES_FOLDER_NAME
        self.bundle_path = path / BUNDLE_FOLDER_NAME
        self.micro_batches_path = own / MICRO_BATCHES_FILE_NAME
        self.telemetry_path = own / TELEMETRY_FILE_NAME
        self.metrics = JsonLines(own / METRICS_FILE_NAME, warn)
        self.skipped = JsonLines(own / SKIPPED_FILE_NAME, warn)
        self.checkpoint: Checkpoint | None = None
        self.messages: list[str] = []
        self._session: tuple[XTTSConfig, Mapping[str, str], Sequence[str] | None, str | None]

    @classmethod
    def open(
        cls,
        config: XTTSConfig,
        *,
        resume: bool = False,
        override: bool = False,
        fingerprints: Mapping[str, str] | None = None,
        arguments: Sequence[str] | None = None,
        init_from: str | None = None,
        warn: Say = warn_user,
        is_chief: bool = True,
    ) -> Self:
        """Locks the run directory for this process; use the result as a context, and call `begin_session` in it.

        Raises BusyError if another trainer holds it, UsageError if it contains a run and `resume` is not set, and
        ConfigError if that run was begun with settings that must not change, unless `override` accepts that.
        """
        run = cls(config.training.run_path, warn, is_chief=is_chief)
        with ExitStack() as undo:
            undo.callback(run.close)
            if is_chief:
                run._lock()
            run._resume(config, resume, override, fingerprints or {})
            run._session = (config, fingerprints or {}, arguments, init_from)
            if run.checkpoint is None:
                run.begin_session()
            undo.pop_all()
        return run

    @property
    def step(self) -> int:
        """Step of the checkpoint to resume from, 0 at a fresh start."""
        return self.checkpoint.step if self.checkpoint is not None else 0

    def close(self) -> None:
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock(self) -> None:
        """Locks the folder, then cleans up after a trainer that was killed."""
        try:
            self._held.enter_context(lock_directory(self.path, "training"))
        except BusyError as error:
            raise BusyError(
                f"{error.problem} Two trainings cannot use the same run.",
                next_step="Wait until it ends, or use another --run-name.",
            ) from error
        self._recover_bundle()
        sweep_temporary_files(self.path)
        self.checkpoints.sweep()

    def _recover_bundle(self) -> None:
        """Restores a bundle that a kill left under a temporary name while it was being replaced."""
        # Sorted, `new` comes before `old`, so that the newer bundle is preferred.
        for leftover in sorted(self.path.glob(f".{BUNDLE_FOLDER_NAME}.*{TEMPORARY_SUFFIX}")):
            if (leftover / BUNDLE_FILE_NAME).is_file() and not self.bundle_path.exists():
                with explain_storage_errors(self.bundle_path, "write"):
                    leftover.rename(self.bundle_path)

    def _resume(self, config: XTTSConfig, resume: bool, override: bool, fingerprints: Mapping[str, str]) -> None:
        """Finds the checkpoint to resume from, without changing anything in the folder."""
        steps = self.checkpoints.list_steps()
        if steps and not resume:
            raise UsageError(
                f"{self.path} already contains a run, with a checkpoint at step {steps[-1]}.",
                next_step="Add --resume to continue it, or use another name: --run-name NAME.",
            )
        if steps:
            self.messages += accept_or_refuse(self._compare(config, fingerprints, override), override=override)
            self.checkpoint = self.checkpoints.load_newest()
            assert self.checkpoint is not None
            self.messages.append(f"Resuming from step {self.step} of {self.path}.")
        elif resume:
            self.messages.append(f"There is no checkpoint in {self.path} yet: training starts at step 0.")

    def _compare(self, config: XTTSConfig, fingerprints: Mapping[str, str], override: bool) -> list[Difference]:
        """Differences between the stored and the present configuration and fingerprints."""
        try:
            old = load_run_settings(self.path)
        except ConfigError as error:
            if override:
                self.messages.append(
                    f"Ignored because of --force: the configuration of the run cannot be read ({error.problem})."
                )
                return []
            raise ConfigError(
                f"The configuration of the run cannot be read: {error.problem}",
                next_step="Restore it from a backup, or add --force to continue with the present settings.",
            ) from error
        before = _read_json(self.path / FINGERPRINTS_FILE_NAME)
        if fingerprints and not before:
            self.messages.append("The run does not say which corpus it was started with: the data are not compared.")
        known = {name: str(text) for name, text in before.items()}
        changed = compare(old, config.anchor_paths(Path.cwd()))
        # The folder of the run is where it is found now.
        changed = [difference for difference in changed if difference.key != "training.run_dir"]
        return [*changed, *compare_fingerprints(known, fingerprints)]

    def begin_session(self) -> None:
        """Makes the folder that of this session: drops what lies after the checkpoint, and writes the new settings.

        A fresh run does so when it is opened. A resumed one is left as it was until its checkpoint has been restored,
        so that settings which turn out not to fit spoil nothing.
        """
        if self.is_chief:
            if self.checkpoint is not None:
                self.checkpoints.drop_after(self.step)
            self._describe_session()
        self.metrics.drop_after(self.step)
        self.skipped.drop_after(self.step)

    def _describe_session(self) -> None:
        """Writes configuration, fingerprints and environment of this session."""
        config, fingerprints, arguments, init_from = self._session
        # Absolute paths: the run may go on from another folder.
        write_resolved(config.anchor_paths(Path.cwd()), self.path)
        known = _read_json(self.path / FINGERPRINTS_FILE_NAME) if self.step else {}
        write_json(self.path / FINGERPRINTS_FILE_NAME, {**known, **fingerprints}, ensure_ascii=False)
        sessions = _read_json(self.path / ENVIRONMENT_FILE_NAME).get("sessions")
        sessions = sessions if isinstance(sessions, list) and self.step else []
        if sessions:
            # A run that goes on is not told again where it began.
            init_from = sessions[-1].get(INIT_FROM)
        session = {"from_step": self.step, INIT_FROM: init_from, **describe_environment(arguments)}
        sessions = [*sessions, session][-_MAX_SESSIONS:]
        write_json(self.path / ENVIRONMENT_FILE_NAME, {"sessions": sessions}, ensure_ascii=False)
        self.samples_path.mkdir(exist_ok=True)


def _read_json(path: Path) -> dict[str, Any]:
    """Content of an optional JSON file; empty where it is missing or damaged."""
    return try_read_json(path, dict[str, Any]) or {}
