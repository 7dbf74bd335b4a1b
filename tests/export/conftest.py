"""A small model as it is, and exported: converted once for all tests of this folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.synthesis.small_models import write_small_bundle

from myxtts.export.folder import export_onnx
from myxtts.synthesis.exported import Proof
from myxtts.synthesis.loaded_bundle import LoadedBundle, load_bundle
from myxtts.synthesis.synthesizer import Synthesizer

CommandRunner = Callable[..., subprocess.CompletedProcess[str]]
"""Runs a `myxtts` command: the folder that it runs in, then its arguments."""


@pytest.fixture
def without(tmp_path: Path) -> dict[str, str]:
    """An environment whose programs cannot import TensorFlow and what is installed with it."""
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "sitecustomize.py").write_text(
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('tensorflow', 'keras', 'scipy', 'ml_dtypes', 'onnx', 'tf2onnx'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Block())\n"
    )
    path = os.pathsep.join([str(tmp_path / "blocked"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    return {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)}


@pytest.fixture
def run_without(without: dict[str, str]) -> CommandRunner:
    """Runs commands that cannot import TensorFlow."""

    def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "myxtts", *arguments]
        return subprocess.run(command, cwd=folder, env=without, capture_output=True, text=True, timeout=120)

    return run


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
