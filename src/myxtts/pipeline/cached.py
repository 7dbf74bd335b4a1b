"""The loader for precomputed features: copies rows of the mapped store into a batch buffer.

Shape legend: B utterances, T frames, M mel bands.
"""

from __future__ import annotations

from myxtts.pipeline.buffers import BatchBuffer, HostBatch
from myxtts.pipeline.order import BatchPlan
from myxtts.pipeline.store_loader import StoreLoader


class CachedLoader(StoreLoader):
    """Fills batches from a feature store. Any number of threads may call it.

    A store that fits `ram_budget_bytes` is read into memory as a whole when the first batch is announced.
    """

    name = "cached"

    def fill(self, plan: BatchPlan, buffer: BatchBuffer) -> HostBatch:
        batch = buffer.view(plan.shape)
        num_real, padding = plan.num_real, self._assembler.padding
        rows, voices = plan.rows[:num_real], plan.references[:num_real]
        self._assembler.fill_labels(batch, plan)
        batch.mel_lengths[:num_real] = self._store.copy_mels(rows, batch.mel[:num_real], padding)
        batch.mel_lengths[num_real:] = 0
        batch.mel[num_real:] = padding
        mels = dict(zip(voices.tolist(), self._store.read_mels(voices), strict=True))
        self._assembler.fill_references(batch, plan, mels.__getitem__)
        return self._add_durations(batch, plan)
