"""Writes an exported model: graphs, front end, voices and manifest, proved before the folder gets its name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from myxtts.export.conversion import convert, explain_missing_extra
from myxtts.export.graphs import SynthesisGraphs
from myxtts.models.bundle import FRONTEND_FILE_NAME, VOICES_FOLDER_NAME, refresh_card
from myxtts.storage.atomic import write_atomically, write_new_folder
from myxtts.storage.json_file import write_json
from myxtts.synthesis.exported import EXPORT_FILE_NAME, Dtype, Proof
from myxtts.synthesis.loaded_bundle import KnownVocoder, LoadedBundle, load_bundle
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.synthesis.voices import SpeakerEmbedding, VoiceFolder, fingerprint_encoder
from myxtts.types import Say

_REDUCED = ("decode", "vocoder")
"""Graphs whose weights `--dtype` makes smaller: durations and embeddings stay as they were."""


def export_onnx(loaded: LoadedBundle, vocoder: KnownVocoder, out: Path, dtype: Dtype, say: Say) -> Proof:
    """Exports a model into the new folder `out` and returns what the proof measured.

    Raises ConfigError where the export does not speak as the original; then nothing is left behind.
    """
    with explain_missing_extra():
        from myxtts.export.joining import store_weights
        from myxtts.export.proof import prove
    with write_new_folder(out) as folder:
        synthesizer = Synthesizer(loaded.without_graphs(), vocoder=vocoder)
        checksums = {}
        for graph in SynthesisGraphs(loaded, vocoder).list_graphs():
            say(f"Converting {graph.name}.")
            model = convert(graph)
            if graph.name in _REDUCED:
                store_weights(model, dtype)
            checksums[f"{graph.name}.onnx"] = write_checked(folder / f"{graph.name}.onnx", model.SerializeToString())
        checksums[FRONTEND_FILE_NAME] = write_checked(folder / FRONTEND_FILE_NAME, loaded.bundle.frontend)
        voices = _copy_voices(synthesizer, folder)
        manifest = _describe(loaded, vocoder, dtype, checksums)
        write_json(folder / EXPORT_FILE_NAME, manifest)
        say(f"Comparing it with TensorFlow: {len(voices)} voices, {len(loaded.spec.languages)} languages.")
        exported = Synthesizer(load_bundle(folder), vocoder=vocoder)
        proof = prove(synthesizer.engine, exported.engine, loaded, voices, dtype)
        write_json(folder / EXPORT_FILE_NAME, manifest | {"proof": proof.model_dump()})
        refresh_card(loaded.folder, out=folder)
    return proof


def write_checked(path: Path, content: bytes) -> int:
    """Writes a file; returns its CRC32C."""
    with write_atomically(path) as file:
        file.write(content)
    return int(google_crc32c.value(content))


def _describe(loaded: LoadedBundle, vocoder: KnownVocoder, dtype: Dtype, checksums: dict[str, int]) -> dict[str, Any]:
    """The manifest, before the proof."""
    return {
        "format": "myxtts-export",
        **loaded.bundle.describe(),
        "encoder_fingerprint": fingerprint_encoder(loaded.bundle.weights),
        "vocoder": vocoder,
        "dtype": dtype,
        "name": loaded.name,
        "proof": None,
        "checksums": checksums,
    }


def _copy_voices(synthesizer: Synthesizer, folder: Path) -> dict[str, SpeakerEmbedding]:
    """Copies saved voices into the export; returns all voices by name, or one without a speaker where there is none."""
    loaded, config = synthesizer.loaded, synthesizer.loaded.bundle.model_config
    fingerprint = fingerprint_encoder(loaded.bundle.weights)
    copies = VoiceFolder(
        folder / VOICES_FOLDER_NAME, fingerprint, config.num_latents, config.reference_width, loaded.mel
    )
    voices = {name: synthesizer.resolve(source) for name, source in loaded.noted_voices.items()}
    for name in loaded.voices.list_names():
        source = loaded.voices.load(name)
        voices[name] = synthesizer.resolve(replace(source, name=""))
        copies.save(name, voices[name], source.references, language=source.language, consent=source.consent)
    zeros = np.zeros((config.num_latents + 1, config.reference_width), np.float32)
    return voices or {"": SpeakerEmbedding(zeros[0], zeros[1:])}
