"""What loaders of precomputed features have in common: labels from the store, and its pages asked for ahead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from myxtts.pipeline.assemble import BatchAssembler
from myxtts.pipeline.buffers import HostBatch, allocate_aligned
from myxtts.pipeline.loader import Loader
from myxtts.pipeline.order import BatchPlan
from myxtts.pipeline.read_ahead import ReadAhead
from myxtts.store.reader import FeatureStore


class StoreLoader(Loader):
    """Loads from a feature store. One that fits `ram_budget_bytes` is read into memory as a whole."""

    def __init__(
        self,
        store: FeatureStore,
        num_reference_frames: int,
        seed: int,
        ram_budget_bytes: int = 0,
        *,
        has_durations: bool = False,
    ) -> None:
        self._store, self._num_reference_frames, self._seed = store, num_reference_frames, seed
        self._has_durations = has_durations
        self._read_ahead = ReadAhead(store, ram_budget_bytes)
        self._assembler = BatchAssembler(
            store,
            lambda rows: store.read_parts(rows, "tokens"),
            num_reference_frames,
            seed,
            store.settings.mel.log_floor,
        )

    def name_utterances(self, plan: BatchPlan) -> tuple[str, ...]:
        return self._assembler.name_utterances(plan)

    def announce(self, plan: BatchPlan) -> None:
        self._read_ahead.announce(plan)

    def close(self) -> None:
        self._read_ahead.close()

    def _add_durations(self, batch: HostBatch, plan: BatchPlan) -> HostBatch:
        """The batch with the durations of its tokens, where they are wanted; utterances without any get zeros."""
        if not self._has_durations:
            return batch
        durations = allocate_aligned(batch.tokens.nbytes).view(np.int32).reshape(batch.tokens.shape)
        for place, values in enumerate(self._store.read_parts(plan.rows[: plan.num_real], "durations")):
            durations[place, : len(values)] = values
        return replace(batch, durations=durations)
