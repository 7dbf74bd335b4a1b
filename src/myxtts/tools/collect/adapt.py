"""Learns from a first alignment how the speaker of a recording sounds where espeak-ng makes a given sound.

Synthesised frames, with their neighbours, are mapped to recorded ones by a linear regression. Then they are grouped
into *sounds* by k-means, and each sound gets the mean of what the regression leaves over. With few recorded frames both
corrections shrink to nothing, and the synthesised frames stay as they are.

Shape legend: T recorded frames, S synthesised frames, Q coefficients, K sounds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2

from myxtts.types import Floats

_MAX_SOUNDS, _FRAMES_PER_SOUND = 256, 50
_LINEAR_PRIOR, _SOUND_PRIOR = 200.0, 10.0
"""Frames that no change is worth."""
_NUM_ITERATIONS = 8


def adapt_frames(synthesised_SQ: Floats, recorded_TQ: Floats, path_T: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Returns the synthesised frames [S, Q] in the voice of the recording, and the deviations [Q] that remain.

    `path_T` is the synthesised frame of each recorded one.
    """
    wide = np.concatenate([np.roll(synthesised_SQ, shift, axis=0) for shift in (0, 1, -1, 2, -2)], axis=1)
    wide = np.concatenate([wide, np.ones((len(wide), 1), np.float32)], axis=1)
    seen = wide[path_T]
    left_TQ = recorded_TQ - synthesised_SQ[path_T]
    square = seen.T @ seen + _LINEAR_PRIOR * np.eye(wide.shape[1], dtype=np.float32)
    adapted_SQ = synthesised_SQ + wide @ np.linalg.solve(square, seen.T @ left_TQ)
    num_sounds = int(np.clip(len(path_T) // _FRAMES_PER_SOUND, 1, _MAX_SOUNDS))
    context = np.concatenate(
        [synthesised_SQ, *(0.5 * wide[:, Q] for Q in _neighbours(synthesised_SQ.shape[1]))], axis=1
    )
    _, sound_S = kmeans2(context.astype(np.float64), num_sounds, iter=_NUM_ITERATIONS, minit="points", seed=0)
    left_TQ = recorded_TQ - adapted_SQ[path_T]
    sums_KQ, counts_K = np.zeros((num_sounds, left_TQ.shape[1])), np.bincount(sound_S[path_T], minlength=num_sounds)
    np.add.at(sums_KQ, sound_S[path_T], left_TQ)
    adapted_SQ = adapted_SQ + (sums_KQ / (counts_K + _SOUND_PRIOR)[:, None])[sound_S]
    deviation_Q = (recorded_TQ - adapted_SQ[path_T]).std(axis=0) + 1e-3
    return np.asarray(adapted_SQ, np.float32), np.asarray(deviation_Q, np.float32)


def _neighbours(width: int) -> list[slice]:
    return [slice(width, 2 * width), slice(2 * width, 3 * width)]
