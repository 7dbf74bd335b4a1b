"""Aligns the utterances of a store with a trained model, and writes the durations of their tokens beside them.

Utterances are taken in an order that depends on the store alone, so that an alignment which was stopped is taken up
and ends with the same durations. Shape legend: B utterances, N tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from myxtts.config.load import RESOLVED_FILE_NAME
from myxtts.config.schema import XTTSConfig
from myxtts.errors import DataError, UsageError
from myxtts.models.bundle import Bundle, check_weights, find_bundle, read_bundle
from myxtts.models.spec import ModelSpec
from myxtts.pipeline.batch import BatchBuffer
from myxtts.pipeline.choose_loader import CachedLoader
from myxtts.pipeline.device import ARRAYS
from myxtts.pipeline.order import NO_ROW, BatchOrder
from myxtts.pipeline.splits import count_reference_frames, make_order
from myxtts.store.durations import DurationsOrigin, begin_durations, write_durations
from myxtts.store.layout import CHUNK_UTTERANCES
from myxtts.store.precompute import choose_store_folder
from myxtts.store.reader import FeatureStore

if TYPE_CHECKING:
    from myxtts.models.xtts import XTTS

# What aligning a store with a trained model takes, found and checked before TensorFlow is loaded.


@dataclass(frozen=True)
class AlignmentPlan:
    """Which store is aligned with which model. `config` says how its utterances are loaded."""

    folder: Path
    bundle: Bundle
    spec: ModelSpec
    origin: DurationsOrigin
    config: XTTSConfig
    num_utterances: int


def plan_alignment(config: XTTSConfig, run: Path) -> AlignmentPlan:
    """The store that `config` names, or the one that the run was trained on, and the model of the run's bundle."""
    bundle = read_bundle(find_bundle(run))
    spec = ModelSpec.from_json(bundle.model_spec)
    config = _follow_run(config, run)
    data = config.data
    if data.train_data is None and data.cache_dir is None:
        raise UsageError(
            f"{run} does not say which store it was trained on.", next_step="Name the store with --cache-dir DIR."
        )
    folder = choose_store_folder(data, Path(data.train_data or ""))
    store = FeatureStore.open(folder)
    _refuse_foreign_model(store, bundle, spec, run)
    step = bundle.notes.get("step")
    origin = DurationsOrigin(fingerprint_weights(bundle.weights), str(run), step if isinstance(step, int) else 0)
    return AlignmentPlan(folder, bundle, spec, origin, config, len(store))


def fingerprint_weights(weights: Mapping[str, NDArray[Any]]) -> str:
    """Changes with any of the weights."""
    crc = 0
    for name in sorted(weights):
        crc = google_crc32c.extend(google_crc32c.extend(crc, name.encode()), weights[name].tobytes())
    return f"{crc:08x}"


def _follow_run(config: XTTSConfig, run: Path) -> XTTSConfig:
    """The settings of the run, with the places that were named now; a bundle alone has no settings of its own."""
    if not (run / RESOLVED_FILE_NAME).is_file():
        return config
    named = {"data.train_data": config.data.train_data, "data.cache_dir": config.data.cache_dir}
    settings = XTTSConfig.load(run / RESOLVED_FILE_NAME)
    if not any(named.values()):
        return settings
    # A corpus that is named alone has its store beside it, not where the run had its own.
    return settings.model_copy(update=named)


def _refuse_foreign_model(store: FeatureStore, bundle: Bundle, spec: ModelSpec, run: Path) -> None:
    """Raises DataError where the model was trained on other spectrograms, tokens or languages than the store holds."""
    differences = []
    mel = dict(store.settings.mel.to_json())
    if any(bundle.mel.get(name) != value for name, value in mel.items()):
        differences.append("other spectrograms")
    if bundle.frontend_fingerprint != store.settings.frontend:
        differences.append("tokens of another front end")
    unknown = sorted(set(store.languages) - set(spec.languages))
    if unknown:
        differences.append(f"other languages ({', '.join(spec.languages)}, not {', '.join(unknown)})")
    if differences:
        raise DataError(
            f"The model in {run} cannot align the store in {store.folder}: it was trained on {', '.join(differences)}.",
            next_step="Name a run that was trained on this store.",
        )


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
        import tensorflow as tf

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
        import tensorflow as tf

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
    from myxtts.models.xtts import XTTS
    from myxtts.runtime.strategy import setup_gpu_strategy
    from myxtts.training.learner import use_dtype_policy

    strategy = setup_gpu_strategy(visible_gpus=plan.config.training.visible_gpus)
    with strategy.scope(), use_dtype_policy("float32"):
        model = XTTS(plan.bundle.model_config, plan.spec)
    weights = model.named_weights()
    check_weights(
        plan.bundle.weights, {name: tuple(weight.shape) for name, weight in weights.items()}, plan.origin.place
    )
    for name, weight in weights.items():
        weight.assign(plan.bundle.weights[name])
    return model
