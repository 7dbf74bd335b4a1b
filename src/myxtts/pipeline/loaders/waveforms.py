"""Loader of waveforms for a data device that computes log-mels: the host decodes, resamples, trims and levels.

A clip of S samples has 1 + S // hop frames, so a batch shape of T frames holds clips of up to T * hop - 1 samples.
Shape legend: B utterances, S samples of a clip, T frames, R frames of the reference, V samples of the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.corpus.audio import AudioLimits
from myxtts.corpus.rejections import AudioProblem, Reason
from myxtts.features.audio import load_recording
from myxtts.features.definition import MelDefinition
from myxtts.pipeline.batch import LABELS, Arrays, AssemblingLoader, BatchLayout, measure_axes
from myxtts.pipeline.loaders.python import MelMemory, check_lengths, check_num_frames, explain_problem
from myxtts.pipeline.order import BatchPlan, Shape
from myxtts.pipeline.recordings import RecordingSource, Survey
from myxtts.types import Array

WAVEFORMS = (
    Array("samples", "float32", "B S"),
    Array("num_samples", "int32", "B"),
    Array("reference_samples", "float32", "B V"),
    Array("num_reference_samples", "int32", "B"),
    Array("reference_starts", "int32", "B"),  # the first frame of the reference in the log-mel of its samples
    *LABELS,
)


def make_waveform_layout(shapes: Sequence[Shape], definition: MelDefinition, num_reference_frames: int) -> BatchLayout:
    num_reference_samples = count_reference_samples(definition, num_reference_frames)

    def measure(shape: Shape) -> dict[str, int]:
        sizes = measure_axes(shape, definition.n_mels, num_reference_frames)
        # The most samples that have as many frames as the shape.
        return {**sizes, "S": shape.num_frames * definition.hop_length - 1, "V": num_reference_samples}

    return BatchLayout(WAVEFORMS, shapes, measure)


class WaveformLoader(AssemblingLoader):
    """Fills batches with samples. Any number of threads may call it."""

    name = "samples"

    def __init__(self, source: RecordingSource, reader: WaveformReader, num_reference_frames: int, seed: int) -> None:
        super().__init__(source, num_reference_frames, seed, WAVEFORMS)
        self._source, self._reader, self._definition = source, reader, source.mel_definition

    def fill(self, plan: BatchPlan, arrays: Arrays) -> Arrays:
        self._fill_labels(arrays, plan)
        clips = self._reader.read(plan.list_distinct_rows())
        for index, row in enumerate(plan.rows[: plan.num_real].tolist()):
            arrays["num_samples"][index] = _fill_row(arrays["samples"][index], clips[row])
            arrays["mel_lengths"][index] = self._definition.count_frames(len(clips[row]))
        check_lengths(arrays, plan, self._source)
        for index, (row, crop_hash) in enumerate(self._list_references(plan)):
            num_frames = self._definition.count_frames(len(clips[row]))
            start, arrays["reference_lengths"][index] = self._find_crop(num_frames, crop_hash)
            samples_V, first = crop_samples(clips[row], start, self._num_reference_frames, self._definition)
            arrays["num_reference_samples"][index] = _fill_row(arrays["reference_samples"][index], samples_V)
            arrays["reference_starts"][index] = first
        return arrays


def _fill_row(row_S: NDArray[Any], samples: NDArray[Any]) -> int:
    """Copies samples, zeros behind them; gives how many there are."""
    row_S[: len(samples)] = samples
    row_S[len(samples) :] = 0
    return len(samples)


def crop_samples(
    samples_S: NDArray[Any], start_frame: int, num_frames: int, definition: MelDefinition
) -> tuple[NDArray[Any], int]:
    """The samples from which the wanted frames come out as from the whole clip, and the first of these frames.

    The crop begins so many whole hops earlier that no wanted frame reaches its start, unless that is the start of the
    clip, where samples are reflected as for the whole clip; and likewise at the end.
    """
    lead = min(start_frame, _count_lead_frames(definition))
    begin = (start_frame - lead) * definition.hop_length
    stop = (start_frame + num_frames - 1) * definition.hop_length + definition.min_samples
    return samples_S[begin:stop], lead


def count_reference_samples(definition: MelDefinition, num_frames: int) -> int:
    """The most samples that `crop_samples` gives."""
    return (_count_lead_frames(definition) + num_frames - 1) * definition.hop_length + definition.min_samples


def _count_lead_frames(definition: MelDefinition) -> int:
    """Enough to keep clear of the start, and for the rest to be long enough to be reflected."""
    return -(-definition.min_samples // definition.hop_length)


class WaveformReader:
    """Samples of recordings, ready for log-mels; kept in memory as far as the budget goes.

    With a survey, recordings that TensorFlow can decode are loaded inside its graph. Any number of threads may call it.
    """

    def __init__(
        self, source: RecordingSource, limits: AudioLimits, ram_budget_bytes: int = 0, survey: Survey | None = None
    ) -> None:
        self._source, self._limits = source, limits
        self._memory = MelMemory(ram_budget_bytes, "float32")
        self._load_rows = self.load_in_python
        if survey is not None:
            from myxtts.pipeline.loaders.recording_graph import GraphReader

            self._load_rows = GraphReader(source, survey, self.load_in_python, gives_samples=True).read

    def read(self, rows: Sequence[int]) -> dict[int, NDArray[Any]]:
        """By row its samples [S]. The rows are distinct."""
        return self._memory.read(rows, self._load_checked)

    def load_in_python(self, rows: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """By row its samples [S]; DataError where a recording cannot be used."""
        return {row: self._load_one(row) for row in rows}

    def _load_one(self, row: int) -> NDArray[np.float32]:
        utterance = self._source.utterance(row)
        try:
            recording = load_recording(utterance.audio, self._source.audio_definition, self._limits)
        except AudioProblem as problem:
            raise explain_problem(self._source, row, problem) from problem
        if utterance.checksum and recording.checksum != utterance.checksum:
            changed = AudioProblem(Reason.CHANGED, "the recording has changed since it was checked")
            raise explain_problem(self._source, row, changed)
        return recording.wave.samples

    def _load_checked(self, rows: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """Refuses what is too short for a spectrogram or longer than the corpus knows."""
        clips, definition = self._load_rows(rows), self._source.mel_definition
        for row, samples_S in clips.items():
            if len(samples_S) < definition.min_samples:
                short = AudioProblem(Reason.TOO_SHORT, f"{len(samples_S)} samples are left after trimming")
                raise explain_problem(self._source, row, short)
            try:
                check_num_frames(row, definition.count_frames(len(samples_S)), self._source)
            except AudioProblem as problem:
                raise explain_problem(self._source, row, problem) from problem
        return clips
