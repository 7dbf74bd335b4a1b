"""How fast speech moves, and a filter over time that gives back the quick movements which a decoder smooths away.

A decoder that is not sure when a sound begins answers with something between early and late, so that what it says
changes more slowly than people do: transitions blur, and consonants with them. How much is missing at which speed is
measured, by comparing what it says with recordings, and a filter with the inverse of that makes up for it.
Shape legend: B utterances, T frames, M mel bands, F speeds of change, K taps.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from scipy.signal import firwin2, welch

from myxtts.types import Floats, Tensor

NUM_TAPS = 15
"""A sixth of a second: with fewer a filter cannot tell syllables, which are right as they are, from transitions."""

_WINDOW_FRAMES = 64
_NUM_SLOW = 4
"""Speeds below that of syllables, of those that a window tells apart: how loud a sound is, and no transition."""

_LEAST_GAIN, _MOST_GAIN = 1.0, 2.0
"""What is there already is left alone; what has hardly been learnt is noise, and no reason to make it loud."""


def make_neutral_taps() -> Floats:
    """The filter that changes nothing."""
    taps_K = np.zeros(NUM_TAPS, np.float32)
    taps_K[NUM_TAPS // 2] = 1.0
    return taps_K


def filter_frames(mel_BTM: Tensor, lengths_B: Tensor, taps_K: Tensor) -> Tensor:
    """Every band filtered over time; first and last frame last on, so that nothing comes in from beyond an end."""
    num_frames, margin = mel_BTM.shape[1], NUM_TAPS // 2
    places_BT = tf.minimum(tf.range(-margin, num_frames + margin)[None], lengths_B[:, None] - 1)
    padded_BTM = tf.gather(mel_BTM, tf.maximum(places_BT, 0), batch_dims=1)
    return tf.add_n([padded_BTM[:, tap : tap + num_frames] * taps_K[tap] for tap in range(NUM_TAPS)])


def measure_modulation(mels: Iterable[NDArray[np.floating]]) -> NDArray[np.float64] | None:
    """The power [F] with which bands change, at speeds from none to every other frame; None where all are too short."""
    powers = [
        welch(mel_TM, nperseg=_WINDOW_FRAMES, axis=0)[1].mean(axis=1)
        for mel_TM in mels
        if len(mel_TM) >= _WINDOW_FRAMES
    ]
    return np.mean(powers, axis=0) if powers else None


def design_taps(real_F: NDArray[np.float64] | None, spoken_F: NDArray[np.float64] | None) -> Floats:
    """The filter that makes what is spoken change as real speech does, or the neutral one where that is not known."""
    if real_F is None or spoken_F is None or not (np.isfinite(real_F).all() and np.isfinite(spoken_F).all()):
        return make_neutral_taps()
    ratio_F = real_F / np.maximum(spoken_F, np.finfo(np.float64).tiny)
    gain_F = np.clip(np.sqrt(ratio_F), _LEAST_GAIN, _MOST_GAIN)
    gain_F[:_NUM_SLOW] = 1.0
    taps_K: Floats = firwin2(NUM_TAPS, np.linspace(0, 1, len(gain_F)), gain_F).astype(np.float32)
    taps_K /= taps_K.sum()
    return taps_K
