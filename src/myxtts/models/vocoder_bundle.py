"""The bundle of a vocoder: what was trained apart from any voice, to be used with every model of such spectrograms.

    vocoder.json          for which spectrograms it is, its shape, the checksum of the other file
    vocoder.safetensors   the weights used for synthesis, float32

As with bundles of models, it may come from anywhere: whatever does not fit is refused by name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from myxtts.errors import DataError
from myxtts.models.bundle import (
    BUNDLE_FILE_NAME,
    BUNDLE_FOLDER_NAME,
    VOCODER_FILE_NAME,
    Bundle,
    list_versions,
    open_inside,
    read_bundle,
    read_weights,
    refuse_foreign_vocoder,
    replace_folder,
)
from myxtts.storage.atomic import write_atomically
from myxtts.storage.json_file import JsonRefusedError, parse_json_object
from myxtts.storage.tensor_file import Array, TensorFileError, write_tensors

VOCODER_DESCRIPTION_NAME = "vocoder.json"
NEURAL = "vocos"
_FORMAT = "myxtts-vocoder"
_VERSION = 1
_MAX_DESCRIPTION_BYTES = 1_000_000
_PARTS = ("mel", "config", "notes", "versions", "checksums")


@dataclass(frozen=True)
class VocoderBundle:
    """`mel` is the definition of the spectrograms it was trained on, `config` its shape, both as plain JSON."""

    mel: dict[str, Any]
    config: dict[str, Any]
    weights: dict[str, Array]
    notes: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """What the bundle of a model says of its vocoder."""
        return {"name": NEURAL, "mel": self.mel, "config": self.config, "notes": self.notes}


def put_into(bundle: Bundle, vocoder: VocoderBundle) -> Bundle:
    """The bundle of a model with this vocoder; raises ConfigError where its spectrograms are others."""
    refuse_foreign_vocoder(bundle.mel, vocoder.describe())
    return replace(bundle, vocoder=vocoder.describe(), vocoder_weights=dict(vocoder.weights))


def is_vocoder(path: Path) -> bool:
    """Whether `path` is the bundle of a vocoder, or a run that has made one."""
    return _find_folder(path) is not None


def find_vocoder(path: Path) -> VocoderBundle:
    """The vocoder in `path`: the bundle or run of one, or the bundle or run of a model that has one in it."""
    folder = _find_folder(path)
    if folder is not None:
        return read_vocoder_bundle(folder)
    for folder in (path, path / BUNDLE_FOLDER_NAME):
        if (folder / BUNDLE_FILE_NAME).is_file() and (folder / VOCODER_FILE_NAME).is_file():
            bundle = read_bundle(folder)
            config = bundle.vocoder.get("config")
            if bundle.vocoder_weights and isinstance(config, dict):
                return VocoderBundle(bundle.mel, config, bundle.vocoder_weights, {}, bundle.versions)
    raise DataError(
        f"There is no vocoder in {path}.",
        next_step="Name the folder of a run that trained one: myxtts train --part vocoder. It is there with the run's "
        "first checkpoint.",
    )


def write_vocoder_bundle(folder: Path, bundle: VocoderBundle) -> None:
    """Writes a bundle beside `folder` and moves it there when it is whole; an old one is replaced."""
    replace_folder(folder, lambda temporary: _write_files(temporary, bundle), bundle.weights)


def read_vocoder_bundle(folder: Path) -> VocoderBundle:
    """The bundle in `folder`, checked in every respect but the names and shapes of its weights."""
    try:
        return _read_files(folder)
    except (JsonRefusedError, TensorFileError) as error:
        raise _complain(folder, str(error)) from error
    except OSError as error:
        name = Path(str(error.filename)).name if error.filename else VOCODER_DESCRIPTION_NAME
        raise _complain(folder, f"{name} cannot be read ({error.strerror})") from error


def _find_folder(path: Path) -> Path | None:
    folders = (path, path / BUNDLE_FOLDER_NAME)
    return next((folder for folder in folders if (folder / VOCODER_DESCRIPTION_NAME).is_file()), None)


def _write_files(folder: Path, bundle: VocoderBundle) -> None:
    with write_atomically(folder / VOCODER_FILE_NAME) as file:
        checksum = write_tensors(file, bundle.weights, {}, seal=False)
    description = {
        "format": _FORMAT,
        "version": _VERSION,
        "mel": bundle.mel,
        "config": bundle.config,
        "notes": bundle.notes,
        "versions": list_versions(),
        "checksums": {VOCODER_FILE_NAME: checksum},
    }
    with write_atomically(folder / VOCODER_DESCRIPTION_NAME) as file:
        file.write(json.dumps(description, indent=1, allow_nan=False).encode())


def _read_files(folder: Path) -> VocoderBundle:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with open_inside(descriptor, VOCODER_DESCRIPTION_NAME, _MAX_DESCRIPTION_BYTES) as file:
            fields = _check_description(parse_json_object(file.read(_MAX_DESCRIPTION_BYTES)))
        weights = read_weights(descriptor, VOCODER_FILE_NAME, fields["checksums"])
    finally:
        os.close(descriptor)
    return VocoderBundle(fields["mel"], fields["config"], weights, fields["notes"], fields["versions"])


def _check_description(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    if fields.get("format") != _FORMAT:
        raise JsonRefusedError(f"{VOCODER_DESCRIPTION_NAME} is not of the format {_FORMAT}")
    if fields.get("version") != _VERSION or isinstance(fields["version"], bool):
        raise JsonRefusedError(f"it is of version {fields.get('version')!r}; this program reads version {_VERSION}")
    expected = {"format", "version", *_PARTS}
    if set(fields) != expected:
        names = ", ".join(sorted(str(name)[:40] for name in set(fields) ^ expected)[:5])
        raise JsonRefusedError(f"{VOCODER_DESCRIPTION_NAME} has too few or too many parts: {names}")
    for name in _PARTS:
        if not isinstance(fields[name], dict):
            raise JsonRefusedError(f"{name} in {VOCODER_DESCRIPTION_NAME} is not an object")
    return fields


def _complain(folder: Path, problem: str) -> DataError:
    return DataError(
        f"The vocoder {folder} cannot be used: {problem}.",
        next_step="It is damaged, altered or from another version: take it again from the run that trained it.",
    )
