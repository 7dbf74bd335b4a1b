"""Validation of the vocoder with every checkpoint: distance of resynthesised held-out speech from the recordings.

Griffin-Lim is measured once on the same segments, to compare with.

Shape legend: B segments, T frames, M mel bands, S samples, F frequencies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from myxtts.errors import DataError
from myxtts.features.definition import MelDefinition
from myxtts.features.mel import HostMel
from myxtts.models.fourier import measure_magnitude
from myxtts.pipeline.batch import Arrays
from myxtts.runtime.hardware import detect_hardware
from myxtts.store.reader import FeatureStore
from myxtts.training.sample_files import GRIFFIN_LIM_FOLDER_NAME, REAL_FOLDER_NAME, Sample, draw_mel
from myxtts.training.terms import GRIFFIN_LIM_PREFIX, MEL_DISTANCE, SPECTRAL_DISTANCE
from myxtts.training.vocoder.audio import SegmentSource
from myxtts.training.vocoder.data import open_audio_split
from myxtts.training.vocoder.losses import EDGE_SHARE, find_full_band, list_frequencies
from myxtts.training.voice.metrics import SCORE
from myxtts.training.voice.samples import MakeSound, SampleWriter
from myxtts.training.voice.validation import ValidationCallback
from myxtts.types import Floats, Say, Split

if TYPE_CHECKING:
    from myxtts.training.loop import TrainingLoop

_SILENCE = 1e-3
"""Added to magnitudes before the logarithm, so that differences far below audible levels do not count."""
_NUM_SEGMENTS, _SEGMENT_S = 16, 2.0
"""Segments of a validation, and their length."""
_NUM_SAMPLES, _SAMPLE_S = 3, 5.0
"""Segments written as samples, and their length."""
_FIXED_SEED = 0
"""Not the seed of the training, so that all runs of a corpus are validated on the same segments."""


class VocoderValidation(ValidationCallback):
    """Validates a vocoder and writes samples. The score is the mean absolute difference of log-mels."""

    def _load(self, loop: TrainingLoop) -> None:
        """Loads fixed segments of the validation split; without one there are only samples, of the training split."""
        hardware = detect_hardware()
        split: Split = "val"
        try:
            store, rows, sound = open_audio_split(loop.config, split, hardware)
        except DataError as error:
            loop.say(f"There is no validation, and samples are of the training split: {error.problem}")
            split = "train"
            store, rows, sound = open_audio_split(loop.config, split, hardware)
        mel = store.settings.mel

        def take_segments(num_segments: int, seconds: float) -> tuple[Arrays, list[int]]:
            num_frames = max(2 * _count_edge_frames(mel) + 1, round(seconds * mel.sample_rate / mel.hop_length))
            source = SegmentSource(
                store, rows, sound, num_segments=num_segments, num_frames=num_frames, seed=_FIXED_SEED
            )
            plan = source.batch(0)
            return source.fill(plan, source.make_layout(source.shapes).view(plan.shape)), plan.rows.tolist()

        if split == "val":
            segments, _ = take_segments(_NUM_SEGMENTS, _SEGMENT_S)
            self._evaluate = VocoderEvaluator(loop.model, segments, mel, self._make_sound).evaluate
        segments, sample_rows = take_segments(_NUM_SAMPLES, _SAMPLE_S)
        about = [_describe_row(store, row) for row in sample_rows]
        self._write_samples = VocoderSamples(
            loop.model, segments, about, mel, loop.run.samples_path, self._make_sound, loop.say
        ).write

    def _describe(self, numbers: Mapping[str, float]) -> str:
        def compare(name: str) -> str:
            return f"{numbers[name]:.3f} (Griffin-Lim {numbers[GRIFFIN_LIM_PREFIX + name]:.3f})"

        return f"mel distance {compare(MEL_DISTANCE)}, spectral distance {compare(SPECTRAL_DISTANCE)}"


class VocoderEvaluator:
    """Measures a vocoder, with the weights it has, on fixed segments: mel distance and spectral distance.

    Griffin-Lim inverts the mel bands themselves, and so comes closer to them than any vocoder; it has no information on
    what lies between and above them, which is why the distance of linear spectra is measured too.
    """

    def __init__(self, model: Any, segments: Arrays, definition: MelDefinition, griffin_lim: MakeSound) -> None:
        self._segments, self._griffin_lim = segments, griffin_lim
        self._host_mel, self._num_edge_frames = HostMel(definition), _count_edge_frames(definition)
        self._speak: Any = tf.function(model, autograph=False)
        self._of_griffin_lim: dict[str, float] = {}

    def evaluate(self) -> dict[str, float]:
        """Mean distances (the mel distance is the score), and those of Griffin-Lim, which are measured once."""
        if not self._of_griffin_lim:
            made = self._measure([self._griffin_lim(mel_TM) for mel_TM in self._list_mels()])
            self._of_griffin_lim = {f"{GRIFFIN_LIM_PREFIX}{name}": value for name, value in made.items()}
        numbers = self._measure(self._speak(tf.constant(self._segments["mel"])).numpy())
        return {SCORE: numbers[MEL_DISTANCE], **numbers, **self._of_griffin_lim}

    def _measure(self, made: Sequence[Floats] | Floats) -> dict[str, float]:
        """Mean distances of the waveforms in `made`; infinite if one is not finite."""
        in_mel, in_spectrum = [], []
        hop, edge = self._host_mel.definition.hop_length, self._num_edge_frames
        for mel_TM, real_S, padded_S in zip(self._list_mels(), self._segments["samples"], made, strict=True):
            samples_S = np.ascontiguousarray(padded_S[: len(mel_TM) * hop], np.float32)
            if len(mel_TM) <= 2 * edge:
                continue
            if not np.isfinite(samples_S).all():
                return dict.fromkeys((MEL_DISTANCE, SPECTRAL_DISTANCE), float("inf"))
            # Frames at the edges reach beyond the segment, where the real signal is unknown.
            inside = slice(edge, len(mel_TM) - edge)
            in_mel.append(np.abs(self._host_mel(samples_S)[inside] - mel_TM[inside]).mean())
            in_spectrum.append(self._compare_spectra(real_S[: len(samples_S)], samples_S))
        assert in_mel, "all segments are shorter than a transform"
        return {MEL_DISTANCE: float(np.mean(in_mel)), SPECTRAL_DISTANCE: float(np.mean(in_spectrum))}

    def _compare_spectra(self, real_S: Floats, made_S: Floats) -> float:
        """Mean absolute difference of log magnitudes over all frequencies that the recording has."""
        mel = self._host_mel.definition
        mel = replace(mel, n_fft=mel.n_fft // 4 * 4)
        both_BTF = measure_magnitude(tf.constant(np.stack([real_S, made_S])), mel.n_fft, mel.n_fft // 4)
        is_full = bool(find_full_band(both_BTF, mel, mel.fmax)[0, 0, 0])
        is_compared_F = is_full | (list_frequencies(mel) <= EDGE_SHARE * mel.fmax)
        real_TF, made_TF = np.log(both_BTF.numpy()[..., is_compared_F] + _SILENCE)
        return float(np.abs(real_TF - made_TF).mean())

    def _list_mels(self) -> list[Floats]:
        """Log-mels of the segments without padding."""
        pairs = zip(self._segments["mel"], self._segments["mel_lengths"].tolist(), strict=True)
        return [mel_TM[:length] for mel_TM, length in pairs]


class VocoderSamples(SampleWriter):
    """Segments resynthesised by the vocoder; to compare with, the recordings and the version of Griffin-Lim."""

    def __init__(
        self,
        model: Any,
        segments: Arrays,
        about: Sequence[Mapping[str, str]],
        definition: MelDefinition,
        samples_path: Path,
        griffin_lim: MakeSound,
        warn: Say,
    ) -> None:
        super().__init__(samples_path, definition.sample_rate, warn)
        self._segments, self._about, self._griffin_lim = segments, about, griffin_lim
        self._host_mel = HostMel(definition)
        self._speak: Any = tf.function(model, autograph=False)

    def _render(self, step: int) -> list[Sample]:
        made_BS = self._speak(tf.constant(self._segments["mel"])).numpy()
        if not np.isfinite(made_BS).all():
            raise ValueError("the vocoder gave sound that is not finite")
        return self._draw(made_BS)

    def _render_others(self) -> dict[str, list[Sample]]:
        griffin_lim = [self._griffin_lim(mel_TM) for mel_TM in self._segments["mel"]]
        recorded = self._draw(self._segments["samples"])
        return {REAL_FOLDER_NAME: recorded, GRIFFIN_LIM_FOLDER_NAME: self._draw(griffin_lim)}

    def _draw(self, sounds: Sequence[Floats] | Floats) -> list[Sample]:
        mel, samples = self._host_mel.definition, []
        lengths = self._segments["mel_lengths"].tolist()
        for number, (padded_S, length, about) in enumerate(zip(sounds, lengths, self._about, strict=True), start=1):
            sound_S = np.ascontiguousarray(padded_S[: length * mel.hop_length])
            picture = draw_mel(self._host_mel(sound_S), mel.sample_rate / mel.hop_length)
            samples.append(Sample(f"{number:02}", sound_S, picture, b"", about))
        return samples


def _count_edge_frames(definition: MelDefinition) -> int:
    """Frames of one FFT length, left out at either end: windows there reach beyond the segment."""
    return -(-definition.n_fft // definition.hop_length)


def _describe_row(store: FeatureStore, row: int) -> dict[str, str]:
    speaker, language, _ = store.labels_of(row)
    return {"id": store.id_of(row), "text": "", "language": language, "speaker": speaker}
