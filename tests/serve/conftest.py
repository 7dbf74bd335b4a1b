"""A small model behind every server of these tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.synthesis.small_models import write_small_bundle

from myxtts.synthesis.synthesizer import Synthesizer


@pytest.fixture(scope="package")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    voices = {
        name: {"vector": [level] * 8, "latents": [[level] * 8] * 2, "language": language}
        for name, level, language in (("anna", 0.1, "en"), ("omid", 0.5, "fa"))
    }
    return write_small_bundle(tmp_path_factory.mktemp("serve") / "small", notes={"step": 5, "voices": voices})


@pytest.fixture(scope="package")
def synthesizer(bundle: Path) -> Synthesizer:
    return Synthesizer.load(bundle, warn=lambda _: None)
