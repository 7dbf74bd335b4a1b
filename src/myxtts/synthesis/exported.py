"""An exported model: ONNX graphs and what synthesis needs beside them, in a folder of fixed file names.

    export.json              manifest: configuration, definitions, voices of the corpus, measured equality, checksums
    frontend.json            the text front end
    encode_reference.onnx    log-mel of a recording to speaker embedding
    predict.onnx             token ids to states and durations
    decode.onnx              states and noise to log-mel
    griffin_lim.onnx         log-mel to samples, or
    vocoder.onnx             the same by the neural vocoder
    voices/                  saved voices

Exports may come from untrusted sources, as bundles may: sizes are checked before anything is read, checksums before
anything is used, links are not followed, and a graph may not name other files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from myxtts.models.bundle import (
    FRONTEND_FILE_NAME,
    MAX_FRONTEND_BYTES,
    Bundle,
    ModelDescription,
    read_checked,
    read_description,
    read_folder,
)
from myxtts.storage.json_file import FileModel
from myxtts.storage.regular_file import FileRefusedError

EXPORT_FILE_NAME = "export.json"
EXPORT_FOLDER_NAME = "export"
"""Folder inside a run that is spoken with where TensorFlow is not installed."""
GraphName = Literal["encode_reference", "predict", "decode", "griffin_lim", "vocoder"]
GRAPHS_WITHOUT_VOCODER: tuple[GraphName, ...] = ("encode_reference", "predict", "decode")
KnownVocoder = Literal["griffin_lim", "neural"]
VOCODER_GRAPHS: Mapping[KnownVocoder, GraphName] = {"griffin_lim": "griffin_lim", "neural": "vocoder"}
Dtype = Literal["float32", "float16", "int8"]
"""Of the large weights in the graphs."""
_FileName = Literal[
    "encode_reference.onnx", "predict.onnx", "decode.onnx", "griffin_lim.onnx", "vocoder.onnx", "frontend.json"
]
Checksum = Annotated[int, Field(ge=0, lt=2**32)]
_MAX_GRAPH_BYTES = 2_000_000_000
"""Of a serialised ONNX model; protobuf allows no more."""
_MAX_DEPTH = 12
"""Graphs inside graphs that are looked into; ours have three."""


class Proof(FileModel):
    """What was measured against TensorFlow before the export was finished.

    In `num_moved` of the sentences one border of durations lies a frame apart (`export.proof`).
    """

    num_sentences: Annotated[int, Field(ge=1)]
    num_moved: Annotated[int, Field(ge=0)] = 0
    largest_difference: Annotated[float, Field(ge=0)]
    mean_difference: Annotated[float, Field(ge=0)]
    real_time_factor: Annotated[float, Field(ge=0)]
    tensorflow_real_time_factor: Annotated[float, Field(ge=0)]

    def describe(self) -> str:
        moved = f" ({self.num_moved} of them but for one frame)" if self.num_moved else ""
        return (
            f"{self.num_sentences} sentences have equal durations{moved}; spectrograms differ by at most "
            f"{self.largest_difference:.2g} (mean {self.mean_difference:.2g}). Real-time factor "
            f"{self.real_time_factor:.3f}, with TensorFlow {self.tensorflow_real_time_factor:.3f}."
        )


class Manifest(ModelDescription):
    """The content of export.json."""

    format: Literal["myxtts-export"]
    encoder_fingerprint: Annotated[str, Field(max_length=200)]
    vocoder: KnownVocoder
    dtype: Dtype
    name: Annotated[str, Field(max_length=300)]
    proof: Proof | None
    checksums: dict[_FileName, Checksum]

    @property
    def graph_names(self) -> tuple[GraphName, ...]:
        return (*GRAPHS_WITHOUT_VOCODER, VOCODER_GRAPHS[self.vocoder])


def find_export(path: Path) -> Path | None:
    """The folder itself if it is an export, else None."""
    return path if (path / EXPORT_FILE_NAME).is_file() else None


def read_export(folder: Path) -> tuple[Manifest, Bundle]:
    """Reads manifest and front end; returns the manifest, and a bundle without weights."""

    def read(descriptor: int) -> tuple[Manifest, Bundle]:
        manifest = read_description(descriptor, EXPORT_FILE_NAME, Manifest)
        frontend = read_checked(descriptor, FRONTEND_FILE_NAME, MAX_FRONTEND_BYTES, manifest.checksums)
        missing = [name for name in manifest.graph_names if f"{name}.onnx" not in manifest.checksums]
        if missing:
            raise FileRefusedError(f"there is no checksum of {missing[0]}.onnx")
        vocoder = {"kind": manifest.vocoder, "mel": manifest.mel}
        return manifest, manifest.make_bundle(frontend, vocoder, {}, {})

    return read_folder(folder, read, f"The exported model {folder}")


def read_graph(folder: Path, manifest: Manifest, name: GraphName) -> bytes:
    """Reads an ONNX graph; raises DataError where it is damaged, or names files outside."""

    def read(descriptor: int) -> bytes:
        return read_checked_graph(descriptor, name, manifest.checksums)

    return read_folder(folder, read, f"The exported model {folder}")


def read_checked_graph(folder: int, name: GraphName, checksums: Mapping[Any, int]) -> bytes:
    """Reads an ONNX graph through the descriptor of its folder; raises FileRefusedError as `read_graph` DataError."""
    content = read_checked(folder, f"{name}.onnx", _MAX_GRAPH_BYTES, checksums)
    refuse_external_data(content, f"{name}.onnx")
    return content


# Numbers of protobuf fields in ONNX messages. Each message is described by the fields that hold further messages.
_TENSOR: dict[int, Any] = {}
_ATTRIBUTE: dict[int, Any] = {5: _TENSOR, 10: _TENSOR}
_NODE = {5: _ATTRIBUTE}
_SPARSE = {1: _TENSOR, 2: _TENSOR}
_GRAPH = {1: _NODE, 5: _TENSOR, 15: _SPARSE}
_FUNCTION = {7: _NODE}
_TRAINING = {1: _GRAPH, 2: _GRAPH}
_MODEL = {7: _GRAPH, 20: _TRAINING, 25: _FUNCTION}
_ATTRIBUTE.update({6: _GRAPH, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE})
_EXTERNAL_FIELDS = (13, 14)
"""Of a tensor: where its values are outside of the file."""


def refuse_external_data(model: bytes, name: str) -> None:
    """Raises FileRefusedError for a serialised ONNX model whose tensors are in other files, or that is no protobuf.

    onnxruntime would open any path that such a tensor names.
    """
    try:
        _search(memoryview(model), _MODEL, name, 0)
    except (IndexError, RecursionError) as error:
        raise FileRefusedError(f"{name} is not an ONNX graph") from error


def _search(message: memoryview, inside: Mapping[int, Any], name: str, depth: int) -> None:
    if depth > _MAX_DEPTH * 3:
        raise FileRefusedError(f"{name} has too many graphs inside of each other")
    for number, content in _iterate_fields(message, name):
        if inside is _TENSOR and number in _EXTERNAL_FIELDS and content not in (b"", 0):
            raise FileRefusedError(f"{name} refers to other files")
        if number in inside and isinstance(content, memoryview):
            _search(content, inside[number], name, depth + 1)


def _iterate_fields(message: memoryview, name: str) -> Iterator[tuple[int, memoryview | int]]:
    """Yields number and content of each field: bytes where it has a length, else a number."""
    place = 0
    while place < len(message):
        tag, place = _read_varint(message, place)
        kind, number = tag & 7, tag >> 3
        if kind == 0:
            value, place = _read_varint(message, place)
            yield number, value
            continue
        size, place = _read_varint(message, place) if kind == 2 else ({1: 8, 5: 4}.get(kind, -1), place)
        if size < 0 or place + size > len(message):
            raise FileRefusedError(f"{name} is not an ONNX graph")
        yield number, message[place : place + size]
        place += size


def _read_varint(message: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80 or shift > 63:
            return value, place
