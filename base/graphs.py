"""Puts ONNX graphs into a packed model, so that it speaks without TensorFlow: `python -m base graphs`.

Every large weight of a graph is a tensor of the model's own files, perhaps transposed: it is left out of the graph, and
graphs.json says where it is (`myxtts.synthesis.bundled_graphs`).
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from typing import Any, get_args

import google_crc32c
import numpy as np
from onnx import TensorProto, numpy_helper

from myxtts.export.conversion import convert
from myxtts.export.folder import write_checked
from myxtts.export.graphs import GRIFFIN_LIM, SynthesisGraphs
from myxtts.export.proof import prove
from myxtts.models.bundle import BUNDLE_FILE_NAME
from myxtts.storage.json_file import write_json
from myxtts.storage.tensor_file import Array
from myxtts.synthesis.bundled_graphs import GRAPHS_FILE_NAME, Source, Weight, list_tensors
from myxtts.synthesis.loaded_bundle import KnownVocoder, LoadedBundle, load_bundle
from myxtts.synthesis.onnx_engine import OnnxEngine
from myxtts.synthesis.synthesizer import Synthesizer

_MIN_VALUES = 256
"""Smaller weights stay in the graph: naming them would take as many bytes."""


def add_graphs(folder: Path) -> None:
    """Writes the graphs of the model in `folder` beside its weights, and proves that they speak as TensorFlow does.

    Raises ConfigError where they do not; then the model is left without graphs.
    """
    manifest = folder / GRAPHS_FILE_NAME
    manifest.unlink(missing_ok=True)
    loaded = load_bundle(folder)
    vocoder: KnownVocoder = "neural" if loaded.has_neural_vocoder else "griffin_lim"
    content = _write_graphs(loaded, vocoder)
    write_json(manifest, content)
    try:
        original, spoken = Synthesizer(loaded, vocoder=vocoder), OnnxEngine(load_bundle(folder), vocoder=vocoder)
        voices = {name: original.resolve(source) for name, source in loaded.noted_voices.items()}
        proof = prove(original.engine, spoken, loaded, voices, "float32")
    except BaseException:
        manifest.unlink()
        raise
    write_json(manifest, content | {"proof": proof.model_dump()})
    sys.stdout.write(f"{folder}: {proof.describe()}\n")


def _write_graphs(loaded: LoadedBundle, vocoder: KnownVocoder) -> dict[str, Any]:
    """Writes the graphs; returns the content of graphs.json before the proof. Griffin-Lim needs no graph."""
    known = _index_tensors(loaded)
    checksums = {BUNDLE_FILE_NAME: int(google_crc32c.value((loaded.folder / BUNDLE_FILE_NAME).read_bytes()))}
    weights = {}
    for graph in SynthesisGraphs(loaded, vocoder).list_graphs():
        if graph.name != GRIFFIN_LIM:
            model = convert(graph)
            weights[graph.name] = {name: weight.model_dump() for name, weight in take_weights(model, known).items()}
            path = loaded.folder / f"{graph.name}.onnx"
            checksums[path.name] = write_checked(path, model.SerializeToString())
    return {"format": "myxtts-graphs", "version": 1, "weights": weights, "proof": None, "checksums": checksums}


def _index_tensors(loaded: LoadedBundle) -> dict[bytes, Weight]:
    """Where the tensors of a model are, by their values in every order of axes."""
    known: dict[bytes, Weight] = {}
    for source in get_args(Source):
        for name, tensor in list_tensors(source, loaded.bundle, loaded.mel).items():
            for axes in permutations(range(tensor.ndim)):
                weight = Weight(source=source, tensor=name, axes=list(axes), shape=[])
                known.setdefault(_digest(tensor.transpose(axes)), weight)
    return known


def take_weights(model: Any, known: Mapping[bytes, Weight]) -> dict[str, Weight]:
    """Takes the large weights out of an ONNX model that are known by their values; says where each of them is."""
    taken, kept = {}, []
    for initializer in model.graph.initializer:
        values = numpy_helper.to_array(initializer)
        is_large = initializer.data_type == TensorProto.FLOAT and values.size >= _MIN_VALUES
        found = known.get(_digest(values)) if is_large else None
        if found is None:
            kept.append(initializer)
        else:
            taken[initializer.name] = found.model_copy(update={"shape": list(values.shape)})
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    return taken


def _digest(values: Array) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(values, np.float32).tobytes()).digest()
