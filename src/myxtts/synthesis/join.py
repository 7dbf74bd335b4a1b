"""Pieces of speech made fit to follow each other: one level, soft ends, silence between them."""

from __future__ import annotations

import numpy as np

from myxtts.types import Floats

_FADE_S = 0.005
_BLOCK_S = 0.02
_QUIET_DB = 30.0
_MAX_PEAK = 0.99
_MAX_GAIN = 2.0
"""Pieces are brought nearer to each other, not turned into something else."""


class PieceJoiner:
    """Takes the pieces of one text in order. Without a target level the first piece decides."""

    def __init__(self, rate_hz: int, target_rms: float | None) -> None:
        self._rate_hz = rate_hz
        self._target_rms = target_rms
        self._target_speech_rms: float | None = None

    def join(self, samples: Floats, pause_s: float) -> Floats:
        """The piece at its level behind a pause."""
        levelled = fade_ends(self._level(samples), int(_FADE_S * self._rate_hz))
        return np.concatenate([np.zeros(int(pause_s * self._rate_hz), np.float32), levelled])

    def _level(self, samples: Floats) -> Floats:
        level, peak = self._measure_speech(samples), float(np.abs(samples).max(initial=0.0))
        if level <= 0.0:
            return samples
        if self._target_speech_rms is None:
            whole = float(np.sqrt(np.mean(np.square(samples))))
            self._target_speech_rms = level if self._target_rms is None else level * self._target_rms / whole
        gain = float(np.clip(self._target_speech_rms / level, 1 / _MAX_GAIN, _MAX_GAIN))
        return samples * np.float32(min(gain, _MAX_PEAK / peak))

    def _measure_speech(self, samples: Floats) -> float:
        """RMS of the parts in which someone speaks: pauses inside a piece do not make it louder."""
        block = max(1, int(_BLOCK_S * self._rate_hz))
        num_blocks = len(samples) // block
        if num_blocks == 0:
            return float(np.sqrt(np.mean(np.square(samples)))) if len(samples) else 0.0
        energy = np.mean(np.square(samples[: num_blocks * block].reshape(num_blocks, block)), axis=1)
        loud = energy[energy >= energy.max() * 10 ** (-_QUIET_DB / 10)]
        return float(np.sqrt(loud.mean()))


def fade_ends(samples: Floats, num_samples: int) -> Floats:
    """A copy that begins and ends in silence."""
    num_samples = min(num_samples, len(samples) // 2)
    rise = np.sin(np.linspace(0, np.pi / 2, num_samples, dtype=np.float32)) ** 2
    faded = np.array(samples, np.float32)
    faded[:num_samples] *= rise
    faded[len(faded) - num_samples :] *= rise[::-1]
    return faded
