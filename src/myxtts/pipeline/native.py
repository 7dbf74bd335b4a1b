"""The loader that reads, decodes, resamples and transforms inside the TensorFlow graph.

A batch is one call into the graph, in which no Python runs. Recordings that TensorFlow cannot decode are loaded by
the Python loader; where they lie is decided once, when the loader is made.
Shape legend: T frames, M mel bands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.corpus.listen import AudioLimits
from myxtts.errors import DataError
from myxtts.pipeline.assemble import BatchAssembler
from myxtts.pipeline.buffers import BatchBuffer, HostBatch
from myxtts.pipeline.graph_reader import GraphReader, make_graph, number_rates
from myxtts.pipeline.loader import Loader
from myxtts.pipeline.native_dataset import make_dataset
from myxtts.pipeline.order import NO_ROW, BatchPlan
from myxtts.pipeline.python import PythonLoader, check_lengths
from myxtts.pipeline.source import RecordingSource
from myxtts.pipeline.wav_layout import Survey, survey_recordings
from myxtts.runtime.hardware import count_cpus


class TFNativeDataLoader(Loader):
    """Fills batches from recordings, or makes a `tf.data.Dataset` of batches. Any number of threads may call it.

    `survey` says which recordings the graph loads. One that has changed is noticed by its length and rate, not by its
    checksum, which the graph has no operation for.
    """

    name = "native"

    def __init__(
        self,
        source: RecordingSource,
        limits: AudioLimits,
        num_reference_frames: int,
        seed: int,
        ram_budget_bytes: int = 0,
        survey: Survey | None = None,
    ) -> None:
        self._source, self._num_reference_frames, self._seed = source, num_reference_frames, seed
        self.survey = survey or survey_recordings(source)
        self._is_native = self.survey.is_native
        self._python = PythonLoader(source, limits, num_reference_frames, seed, ram_budget_bytes)
        self.memory = self._python.memory
        definition = source.mel_definition
        self._assembler = BatchAssembler(source, source.read_tokens, num_reference_frames, seed, definition.log_floor)
        rates_hz, self._rate_numbers = number_rates(source, self.survey)
        self._graph = make_graph(source, rates_hz)
        self._reader = GraphReader(source, self._graph.load_all, self._rate_numbers, self._python.read_mel)

    def fill(self, plan: BatchPlan, buffer: BatchBuffer) -> HostBatch:
        batch = buffer.view(plan.shape)
        self._assembler.fill_labels(batch, plan)
        rows = np.concatenate([plan.rows, plan.references])
        mels = self._read_mels(np.unique(rows[rows != NO_ROW]).tolist())
        self._assembler.fill_mels(batch, plan, mels.__getitem__)
        check_lengths(batch, plan, self._source)
        self._assembler.fill_references(batch, plan, mels.__getitem__)
        return batch

    def name_utterances(self, plan: BatchPlan) -> tuple[str, ...]:
        return self._assembler.name_utterances(plan)

    def dataset(self, plans: Sequence[BatchPlan], *, num_parallel_calls: int | None = None) -> tf.data.Dataset:
        """The batches of the plans in order, as dictionaries named like the fields of `Batch`.

        It holds no Python, so it can be serialised and sent to a tf.data service, whose workers must see the
        recordings under the same paths. Nothing is kept in memory between epochs. As many batches are made at a time as
        there are processors, or `num_parallel_calls`.
        """
        used = np.unique(np.concatenate([np.concatenate([plan.rows, plan.references]) for plan in plans]))
        used = used[used != NO_ROW]
        foreign = used[~self._is_native[used]]
        if len(foreign):
            kinds = ", ".join(sorted(self.survey.obstacles))
            raise DataError(
                f"{len(foreign):,} of {len(used):,} recordings cannot be decoded by TensorFlow alone ({kinds}), such "
                f"as {self._source.audio_path(int(foreign[0]))}.",
                next_step="Convert them to 16-bit WAV files, or load without data.data_service.",
            )
        return make_dataset(
            self._source,
            self._graph,
            used,
            self._rate_numbers,
            plans,
            self._num_reference_frames,
            self._seed,
            num_parallel_calls or count_cpus(),
        )

    def load_rows(self, rows: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """Spectrograms from their recordings, whether they are in memory or not."""
        return self._reader.read(rows)

    def _read_mels(self, rows: Iterable[int]) -> dict[int, NDArray[Any]]:
        mels: dict[int, NDArray[Any]] = {}
        to_load = []
        for row in rows:
            kept = self.memory.find(row)
            if kept is not None:
                mels[row] = kept
            elif self._is_native[row]:
                to_load.append(row)
            else:
                mels[row] = self._python.read_mel(row)
        return mels | self._load(to_load) if to_load else mels

    def _load(self, rows: list[int]) -> dict[int, NDArray[Any]]:
        return {row: self.memory.keep(row, mel_TM) for row, mel_TM in self._reader.read(rows).items()}
