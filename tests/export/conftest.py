"""A small model as it is, and exported: converted once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.synthesis.small_models import write_small_bundle

from myxtts.export.folder import export_onnx
from myxtts.synthesis.exported import Proof
from myxtts.synthesis.loaded_bundle import LoadedBundle, load_bundle
from myxtts.synthesis.synthesizer import Synthesizer


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with two speakers in its notes and a saved voice that speaks Persian."""
    folder = tmp_path_factory.mktemp("export") / "bundle"
    speakers = {
        name: {"vector": [0.1 * number] * 8, "latents": [[0.2] * 8, [-0.1 * number] * 8], "language": language}
        for number, (name, language) in enumerate([("anna", "en"), ("omid", "fa")], 1)
    }
    write_small_bundle(folder, notes={"step": 0, "voices": speakers})
    loaded = load_bundle(folder)
    embedding = loaded.noted_voices["omid"].embedding
    assert embedding is not None
    loaded.voices.save("mahsa", embedding, language="fa", consent="own voice")
    return folder


@pytest.fixture(scope="session")
def loaded(bundle: Path) -> LoadedBundle:
    return load_bundle(bundle)


@pytest.fixture(scope="session")
def proved(loaded: LoadedBundle, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Proof]:
    """The folder of the exported model, and what was measured."""
    out = tmp_path_factory.mktemp("exported") / "model"
    return out, export_onnx(loaded, "griffin_lim", out, "float32", lambda _line: None)


@pytest.fixture(scope="session")
def exported(proved: tuple[Path, Proof]) -> Path:
    return proved[0]


@pytest.fixture(scope="session")
def original(loaded: LoadedBundle) -> Synthesizer:
    return Synthesizer(loaded)


@pytest.fixture(scope="session")
def speaker(exported: Path) -> Synthesizer:
    return Synthesizer.load(exported)
