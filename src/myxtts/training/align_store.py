"""Aligns the utterances of a store with a trained model, and writes the durations of their tokens beside them.

Utterances are taken in an order that depends on the store alone, so that an alignment which was stopped is taken up
and ends with the same durations. Shape legend: B utterances, N tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.config.schema import XTTSConfig
from myxtts.models.bundle import check_weights
from myxtts.models.xtts import XTTS
from myxtts.pipeline.buffers import BatchBuffer
from myxtts.pipeline.cached import CachedLoader
from myxtts.pipeline.device import ARRAYS
from myxtts.pipeline.order import NO_ROW, BatchOrder
from myxtts.pipeline.splits import count_reference_frames, make_order
from myxtts.runtime.strategy import setup_gpu_strategy
from myxtts.store.durations import begin_durations, write_durations
from myxtts.store.layout import CHUNK_UTTERANCES
from myxtts.store.reader import FeatureStore
from myxtts.training.alignment_plan import AlignmentPlan
from myxtts.training.base_learner import compute_under

BATCH_SIZE = 16
_UTTERANCES_PER_SHAPE, _MAX_SHAPES = 256, 6
"""Making the graph of a shape takes as long as aligning a few hundred utterances."""
Durations = dict[str, NDArray[np.int32]]
Progress = Callable[[int, int], None]
"""Called with the utterances that are done and those that cannot be aligned."""


@dataclass(slots=True)
class AlignSummary:
    """What was done. `num_kept` utterances had durations by this model already."""

    folder: str
    model: str
    step: int
    num_utterances: int = 0
    num_kept: int = 0
    num_aligned: int = 0
    num_unaligned: int = 0

    @property
    def num_done(self) -> int:
        return self.num_kept + self.num_aligned + self.num_unaligned


def align_store(
    plan: AlignmentPlan,
    *,
    progress: Progress = lambda _done, _unaligned: None,
    chunk_utterances: int = CHUNK_UTTERANCES,
) -> AlignSummary:
    """Gives every utterance durations; what has them by this model already is left alone.

    Every `chunk_utterances` are made safe, which is the most that a kill can cost.
    """
    model = load_model(plan)
    begin_durations(plan.folder, plan.origin)
    store = FeatureStore.open(plan.folder)
    aligner = StoreAligner(store, model, plan.config)
    summary = AlignSummary(str(plan.folder), plan.origin.place, plan.origin.step, len(aligner.order.rows))
    found: Durations = {}
    for position in range(aligner.order.num_batches_per_epoch):
        missing = aligner.list_missing(position)
        if missing:
            aligned = aligner.align(position)
            found |= {id: aligned[id] for id in missing if id in aligned}
            summary.num_unaligned += sum(id not in aligned for id in missing)
        summary.num_kept += aligner.count(position) - len(missing)
        if len(found) >= chunk_utterances:
            summary.num_aligned += write_durations(plan.folder, found)
            found = {}
        progress(summary.num_done + len(found), summary.num_unaligned)
    summary.num_aligned += write_durations(plan.folder, found)
    return summary


class StoreAligner:
    """Aligns batches of a store, of a few shapes, each of which is traced once."""

    def __init__(self, store: FeatureStore, model: XTTS, config: XTTSConfig) -> None:
        self._store, self._model = store, model
        num_shapes = max(1, min(_MAX_SHAPES, len(store) // _UTTERANCES_PER_SHAPE))
        settings = {"data.batch_size": BATCH_SIZE, "data.num_shapes": num_shapes, "data.frame_budget": None}
        num_reference_frames = count_reference_frames(config.data)
        self.order: BatchOrder = make_order(
            store.columns, np.arange(len(store)), config.model_copy(update=settings), shuffle=False
        )
        self._loader = CachedLoader(store, num_reference_frames, config.training.seed)
        self._buffer = BatchBuffer(self.order.shapes, store.n_mels, num_reference_frames)
        # The model numbers languages as its own data did.
        self._languages = np.array([model.spec.languages.index(name) for name in store.languages], np.int32)
        self._align: Any = tf.function(self._align_part, autograph=False)

    def count(self, position: int) -> int:
        return self.order.batch(position).num_real

    def list_missing(self, position: int) -> list[str]:
        """The ids of a batch that had no durations when the store was opened."""
        rows = self.order.batch(position).rows
        rows = rows[rows != NO_ROW]
        return [self._store.id_of(row) for row in rows[self._store.columns["durations_length"][rows] == 0].tolist()]

    def align(self, position: int) -> Durations:
        """The durations [N] of the utterances of a batch, by id; those that cannot be aligned are left out."""
        plan = self.order.batch(position)
        batch = self._loader.fill(plan, self._buffer)
        part = {name: tf.constant(getattr(batch, name)) for name in ARRAYS}
        part["language"] = tf.constant(self._languages[batch.language])
        durations_BN, is_aligned_B = (tensor.numpy() for tensor in self._align(part))
        ids = self._loader.name_utterances(plan)
        return {
            ids[row]: durations_BN[row, : batch.token_lengths[row]].astype(np.int32)
            for row in range(plan.num_real)
            if is_aligned_B[row]
        }

    def _align_part(self, part: Mapping[str, Any]) -> tuple[Any, Any]:
        alignment = self._model.align(part)
        return alignment.token_durations_BN, alignment.is_aligned_B


def load_model(plan: AlignmentPlan) -> XTTS:
    """The model of the plan, on the first device that may be used."""
    strategy = setup_gpu_strategy(visible_gpus=plan.config.training.visible_gpus)
    with strategy.scope(), compute_under("float32"):
        model = XTTS(plan.bundle.model_config, plan.spec)
    weights = model.named_weights()
    check_weights(
        plan.bundle.weights, {name: tuple(weight.shape) for name, weight in weights.items()}, plan.origin.place
    )
    for name, weight in weights.items():
        weight.assign(plan.bundle.weights[name])
    return model
