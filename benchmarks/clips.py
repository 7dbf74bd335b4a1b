"""Recordings to measure with: made up, speech-like, the same on every machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

RATE_HZ = 22050
_NUM_HARMONICS = 20
_SYLLABLES_HZ = 3.0


def write_clips(folder: Path, num_clips: int, seconds: tuple[float, float], num_voices: int = 8) -> list[Path]:
    """16-bit WAV files of a length between the two given, each a different piece of one of a few voices."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    voices = [_synthesize_voice(generator, 2 * seconds[1]) for _ in range(num_voices)]
    paths = []
    for number in range(num_clips):
        num_samples = int(generator.uniform(*seconds) * RATE_HZ)
        voice = voices[number % num_voices]
        start = int(generator.integers(len(voice) - num_samples))
        paths.append(folder / f"clip{number:04}.wav")
        soundfile.write(paths[-1], voice[start : start + num_samples], RATE_HZ, subtype="PCM_16")
    return paths


def _synthesize_voice(generator: np.random.Generator, seconds: float) -> NDArray[np.float64]:
    """Harmonics of a wandering pitch under an envelope of syllables, with a little noise."""
    time_s = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    pitch_hz = generator.uniform(90, 250) * (1 + 0.1 * np.sin(2 * np.pi * 0.7 * time_s))
    phase = 2 * np.pi * np.cumsum(pitch_hz) / RATE_HZ
    wave = sum(
        (np.sin(harmonic * phase + generator.uniform(0, 6)) / harmonic for harmonic in range(1, _NUM_HARMONICS)),
        np.zeros(len(time_s)),
    )
    envelope = 0.02 + np.clip(np.sin(2 * np.pi * _SYLLABLES_HZ * time_s + generator.uniform(0, 6)), 0, 1)
    return 0.1 * envelope * wave + generator.normal(0, 0.002, len(time_s))
