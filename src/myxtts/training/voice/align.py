"""Forced alignment of a store: aligns its utterances with a trained model and writes token durations into the store.

`plan_alignment` checks everything before TensorFlow is loaded; `align_store` does the work. The order of the utterances
depends on the store alone, so that a stopped alignment resumes and ends with the same durations.

Shape legend: B utterances, N tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from myxtts.config.load import RESOLVED_FILE_NAME
from myxtts.config.schema import XTTSConfig
from myxtts.errors import DataError, UsageError
from myxtts.models.bundle import Bundle, check_weights, find_bundle, read_bundle
from myxtts.models.spec import ModelSpec
from myxtts.pipeline.batch import BatchLayout, allocate_aligned
from myxtts.pipeline.loaders.store import CachedLoader
from myxtts.pipeline.order import NO_ROW, BatchOrder
from myxtts.pipeline.splits import count_reference_frames, make_order
from myxtts.storage.tensor_file import fingerprint_arrays
from myxtts.store.durations import DurationsOrigin, begin_durations, write_durations
from myxtts.store.layout import CHUNK_UTTERANCES
from myxtts.store.precompute import choose_store_folder
from myxtts.store.reader import FeatureStore
from myxtts.training.run.folder import load_run_settings

if TYPE_CHECKING:
    from myxtts.models.xtts import XTTS

BATCH_SIZE = 16
_UTTERANCES_PER_SHAPE, _MAX_SHAPES = 256, 6
"""One batch shape per 256 utterances, at most 6: tracing a shape takes as long as aligning a few hundred utterances."""
_UTTERANCES_PER_COMPILED_SHAPE = 512
"""On two CPU cores compiling the search of a shape takes 2 s longer than tracing it, and saves 0.1 s for 16 utterances
of nine seconds: from so many utterances on it pays."""
Durations = dict[str, NDArray[np.int32]]
"""Frames of each token [N], by the id of the utterance."""
Progress = Callable[[int, int], None]
"""Called with the number of utterances that are done, and of those among them that cannot be aligned."""


@dataclass(frozen=True)
class AlignmentPlan:
    """The store, the model that aligns it, and the settings for loading its utterances."""

    folder: Path
    bundle: Bundle
    spec: ModelSpec
    origin: DurationsOrigin
    config: XTTSConfig
    num_utterances: int


def plan_alignment(config: XTTSConfig, run: Path) -> AlignmentPlan:
    """Finds the store that `config` names (or that the run was trained on) and reads the bundle of the run.

    Raises UsageError where no store is named, and DataError where the model does not fit the store.
    """
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
    origin = DurationsOrigin(fingerprint_arrays(bundle.weights), str(run), step if isinstance(step, int) else 0)
    return AlignmentPlan(folder, bundle, spec, origin, config, len(store))


def _follow_run(config: XTTSConfig, run: Path) -> XTTSConfig:
    """Settings of the run, with data paths of `config` where given; a bundle without a run has no settings."""
    if not (run / RESOLVED_FILE_NAME).is_file():
        return config
    named = {"data.train_data": config.data.train_data, "data.cache_dir": config.data.cache_dir}
    settings = load_run_settings(run)
    if not any(named.values()):
        return settings
    # Both paths are replaced: the store of a named corpus is beside it, not where the run had its own.
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


@dataclass(slots=True)
class AlignSummary:
    """Counts of an alignment. `num_kept` utterances had durations by this model already."""

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


def align_store(plan: AlignmentPlan, *, progress: Progress = lambda _done, _unaligned: None) -> AlignSummary:
    """Aligns every utterance that has no durations by this model.

    Durations are written every CHUNK_UTTERANCES: a kill loses at most so many.
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
        if len(found) >= CHUNK_UTTERANCES:
            summary.num_aligned += write_durations(plan.folder, found)
            found = {}
        progress(summary.num_done + len(found), summary.num_unaligned)
    summary.num_aligned += write_durations(plan.folder, found)
    return summary


class StoreAligner:
    """Aligns a store batch by batch; the few batch shapes are traced once each."""

    def __init__(self, store: FeatureStore, model: XTTS, config: XTTSConfig) -> None:
        import tensorflow as tf

        self._store, self._model = store, model
        num_shapes = max(1, min(_MAX_SHAPES, len(store) // _UTTERANCES_PER_SHAPE))
        self._is_search_compiled = len(store) >= num_shapes * _UTTERANCES_PER_COMPILED_SHAPE
        settings = {"data.batch_size": BATCH_SIZE, "data.num_shapes": num_shapes, "data.frame_budget": None}
        num_reference_frames = count_reference_frames(config.data)
        self.order: BatchOrder = make_order(
            store.columns, np.arange(len(store)), config.model_copy(update=settings), shuffle=False
        )
        self._loader = CachedLoader(store, num_reference_frames, config.training.seed)
        self._layout = BatchLayout.of_features(self.order.shapes, store.n_mels, num_reference_frames)
        self._memory = allocate_aligned(self._layout.num_bytes)
        # Language numbers of the store -> those of the model, which follow its own training data.
        self._languages = np.array([model.spec.languages.index(name) for name in store.languages], np.int32)
        self._align: Any = tf.function(self._align_part, autograph=False)

    def count(self, position: int) -> int:
        """Number of utterances in a batch."""
        return self.order.batch(position).num_real

    def list_missing(self, position: int) -> list[str]:
        """Ids of a batch that had no durations when the store was opened."""
        rows = self.order.batch(position).rows
        rows = rows[rows != NO_ROW]
        return [self._store.id_of(row) for row in rows[self._store.columns["durations_length"][rows] == 0].tolist()]

    def align(self, position: int) -> Durations:
        """Durations [N] of the utterances of a batch, by id, without those that cannot be aligned."""
        import tensorflow as tf

        plan = self.order.batch(position)
        arrays = self._loader.fill(plan, self._layout.view(plan.shape, self._memory))
        part = {name: tf.constant(values) for name, values in arrays.items()}
        part["language"] = tf.constant(self._languages[arrays["language"]])
        # Made before it is called: TensorFlow would warn of many calls that each make a graph.
        self._align.get_concrete_function(part)
        durations_BN, is_aligned_B = (tensor.numpy() for tensor in self._align(part))
        ids = self._loader.name_utterances(plan)
        return {
            ids[row]: durations_BN[row, : arrays["token_lengths"][row]].astype(np.int32)
            for row in range(plan.num_real)
            if is_aligned_B[row]
        }

    def _align_part(self, part: Mapping[str, Any]) -> tuple[Any, Any]:
        alignment = self._model.align(part, is_search_compiled=self._is_search_compiled)
        return alignment.token_durations_BN, alignment.is_aligned_B


def load_model(plan: AlignmentPlan) -> XTTS:
    """Builds the model of the plan in float32 on the first visible device, and loads its weights."""
    import tensorflow as tf

    from myxtts.models.xtts import XTTS
    from myxtts.runtime.strategy import setup_gpu_strategy
    from myxtts.training.learner import use_dtype_policy

    strategy = setup_gpu_strategy(visible_gpus=plan.config.training.visible_gpus)
    with strategy.scope(), use_dtype_policy("float32"):
        model = XTTS(plan.bundle.model_config, plan.spec)
    model.is_search_chunked = bool(tf.config.get_visible_devices("GPU"))
    weights = model.named_weights()
    check_weights(
        plan.bundle.weights, {name: tuple(weight.shape) for name, weight in weights.items()}, plan.origin.place
    )
    for name, weight in weights.items():
        weight.assign(plan.bundle.weights[name])
    return model
