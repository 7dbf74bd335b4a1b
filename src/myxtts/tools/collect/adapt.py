"""Learns from a first alignment how the speaker of a recording sounds where espeak-ng makes a given sound.

Synthesised frames, with their neighbours, are mapped to recorded ones by a linear regression. Then they are grouped
into *sounds* by k-means, and each sound gets the mean of what the regression leaves over. With few recorded frames both
corrections shrink to nothing, and the synthesised frames stay as they are.

Shape legend: T recorded frames, S synthesised frames, Q coefficients, K sounds.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2, vq

from myxtts.types import Floats

_MAX_SOUNDS, _FRAMES_PER_SOUND = 256, 50
_LINEAR_PRIOR, _SOUND_PRIOR, _DEVIATION_PRIOR = 200.0, 10.0, 50.0
"""Frames that no change is worth."""
_NEIGHBOURS = (1, -1, 2, -2)
_NEIGHBOUR_WEIGHT = 0.5
"""Of the nearer two, where frames are grouped."""
_NUM_GROUPED, _NUM_ITERATIONS = 20_000, 8


class Sounds:
    """The synthesised frames [S, Q] of a text, grouped by their sound. They have mean 0 and deviation 1."""

    def __init__(self, synthesised_SQ: Floats, num_recorded: int) -> None:
        near = [np.roll(synthesised_SQ, shift, axis=0) for shift in _NEIGHBOURS]
        self._frames = synthesised_SQ
        self._wide = np.concatenate([synthesised_SQ, *near, np.ones((len(synthesised_SQ), 1), np.float32)], axis=1)
        context = np.concatenate([synthesised_SQ, *(_NEIGHBOUR_WEIGHT * frames for frames in near[:2])], axis=1)
        self._sound_S = _group(context, int(np.clip(num_recorded // _FRAMES_PER_SOUND, 1, _MAX_SOUNDS)))
        self._num_sounds = int(self._sound_S.max()) + 1

    def adapt(self, recorded_TQ: Floats, path_T: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Returns the frames [S, Q] in the voice of the recording, and the deviations [Q] that remain.

        `path_T` is the synthesised frame of each recorded one, which have mean 0 and deviation 1 too.
        """
        seen = self._wide[path_T]
        square = seen.T @ seen + _LINEAR_PRIOR * np.eye(seen.shape[1], dtype=np.float32)
        mapping = np.linalg.solve(square, seen.T @ (recorded_TQ - self._frames[path_T]))
        adapted_SQ = self._frames + self._wide @ mapping
        sound_T = self._sound_S[path_T]
        sums_KQ, counts_K = (
            np.zeros((self._num_sounds, recorded_TQ.shape[1])),
            np.bincount(sound_T, minlength=self._num_sounds),
        )
        np.add.at(sums_KQ, sound_T, recorded_TQ - adapted_SQ[path_T])
        adapted_SQ = adapted_SQ + (sums_KQ / (counts_K + _SOUND_PRIOR)[:, None])[self._sound_S]
        left_Q = np.square(recorded_TQ - adapted_SQ[path_T]).sum(axis=0)
        deviation_Q = np.sqrt((left_Q + _DEVIATION_PRIOR) / (len(path_T) + _DEVIATION_PRIOR))
        return np.asarray(adapted_SQ, np.float32), np.asarray(deviation_Q, np.float32)


def _group(context: Floats, num_sounds: int) -> NDArray[np.int64]:
    """Returns the number of the sound of each frame [S]; many frames are grouped by a sample of them."""
    sample = np.random.default_rng(0).permutation(context)[:_NUM_GROUPED].astype(np.float64)
    with warnings.catch_warnings():
        # espeak-ng makes some frames twice, which can leave a group empty.
        warnings.simplefilter("ignore", UserWarning)
        centres, _ = kmeans2(sample, min(num_sounds, len(sample)), iter=_NUM_ITERATIONS, minit="points", seed=0)
    return np.asarray(vq(context.astype(np.float64), centres)[0], np.int64)
