"""The model bundle: all that synthesis needs, in a folder of safetensors and JSON files with fixed names.

    bundle.json           configuration and spec of the model, definitions of mel and audio, checksums
    model.safetensors     the weights used for synthesis, float32, or float16 to halve its size
    frontend.json         the text front end: how text becomes token ids
    vocoder.safetensors   weights of a neural vocoder, if one is attached
    graphs.json, *.onnx   graphs that speak it without TensorFlow, if there are any (`synthesis.bundled_graphs`)
    card.json             what the files above cannot say, if somebody stated it: sources, licence, limits
    CARD.md               what is known about the model, for people; nothing reads it

Bundles may come from untrusted sources. Nothing in them is executed or unpacked, no other file is opened, sizes are
checked before memory is allocated, and an error names what does not fit. A bundle is replaced as a whole.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal, TypeVar

import google_crc32c
import numpy as np
from pydantic import Field

from myxtts.config.model import ModelConfig
from myxtts.errors import ConfigError, DataError, refuse
from myxtts.models.card import CARD_FILE_NAME, write_card, write_evaluation
from myxtts.storage.atomic import (
    TEMPORARY_SUFFIX,
    explain_storage_errors,
    pass_fault_point,
    sync_directory,
    write_atomically,
)
from myxtts.storage.json_file import (
    FileModel,
    JsonRefusedError,
    Model,
    VersionOne,
    is_whole_number,
    parse_json,
    try_read_json,
    write_json,
)
from myxtts.storage.regular_file import FileRefusedError, open_regular
from myxtts.storage.tensor_file import Array, find_non_finite, read_heading, read_tensors, write_tensors

VOICES_FOLDER_NAME = "voices"
"""Folder of the voices that users save, inside a bundle and beside that of a run."""
BUNDLE_FOLDER_NAME = "bundle"
"""Folder of the bundle inside a run directory."""
BUNDLE_FILE_NAME = "bundle.json"
WEIGHTS_FILE_NAME = "model.safetensors"
FRONTEND_FILE_NAME = "frontend.json"
VOCODER_FILE_NAME = "vocoder.safetensors"
_LIBRARIES = ("myxtts", "tensorflow", "keras", "numpy")
MAX_DESCRIPTION_BYTES = 4_000_000
MAX_FRONTEND_BYTES = 200_000_000
_MAX_WEIGHTS_BYTES = 40_000_000_000
"""Limits of the files, checked before anything is read: a damaged or hostile one must not exhaust the memory."""
_MAX_PROBLEMS_SHOWN = 5
_MIN_HALVED_VALUES = 1024
"""Smaller weights, such as biases and gains, are always stored as float32: halving them saves nothing."""

StorageDtype = Literal["float32", "float16"]
_STORED = ("F32", "F16")
"""Types of weights in a file, by their safetensors codes."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class Bundle:
    """Content of a bundle. `mel` and `vocoder["mel"]` are the same definition of a spectrogram, as plain JSON.

    `model_spec` is the JSON of a `ModelSpec`: vocabulary, languages, speakers and mel statistics of the corpus.
    Weights in memory are float32; `storage_dtype` is the type of the large ones in the files.
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
    storage_dtype: StorageDtype = "float32"

    def describe(self) -> dict[str, Any]:
        """The fields of a `ModelDescription` of this bundle, with the versions of what is installed now."""
        return {
            "version": 1,
            "model_config": self.model_config.model_dump(),
            "model_spec": self.model_spec,
            "mel": self.mel,
            "audio": self.audio,
            "frontend_fingerprint": self.frontend_fingerprint,
            "notes": self.notes,
            "versions": list_versions(),
        }


_FileName = Literal["model.safetensors", "frontend.json", "vocoder.safetensors"]


class ModelDescription(FileModel):
    """The common content of bundle.json and of the export.json of an exported model."""

    version: VersionOne
    config: dict[str, Any] = Field(alias="model_config")
    model_spec: dict[str, Any]
    mel: dict[str, Any]
    audio: dict[str, Any]
    frontend_fingerprint: str
    notes: dict[str, Any]
    versions: dict[str, str]

    def make_bundle(
        self,
        frontend: bytes,
        vocoder: dict[str, Any],
        weights: dict[str, Array],
        vocoder_weights: dict[str, Array],
    ) -> Bundle:
        """The bundle that the files beside the description complete."""
        return Bundle(
            ModelConfig.model_validate(self.config),
            self.model_spec,
            self.mel,
            self.audio,
            frontend,
            self.frontend_fingerprint,
            vocoder,
            weights,
            vocoder_weights,
            self.notes,
            self.versions,
        )


class _Description(ModelDescription):
    """The content of bundle.json."""

    format: Literal["myxtts-bundle"]
    vocoder: dict[str, Any]
    checksums: dict[_FileName, int]


def find_bundle(path: Path) -> Path:
    """Folder of the bundle at `path`, which is a bundle or a run directory; raises DataError if there is none."""
    for folder in (path, path / BUNDLE_FOLDER_NAME):
        if (folder / BUNDLE_FILE_NAME).is_file():
            return folder
        if (folder / VOCODER_FILE_NAME).is_file():
            raise DataError(
                f"{path} contains a vocoder, not a voice model.",
                next_step="Give the run of a voice with --model, and this one with --vocoder.",
            )
    raise DataError(
        f"There is no trained model in {path}.",
        next_step="Give the folder of a run or exported model. A run has a model from its first checkpoint on.",
    )


def write_bundle(folder: Path, bundle: Bundle) -> None:
    """Writes a bundle under a temporary name and renames it to `folder` when it is whole; an old one is replaced."""
    refuse_foreign_vocoder(bundle.mel, bundle.vocoder)
    replace_folder(folder, lambda temporary: _write_files(temporary, bundle), bundle.weights, bundle.vocoder_weights)


def _write_files(folder: Path, bundle: Bundle) -> None:
    """Writes the files of a bundle; bundle.json comes last, because it holds the checksums of the others."""
    checksums = {FRONTEND_FILE_NAME: int(google_crc32c.value(bundle.frontend))}
    with write_atomically(folder / FRONTEND_FILE_NAME) as file:
        file.write(bundle.frontend)
    for name, arrays in ((WEIGHTS_FILE_NAME, bundle.weights), (VOCODER_FILE_NAME, bundle.vocoder_weights)):
        if arrays:
            checksums[name] = write_weights(folder / name, arrays, bundle.storage_dtype)
    description = {
        "format": "myxtts-bundle",
        **bundle.describe(),
        "vocoder": bundle.vocoder,
        "checksums": checksums,
    }
    write_json(folder / BUNDLE_FILE_NAME, description)
    write_card(folder / CARD_FILE_NAME, description, folder, folder / VOICES_FOLDER_NAME)


def refresh_card(folder: Path, *, out: Path | None = None) -> None:
    """Rewrites the card of a bundle, after a voice was saved or the model evaluated, or for an export into `out`."""
    description = try_read_json(folder / BUNDLE_FILE_NAME, dict[str, Any], MAX_DESCRIPTION_BYTES) or {}
    write_card((out or folder) / CARD_FILE_NAME, description, folder, folder / VOICES_FOLDER_NAME)


def keep_evaluation(folder: Path, split: str, scores: Mapping[str, Any]) -> None:
    """Keeps the scores of `myxtts evaluate` in a bundle and its card, until another step replaces them."""
    description = try_read_json(folder / BUNDLE_FILE_NAME, dict[str, Any], MAX_DESCRIPTION_BYTES) or {}
    write_evaluation(folder, description, split, scores)
    refresh_card(folder)


def read_bundle(folder: Path) -> Bundle:
    """Reads and checks the bundle in `folder`; only names and shapes of weights are left to `check_weights`."""
    bundle = read_folder(folder, _read_files, f"The bundle {folder}")
    refuse_foreign_vocoder(bundle.mel, bundle.vocoder)
    return bundle


def _read_files(folder: int) -> Bundle:
    """Reads a bundle through the descriptor of its folder, so that the folder cannot be replaced meanwhile."""
    found = read_description(folder, BUNDLE_FILE_NAME, _Description)
    checksums: Mapping[Any, int] = found.checksums
    frontend = read_checked(folder, FRONTEND_FILE_NAME, MAX_FRONTEND_BYTES, checksums)
    check_size = partial(_refuse_larger_model, ModelConfig.model_validate(found.config), found.model_spec)
    weights = read_stored_weights(folder, WEIGHTS_FILE_NAME, checksums, check_size)
    has_vocoder = VOCODER_FILE_NAME in checksums
    vocoder_weights = read_weights(folder, VOCODER_FILE_NAME, checksums) if has_vocoder else {}
    bundle = found.make_bundle(frontend, found.vocoder, _restore(weights), vocoder_weights)
    is_halved = any(array.dtype == np.float16 for array in weights.values())
    return replace(bundle, storage_dtype="float16") if is_halved else bundle


def _refuse_larger_model(config: ModelConfig, spec: dict[str, Any], num_values: int) -> None:
    """Refuses a description of a larger model than the weights: building it would exhaust the memory.

    A lower bound suffices: every layer has at least one square matrix, and every number in the spec a row in some
    weight.
    """
    least = config.text_layers * config.text_width**2 + config.decoder_layers * config.decoder_width**2
    if max(least, _find_largest_number(spec)) > num_values:
        raise FileRefusedError(f"it describes a larger model than the {num_values:,} numbers in {WEIGHTS_FILE_NAME}")


def _find_largest_number(value: object) -> int:
    """Largest whole number anywhere in a JSON value."""
    if isinstance(value, dict | list):
        inside = value.values() if isinstance(value, dict) else value
        return max(map(_find_largest_number, inside), default=0)
    return value if isinstance(value, int) and is_whole_number(value) else 0


def refuse_foreign_vocoder(mel: Mapping[str, Any], vocoder: Mapping[str, Any]) -> None:
    """Raises ConfigError where a vocoder was trained for other spectrograms than the model produces."""
    expected = vocoder.get("mel")
    if not isinstance(expected, dict):
        raise ConfigError("The vocoder does not say for which spectrograms it was made.", next_step="Train it again.")
    names = sorted(set(mel) | set(expected))
    different = [
        f"{name} {mel.get(name)} against {expected.get(name)}" for name in names if mel.get(name) != expected.get(name)
    ]
    if different:
        raise ConfigError(
            f"Model and vocoder were made for different spectrograms: {', '.join(different)}.",
            next_step="Train it on the same features (myxtts train --part vocoder), or use griffin_lim.",
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
        more = f", and {len(problems) - _MAX_PROBLEMS_SHOWN} more" if len(problems) > _MAX_PROBLEMS_SHOWN else ""
        raise DataError(
            f"The weights in {place} do not fit the model: {', '.join(problems[:_MAX_PROBLEMS_SHOWN])}{more}.",
            next_step="They belong to a model of another size or version: use the bundle that was made for it.",
        )


def list_versions() -> dict[str, str]:
    """Versions of the libraries that a bundle is written with."""
    return {name: version(name) for name in _LIBRARIES}


def replace_folder(folder: Path, write_files: Callable[[Path], None], *weights: Mapping[str, Array]) -> None:
    """Replaces `folder` by the files that `write_files` writes; raises DataError for weights that are not finite.

    The new folder is complete before the old one is renamed, and a kill in between leaves both: the next call, or the
    next start of the run, restores one. Shared with vocoder bundles.
    """
    damaged = [name for arrays in weights for name in find_non_finite(arrays)]
    if damaged:
        raise DataError(
            f"These weights are NaN or infinite: {', '.join(damaged[:5])}.", next_step="Train with --resume."
        )
    temporary, old = _name_beside(folder, "new"), _name_beside(folder, "old")
    with explain_storage_errors(folder, "write"):
        shutil.rmtree(temporary, ignore_errors=True)
        _put_back(old, folder)
        try:
            temporary.mkdir(parents=True)
            _copy_voices(folder, temporary)
            write_files(temporary)
            # A folder with files cannot be replaced by one rename; between the two renames both are whole.
            if folder.exists():
                folder.rename(old)
            pass_fault_point("bundle_rename")
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            _put_back(old, folder)
        sync_directory(folder.parent)


def _copy_voices(folder: Path, new: Path) -> None:
    """Copies the voices that a user saved in the old bundle into the new one."""
    for file in sorted((folder / VOICES_FOLDER_NAME).glob("*.safetensors")):
        if file.is_file() and not file.is_symlink():
            (new / VOICES_FOLDER_NAME).mkdir(exist_ok=True)
            shutil.copyfile(file, new / VOICES_FOLDER_NAME / file.name)


def _name_beside(folder: Path, role: str) -> Path:
    return folder.with_name(f".{folder.name}.{role}{TEMPORARY_SUFFIX}")


def _put_back(old: Path, folder: Path) -> None:
    """Removes the old bundle, or renames it back if no new one has taken its name."""
    if old.exists() and not folder.exists():
        old.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def write_weights(path: Path, weights: Mapping[str, Array], dtype: StorageDtype = "float32") -> int:
    """Writes a safetensors file, with large weights in the given type; returns its CRC32C."""
    with write_atomically(path) as file:
        return write_tensors(file, _halve(weights) if dtype == "float16" else weights, {}, seal=False)


def _halve(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Large weights as float16; those that float16 cannot hold stay float32."""
    halved = {}
    for name, array in weights.items():
        fits = array.size >= _MIN_HALVED_VALUES and float(np.abs(array).max()) <= float(np.finfo(np.float16).max)
        halved[name] = array.astype(np.float16) if fits else array
    return halved


def _restore(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Stored weights as float32."""
    return {name: array.astype(np.float32, copy=False) for name, array in weights.items()}


def read_folder(folder: Path, read_files: Callable[[int], Result], what: str) -> Result:
    """Calls `read_files` with a descriptor of `folder`; turns its errors into DataError about `what`."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return read_files(descriptor)
        finally:
            os.close(descriptor)
    except FileRefusedError as error:
        raise refuse(what, str(error)) from error
    except OSError as error:
        name = Path(str(error.filename)).name if error.filename else "a file"
        raise refuse(what, f"{name} cannot be read ({error.strerror})") from error


def _open_inside(folder: int, name: str, max_bytes: int) -> AbstractContextManager[BufferedReader]:
    """Opens a regular file of the folder itself; symbolic links are refused."""
    return open_regular(name, max_bytes, folder=folder, follow_links=False)


def read_checked(folder: int, name: str, max_bytes: int, checksums: Mapping[Any, int]) -> bytes:
    """Reads a file of the folder; raises FileRefusedError where it does not have its checksum."""
    with _open_inside(folder, name, max_bytes) as file:
        content = file.read(max_bytes)
    if google_crc32c.value(content) != checksums.get(name):
        raise FileRefusedError(f"the checksum of {name} does not match")
    return content


def read_description(folder: int, name: str, model: type[Model]) -> Model:
    """Parses the JSON file that describes a bundle."""
    with _open_inside(folder, name, MAX_DESCRIPTION_BYTES) as file:
        try:
            return parse_json(file.read(MAX_DESCRIPTION_BYTES), model)
        except JsonRefusedError as error:
            raise JsonRefusedError(f"{name}: {error}") from error


def read_weights(folder: int, name: str, checksums: Mapping[Any, int]) -> dict[str, Array]:
    """Reads the weights in a file of the folder as float32; checks them as `read_stored_weights` does."""
    return _restore(read_stored_weights(folder, name, checksums))


def read_stored_weights(
    folder: int, name: str, checksums: Mapping[Any, int], check_size: Callable[[int], None] = lambda _: None
) -> dict[str, Array]:
    """Reads weights in the types that the file has, and checks types, checksum and that all are finite.

    `check_size` is called with the number of values before they are read.
    """
    with _open_inside(folder, name, _MAX_WEIGHTS_BYTES) as file:
        heading = read_heading(file)
        wrong = [entry.name for entry in heading.entries if entry.dtype not in _STORED]
        if wrong:
            raise FileRefusedError(f"{name} holds {wrong[0]}, which is not float32 or float16")
        check_size(heading.num_values)
        weights, crc = read_tensors(file, heading, sealed=False)
    if crc != checksums.get(name):
        raise FileRefusedError(f"the checksum of {name} does not match")
    damaged = find_non_finite(weights)
    if damaged:
        raise FileRefusedError(f"{name} holds {damaged[0]}, which is NaN or infinite")
    return weights
