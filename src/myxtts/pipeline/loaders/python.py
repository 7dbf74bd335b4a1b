"""Loader that computes features on the fly on the host, for every audio format: soundfile, soxr and numpy.

Shape legend: T frames, M mel bands.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.corpus.audio import AudioLimits
from myxtts.corpus.rejections import AudioProblem, Reason
from myxtts.errors import DataError
from myxtts.features.extract import FeatureExtractor
from myxtts.pipeline.batch import Arrays, AssemblingLoader
from myxtts.pipeline.order import BatchPlan
from myxtts.pipeline.recordings import RecordingSource


class PythonLoader(AssemblingLoader):
    """Fills batches from recordings. Any number of threads may call it.

    Log-mels stay in memory as far as `ram_budget_bytes` goes, in the number format of stored ones.
    """

    name = "python"

    def __init__(
        self,
        source: RecordingSource,
        limits: AudioLimits,
        num_reference_frames: int,
        seed: int,
        ram_budget_bytes: int = 0,
    ) -> None:
        super().__init__(source, num_reference_frames, seed)
        self._source = source
        self._extractor = FeatureExtractor(source.mel_definition, source.audio_definition, limits)
        self.memory = MelMemory(ram_budget_bytes, source.mel_dtype)

    def fill(self, plan: BatchPlan, arrays: Arrays) -> Arrays:
        self._fill_labels(arrays, plan)
        mels = self.memory.read(plan.list_distinct_rows(), self.load_rows)
        self._fill_mels(arrays, plan, mels)
        check_lengths(arrays, plan, self._source)
        self._fill_references(arrays, plan, mels)
        return arrays

    def read_mel(self, row: int) -> NDArray[Any]:
        """The log-mel [T, M] of a row, from memory or from its recording."""
        return self.memory.read([row], self.load_rows)[row]

    def load_rows(self, rows: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """Log-mels from their recordings, whether they are in memory or not."""
        return {row: self._extract(row) for row in rows}

    def _extract(self, row: int) -> NDArray[np.float32]:
        try:
            mel_TM = self._extractor.extract(self._source.utterance(row)).mel
            check_num_frames(row, len(mel_TM), self._source)
        except AudioProblem as problem:
            raise explain_problem(self._source, row, problem) from problem
        return mel_TM


class MelMemory:
    """Keeps log-mels, or samples, in memory from one epoch to the next, up to a number of bytes.

    It keeps what comes first and never evicts it. An epoch asks for every utterance once, in a new order: a cache that
    evicted the oldest would drop each utterance shortly before it is asked for again, while the first ones serve the
    same share of every epoch, and the share is the share of the corpus that fits. Any number of threads may call it.
    """

    def __init__(self, budget_bytes: int, dtype: str) -> None:
        self._budget_bytes = budget_bytes
        self._dtype = np.dtype(dtype)
        self._mels: dict[int, NDArray[Any]] = {}
        self._num_bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._mels)

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def find(self, row: int) -> NDArray[Any] | None:
        return self._mels.get(row)

    def read(
        self, rows: Sequence[int], load_rows: Callable[[list[int]], dict[int, NDArray[np.float32]]]
    ) -> dict[int, NDArray[Any]]:
        """By row what is in memory, and what `load_rows` gives for the others. The rows are distinct."""
        found = {row: self._mels[row] for row in rows if row in self._mels}
        missing = [row for row in rows if row not in found]
        if missing:
            found |= {row: self.keep(row, values) for row, values in load_rows(missing).items()}
        return found

    def keep(self, row: int, mel_TM: NDArray[np.float32]) -> NDArray[Any]:
        """Keeps a log-mel if the budget allows, and gives it as it would be kept.

        Numbers are rounded to the kept format in either case: training must not depend on the memory of the machine.
        """
        rounded = mel_TM.astype(self._dtype, copy=False)
        with self._lock:
            if row not in self._mels and self._num_bytes + rounded.nbytes <= self._budget_bytes:
                # A view would hold on to all of the memory that it is a part of.
                self._mels[row] = rounded if rounded.base is None else rounded.copy()
                self._num_bytes += rounded.nbytes
        return rounded


def check_num_frames(row: int, num_frames: int, source: RecordingSource) -> None:
    """A recording that is longer than the corpus says would not fit into its batch."""
    most = int(source.columns["mel_length"][row])
    if num_frames > most:
        raise AudioProblem(Reason.CHANGED, f"{num_frames} frames of sound, the corpus knows of at most {most}")


def check_lengths(arrays: Arrays, plan: BatchPlan, source: RecordingSource) -> None:
    """Trimming may have left fewer frames than the text has tokens, which cannot be aligned."""
    token_lengths, mel_lengths = arrays["token_lengths"], arrays["mel_lengths"]
    for index in np.flatnonzero(token_lengths > mel_lengths):
        detail = f"{token_lengths[index]} tokens for {mel_lengths[index]} frames of sound"
        raise explain_problem(source, int(plan.rows[index]), AudioProblem(Reason.TOO_MANY_TOKENS, detail))


def explain_problem(source: RecordingSource, row: int, problem: AudioProblem) -> DataError:
    return DataError(
        f"The utterance {source.id_of(row)} cannot be loaded from {source.audio_path(row)}: "
        f"{problem.detail} ({problem.reason}).",
        next_step=problem.reason.what_to_do,
    )
