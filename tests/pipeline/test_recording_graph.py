"""Sound is made ready in the graph as it is on the host: the same samples stay, at the same level."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray
from tests.conftest import synthesize_clip
from tests.pipeline.recordings import DATA

from myxtts.features.audio import level_samples, trim_silence
from myxtts.features.definition import AudioDefinition
from myxtts.pipeline import recording_graph


def make_sounds() -> dict[str, NDArray[np.float32]]:
    voice, pause = synthesize_clip(0.9, 4), np.zeros(7000, np.float32)
    return {
        "voice": voice,
        "voice between pauses": np.concatenate([pause, voice, pause]),
        "voice that fades": voice * np.linspace(1, 0, len(voice), dtype=np.float32) ** 4,
        "loud voice": voice / np.abs(voice).max(),
        "one click": np.concatenate([pause, np.ones(3, np.float32), pause]),
        "silence": pause,
        "next to nothing": pause + np.float32(2.0**-26),
        "less than two blocks": voice[:300],
        "less than one block": voice[:100],
    }


@pytest.mark.parametrize("name", make_sounds())
@pytest.mark.parametrize("trim_db", [20.0, 38.0, 60.0])
def test_graph_trims_the_same_samples(name: str, trim_db: float) -> None:
    samples = make_sounds()[name]
    expected = trim_silence(samples, DATA.sample_rate, trim_db)
    trimmed = recording_graph.trim_silence(tf.constant(samples), DATA.sample_rate, trim_db).numpy()
    np.testing.assert_array_equal(trimmed, expected)


@pytest.mark.parametrize("name", make_sounds())
@pytest.mark.parametrize("loudness", ["rms", "peak", "none"])
@pytest.mark.parametrize("target", [0.06, 0.9])
def test_graph_brings_sound_to_the_same_level(name: str, loudness: str, target: float) -> None:
    data = DATA.model_copy(update={"loudness": loudness, "loudness_target": target})
    definition, samples = AudioDefinition.from_config(data), make_sounds()[name]
    levelled = recording_graph.level_samples(tf.constant(samples), definition).numpy()
    np.testing.assert_allclose(levelled, level_samples(samples, definition), rtol=1e-5, atol=1e-12)
