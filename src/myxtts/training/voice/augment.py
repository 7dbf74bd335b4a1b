"""Vocal tract length perturbation (VTLP): warps the mel frequency axis of an utterance and of its reference alike.

Both get the same random factor, so that the decoder must read the speaker from the reference instead of memorising
text-voice pairs, which it does in a small corpus. Warped rows have no speaker label: they are left out of the speaker
loss. After Jaitly and Hinton (2013), on log-mels instead of waveforms.
Shape legend: B utterances, T frames, M mel bands, K factors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.models.layers import draw_uniform
from myxtts.training.micro_batches import MicroBatch
from myxtts.types import Tensor

UNCHANGED_SHARE = 0.5
"""Share of utterances that are not warped: synthesis is asked for unwarped voices."""
_NUM_PER_SIDE = 8
"""Factors above 1, and as many below: a few fixed matrices are cheaper than one for each row."""
_SPECTROGRAMS = ("mel", "reference")


class VocalTractPerturbation:
    """Warps mel bands centred at `band_hz` by factors from 1 / (1 + furthest) to 1 + furthest."""

    def __init__(self, band_hz: Sequence[float], furthest: float) -> None:
        logarithms = np.linspace(-1, 1, 2 * _NUM_PER_SIDE + 1) * np.log1p(furthest)
        self._warps_KMM = np.stack([_make_warp(np.asarray(band_hz), factor) for factor in np.exp(logarithms)])

    def warp(self, part: MicroBatch, seed_2: Tensor) -> tuple[MicroBatch, Tensor]:
        """The micro-batch with warped spectrograms, and which rows [B] are not as they were recorded."""
        draws_2B = draw_uniform(seed_2, [2, part["mel"].shape[0]])
        any_B = tf.cast(draws_2B[1] * len(self._warps_KMM), tf.int32)
        chosen_B = tf.where(draws_2B[0] < UNCHANGED_SHARE, _NUM_PER_SIDE, any_B)
        warps_BMM = tf.gather(tf.constant(self._warps_KMM), chosen_B)
        is_warped_B = chosen_B != _NUM_PER_SIDE

        def warp(mel_BTM: Tensor) -> Tensor:
            mel_BTM = tf.cast(mel_BTM, tf.float32)
            # GPUs multiply in TF32, which would round even the rows whose matrix is the identity.
            return tf.where(is_warped_B[:, None, None], mel_BTM @ warps_BMM, mel_BTM)

        return part | {name: warp(part[name]) for name in _SPECTROGRAMS}, is_warped_B


def _make_warp(band_hz: NDArray[np.float64], factor: float) -> NDArray[np.float32]:
    """Linear interpolation as a matrix [M, M], to the spectrum whose frequencies are `factor` times as high.

    Bands beyond the last one repeat it.
    """
    num_bands = len(band_hz)
    source_M = np.interp(band_hz / factor, band_hz, np.arange(num_bands))
    distance_MM = np.abs(np.arange(num_bands)[:, None] - source_M)
    return np.asarray(np.maximum(0, 1 - distance_MM), np.float32)
