"""More voices than were recorded: the frequencies of an utterance are stretched a little, and of its reference alike.

In a small corpus a text always comes with the same sound, and a decoder learns both by heart. With a voice that is
higher or lower each time it has to listen to the reference, and what is left to learn by heart is less.
Shape legend: B utterances, T frames, M mel bands, K amounts of stretching.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.models.layers import draw_uniform
from myxtts.training.step import MicroBatch
from myxtts.types import Tensor

UNCHANGED_SHARE = 0.5
"""Of utterances that keep their voice: it is the one that will be asked for."""
_NUM_PER_SIDE = 8
_SPECTROGRAMS = ("mel", "reference")


class VocalTractPerturbation:
    """Changes voices of bands at `band_hz` by up to a factor of `1 + furthest`, up or down."""

    def __init__(self, band_hz: Sequence[float], furthest: float) -> None:
        logarithms = np.linspace(-1, 1, 2 * _NUM_PER_SIDE + 1) * np.log1p(furthest)
        self._moves_KMM = np.stack([_move_bands(np.asarray(band_hz), factor) for factor in np.exp(logarithms)])

    def stretch(self, part: MicroBatch, seed_2: Tensor) -> tuple[MicroBatch, Tensor]:
        """The part with other voices, and which rows [B] have one that is not their speaker's."""
        draws_2B = draw_uniform(seed_2, [2, part["mel"].shape[0]])
        any_B = tf.cast(draws_2B[1] * len(self._moves_KMM), tf.int32)
        chosen_B = tf.where(draws_2B[0] < UNCHANGED_SHARE, _NUM_PER_SIDE, any_B)
        moves_BMM = tf.gather(tf.constant(self._moves_KMM), chosen_B)
        moved = {name: tf.cast(part[name], tf.float32) @ moves_BMM for name in _SPECTROGRAMS}
        return part | moved, chosen_B != _NUM_PER_SIDE


def _move_bands(band_hz: NDArray[np.float64], factor: float) -> NDArray[np.float32]:
    """The matrix [M, M] from a spectrum to the one whose frequencies are `factor` times as high.

    What comes from beyond the last band is taken to be as that one is.
    """
    num_bands = len(band_hz)
    source_M = np.interp(band_hz / factor, band_hz, np.arange(num_bands))
    distance_MM = np.abs(np.arange(num_bands)[:, None] - source_M)
    return np.asarray(np.maximum(0, 1 - distance_MM), np.float32)
