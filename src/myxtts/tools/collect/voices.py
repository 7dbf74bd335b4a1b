"""Finds clips of other speakers: compares speaker embeddings, by the reference encoder of a trained model.

The main voice is the mean of the embeddings that agree with each other; it is found by starting from all of them and
leaving out the farther ones, as in a trimmed mean. A clip is foreign where its similarity to the main voice is far
below what is usual. TensorFlow is loaded by this module's functions only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from myxtts.corpus.audio import AudioLimits
from myxtts.features.audio import load_recording
from myxtts.features.mel import HostMel
from myxtts.runtime.load_tensorflow import load_tensorflow
from myxtts.types import Floats

_LIMITS = AudioLimits(0.0, 3600.0, 192_000, 1, -200.0, 1.0)
_KEPT_SHARE = 0.6
"""Of the clips, nearest to the main voice: more than half must be of it."""
_NUM_ROUNDS = 10
_MIN_CLIPS = 4
"""Fewer have no main voice."""
_DEVIATIONS = 4.0
_MIN_SPREAD = 0.01
"""Of similarities: the same voice differs that much from clip to clip at least."""


def embed_clips(model: Path, files: Sequence[Path], progress: Callable[[int], None] = lambda _: None) -> Floats:
    """Returns the speaker embeddings [number of files, width] by the model of a run or bundle, of length 1."""
    from myxtts.synthesis.loaded_bundle import load_bundle

    loaded = load_bundle(model)
    load_tensorflow()
    from myxtts.synthesis.engine import SpeechEngine

    engine, mel = SpeechEngine(loaded, vocoder="griffin_lim"), HostMel(loaded.mel)
    vectors = []
    for number, file in enumerate(files, 1):
        samples = load_recording(os.path.realpath(file), loaded.audio, _LIMITS).wave.samples
        samples = np.pad(samples, (0, max(0, loaded.mel.min_samples - len(samples))))
        vector = engine.encode_mel(mel(samples)).vector
        vectors.append(vector / max(float(np.linalg.norm(vector)), 1e-6))
        progress(number)
    return np.asarray(vectors, np.float32)


def find_foreign(vectors: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """Returns which clips are of another voice than most, and the cosine similarity of each to the main voice."""
    num_clips = len(vectors)
    if num_clips < _MIN_CLIPS:
        return np.zeros(num_clips, bool), np.ones(num_clips, np.float32)
    # What all voices have in common would make any two of them similar.
    centred = vectors - vectors.mean(axis=0)
    kept = _find_densest(centred)
    for _ in range(_NUM_ROUNDS):
        similarity = _compare(centred, centred[kept].mean(axis=0))
        kept = np.argsort(-similarity, kind="stable")[: max(2, int(_KEPT_SHARE * num_clips))]
    main = vectors[kept].mean(axis=0)
    similarity = _compare(vectors, main)
    inside = similarity[kept]
    middle = float(np.median(inside))
    spread = max(_MIN_SPREAD, 1.4826 * float(np.median(np.abs(inside - middle))))
    return similarity < middle - _DEVIATIONS * spread, similarity


def _find_densest(centred: Floats) -> NDArray[np.int64]:
    """Returns the clips nearest to the one whose neighbours are nearest: of the most frequent voice, as a rule.

    Of many clips every n-th is compared, which bounds the time.
    """
    step = max(1, len(centred) // 1000)
    sample = centred[::step]
    unit = sample / np.maximum(np.linalg.norm(sample, axis=1, keepdims=True), 1e-6)
    similarity = unit @ unit.T
    num_near = max(2, len(sample) // 3)
    nearness = np.sort(similarity, axis=1)[:, -num_near:].mean(axis=1)
    near = np.argsort(-similarity[int(np.argmax(nearness))], kind="stable")[:num_near]
    return near * step


def _compare(vectors: Floats, other: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1) * max(float(np.linalg.norm(other)), 1e-6)
    return np.asarray(vectors @ other / np.maximum(lengths, 1e-6), np.float32)
