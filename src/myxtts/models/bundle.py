"""The model bundle: all that synthesis needs, in a folder of safetensors and JSON files with fixed names.

    bundle.json           what the model is, how sound and text were seen in training, checksums of the other files
    model.safetensors     the weights used for synthesis, float32
    frontend.json         how text becomes ids
    vocoder.safetensors   only with a vocoder that has weights

A bundle may come from anywhere. Nothing in it is run or unpacked, no other file is opened, sizes are checked before
memory is taken, and whatever does not fit is refused by name.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from io import BufferedReader
from pathlib import Path
from typing import Any

import google_crc32c

from myxtts.config.schema import ModelConfig
from myxtts.errors import ConfigError, DataError
from myxtts.storage.atomic import (
    TEMPORARY_SUFFIX,
    explain_storage_errors,
    pass_fault_point,
    sync_directory,
    write_atomically,
)
from myxtts.storage.json_file import JsonRefusedError, is_whole_number, parse_json_object
from myxtts.storage.tensor_file import (
    Array,
    TensorFileError,
    find_non_finite,
    read_heading,
    read_tensors,
    write_tensors,
)

# The files of a bundle: a folder that is replaced as a whole, and opened as something that may come from anywhere.

_MAX_WEIGHTS_BYTES = 40_000_000_000
_LIBRARIES = ("myxtts", "tensorflow", "keras", "numpy")


def list_versions() -> dict[str, str]:
    """What a bundle was made with."""
    return {name: version(name) for name in _LIBRARIES}


def replace_folder(folder: Path, write_files: Callable[[Path], None], *weights: Mapping[str, Array]) -> None:
    """Puts what `write_files` writes in the place of `folder`; weights that are not finite are refused."""
    damaged = [name for arrays in weights for name in find_non_finite(arrays)]
    if damaged:
        raise DataError(f"These weights are not finite: {', '.join(damaged[:5])}.", next_step="Train with --resume.")
    temporary, old = _name_beside(folder, "new"), _name_beside(folder, "old")
    with explain_storage_errors(folder, "write"):
        shutil.rmtree(temporary, ignore_errors=True)
        _put_back(old, folder)
        try:
            temporary.mkdir(parents=True)
            write_files(temporary)
            # A folder with files in it cannot be replaced in one step; both are whole, whatever happens between.
            if folder.exists():
                folder.rename(old)
            pass_fault_point("bundle_rename")
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            _put_back(old, folder)
        sync_directory(folder.parent)


@contextmanager
def open_inside(folder: int, name: str, max_bytes: int) -> Iterator[BufferedReader]:
    """Opens a file of the folder itself: no link to elsewhere, no pipe that never answers, nothing endless."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise TensorFileError(f"{name} is not a file")
        if status.st_size > max_bytes:
            raise TensorFileError(f"{name} has {status.st_size:,} bytes, more than {max_bytes:,}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def read_weights(
    folder: int, name: str, checksums: Mapping[str, Any], check_size: Callable[[int], None] | None = None
) -> dict[str, Array]:
    """The weights in a file of the folder. `check_size` hears how many numbers it holds before they are read."""
    with open_inside(folder, name, _MAX_WEIGHTS_BYTES) as file:
        heading = read_heading(file)
        wrong = [entry.name for entry in heading.entries if entry.dtype != "F32"]
        if wrong:
            raise TensorFileError(f"{name} holds {wrong[0]}, which is not float32")
        if check_size is not None:
            check_size(heading.num_values)
        weights, crc = read_tensors(file, heading, sealed=False)
    if crc != checksums.get(name):
        raise TensorFileError(f"the checksum of {name} does not match")
    damaged = find_non_finite(weights)
    if damaged:
        raise TensorFileError(f"{name} holds {damaged[0]}, which is not finite")
    return weights


def _name_beside(folder: Path, role: str) -> Path:
    return folder.with_name(f".{folder.name}.{role}{TEMPORARY_SUFFIX}")


def _put_back(old: Path, folder: Path) -> None:
    """Removes the bundle that was moved aside, or puts it back where no other came in its place."""
    if old.exists() and not folder.exists():
        old.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


BUNDLE_FOLDER_NAME = "bundle"
"""Where a run keeps its bundle."""
BUNDLE_FILE_NAME = "bundle.json"
WEIGHTS_FILE_NAME = "model.safetensors"
FRONTEND_FILE_NAME = "frontend.json"
VOCODER_FILE_NAME = "vocoder.safetensors"
_FORMAT = "myxtts-bundle"
_VERSION = 1
_MAX_DESCRIPTION_BYTES = 4_000_000
_MAX_FRONTEND_BYTES = 200_000_000
_PARTS = ("model_spec", "mel", "audio", "vocoder", "notes", "versions", "checksums")


@dataclass(frozen=True)
class Bundle:
    """What a bundle holds. `mel` and `vocoder["mel"]` are the same definition of a spectrogram, as plain JSON.

    `model_spec` tells what the model learnt from the data, such as the numbers of symbols, speakers and languages.
    """

    model_config: ModelConfig
    model_spec: dict[str, Any]
    mel: dict[str, Any]
    audio: dict[str, Any]
    frontend: bytes
    frontend_fingerprint: str
    vocoder: dict[str, Any]
    weights: dict[str, Array]
    vocoder_weights: dict[str, Array] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


def find_bundle(path: Path) -> Path:
    """The bundle that `path` is, or that the run in `path` has made."""
    for folder in (path, path / BUNDLE_FOLDER_NAME):
        if (folder / BUNDLE_FILE_NAME).is_file():
            return folder
        if (folder / VOCODER_FILE_NAME).is_file():
            raise DataError(
                f"{path} holds a vocoder, and no model that speaks.",
                next_step="Name the run of a voice as the model, and this one as its vocoder: --vocoder.",
            )
    raise DataError(
        f"There is no model bundle in {path}.",
        next_step="Name the folder of a run or of a bundle; a run makes its bundle with its first checkpoint.",
    )


def refuse_foreign_vocoder(mel: Mapping[str, Any], vocoder: Mapping[str, Any]) -> None:
    """Raises ConfigError where a vocoder was made for other spectrograms than the model speaks in."""
    expected = vocoder.get("mel")
    if not isinstance(expected, dict):
        raise ConfigError("The vocoder does not say for which spectrograms it was made.", next_step="Train it anew.")
    names = sorted(set(mel) | set(expected))
    different = [
        f"{name} {mel.get(name)} against {expected.get(name)}" for name in names if mel.get(name) != expected.get(name)
    ]
    if different:
        raise ConfigError(
            f"Model and vocoder were made for different spectrograms: {', '.join(different)}.",
            next_step="Train the vocoder on the store of this model (myxtts train --part vocoder), or use griffin_lim.",
        )


def check_weights(weights: Mapping[str, Array], expected: Mapping[str, tuple[int, ...]], place: str) -> None:
    """Raises DataError unless weights have exactly the names and shapes that a model expects."""
    problems = [f"{name} is missing" for name in expected if name not in weights]
    problems += [f"{name} is not known" for name in weights if name not in expected]
    problems += [
        f"{name} has the shape {list(weights[name].shape)} instead of {list(shape)}"
        for name, shape in expected.items()
        if name in weights and weights[name].shape != tuple(shape)
    ]
    if problems:
        more = f", and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise DataError(
            f"The weights in {place} do not fit the model: {', '.join(problems[:5])}{more}.",
            next_step="They belong to a model of another size or version: use the bundle that was made for it.",
        )


def write_bundle(folder: Path, bundle: Bundle) -> None:
    """Writes a bundle beside `folder` and moves it there when it is whole; an old one is replaced."""
    refuse_foreign_vocoder(bundle.mel, bundle.vocoder)
    replace_folder(folder, lambda temporary: _write_files(temporary, bundle), bundle.weights, bundle.vocoder_weights)


def read_bundle(folder: Path) -> Bundle:
    """The bundle in `folder`, checked in every respect but the names of its weights: `check_weights` knows those."""
    try:
        return _read_files(folder)
    except (JsonRefusedError, TensorFileError) as error:
        raise _complain(folder, str(error)) from error
    except OSError as error:
        name = Path(str(error.filename)).name if error.filename else BUNDLE_FILE_NAME
        raise _complain(folder, f"{name} cannot be read ({error.strerror})") from error


def _write_files(folder: Path, bundle: Bundle) -> None:
    checksums = {FRONTEND_FILE_NAME: int(google_crc32c.value(bundle.frontend))}
    with write_atomically(folder / FRONTEND_FILE_NAME) as file:
        file.write(bundle.frontend)
    for name, arrays in ((WEIGHTS_FILE_NAME, bundle.weights), (VOCODER_FILE_NAME, bundle.vocoder_weights)):
        if arrays:
            with write_atomically(folder / name) as file:
                checksums[name] = write_tensors(file, arrays, {}, seal=False)
    description = {
        "format": _FORMAT,
        "version": _VERSION,
        "model_config": bundle.model_config.model_dump(),
        "model_spec": bundle.model_spec,
        "mel": bundle.mel,
        "audio": bundle.audio,
        "frontend_fingerprint": bundle.frontend_fingerprint,
        "vocoder": bundle.vocoder,
        "notes": bundle.notes,
        "versions": list_versions(),
        "checksums": checksums,
    }
    with write_atomically(folder / BUNDLE_FILE_NAME) as file:
        file.write(json.dumps(description, indent=1, allow_nan=False).encode())


def _read_files(folder: Path) -> Bundle:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with open_inside(descriptor, BUNDLE_FILE_NAME, _MAX_DESCRIPTION_BYTES) as file:
            fields = _check_description(parse_json_object(file.read(_MAX_DESCRIPTION_BYTES)))
        checksums = fields["checksums"]
        with open_inside(descriptor, FRONTEND_FILE_NAME, _MAX_FRONTEND_BYTES) as file:
            frontend = file.read(_MAX_FRONTEND_BYTES)
        if google_crc32c.value(frontend) != checksums.get(FRONTEND_FILE_NAME):
            raise TensorFileError(f"the checksum of {FRONTEND_FILE_NAME} does not match")
        config = ModelConfig.model_validate(fields["model_config"])
        check_size = partial(_refuse_larger_model, config, fields["model_spec"])
        weights = read_weights(descriptor, WEIGHTS_FILE_NAME, checksums, check_size)
        vocoder_weights = {}
        if VOCODER_FILE_NAME in checksums:
            vocoder_weights = read_weights(descriptor, VOCODER_FILE_NAME, checksums)
    finally:
        os.close(descriptor)
    refuse_foreign_vocoder(fields["mel"], fields["vocoder"])
    return Bundle(
        config,
        fields["model_spec"],
        fields["mel"],
        fields["audio"],
        frontend,
        fields["frontend_fingerprint"],
        fields["vocoder"],
        weights,
        vocoder_weights,
        fields["notes"],
        fields["versions"],
    )


def _check_description(fields: dict[str, Any]) -> dict[str, Any]:
    if fields.get("format") != _FORMAT:
        raise JsonRefusedError(f"{BUNDLE_FILE_NAME} is not of the format {_FORMAT}")
    if fields.get("version") != _VERSION or isinstance(fields["version"], bool):
        raise JsonRefusedError(f"it is of version {fields.get('version')!r}; this program reads version {_VERSION}")
    expected = {"format", "version", "model_config", "frontend_fingerprint", *_PARTS}
    if set(fields) != expected:
        names = ", ".join(sorted(str(name)[:40] for name in set(fields) ^ expected)[:5])
        raise JsonRefusedError(f"{BUNDLE_FILE_NAME} has too few or too many parts: {names}")
    for name in ("model_config", *_PARTS):
        if not isinstance(fields[name], dict):
            raise JsonRefusedError(f"{name} in {BUNDLE_FILE_NAME} is not an object")
    if not isinstance(fields["frontend_fingerprint"], str):
        raise JsonRefusedError(f"frontend_fingerprint in {BUNDLE_FILE_NAME} is not a text")
    unknown = set(fields["checksums"]) - {WEIGHTS_FILE_NAME, FRONTEND_FILE_NAME, VOCODER_FILE_NAME}
    if unknown:
        raise JsonRefusedError(f"it names the file {sorted(unknown)[0][:80]!r}, which no bundle has")
    return fields


def _refuse_larger_model(config: ModelConfig, spec: dict[str, Any], num_values: int) -> None:
    """A description that asks for a giant would take memory before its weights are found missing.

    Every layer has at least one square matrix, and whatever is counted in the specification has a row somewhere.
    """
    least = config.text_layers * config.text_width**2 + config.decoder_layers * config.decoder_width**2
    if max(least, _find_largest_number(spec)) > num_values:
        raise TensorFileError(f"it describes a larger model than the {num_values:,} numbers in {WEIGHTS_FILE_NAME}")


def _find_largest_number(value: object) -> int:
    if isinstance(value, dict | list):
        inside = value.values() if isinstance(value, dict) else value
        return max(map(_find_largest_number, inside), default=0)
    return value if isinstance(value, int) and is_whole_number(value) else 0


def _complain(folder: Path, problem: str) -> DataError:
    return DataError(
        f"The bundle {folder} cannot be used: {problem}.",
        next_step="It is damaged, altered or from another version: take it again from where it was made.",
    )
