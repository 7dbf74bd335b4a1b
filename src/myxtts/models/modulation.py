"""Modulation-spectrum compensation (Takamichi et al., 2014): an FIR filter over time against over-smoothing.

Compares the modulation spectra (power of each mel band's changes over time) of synthesised and recorded log-mels and
designs a 15-tap filter with gains from 1 to 2 that restores what the decoder smooths away: a decoder that is unsure
when a sound begins answers with the average of early and late, which blurs transitions and consonants.
Shape legend: B utterances, T frames, M mel bands, F modulation frequencies, K taps.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.models.layers import count_steps
from myxtts.types import Floats, Tensor

NUM_TAPS = 15
"""A sixth of a second: a shorter filter cannot separate syllable rates, which are right already, from faster ones."""

_WINDOW_FRAMES = 64
"""Segment length of the Welch estimate; shorter utterances are left out."""
_NUM_SLOW = 4
"""Lowest bins of the modulation spectrum, below syllable rates: loudness rather than transitions, so gain 1."""

_LEAST_GAIN, _MOST_GAIN = 1.0, 2.0
"""Nothing is attenuated; where the model has hardly learnt anything yet, there is only noise to amplify."""


def make_neutral_taps() -> Floats:
    """The filter that changes nothing."""
    taps_K = np.zeros(NUM_TAPS, np.float32)
    taps_K[NUM_TAPS // 2] = 1.0
    return taps_K


def filter_frames(mel_BTM: Tensor, lengths_B: Tensor, taps_K: Tensor) -> Tensor:
    """Filters every band over time; first and last frame are repeated beyond the ends."""
    num_frames, margin = count_steps(mel_BTM), NUM_TAPS // 2
    frames_BT = tf.minimum(tf.range(-margin, num_frames + margin)[None], lengths_B[:, None] - 1)
    padded_BTM = tf.gather(mel_BTM, tf.maximum(frames_BT, 0), batch_dims=1)
    return tf.add_n([padded_BTM[:, tap : tap + num_frames] * taps_K[tap] for tap in range(NUM_TAPS)])


def measure_modulation(mels: Iterable[NDArray[np.floating]]) -> NDArray[np.float64] | None:
    """Modulation spectrum [F], averaged over bands and utterances (Welch); None where all are too short."""
    # Imported here and below: it takes a quarter of a second, which the start of a training need not wait for.
    from scipy.signal import welch

    powers = [
        welch(mel_TM, nperseg=_WINDOW_FRAMES, axis=0)[1].mean(axis=1)
        for mel_TM in mels
        if len(mel_TM) >= _WINDOW_FRAMES
    ]
    return np.mean(powers, axis=0) if powers else None


def design_taps(real_F: NDArray[np.float64] | None, spoken_F: NDArray[np.float64] | None) -> Floats:
    """Linear-phase FIR filter [K], its gain the square root of the power ratio; neutral if a spectrum is missing."""
    from scipy.signal import firwin2

    if real_F is None or spoken_F is None or not (np.isfinite(real_F).all() and np.isfinite(spoken_F).all()):
        return make_neutral_taps()
    ratio_F = real_F / np.maximum(spoken_F, np.finfo(np.float64).tiny)
    gain_F = np.clip(np.sqrt(ratio_F), _LEAST_GAIN, _MOST_GAIN)
    gain_F[:_NUM_SLOW] = 1.0
    taps_K: Floats = firwin2(NUM_TAPS, np.linspace(0, 1, len(gain_F)), gain_F).astype(np.float32)
    taps_K /= taps_K.sum()
    return taps_K
