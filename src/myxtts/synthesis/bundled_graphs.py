"""ONNX graphs inside a bundle: onnxruntime speaks it without TensorFlow, with the weights that the bundle has anyway.

    graphs.json   which weights each graph takes from the bundle, measured equality, checksums
    *.onnx        the graphs of an exported model (`exported`) without their large weights

A checksum of bundle.json, which holds those of all weights, ties the graphs to the bundle that they were made for.
As everywhere in a bundle, nothing is trusted: the rules of `exported` hold here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from myxtts.features.definition import MelDefinition, make_fourier_matrices
from myxtts.models.bundle import (
    BUNDLE_FILE_NAME,
    MAX_DESCRIPTION_BYTES,
    Bundle,
    read_checked,
    read_description,
    read_folder,
)
from myxtts.storage.json_file import FileModel, VersionOne
from myxtts.storage.regular_file import FileRefusedError
from myxtts.storage.tensor_file import MAX_DIMENSIONS, Array
from myxtts.synthesis.exported import (
    GRAPHS_WITHOUT_VOCODER,
    VOCODER_GRAPHS,
    Checksum,
    GraphName,
    Proof,
    read_checked_graph,
)

GRAPHS_FILE_NAME = "graphs.json"
Source = Literal["model", "vocoder", "fourier"]
"""Weights of the model, of its vocoder, and the matrices of the vocoder's Fourier transform, which are computed."""
_FileName = Literal["encode_reference.onnx", "predict.onnx", "decode.onnx", "vocoder.onnx", "bundle.json"]
_Size = Annotated[int, Field(ge=0, lt=2**40)]


class Weight(FileModel):
    """Where a weight of a graph comes from: a tensor with its axes in another order, then in another shape."""

    source: Source
    tensor: Annotated[str, Field(max_length=300)]
    axes: Annotated[list[_Size], Field(max_length=MAX_DIMENSIONS)]
    shape: Annotated[list[_Size], Field(max_length=MAX_DIMENSIONS)]

    def take(self, sources: Mapping[Source, Mapping[str, Array]]) -> Array:
        """The values; raises FileRefusedError where the tensor does not exist or has another size."""
        tensor = sources[self.source].get(self.tensor)
        if tensor is None or sorted(self.axes) != list(range(tensor.ndim)) or prod(self.shape) != tensor.size:
            raise FileRefusedError(f"{GRAPHS_FILE_NAME} does not fit the weight {self.tensor[:80]!r}")
        return tensor.transpose(self.axes).reshape(self.shape)


class BundledGraphs(FileModel):
    """The content of graphs.json."""

    format: Literal["myxtts-graphs"]
    version: VersionOne
    weights: dict[GraphName, dict[str, Weight]]
    proof: Proof | None
    checksums: dict[_FileName, Checksum]


def find_graphs(folder: Path, *, has_vocoder: bool) -> BundledGraphs | None:
    """Reads the list of a bundle's graphs, None if it has none; raises DataError where it is of another bundle."""
    if not (folder / GRAPHS_FILE_NAME).is_file():
        return None

    def read(descriptor: int) -> BundledGraphs:
        found = read_description(descriptor, GRAPHS_FILE_NAME, BundledGraphs)
        read_checked(descriptor, BUNDLE_FILE_NAME, MAX_DESCRIPTION_BYTES, found.checksums)
        needed = (*GRAPHS_WITHOUT_VOCODER, *([VOCODER_GRAPHS["neural"]] if has_vocoder else []))
        missing = [name for name in needed if f"{name}.onnx" not in found.checksums]
        if missing:
            raise FileRefusedError(f"{GRAPHS_FILE_NAME} has no checksum of {missing[0]}.onnx")
        return found

    return read_folder(folder, read, f"The bundle {folder}")


def list_tensors(source: Source, bundle: Bundle, mel: MelDefinition) -> Mapping[str, Array]:
    """The tensors that graphs take instead of storing them again."""
    if source == "fourier":
        return dict(zip(("analysis", "synthesis"), make_fourier_matrices(mel, mel.n_fft // 2 + 1), strict=True))
    return bundle.weights if source == "model" else bundle.vocoder_weights


def read_bundled_graph(
    folder: Path, graphs: BundledGraphs, name: GraphName, bundle: Bundle, mel: MelDefinition
) -> bytes:
    """Reads a graph and puts its weights in; raises DataError where it is damaged, or names files outside."""
    wanted = graphs.weights.get(name, {})

    def read(descriptor: int) -> bytes:
        content = read_checked_graph(descriptor, name, graphs.checksums)
        sources = {source: list_tensors(source, bundle, mel) for source in {one.source for one in wanted.values()}}
        return put_weights(content, {place: weight.take(sources) for place, weight in wanted.items()})

    return read_folder(folder, read, f"The bundle {folder}")


# Numbers of protobuf fields in ONNX messages, and the number of the type float32.
_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_NAME, _TENSOR_DATA = 7, 5, 1, 2, 8, 9
_FLOAT = 1


def put_weights(model: bytes, weights: Mapping[str, Array]) -> bytes:
    """A serialised ONNX model with these float32 initializers besides its own.

    Protobuf merges a message that is written twice, so they stand behind the model, in a second graph.
    """
    tensors = []
    for name, array in weights.items():
        fields = [_write_number(_TENSOR_DIMS, size) for size in array.shape]
        fields.append(_write_number(_TENSOR_TYPE, _FLOAT))
        fields.append(_write_bytes(_TENSOR_NAME, name.encode()))
        fields.append(_write_bytes(_TENSOR_DATA, np.ascontiguousarray(array, "<f4").tobytes()))
        tensors.append(_write_bytes(_GRAPH_INITIALIZER, b"".join(fields)))
    return model + _write_bytes(_MODEL_GRAPH, b"".join(tensors))


def _write_bytes(number: int, content: bytes) -> bytes:
    return _write_varint(number << 3 | 2) + _write_varint(len(content)) + content


def _write_number(number: int, value: int) -> bytes:
    return _write_varint(number << 3) + _write_varint(value)


def _write_varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
