"""What `--resume` means: which run it is, its settings joined with those given now, and which differences are accepted.

A run goes on with the settings in its own config.yaml, whatever folder it is called from or was moved to; what is given
beside `--resume` comes on top. A setting is refused if it changes the shapes of weights, the features, the order of the
utterances or the loss: the run would continue as a different one. The declaration of each setting (`META`) says which
it is, and why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from myxtts.config.catalogue import META, list_settings
from myxtts.config.choices import SELECTORS
from myxtts.config.load import RESOLVED_FILE_NAME
from myxtts.config.schema import PATH_KEYS, XTTSConfig
from myxtts.config.section import DEFAULT_ORIGIN
from myxtts.config.setting import NEW_SELECTION, NEW_SHAPES, NEW_WEIGHTS
from myxtts.config.values import Scalar, show_value
from myxtts.errors import ConfigError, UsageError
from myxtts.training.run.checkpoint import CHECKPOINTS_FOLDER_NAME, CheckpointFolder

ENVIRONMENT_FILE_NAME = "environment.json"
RUNS_FOLDER = Path("runs")
"""Folder of all runs without a `training.run_dir`, seen from the working folder."""
_MAX_NAMED = 8
_OTHER_CONTENT = f"the corpus has changed: {NEW_SELECTION}"
_CHANGED = {
    "durations": "utterances would be aligned in another way",
    "tokens": "its texts are read in another way, see readings.jsonl beside the corpus",
    "front end": "its texts or the text rules of this version of myxtts have changed: tokens would differ",
}
"""Reasons by the name of a fingerprint, where it is not `_OTHER_CONTENT`."""


def find_run(name: str | Path) -> Path:
    """The folder of a run, given as that folder (or its bundle), or as a name in runs/. Raises UsageError."""
    named = Path(name)
    for path in (named, RUNS_FOLDER / named, named.parent):
        if is_run(path):
            return path
    here = [path.name for path in list_runs()]
    known = f" Runs here: {', '.join(here[:_MAX_NAMED])}{' …' if len(here) > _MAX_NAMED else ''}." if here else ""
    raise UsageError(
        f"There is no run at {named}, nor in {RUNS_FOLDER / named}.{known}",
        next_step="Name the folder of a run: --resume RUN.",
    )


def find_usual_run(
    config: XTTSConfig, usual_name: str, is_wanted: Callable[[Path], bool] = lambda _path: True
) -> Path | None:
    """The run that `--resume` alone means; None where there is none.

    That is the one of `training.run_name` or `run_dir` where they are given, else the one of the usual name in runs/,
    else the run in runs/ that was changed last, among those that are wanted.
    """
    if {"training.run_name", "training.run_dir"} & list_chosen(config).keys():
        return config.training.run_path if is_run(config.training.run_path) else None
    if is_run(RUNS_FOLDER / usual_name):
        return RUNS_FOLDER / usual_name
    return max(filter(is_wanted, list_runs()), key=_find_last_change, default=None)


def is_run(path: Path) -> bool:
    """Whether a folder holds a run: stores and corpora have a config.yaml too, but no sessions and no checkpoints."""
    has_sessions = (path / ENVIRONMENT_FILE_NAME).is_file() or (path / CHECKPOINTS_FOLDER_NAME).is_dir()
    return has_sessions and (path / RESOLVED_FILE_NAME).is_file()


def list_runs() -> list[Path]:
    """The runs in runs/ of the working folder, by name."""
    return sorted(path for path in RUNS_FOLDER.iterdir() if is_run(path)) if RUNS_FOLDER.is_dir() else []


def follow_run(config: XTTSConfig, run_path: Path) -> XTTSConfig:
    """Settings of the run in `run_path`, with those on top that the user chose in `config`."""
    settings = load_run_settings(run_path)
    update: dict[str, object] = {**list_chosen(config)}
    _follow_data(settings, update)
    followed = settings.model_copy(update=update)
    if followed.training.run_path.absolute() == run_path.absolute():
        return followed
    return followed.model_copy(update={"training.run_dir": str(run_path)})


def refuse_impossible(config: XTTSConfig) -> None:
    """Raises ConfigError where the weights of the run in the folder of `config` cannot fit its settings.

    Before anything else is opened: a store that does not fit either would only be complained of.
    """
    run_path = config.training.run_path
    if not CheckpointFolder(run_path / CHECKPOINTS_FOLDER_NAME).list_steps():
        return
    try:
        known = load_run_settings(run_path)
    except ConfigError:
        return  # Opening the run explains what is wrong with it.
    changed = compare(known, config.anchor_paths(Path.cwd()))
    accept_or_refuse([difference for difference in changed if difference.is_impossible], override=True)


def _follow_data(settings: XTTSConfig, update: dict[str, object]) -> None:
    """Keeps corpus and store together where only one of them is named now: the other would be that of other data."""
    named, known = update.get("data.train_data"), settings.data.train_data
    is_other = named is not None and (known is None or os.path.realpath(str(named)) != os.path.realpath(known))
    if is_other and "data.cache_dir" not in update:
        update["data.cache_dir"] = None
    if "data.cache_dir" in update and named is None and known is not None and not Path(known).exists():
        update["data.train_data"] = None


def list_chosen(config: XTTSConfig) -> dict[str, Scalar]:
    """Settings that the user chose, by key: those that were given, and those of presets that were given."""
    presets = {f"preset {getattr(config, name)}" for name in SELECTORS if config.origins[name] != DEFAULT_ORIGIN}
    return {
        setting.key: setting.value
        for setting in list_settings(config)
        if setting.origin in presets or not setting.origin.startswith((DEFAULT_ORIGIN, "preset "))
    }


def _find_last_change(run_path: Path) -> float:
    """Time of the newest checkpoint, or of the beginning of the last session where there is none."""
    files = [*(run_path / CHECKPOINTS_FOLDER_NAME).glob("*.safetensors"), run_path / RESOLVED_FILE_NAME]
    return max(file.stat().st_mtime for file in files if file.exists())


def load_run_settings(run_path: Path) -> XTTSConfig:
    """Settings that a run was begun or last resumed with, with absolute paths. Raises ConfigError.

    Runs of earlier versions hold relative paths: they are seen from the folder that runs/ is in, where they are found
    there, and else from the working folder.
    """
    config = XTTSConfig.load(run_path / RESOLVED_FILE_NAME)
    home = run_path.absolute().parent.parent
    from_home, data = config.anchor_paths(home), config.data
    is_home = any((home / path).exists() for path in (data.train_data, data.cache_dir) if path is not None)
    return from_home if is_home else config.anchor_paths(Path.cwd())


@dataclass(frozen=True)
class Difference:
    """A setting, or a fingerprint, that is not what it was when the run was begun."""

    key: str
    old: Scalar
    new: Scalar
    is_harmful: bool
    reason: str
    is_impossible: bool = False
    """Whether the weights of the run cannot fit it, so that it is refused even with --override."""

    def describe(self) -> str:
        return f"{self.key}: {show_value(self.old)} → {show_value(self.new)} ({self.reason})"


def compare(old: XTTSConfig, new: XTTSConfig) -> list[Difference]:
    """Every setting that differs, in the order of the schema."""
    differences = []
    for before, after in zip(list_settings(old), list_settings(new), strict=True):
        # As text, because true and 1 are equal in Python.
        if repr(before.value) == repr(after.value) or _is_same_place(before.key, before.value, after.value):
            continue
        rule = META[before.key].resume
        action, reason = rule.judge(before.value, after.value)
        is_harmful = action == "refuse"
        # A switch adds variables to the checkpoint or takes some away.
        is_impossible = is_harmful and (reason in (NEW_SHAPES, NEW_WEIGHTS) or rule.action == "refuse_switch")
        differences.append(Difference(before.key, before.value, after.value, is_harmful, reason, is_impossible))
    return differences


def _is_same_place(key: str, old: Scalar, new: Scalar) -> bool:
    """Whether two paths lead to the same file or folder, spelt in two ways."""
    return key in PATH_KEYS and None not in (old, new) and os.path.realpath(str(old)) == os.path.realpath(str(new))


def compare_fingerprints(old: Mapping[str, str], new: Mapping[str, str]) -> list[Difference]:
    """The inputs of a run (corpus, store, durations) whose fingerprints have changed."""
    return [
        Difference(f"the {name}", _shorten(old[name]), _shorten(new[name]), True, _CHANGED.get(name, _OTHER_CONTENT))
        for name in sorted(set(old) & set(new))
        if old[name] != new[name]
    ]


def accept_or_refuse(differences: Sequence[Difference], *, override: bool) -> list[str]:
    """Sentences for the user about the differences.

    Raises ConfigError if one is harmful and not overridden, and if one is impossible whether overridden or not.
    """
    harmful = [difference for difference in differences if difference.is_harmful]
    impossible = [difference for difference in harmful if difference.is_impossible]
    if harmful and (impossible or not override):
        listing = "".join(f"\n  {difference.describe()}" for difference in (impossible if override else harmful))
        next_step = "Set them back, start a new run with --run-name NAME, or add --force to continue nevertheless."
        if impossible:
            next_step = (
                "Set them back. --force cannot help: the weights of the run do not fit. To start a new run with as "
                "many of them as fit, use --run-name NAME --init-from RUN instead of --resume."
            )
        raise ConfigError(
            f"The run was started with other settings and cannot be resumed with these:{listing}\n",
            next_step=next_step,
            details={"differences": [[d.key, d.old, d.new, d.reason] for d in harmful]},
        )
    return [
        f"{'Accepted because of --force' if difference.is_harmful else 'Changed since the run was started'}: "
        f"{difference.describe()}."
        for difference in differences
    ]


def _shorten(fingerprint: str) -> str:
    return fingerprint if len(fingerprint) <= 12 else f"{fingerprint[:12]}…"
