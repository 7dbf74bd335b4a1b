"""Definition of the features: audio preprocessing and the log-mel spectrogram, as every executor computes it.

    frames    centred, reflected at both ends, `1 + S // hop` of them for S samples
    spectrum  magnitude of the Fourier transform under a periodic Hann window, padded to n_fft
    bands     triangles on the Slaney mel scale, each of equal area
    value     natural logarithm of at least `log_floor`

Two executors compute it, one with numpy and one with TensorFlow; both take every number from here.
Shape legend: S samples, T frames, N transform length, F frequencies, G = 2 F, M mel bands.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from myxtts.storage.json_file import NO_OTHER_FIELDS

if TYPE_CHECKING:
    from myxtts.config.data import DataConfig

DEFINITION_VERSION = 1
"""Raised when the same settings would give other values; a part of every store's fingerprint."""

# The Slaney scale: linear to 1 kHz at 200/3 Hz a mel, then logarithmic, 27 mels for a factor of 6.4.
_LINEAR_HZ_PER_MEL = 200 / 3
_BREAK_HZ = 1000.0
_BREAK_MEL = _BREAK_HZ / _LINEAR_HZ_PER_MEL
_LOG_STEP = np.log(6.4) / 27
_LOUDEST_LOG = 5.0
"""Far above the log-mel of any signal within full scale."""


@dataclass(frozen=True)
class MelDefinition:
    """Every number that shapes a spectrogram. Travels with the store and the model."""

    __pydantic_config__ = NO_OTHER_FIELDS

    sample_rate: int
    n_fft: int
    hop_length: int
    win_length: int
    n_mels: int
    fmin: float
    fmax: float
    log_floor: float

    @classmethod
    def from_config(cls, data: DataConfig) -> MelDefinition:
        return cls(**{name: getattr(data, name) for name in cls.__dataclass_fields__})

    def to_json(self) -> dict[str, int | float]:
        return asdict(self)

    @property
    def margin(self) -> int:
        """Samples reflected at the start, so that frame 0 is centred on sample 0."""
        return self.n_fft // 2

    @property
    def end_margin(self) -> int:
        """Samples reflected at the end, one more where n_fft is odd: the last frame needs it."""
        return self.n_fft - self.margin

    @property
    def min_samples(self) -> int:
        """Fewer samples cannot be reflected."""
        return self.end_margin + 1

    def bound(self, mel_TM: NDArray[np.floating]) -> NDArray[np.float32]:
        """Clips a spectrogram to possible values: a model may give others, whose exponential overflows."""
        return np.asarray(np.clip(mel_TM, *self.log_limits), np.float32)

    @property
    def log_limits(self) -> tuple[float, float]:
        """Lowest and highest value of a spectrogram."""
        return float(np.log(self.log_floor)), _LOUDEST_LOG

    def count_frames(self, num_samples: int) -> int:
        return 1 + num_samples // self.hop_length

    @cached_property
    def window(self) -> NDArray[np.float32]:
        """Periodic Hann window [n_fft], centred where it is shorter than the transform."""
        phase = 2 * np.pi * np.arange(self.win_length) / self.win_length
        window = np.zeros(self.n_fft, np.float32)
        start = (self.n_fft - self.win_length) // 2
        window[start : start + self.win_length] = 0.5 - 0.5 * np.cos(phase)
        return window

    @property
    def band_hz(self) -> NDArray[np.float64]:
        """Centres [M] of the mel bands."""
        return self._corners_hz[1:-1]

    @property
    def _corners_hz(self) -> NDArray[np.float64]:
        return mel_to_hz(np.linspace(hz_to_mel(self.fmin), hz_to_mel(self.fmax), self.n_mels + 2))

    @cached_property
    def filterbank(self) -> NDArray[np.float32]:
        """Weights [F, M] of the mel bands, up to the last frequency that any band uses."""
        frequencies_hz = np.arange(self.n_fft // 2 + 1) * self.sample_rate / self.n_fft
        corners_hz = self._corners_hz
        rising = (frequencies_hz[:, None] - corners_hz[:-2]) / np.diff(corners_hz)[:-1]
        falling = (corners_hz[2:] - frequencies_hz[:, None]) / np.diff(corners_hz)[1:]
        areas = 2 / (corners_hz[2:] - corners_hz[:-2])
        weights = np.maximum(0, np.minimum(rising, falling)) * areas
        num_used = int(np.flatnonzero(weights.any(axis=1)).max(initial=0)) + 1
        return np.ascontiguousarray(weights[:num_used], np.float32)


@dataclass(frozen=True)
class AudioDefinition:
    """What is done to a recording before its spectrogram is taken."""

    __pydantic_config__ = NO_OTHER_FIELDS

    sample_rate: int
    trim_silence: bool
    trim_db: float
    loudness: Literal["rms", "peak", "none"]
    loudness_target: float

    @classmethod
    def from_config(cls, data: DataConfig) -> AudioDefinition:
        return cls(**{name: getattr(data, name) for name in cls.__dataclass_fields__})

    def to_json(self) -> dict[str, int | float | str | bool]:
        return asdict(self)


def hz_to_mel(frequency_hz: float) -> float:
    if frequency_hz < _BREAK_HZ:
        return frequency_hz / _LINEAR_HZ_PER_MEL
    return float(_BREAK_MEL + np.log(frequency_hz / _BREAK_HZ) / _LOG_STEP)


def mel_to_hz(mels: NDArray[np.float64]) -> NDArray[np.float64]:
    logarithmic = _BREAK_HZ * np.exp(_LOG_STEP * (mels - _BREAK_MEL))
    return np.where(mels < _BREAK_MEL, mels * _LINEAR_HZ_PER_MEL, logarithmic)


def count_resampled(num_samples: int, rate: int, target_rate: int) -> int:
    """How many samples resampling gives: soxr rounds to the nearest, and with these operations."""
    return math.floor(num_samples / (rate / target_rate) + 0.5)


def count_source_frames(num_samples: int, rate: int, mel: MelDefinition) -> int:
    """Mel frames before silence is trimmed, an upper bound known from the header; 0 for a stream of unknown length."""
    return mel.count_frames(count_resampled(num_samples, rate, mel.sample_rate)) if num_samples else 0


def count_longest_frames(data: DataConfig) -> int:
    """Mel frames of the longest recording that is accepted, which a stream of unknown length is taken for."""
    return MelDefinition.from_config(data).count_frames(round(data.max_duration_s * data.sample_rate))


def make_fourier_matrices(
    definition: MelDefinition, num_frequencies: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """DFT of windowed frames as a matrix [N, 2 F], and its inverse [2 F, N] for spectra that are zero above F.

    Real parts come first, then imaginary parts; both have the window in them.
    """
    n_fft, window_N = definition.n_fft, definition.window
    turns_N = 2 * np.pi / n_fft * np.arange(n_fft)
    places_NF = np.outer(np.arange(n_fft), np.arange(num_frequencies)) % n_fft
    analysis_NG = np.concatenate([np.cos(turns_N)[places_NF], -np.sin(turns_N)[places_NF]], axis=1)
    # All frequencies but the first, and the last of an even length, stand for a conjugate pair.
    weights_F = np.full(num_frequencies, 2.0)
    weights_F[0] = 1.0
    if n_fft % 2 == 0 and num_frequencies == n_fft // 2 + 1:
        weights_F[-1] = 1.0
    synthesis_GN = np.tile(weights_F, 2)[:, None] * analysis_NG.T / n_fft
    return np.asarray(window_N[:, None] * analysis_NG, np.float32), np.asarray(synthesis_GN * window_N, np.float32)
