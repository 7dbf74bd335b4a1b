"""Clips of other voices are found by their speaker embeddings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray
from tests.conftest import RATE_HZ, synthesize_clip
from tests.synthesis.small_models import write_small_bundle

from myxtts.tools.collect.voices import embed_clips, find_foreign


def make_voices(num_own: int, num_other: int, spread: float) -> NDArray[np.float32]:
    draw = np.random.default_rng(0)
    own, *others = draw.standard_normal((1 + num_other, 32))
    vectors = [own] * num_own + others
    noisy = np.array(vectors) + spread * draw.standard_normal((len(vectors), 32))
    return np.asarray(noisy / np.linalg.norm(noisy, axis=1, keepdims=True), np.float32)


@pytest.mark.parametrize("num_other", [0, 1, 12])
def test_other_voices_are_found_among_clips_of_one(num_other: int) -> None:
    is_foreign, similarity = find_foreign(make_voices(60, num_other, 0.25))
    assert is_foreign[60:].all()
    assert np.count_nonzero(is_foreign[:60]) <= 2
    assert similarity[:60].min() > similarity[60:].max(initial=-1)


def test_three_clips_have_no_main_voice() -> None:
    assert not find_foreign(make_voices(0, 3, 0.1))[0].any()


def test_the_same_sound_has_the_same_embedding(tmp_path: Path) -> None:
    bundle = write_small_bundle(tmp_path / "small")
    files = [tmp_path / f"{number}.wav" for number in range(3)]
    for file, seed in zip(files, (1, 2, 1), strict=True):
        soundfile.write(file, synthesize_clip(2.5, seed=seed), RATE_HZ)
    vectors = embed_clips(bundle, files)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-4)
    np.testing.assert_allclose(vectors[0], vectors[2], atol=1e-5)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-4
