"""A recording of someone's voice, made into spectrograms that the reference encoder can hear.

A recording is refused by its header before anything is decoded. One that lasts longer than a model has heard in
training becomes several crops. Shape legend: R frames, M mel bands.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from myxtts.corpus.listen import AudioLimits, inspect_audio
from myxtts.corpus.rejections import AudioProblem
from myxtts.errors import DataError
from myxtts.features.audio import load_recording
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.features.mel import HostMel
from myxtts.types import Say

MIN_REFERENCE_S, ADVISED_REFERENCE_S, MAX_CROP_S, MAX_REFERENCE_S = 1.0, 3.0, 8.0, 30.0
_LIMITS = AudioLimits(
    min_duration_s=MIN_REFERENCE_S,
    max_duration_s=MAX_REFERENCE_S,
    max_source_rate_hz=192_000,
    max_channels=8,
    silence_db=-60.0,
    max_clipped_share=0.05,
)
_ADVICE = (
    f"Give {ADVISED_REFERENCE_S:g} to {MAX_CROP_S:g} s of clear speech by one person, as WAV, FLAC, OGG or MP3; "
    f"{MIN_REFERENCE_S:g} to {MAX_REFERENCE_S:g} s are accepted."
)


@dataclass(frozen=True, slots=True)
class Reference:
    """The spectrograms [R, M] of one recording, each of at most MAX_CROP_S."""

    crops: tuple[NDArray[np.float32], ...]
    duration_s: float


def read_reference(path: Path, audio: AudioDefinition, mel: MelDefinition, warn: Say = lambda _: None) -> Reference:
    """The voice in a recording, processed as the model's own recordings were."""
    try:
        real_path = os.path.realpath(path)
        inspect_audio(real_path, _LIMITS)
        wave = load_recording(real_path, audio, _LIMITS).wave
    except AudioProblem as problem:
        raise DataError(f"The voice {path} cannot be used: {problem.detail}.", next_step=_ADVICE) from problem
    except ValueError as error:
        raise DataError(f"The voice {str(path)!a} is no path of a file.", next_step=_ADVICE) from error
    if wave.duration_s < MIN_REFERENCE_S or len(wave.samples) < mel.min_samples:
        raise DataError(
            f"The voice {path} cannot be used: {wave.duration_s:.2f} s are left without the silence at its ends.",
            next_step=_ADVICE,
        )
    if wave.duration_s < ADVISED_REFERENCE_S:
        warn(f"The voice {path} has {wave.duration_s:.1f} s of speech; it will sound more like it with 3 to 8 s.")
    return Reference(_cut_crops(HostMel(mel)(wave.samples), count_crop_frames(mel)), wave.duration_s)


def count_crop_frames(mel: MelDefinition) -> int:
    """The most frames of a crop, a multiple of what the reference encoder takes at once."""
    return math.ceil(MAX_CROP_S * mel.sample_rate / mel.hop_length / 8) * 8


def _cut_crops(mel_RM: NDArray[np.float32], max_frames: int) -> tuple[NDArray[np.float32], ...]:
    num_crops = math.ceil(len(mel_RM) / max_frames)
    return tuple(np.array_split(mel_RM, num_crops))
