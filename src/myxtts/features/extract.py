"""`FeatureExtractor`: recording to log-mel and 16-bit PCM on the host, for the store and for loading on the fly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from myxtts.corpus.audio import AudioLimits
from myxtts.corpus.rejections import AudioProblem, Reason
from myxtts.features.audio import load_recording
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.features.mel import HostMel
from myxtts.types import Utterance


@dataclass(frozen=True, slots=True)
class AudioFeatures:
    """`mel` is float32 [T, M], `pcm` int16 [S] of the processed sound, `checksum` the crc32c of the file."""

    mel: NDArray[np.float32]
    pcm: NDArray[np.int16] | None
    checksum: int


class FeatureExtractor:
    """Computes the features of its definitions; thread-safe."""

    def __init__(
        self, mel: MelDefinition, audio: AudioDefinition, limits: AudioLimits, *, keep_pcm: bool = False
    ) -> None:
        self._mel = HostMel(mel)
        self._audio = audio
        self._limits = limits
        self._keep_pcm = keep_pcm

    def extract(self, utterance: Utterance) -> AudioFeatures:
        """Raises AudioProblem where the recording cannot be used, or is not the one that was checked."""
        recording = load_recording(utterance.audio, self._audio, self._limits)
        if utterance.checksum and recording.checksum != utterance.checksum:
            raise AudioProblem(Reason.CHANGED, "the recording has changed since it was checked")
        samples = recording.wave.samples
        if len(samples) < self._mel.definition.min_samples:
            raise AudioProblem(Reason.TOO_SHORT, f"{len(samples)} samples are left after trimming")
        pcm = quantize_samples(samples) if self._keep_pcm else None
        return AudioFeatures(self._mel(samples), pcm, recording.checksum)


def quantize_samples(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """16-bit samples; resampling may overshoot full scale, which must not wrap round."""
    scaled: NDArray[np.float32] = np.clip(samples, -1, 1) * np.float32(32767)
    return np.rint(scaled).astype(np.int16)
