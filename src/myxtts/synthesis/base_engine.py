"""Interface and common part of the two inference engines: `engine` (TensorFlow) and `onnx_engine` (onnxruntime).

Steps: `encode_reference` (recording to speaker embedding), `time_text` (text encoder, durations and F0), `decode`
(decoder by flow matching), `make_sound` (neural vocoder or Griffin-Lim).
Shape legend: N tokens, T frames, R frames of a reference, M mel bands.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import DataError
from myxtts.features.griffin_lim import GriffinLim
from myxtts.synthesis.loaded_bundle import KnownVocoder, LoadedBundle
from myxtts.synthesis.options import SpeechOptions
from myxtts.synthesis.timing import TimedText, check_length
from myxtts.synthesis.voices import SpeakerEmbedding, average_embeddings, count_crop_frames, cut_crops
from myxtts.types import DEFAULT_NOISE_SCALE, NO_GUIDANCE, Floats

_MAX_SOUND_THREADS = 4
"""Of Griffin-Lim: more would wait for each other, because a sentence has few blocks of frames."""
_VOCODER_MARGIN_FRAMES = 64
"""Silence behind a spectrogram: more than the receptive field of the neural vocoder, so that the sound ends alike in
every engine and with every padding."""


class Engine(ABC):
    """Acoustic model and vocoder of a bundle. Not thread-safe: hold a lock around calls, as `Synthesizer` does."""

    def __init__(self, loaded: LoadedBundle, vocoder: KnownVocoder) -> None:
        self._loaded, self._vocoder_name = loaded, vocoder

    @property
    @abstractmethod
    def num_graphs(self) -> int:
        """Graphs traced or loaded so far."""

    def encode_reference(self, mel_RM: Floats) -> SpeakerEmbedding:
        """Returns the speaker embedding of a recording, averaged over its crops."""
        crops = cut_crops(mel_RM, count_crop_frames(self._loaded.mel))
        return average_embeddings([self._encode_crop(crop_RM) for crop_RM in crops])

    def encode_mel(self, mel_TM: Floats) -> SpeakerEmbedding:
        """Returns the speaker embedding of the first `MAX_CROP_S` seconds of a log-mel spectrogram."""
        return self.encode_reference(mel_TM[: count_crop_frames(self._loaded.mel)])

    def time_text(
        self, ids: NDArray[np.int32], language: str, voice: SpeakerEmbedding, speed: float = 1.0
    ) -> TimedText:
        """First phase: encodes token ids, and predicts how many frames each of their states lasts and its F0."""
        language_id = self._loaded.spec.languages.index(language)
        timed = self._time_ids(np.asarray(ids, np.int32), language_id, voice, speed)
        return timed if voice.f0_change is None else timed.change_f0(*voice.f0_change)

    def decode(self, timed: TimedText, voice: SpeakerEmbedding, options: SpeechOptions) -> Floats:
        """Second phase: decodes the log-mel spectrogram [T, M] of a timed text.

        Raises DataError where T is too long or a value is not finite.
        """
        check_length(timed, self._loaded.mel)
        guidance = NO_GUIDANCE if options.guidance is None else float(options.guidance)
        noise_scale = DEFAULT_NOISE_SCALE if options.noise_scale is None else options.noise_scale
        mel_TM = self._decode_timed(timed, voice, options, guidance, noise_scale)
        if not np.isfinite(mel_TM).all():
            raise DataError("The model computes NaN or infinite values.", next_step="Use an earlier checkpoint.")
        return mel_TM if voice.equalizer is None else mel_TM + voice.equalizer

    def make_mel(
        self, ids: NDArray[np.int32], language: str, voice: SpeakerEmbedding, options: SpeechOptions
    ) -> Floats:
        """Both phases: the log-mel spectrogram [T, M] of token ids."""
        return self.decode(self.time_text(ids, language, voice, options.speed), voice, options)

    def make_sound(self, mel_TM: Floats, seed: int) -> Floats:
        """Vocodes a log-mel spectrogram; returns samples [T * hop_length]. `seed` is for Griffin-Lim only."""
        if self._vocoder_name == "griffin_lim":
            return self._griffin_lim(mel_TM, seed=seed)
        margin_TM = np.full((_VOCODER_MARGIN_FRAMES, mel_TM.shape[1]), self._silence, np.float32)
        return self._vocode(np.concatenate([mel_TM, margin_TM]))[: len(mel_TM) * self._loaded.mel.hop_length]

    @property
    def _silence(self) -> float:
        """Log-mel of silence."""
        return float(np.log(self._loaded.mel.log_floor))

    @cached_property
    def _griffin_lim(self) -> GriffinLim:
        # Without `runtime.hardware`, whose libraries for GPUs would delay the first word.
        num_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return GriffinLim(self._loaded.mel, num_threads=min(num_cpus, _MAX_SOUND_THREADS))

    @abstractmethod
    def _encode_crop(self, crop_RM: Floats) -> SpeakerEmbedding: ...

    @abstractmethod
    def _time_ids(
        self, ids_N: NDArray[np.int32], language: int, voice: SpeakerEmbedding, speed: float
    ) -> TimedText: ...

    @abstractmethod
    def _decode_timed(
        self, timed: TimedText, voice: SpeakerEmbedding, options: SpeechOptions, guidance: float, noise_scale: float
    ) -> Floats: ...

    @abstractmethod
    def _vocode(self, mel_TM: Floats) -> Floats:
        """Samples of a spectrogram by the neural vocoder; of the silence at its end fewer may be made."""
