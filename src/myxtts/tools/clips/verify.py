"""Trains with all clips and without the worst, for the same number of steps and with the same seed; compares both.

The minutes that are given are turned into steps by the step time of the run, because the same minutes would be fewer
steps on a busy machine, and a training of minutes plans its learning rate in another way than one of steps. Both are
validated on the same utterances: those of the validation split that are not in doubt. Each runs in a process of its
own, `myxtts train`, with the settings of the run; results are in RUN/verify-clips. A training that has ended is not
repeated when the same command is given again after a stop.
"""

from __future__ import annotations

import hashlib
import math
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from myxtts.config.load import RESOLVED_FILE_NAME
from myxtts.corpus.corpus_file import CORPUS_FILE_NAME
from myxtts.errors import MyXTTSError, UsageError
from myxtts.storage.json_file import JsonLines, is_number
from myxtts.tools.clips.doctor import ClipReport, write_corpus
from myxtts.tools.run_files import read_sessions
from myxtts.training.run.folder import INIT_FROM, METRICS_FILE_NAME
from myxtts.types import Say

VERIFY_FOLDER_NAME = "verify-clips"
_ENDED_FILE_NAME = "ended.jsonl"
_ALL, _KEPT = "all", "kept"
_WHICH = {_ALL: "all clips", _KEPT: "all but the worst"}
MIN_STEPS = 100
"""Of both trainings: before that the learning rate is hardly past its warm-up, and figures say nothing about clips."""
_SHOWN = ("score", "mel_distance", "flow", "prior", "duration", "token_duration_error", "speaker_similarity")


@dataclass(frozen=True, slots=True)
class Verified:
    """Held-out figures of both trainings after the same number of steps, and the command of each."""

    minutes: float
    everything: dict[str, float]
    kept: dict[str, float]
    steps: int
    commands: tuple[str, str]

    @property
    def shared_names(self) -> list[str]:
        return [name for name in _SHOWN if name in self.everything and name in self.kept]

    def describe_command(self) -> str:
        return "\n".join(self.commands)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def plan_steps(run: Path, minutes: float | None) -> int:
    """Steps of each training: as many as the run did in so many minutes. Called before clips are scored.

    Raises UsageError where no training time is given, or too little.
    """
    if minutes is None:
        raise UsageError(
            "How long each of the two trainings lasts is not given.", next_step="Give it: --verify --minutes 10"
        )
    lines = [line["seconds"] for line in JsonLines(run / METRICS_FILE_NAME).read() if is_number(line.get("seconds"))]
    if not lines:
        raise UsageError(
            f"{run / METRICS_FILE_NAME} has no step time, so the number of steps in {minutes:g} minutes is unknown.",
            next_step="Name a run that has trained for 10 steps or more.",
        )
    step_s = median(lines)
    steps = int(60 * minutes / step_s)
    if steps < MIN_STEPS:
        raise UsageError(
            f"In {minutes:g} minutes this run does {steps:,} steps, at {step_s:.2f} s each. Fewer than {MIN_STEPS} say "
            "nothing about the clips.",
            next_step=f"Give more: --minutes {math.ceil(MIN_STEPS * step_s / 60)}",
        )
    return steps


def verify_clips(report: ClipReport, minutes: float, steps: int, say: Say) -> Verified:
    """Trains both ways; the second begins when the first has ended, so that neither disturbs the other."""
    folder = report.run.absolute() / VERIFY_FOLDER_NAME
    folder.mkdir(exist_ok=True)
    ended = JsonLines(folder / _ENDED_FILE_NAME)
    doubtful = {clip.finding.id for clip in report.worst if clip.utterance.split != "train"}
    results: dict[str, dict[str, float]] = {}
    commands: dict[str, list[str]] = {}
    for name, left_out in ((_ALL, doubtful), (_KEPT, report.worst_ids)):
        corpus = folder / f"corpus-{name}"
        number = write_corpus(corpus, report.corpus, left_out)
        commands[name] = _make_command(report.run, folder, name, steps)
        key = _fingerprint(corpus, commands[name])
        found = _find_ended(ended, key)
        if found is None:
            for part in (name, f"features-{name}"):
                shutil.rmtree(folder / part, ignore_errors=True)
            say(f"Training with {_WHICH[name]} ({number:,}) for {steps:,} steps, about {minutes:g} minutes …")
            _train(commands[name])
            found = _read_last_validation(folder / name / METRICS_FILE_NAME)
            ended.append({"key": key, "validation": found})
        else:
            say(f"The training with {_WHICH[name]} ({number:,}) ended before; its result is used.")
        results[name] = found
    lines = _write_command(commands[_ALL]), _write_command(commands[_KEPT])
    return Verified(minutes, results[_ALL], results[_KEPT], steps, lines)


def _write_command(command: Sequence[str]) -> str:
    """A command as a user would give it, without the path of the interpreter."""
    return shlex.join(["myxtts", *command[3:]])


def _fingerprint(corpus: Path, command: Sequence[str]) -> str:
    """What a training depends on: its clips, its settings and its command."""
    settings = Path(command[command.index("--config") + 1])
    content = [(corpus / CORPUS_FILE_NAME).read_bytes(), settings.read_bytes(), "\0".join(command).encode()]
    return hashlib.sha256(b"\0".join(content)).hexdigest()


def _find_ended(ended: JsonLines, key: str) -> dict[str, float] | None:
    """Figures of a training that has ended."""
    for line in ended.read():
        if line.get("key") == key:
            return dict(line["validation"])
    return None


def _make_command(run: Path, folder: Path, name: str, steps: int) -> list[str]:
    """The command that trains on one of the two corpora, with the settings of the run and from where it began."""
    corpus, cache = folder / f"corpus-{name}", folder / f"features-{name}"
    command = [sys.executable, "-m", "myxtts", "train", "--config", str(run / RESOLVED_FILE_NAME), "--json"]
    command += ["--train-data", str(corpus), "--cache-dir", str(cache)]
    settings = {"run_dir": str(folder / name), "steps": str(steps), "epochs": "null", "minutes": "null"}
    for key, value in settings.items():
        command += ["--set", f"training.{key}={value}"]
    sessions = read_sessions(run)
    init_from = sessions[0].get(INIT_FROM) if sessions else None
    return [*command, "--init-from", str(init_from)] if init_from else command


def _train(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MyXTTSError(
            f"A training of --verify ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:].strip()}",
            next_step=f"Try it alone: {_write_command(command)}",
        )


def _read_last_validation(path: Path) -> dict[str, float]:
    """Figures of the last validation of a training."""
    found: Mapping[str, Any] | None = None
    for line in JsonLines(path).read():
        found = line["validation"] if isinstance(line.get("validation"), dict) else found
    if found is None:
        raise UsageError(
            f"The training in {path.parent} was too short for a validation.", next_step="Give more --minutes."
        )
    return {name: float(value) for name, value in found.items() if is_number(value)}
