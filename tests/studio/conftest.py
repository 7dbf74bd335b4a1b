"""A small corpus whose clips have a pause in the middle, and a studio of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray
from starlette.testclient import TestClient
from tests.conftest import synthesize_clip

from myxtts.studio.app import StudioApp, StudioSettings
from myxtts.studio.editor import Studio

RATE_HZ = 16_000
PAUSE_S = (0.9, 1.3)
"""Of every clip; each has 2.2 s."""
TEXTS = {
    "a1": "Good morning, everybody.",
    "a2": "The train leaves soon.",
    "a3": "Tea or coffee, please?",
    "b1": "این یک جمله است.",
}
PROMPTS = {"en": ["The first prompt.", "The second prompt."]}


def speak(seed: int) -> NDArray[np.float32]:
    """Two phrases with a pause between them, and a little noise throughout."""
    wave = synthesize_clip(2.2, seed, RATE_HZ)
    start, stop = (int(place * RATE_HZ) for place in PAUSE_S)
    wave[start:stop] = np.random.default_rng(seed).normal(0, 0.0003, stop - start)
    return wave


def write_corpus(folder: Path) -> Path:
    """A manifest with two speakers, one of each language."""
    (folder / "wavs").mkdir(parents=True)
    lines = ["id|audio|text|speaker|language"]
    for seed, (id, text) in enumerate(TEXTS.items()):
        soundfile.write(folder / "wavs" / f"{id}.wav", speak(seed), RATE_HZ)
        who = "anna|en" if id.startswith("a") else "babak|fa"
        lines.append(f"{id}|wavs/{id}.wav|{text}|{who}")
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


@pytest.fixture
def studio(corpus: Path) -> Iterator[Studio]:
    with Studio(corpus) as studio:
        studio.measure({})
        yield studio


@pytest.fixture
def client(studio: Studio) -> Iterator[TestClient]:
    app = StudioApp(studio, StudioSettings(prompts=PROMPTS)).build()
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client
