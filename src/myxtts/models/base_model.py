"""The base model: a bundle that comes with the package, so that it speaks before anything has been trained.

It is the folder `base_model` of the package, written by `python -m base pack`. A package may be built without it; then
every command says so and asks for a model.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from myxtts.errors import UsageError
from myxtts.models.bundle import BUNDLE_FILE_NAME, BUNDLE_FOLDER_NAME, VOCODER_FILE_NAME, VOICES_FOLDER_NAME
from myxtts.storage.json_file import read_json
from myxtts.types import Say

BASE_NAME = "base"
"""What users call the model: `--model base`."""
BASE_FOLDER = Path(__file__).parents[1] / "base_model"
_MARKS = (BUNDLE_FILE_NAME, BUNDLE_FOLDER_NAME, "export.json", "export", "config.yaml")
"""Files and folders of a bundle, an exported model or a run: a folder with none of them is not meant as a model."""


def has_base_model() -> bool:
    """Whether the package was built with its base model."""
    return (BASE_FOLDER / BUNDLE_FILE_NAME).is_file()


def has_base_vocoder() -> bool:
    """Whether the base model has a neural vocoder."""
    return (BASE_FOLDER / VOCODER_FILE_NAME).is_file()


def list_base_languages() -> tuple[str, ...]:
    """Languages that the base model reads; none where the package has no base model."""
    if not has_base_model():
        return ()
    return tuple(read_json(BASE_FOLDER / BUNDLE_FILE_NAME, dict[str, Any])["model_spec"]["languages"])


def is_base_model(folder: Path) -> bool:
    """Whether a folder is that of the packaged model, which belongs to the installation and is never written to."""
    return folder.absolute() == BASE_FOLDER.absolute()


def find_model(path: Path | str | None, say: Say = lambda _: None) -> Path:
    """Resolves what a user gives as a model: None and "base" are the packaged one, anything else is a path.

    A folder of the current directory that is called base and holds a model wins over the packaged one, and `say` is
    told. Raises UsageError where the package has no base model.
    """
    if path is not None and str(path) != BASE_NAME:
        return Path(path)
    here = Path(BASE_NAME)
    if path is not None and any((here / mark).exists() for mark in _MARKS):
        say(f"The model is the folder {here.absolute()}, not the base model of the package.")
        return here
    if not has_base_model():
        raise UsageError(
            "This installation has no base model.",
            next_step="Name a run or exported model: --model RUN. To train one: myxtts train --train-data DIR.",
        )
    return BASE_FOLDER


def find_base_voices() -> Path:
    """Folder of the voices that a user saves for the base model: in XDG_DATA_HOME, else in ~/.local/share.

    The folder of the package may be read-only, and an update replaces it.
    """
    given = Path(os.environ.get("XDG_DATA_HOME", ""))
    home = given if given.is_absolute() else Path.home() / ".local" / "share"
    return home / "myxtts" / BASE_NAME / VOICES_FOLDER_NAME
