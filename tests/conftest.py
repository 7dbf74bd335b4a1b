"""What many tests need: clips that sound like something, and corpora made of them."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import settings
from numpy.typing import NDArray
from tests.template_process import end_templates

RATE_HZ = 22050

# A gate gives the same answer twice: new examples are searched for at the desk, where a find can be looked into.
settings.register_profile("desk", deadline=None)
settings.register_profile("gate", deadline=None, derandomize=True)
settings.load_profile("gate" if os.environ.get("CI") else "desk")

# Tests find no compiled steps of earlier runs, and leave none in the user's own cache.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="myxtts-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)


def pytest_sessionfinish() -> None:
    end_templates()


ClipWriter = Callable[..., Path]
ClipMaker = Callable[..., NDArray[np.float32]]


def synthesize_clip(seconds: float = 1.0, seed: int = 0, rate_hz: int = RATE_HZ) -> NDArray[np.float32]:
    """A voiced-like sound: a few harmonics under a slow envelope, different for each seed."""
    generator = np.random.default_rng(seed)
    time_s = np.arange(int(seconds * rate_hz)) / rate_hz
    pitch_hz = generator.uniform(90, 250)
    wave = sum(np.sin(2 * np.pi * pitch_hz * k * time_s + generator.uniform(0, 6)) / k for k in range(1, 6))
    envelope = 0.2 + 0.1 * np.sin(2 * np.pi * 3 * time_s)
    noise = generator.normal(0, 0.002, len(time_s))
    return np.asarray(envelope * wave / 3 + noise, np.float32)


@pytest.fixture
def make_clip() -> ClipMaker:
    return synthesize_clip


@pytest.fixture
def write_clip() -> ClipWriter:
    def write(path: Path, seconds: float = 1.0, seed: int = 0, rate_hz: int = RATE_HZ) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, synthesize_clip(seconds, seed, rate_hz), rate_hz)
        return path

    return write


@pytest.fixture
def ljspeech(tmp_path: Path, write_clip: ClipWriter) -> Path:
    """Twenty good clips in LJSpeech layout."""
    folder = tmp_path / "lj"
    lines = []
    for number in range(20):
        write_clip(folder / "wavs" / f"LJ{number:03}.wav", seconds=1.5, seed=number)
        lines.append(f"LJ{number:03}|Sentence {number}.|This is sentence number {number}.\n")
    (folder / "metadata.csv").write_text("".join(lines), encoding="utf-8")
    return folder
