"""Where the samples for a data device come from: recordings, read by graph operations or through Python.

Shape legend: S samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from myxtts.corpus.listen import AudioLimits
from myxtts.corpus.rejections import AudioProblem, Reason
from myxtts.features.audio import load_recording
from myxtts.pipeline.memory import MelMemory
from myxtts.pipeline.python import check_num_frames, explain_problem
from myxtts.pipeline.source import RecordingSource
from myxtts.pipeline.wav_layout import Survey


class ManyReader(Protocol):
    """Reads several rows in one call, see GraphReader."""

    def read(self, rows: Sequence[int]) -> dict[int, NDArray[np.float32]]: ...


class RecordedSamples:
    """Samples of recordings, made ready for features as everywhere; kept in memory as far as the budget goes.

    With a survey, recordings that TensorFlow can decode are loaded inside its graph.
    """

    dtype = np.dtype(np.float32)

    def __init__(
        self,
        source: RecordingSource,
        limits: AudioLimits,
        ram_budget_bytes: int = 0,
        survey: Survey | None = None,
    ) -> None:
        self._source, self._limits = source, limits
        self._min_samples = source.mel_definition.min_samples
        self.memory = MelMemory(ram_budget_bytes, "float32")
        self._is_native = np.zeros(len(source), bool) if survey is None else survey.is_native
        self._graph_reader = None if survey is None else self._make_graph_reader(survey)

    def read(self, rows: Sequence[int]) -> dict[int, NDArray[Any]]:
        """By row its samples [S]."""
        clips: dict[int, NDArray[Any]] = {}
        in_graph = []
        for row in rows:
            kept = self.memory.find(row)
            if kept is not None:
                clips[row] = kept
            elif self._is_native[row]:
                in_graph.append(row)
            else:
                clips[row] = self.memory.keep(row, self.read_in_python(row))
        if in_graph:
            assert self._graph_reader is not None
            for row, samples_S in self._graph_reader.read(in_graph).items():
                self._check(row, samples_S)
                clips[row] = self.memory.keep(row, samples_S)
        return clips

    def read_in_python(self, row: int) -> NDArray[np.float32]:
        """The samples [S] of a row; DataError where the recording cannot be used."""
        utterance = self._source.utterance(row)
        try:
            recording = load_recording(utterance.audio, self._source.audio_definition, self._limits)
        except AudioProblem as problem:
            raise explain_problem(self._source, row, problem) from problem
        if utterance.checksum and recording.checksum != utterance.checksum:
            changed = AudioProblem(Reason.CHANGED, "the recording has changed since it was checked")
            raise explain_problem(self._source, row, changed)
        self._check(row, recording.wave.samples)
        return recording.wave.samples

    def _check(self, row: int, samples_S: NDArray[np.float32]) -> None:
        """Neither too short for a spectrogram nor longer than its place in a batch."""
        if len(samples_S) < self._min_samples:
            short = AudioProblem(Reason.TOO_SHORT, f"{len(samples_S)} samples are left after trimming")
            raise explain_problem(self._source, row, short)
        try:
            check_num_frames(row, self._source.mel_definition.count_frames(len(samples_S)), self._source)
        except AudioProblem as problem:
            raise explain_problem(self._source, row, problem) from problem

    def _make_graph_reader(self, survey: Survey) -> ManyReader:
        from myxtts.pipeline.graph_reader import GraphReader, make_graph, number_rates

        rates_hz, rate_numbers = number_rates(self._source, survey)
        graph = make_graph(self._source, rates_hz)
        return GraphReader(self._source, graph.load_all_samples, rate_numbers, self.read_in_python)
