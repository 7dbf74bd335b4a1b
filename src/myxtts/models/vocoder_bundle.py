"""The vocoder bundle: a neural vocoder by itself, usable with every voice model of the same spectrograms.

    vocoder.json          mel definition, architecture, checksum of the other file
    vocoder.safetensors   the weights used for synthesis, float32

It is read as strictly as the bundle of a voice model (`models.bundle`), into which `put_into` copies it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from myxtts.errors import DataError
from myxtts.models.bundle import (
    BUNDLE_FILE_NAME,
    BUNDLE_FOLDER_NAME,
    VOCODER_FILE_NAME,
    Bundle,
    list_versions,
    read_bundle,
    read_description,
    read_folder,
    read_weights,
    refuse_foreign_vocoder,
    replace_folder,
    write_weights,
)
from myxtts.storage.json_file import FileModel, VersionOne, write_json
from myxtts.storage.tensor_file import Array

VOCODER_DESCRIPTION_NAME = "vocoder.json"
NEURAL = "vocos"
"""Name of the architecture in bundles."""


class _Description(FileModel):
    """The content of vocoder.json."""

    format: Literal["myxtts-vocoder"]
    version: VersionOne
    mel: dict[str, Any]
    config: dict[str, Any]
    notes: dict[str, Any]
    versions: dict[str, str]
    checksums: dict[Literal["vocoder.safetensors"], int]


@dataclass(frozen=True)
class VocoderBundle:
    """A trained vocoder: `mel` defines the spectrograms it was trained on, `config` its shape, both as plain JSON."""

    mel: dict[str, Any]
    config: dict[str, Any]
    weights: dict[str, Array]
    notes: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """Entry `vocoder` in the description of a model bundle."""
        return {"name": NEURAL, "mel": self.mel, "config": self.config, "notes": self.notes}


def put_into(bundle: Bundle, vocoder: VocoderBundle) -> Bundle:
    """Copies the vocoder into the bundle of a model; raises ConfigError where their spectrograms differ."""
    refuse_foreign_vocoder(bundle.mel, vocoder.describe())
    return replace(bundle, vocoder=vocoder.describe(), vocoder_weights=dict(vocoder.weights))


def take_from(bundle: Bundle) -> VocoderBundle | None:
    """The neural vocoder in the bundle of a model; None where there is none."""
    config = bundle.vocoder.get("config")
    if not bundle.vocoder_weights or not isinstance(config, dict):
        return None
    return VocoderBundle(bundle.mel, config, bundle.vocoder_weights, {}, bundle.versions)


def find_vocoder(path: Path) -> VocoderBundle:
    """Reads the vocoder at `path`: a vocoder bundle or run, or a model bundle or run with a vocoder attached."""
    folder = _find_folder(path)
    if folder is not None:
        return read_vocoder_bundle(folder)
    for folder in (path, path / BUNDLE_FOLDER_NAME):
        if (folder / BUNDLE_FILE_NAME).is_file() and (folder / VOCODER_FILE_NAME).is_file():
            vocoder = take_from(read_bundle(folder))
            if vocoder is not None:
                return vocoder
    raise DataError(
        f"There is no vocoder in {path}.",
        next_step="Name the folder of a run that trained one: myxtts train --part vocoder. It is there with the run's "
        "first checkpoint.",
    )


def _find_folder(path: Path) -> Path | None:
    folders = (path, path / BUNDLE_FOLDER_NAME)
    return next((folder for folder in folders if (folder / VOCODER_DESCRIPTION_NAME).is_file()), None)


def write_vocoder_bundle(folder: Path, bundle: VocoderBundle) -> None:
    """Writes a bundle under a temporary name and renames it to `folder` when it is whole; an old one is replaced."""
    replace_folder(folder, lambda temporary: _write_files(temporary, bundle), bundle.weights)


def _write_files(folder: Path, bundle: VocoderBundle) -> None:
    description = {
        "format": "myxtts-vocoder",
        "version": 1,
        "mel": bundle.mel,
        "config": bundle.config,
        "notes": bundle.notes,
        "versions": list_versions(),
        "checksums": {VOCODER_FILE_NAME: write_weights(folder / VOCODER_FILE_NAME, bundle.weights)},
    }
    write_json(folder / VOCODER_DESCRIPTION_NAME, description)


def read_vocoder_bundle(folder: Path) -> VocoderBundle:
    """Reads and checks the bundle in `folder`, except for the names and shapes of its weights."""
    return read_folder(folder, _read_files, f"The vocoder {folder}")


def _read_files(folder: int) -> VocoderBundle:
    found = read_description(folder, VOCODER_DESCRIPTION_NAME, _Description)
    weights = read_weights(folder, VOCODER_FILE_NAME, found.checksums)
    return VocoderBundle(found.mel, found.config, weights, found.notes, found.versions)
