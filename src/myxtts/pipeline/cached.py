"""The loader for precomputed features: copies rows of the mapped store into a batch buffer.

Shape legend: B utterances, T frames, M mel bands, R frames of the reference.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from myxtts.pipeline.buffers import BatchBuffer, HostBatch
from myxtts.pipeline.order import NO_ROW, BatchPlan, hash_numbers
from myxtts.store.reader import FeatureStore

_CROP_SALT = 4


class CachedLoader:
    """Fills batches from a feature store. Any number of threads may call it."""

    name = "cached"

    def __init__(self, store: FeatureStore, num_reference_frames: int, seed: int) -> None:
        self._store = store
        self._num_reference_frames = num_reference_frames
        self._seed = seed
        self._padding = float(np.log(store.settings.mel.log_floor))

    def fill(self, plan: BatchPlan, buffer: BatchBuffer) -> HostBatch:
        batch = buffer.view(plan.shape)
        num_real = plan.num_real
        rows = plan.rows[:num_real]
        columns = self._store.columns
        self._fill_tokens(batch, rows)
        batch.mel_lengths[num_real:] = 0
        batch.mel_lengths[:num_real] = self._store.copy_mels(rows, batch.mel[:num_real], self._padding)
        batch.mel[num_real:] = self._padding
        for name in ("speaker", "language"):
            values = getattr(batch, name)
            values[:num_real] = columns[name][rows]
            values[num_real:] = 0
        self._fill_references(batch, plan)
        return batch

    def name_utterances(self, plan: BatchPlan) -> tuple[str, ...]:
        return tuple("" if row == NO_ROW else self._store.id_of(int(row)) for row in plan.rows)

    def _fill_tokens(self, batch: HostBatch, rows: NDArray[np.int64]) -> None:
        batch.tokens[:] = 0
        batch.token_lengths[len(rows) :] = 0
        for place, row in enumerate(rows):
            tokens = self._store.read_part(int(row), "tokens")
            batch.tokens[place, : len(tokens)] = tokens
            batch.token_lengths[place] = len(tokens)

    def _fill_references(self, batch: HostBatch, plan: BatchPlan) -> None:
        """A stretch of each reference clip; where it starts depends on the seed and the place in training alone."""
        starts = hash_numbers(plan.rows, self._seed, plan.epoch, _CROP_SALT)
        for place, row in enumerate(plan.references):
            if row == NO_ROW:
                batch.reference[place] = self._padding
                batch.reference_lengths[place] = 0
                continue
            mel_TM = self._store.read_mel(int(row))
            num_spare = max(0, len(mel_TM) - self._num_reference_frames)
            start = int(starts[place] % np.uint64(num_spare + 1))
            length = min(len(mel_TM), self._num_reference_frames)
            batch.reference[place, :length] = mel_TM[start : start + length]
            batch.reference[place, length:] = self._padding
            batch.reference_lengths[place] = length
