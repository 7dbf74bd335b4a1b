"""Finds the run that `--resume` means, and joins its settings with those that the user gives now.

A run goes on with the settings in its own config.yaml, whatever folder it is called from or was moved to; what is given
beside `--resume` comes on top. `resume_check` then decides whether the run can go on with the result.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from myxtts.config.catalogue import list_settings
from myxtts.config.choices import SELECTORS
from myxtts.config.load import RESOLVED_FILE_NAME
from myxtts.config.schema import XTTSConfig
from myxtts.config.section import DEFAULT_ORIGIN
from myxtts.config.values import Scalar
from myxtts.errors import ConfigError, UsageError
from myxtts.training.run.checkpoint import CheckpointFolder
from myxtts.training.run.folder import CHECKPOINTS_FOLDER_NAME, ENVIRONMENT_FILE_NAME, load_run_settings
from myxtts.training.run.resume_check import accept_or_refuse, compare

RUNS_FOLDER = Path("runs")
"""Folder of all runs without a `training.run_dir`, seen from the working folder."""
_MAX_NAMED = 8


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
