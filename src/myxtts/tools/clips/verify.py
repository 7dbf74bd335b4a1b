"""Trains with all clips and without the worst, for the same number of steps and with the same seed; compares both.

The first training lasts for the minutes that are given, the second for as many steps as the first has done: on a busy
machine the same minutes would be fewer steps. Both are held out against the same utterances: those of the validation
split that are not in doubt. Each runs in a process of its own, `myxtts train`, with the settings of the run; results
are in RUN/verify-clips. A training that has ended is not repeated when the same command is given again after a stop.
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
from typing import Any

from myxtts.config.load import RESOLVED_FILE_NAME
from myxtts.corpus.corpus_file import CORPUS_FILE_NAME
from myxtts.errors import MyXTTSError, UsageError
from myxtts.storage.json_file import JsonLines, is_number
from myxtts.tools.clips.doctor import ClipReport, write_corpus
from myxtts.tools.run_files import read_sessions
from myxtts.training.run.folder import INIT_FROM
from myxtts.types import Say

VERIFY_FOLDER_NAME = "verify-clips"
_ENDED_FILE_NAME = "ended.jsonl"
_ALL, _KEPT = "all", "kept"
_WHICH = {_ALL: "all clips", _KEPT: "all but the worst"}
MIN_STEPS = 100
"""Of both trainings. The first plans its learning rate while it goes on, since it does not know how many steps its
minutes are; in the first steps that is another rate than the second one has, and their figures cannot be compared."""
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


def check_minutes(minutes: float | None) -> None:
    """Raises UsageError where no training time is given; called before clips are scored."""
    if minutes is None:
        raise UsageError(
            "How long each of the two trainings lasts is not given.", next_step="Give it: --verify --minutes 10"
        )


def verify_clips(report: ClipReport, minutes: float, say: Say) -> Verified:
    """Trains both ways; the second begins when the first has ended, so that neither disturbs the other."""
    folder = report.run.absolute() / VERIFY_FOLDER_NAME
    folder.mkdir(exist_ok=True)
    ended = JsonLines(folder / _ENDED_FILE_NAME)
    doubtful = {clip.finding.id for clip in report.worst if clip.utterance.split != "train"}
    length = ("minutes", f"{minutes:g}")
    results: dict[str, dict[str, float]] = {}
    commands: dict[str, list[str]] = {}
    for name, left_out in ((_ALL, doubtful), (_KEPT, report.worst_ids)):
        corpus = folder / f"corpus-{name}"
        number = write_corpus(corpus, report.corpus, left_out)
        commands[name] = _make_command(report.run, folder, name, length)
        key = _fingerprint(corpus, commands[name])
        found = _find_ended(ended, key)
        if found is None:
            for part in (name, f"features-{name}"):
                shutil.rmtree(folder / part, ignore_errors=True)
            say(f"Training with {_WHICH[name]} ({number:,}) for {length[1]} {length[0]} …")
            _train(commands[name])
            found = _read_last_validation(folder / name / "metrics.jsonl")
            ended.append({"key": key, "step": found[0], "validation": found[1]})
        else:
            say(f"The training with {_WHICH[name]} ({number:,}) ended before; its result is used.")
        step, results[name] = found
        if step < MIN_STEPS:
            raise UsageError(
                f"The training with all clips did {step:,} steps in {minutes:g} minutes: fewer than {MIN_STEPS} say "
                "nothing about the clips.",
                next_step=f"Give more: --minutes {math.ceil(minutes * MIN_STEPS / max(1, step))}",
            )
        length = ("steps", str(step))
    lines = _write_command(commands[_ALL]), _write_command(commands[_KEPT])
    return Verified(minutes, results[_ALL], results[_KEPT], step, lines)


def _write_command(command: Sequence[str]) -> str:
    """A command as a user would give it, without the path of the interpreter."""
    return shlex.join(["myxtts", *command[3:]])


def _fingerprint(corpus: Path, command: Sequence[str]) -> str:
    """What a training depends on: its clips, its settings and its command."""
    settings = Path(command[command.index("--config") + 1])
    content = [(corpus / CORPUS_FILE_NAME).read_bytes(), settings.read_bytes(), "\0".join(command).encode()]
    return hashlib.sha256(b"\0".join(content)).hexdigest()


def _find_ended(ended: JsonLines, key: str) -> tuple[int, dict[str, float]] | None:
    """Step and figures of a training that has ended."""
    for line in ended.read():
        if line.get("key") == key:
            return int(line["step"]), dict(line["validation"])
    return None


def _make_command(run: Path, folder: Path, name: str, length: tuple[str, str]) -> list[str]:
    """The command that trains on one of the two corpora, with the settings of the run and from where it began."""
    corpus, cache = folder / f"corpus-{name}", folder / f"features-{name}"
    command = [sys.executable, "-m", "myxtts", "train", "--config", str(run / RESOLVED_FILE_NAME), "--json"]
    command += ["--train-data", str(corpus), "--cache-dir", str(cache)]
    settings = {"run_dir": str(folder / name), **dict.fromkeys(("steps", "epochs", "minutes"), "null")}
    for key, value in (settings | dict([length])).items():
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


def _read_last_validation(path: Path) -> tuple[int, dict[str, float]]:
    """Step and figures of the last validation of a training."""
    found: tuple[int, Mapping[str, Any]] | None = None
    for line in JsonLines(path).read():
        if isinstance(line.get("validation"), dict):
            found = int(line["step"]), line["validation"]
    if found is None:
        raise UsageError(
            f"The training in {path.parent} was too short for a validation.", next_step="Give more --minutes."
        )
    return found[0], {name: float(value) for name, value in found[1].items() if is_number(value)}
