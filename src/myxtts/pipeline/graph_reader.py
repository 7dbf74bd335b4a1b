"""Recordings loaded inside the TensorFlow graph, by row: their spectrograms, or the samples these are made of.

Shape legend: K recordings, V all their frames or samples.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.corpus.rejections import AudioProblem, Reason
from myxtts.errors import DataError
from myxtts.pipeline.python import explain_problem
from myxtts.pipeline.recording_graph import RecordingGraph
from myxtts.pipeline.source import RecordingSource
from myxtts.pipeline.wav_layout import Survey, name_obstacle
from myxtts.types import Tensor

LoadAll = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""A method of RecordingGraph: from paths, rates and numbers of samples [K] to values [V, ...] and their lengths [K]."""

_SIGNATURE = [tf.TensorSpec([None], kind) for kind in (tf.string, tf.int32, tf.int32)]


def number_rates(source: RecordingSource, survey: Survey) -> tuple[list[int], NDArray[np.int32]]:
    """The rates of the recordings that the graph loads, and for each row of the source which of them it has."""
    rows_hz = source.columns["sample_rate_hz"]
    rates_hz = np.unique(rows_hz[survey.is_native])
    return rates_hz.tolist(), np.searchsorted(rates_hz, rows_hz).astype(np.int32)


def make_graph(source: RecordingSource, rates_hz: Sequence[int]) -> RecordingGraph:
    return RecordingGraph(source.mel_definition, source.audio_definition, rates_hz)


class GraphReader:
    """Runs `load_all` for rows of a source; the graph is made once. Any number of threads may call it.

    `load_in_python` loads a row in the other way: where the graph fails, it says what is wrong with the recording.
    """

    def __init__(
        self,
        source: RecordingSource,
        load_all: LoadAll,
        rate_numbers: NDArray[np.int32],
        load_in_python: Callable[[int], object],
    ) -> None:
        self._source, self._rate_numbers, self._load_in_python = source, rate_numbers, load_in_python
        self._load_all = tf.function(load_all, input_signature=_SIGNATURE, autograph=False)

    def read(self, rows: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """By row its values, views of one array: copy what is kept."""
        paths = [os.fsencode(self._source.audio_path(row)) for row in rows]
        num_samples = self._source.columns["num_samples"][rows].astype(np.int32)
        try:
            with tf.device("/CPU:0"):
                values, lengths = self._load_all(paths, self._rate_numbers[rows], num_samples)
        except tf.errors.OpError as error:
            raise self._explain(rows, error) from error
        stops = np.cumsum(lengths.numpy()).tolist()
        # A view of the tensor's memory, which lives as long as the view.
        flat = np.asarray(memoryview(values))
        return {row: flat[start:stop] for row, start, stop in zip(rows, [0, *stops], stops, strict=False)}

    def _explain(self, rows: Sequence[int], error: tf.errors.OpError) -> DataError:
        """What is wrong, found by looking at each recording: TensorFlow does not say which one it was."""
        for row in rows:
            try:
                self._load_in_python(row)
            except DataError as problem:
                return problem
            if name_obstacle(self._source, row):
                changed = AudioProblem(Reason.CHANGED, "the recording has changed since it was checked")
                return explain_problem(self._source, row, changed)
        names = ", ".join(self._source.id_of(row) for row in rows)
        return DataError(
            f"TensorFlow could not load these utterances: {names}. It says: {' '.join(error.message.split())}",
            next_step="Set data.use_tf_native_loading to false, which loads them through Python.",
        )
