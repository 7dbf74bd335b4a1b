"""Forced alignment: aligns the utterances of a store with a trained model, and writes their token durations.

`plan_alignment` and `align_store` write into the store, for `training.durations: stored`; the first checks everything
before TensorFlow is loaded. The order of the utterances depends on the store alone, so that a stopped alignment resumes
and ends with the same durations. `DurationsSwitch` does the same within a training, for `training.durations: auto`.

Shape legend: B utterances, N tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from myxtts.config.load import RESOLVED_FILE_NAME
from myxtts.config.schema import XTTSConfig
from myxtts.errors import DataError, StorageError, UsageError
from myxtts.models.bundle import Bundle, check_weights, find_bundle, read_bundle
from myxtts.models.spec import ModelSpec
from myxtts.pipeline.batch import Arrays, BatchLayout, allocate_aligned
from myxtts.pipeline.loaders.store import CachedLoader
from myxtts.pipeline.order import NO_ROW, BatchOrder
from myxtts.pipeline.splits import count_reference_frames, make_order
from myxtts.runtime.plan import Plan, is_cpu
from myxtts.storage.tensor_file import fingerprint_arrays
from myxtts.store.durations import DurationsOrigin, begin_durations, load_durations, save_durations, write_durations
from myxtts.store.layout import CHUNK_UTTERANCES
from myxtts.store.precompute import choose_store_folder
from myxtts.store.reader import FeatureStore
from myxtts.training.run.folder import DURATIONS_FILE_NAME, DURATIONS_WRITTEN, RunFolder
from myxtts.training.run.resume import load_run_settings
from myxtts.training.run.state import DurationsLook, RunState, WrittenDurations
from myxtts.types import Progress, Say

if TYPE_CHECKING:
    from myxtts.models.xtts import XTTS
    from myxtts.training.voice.data import TrainingData
    from myxtts.training.voice.learner import Learner

BATCH_SIZE = 16
_UTTERANCES_PER_SHAPE, _MAX_SHAPES = 256, 6
"""One batch shape per 256 utterances, at most 6: tracing a shape takes as long as aligning a few hundred utterances."""
_UTTERANCES_PER_COMPILED_SHAPE = 512
"""On two CPU cores compiling the search of a shape takes 2 s longer than tracing it, and saves 0.1 s for 16 utterances
of nine seconds: from so many utterances on it pays."""
Durations = dict[str, NDArray[np.int32]]
"""Frames of each token [N], by the id of the utterance."""
LOOK_STEPS = 1000
"""Steps from one look at the alignments to the next. Also about as many as the EMA averages over: with fewer, two looks
would be alike because the averages are."""
MOST_CHANGED = 0.02
"""Share of the tokens whose duration may change by more than one frame between two looks that count as stable."""
CHANGED_DURATIONS = "changed_durations"
"""Name of this share in metrics.jsonl and TensorBoard."""
_NUM_STABLE_LOOKS = 2
_NUM_LOOKED_AT, _LOOK_BATCH_SIZE = 32, 8
"""Utterances of a look, about 2,000 tokens, so that 2 % are 40 of them; and how many are aligned at once."""
_LATEST_SWITCH = 0.8
"""Share of a run after which durations are not written: to align and compile would take longer than it saves."""
_PROGRESS_S = 30.0


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
            f"{run} does not say which feature cache it was trained on.", next_step="Give it with --cache-dir DIR."
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
            f"The model in {run} cannot align the feature cache in {store.folder}: it was trained on "
            f"{', '.join(differences)}.",
            next_step="Give a run that was trained on this feature cache.",
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

    def __init__(
        self, store: FeatureStore, model: XTTS, config: XTTSConfig, rows: NDArray[np.int64] | None = None
    ) -> None:
        """`rows` are the utterances to align, None for all."""
        import tensorflow as tf

        self._store, self._model = store, model
        rows = np.arange(len(store)) if rows is None else rows
        num_shapes = max(1, min(_MAX_SHAPES, len(rows) // _UTTERANCES_PER_SHAPE))
        self.is_search_compiled = len(rows) >= num_shapes * _UTTERANCES_PER_COMPILED_SHAPE
        settings = {"data.batch_size": BATCH_SIZE, "data.num_shapes": num_shapes, "data.frame_budget": None}
        num_reference_frames = count_reference_frames(config.data)
        self.order: BatchOrder = make_order(store.columns, rows, config.model_copy(update=settings), shuffle=False)
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

    def load(self, position: int) -> Arrays:
        """The arrays of a batch, with the model's numbers of languages; they are overwritten by the next call."""
        plan = self.order.batch(position)
        arrays = self._loader.fill(plan, self._layout.view(plan.shape, self._memory))
        return {**arrays, "language": self._languages[arrays["language"]]}

    def load_tensors(self, position: int) -> tuple[list[str], dict[str, Any]]:
        """Ids of the utterances of a batch, and its tensors; rows behind the last id are padding."""
        import tensorflow as tf

        plan = self.order.batch(position)
        part = {name: tf.constant(values) for name, values in self.load(position).items()}
        return list(self._loader.name_utterances(plan))[: plan.num_real], part

    def align(self, position: int) -> Durations:
        """Durations [N] of the utterances of a batch, by id, without those that cannot be aligned."""
        ids, part = self.load_tensors(position)
        # Made before it is called: TensorFlow would warn of many calls that each make a graph.
        self._align.get_concrete_function(part)
        durations_BN, is_aligned_B = (tensor.numpy() for tensor in self._align(part))
        lengths_B = part["token_lengths"].numpy()
        return {
            id: durations_BN[row, : lengths_B[row]].astype(np.int32) for row, id in enumerate(ids) if is_aligned_B[row]
        }

    def _align_part(self, part: Mapping[str, Any]) -> tuple[Any, Any]:
        alignment = self._model.align(part, is_search_compiled=self.is_search_compiled)
        return alignment.token_durations_BN, alignment.is_aligned_B


def load_model(plan: AlignmentPlan) -> XTTS:
    """Builds the model of the plan in float32 on the first visible device, and loads its weights."""
    import tensorflow as tf

    from myxtts.models.layers import use_dtype_policy
    from myxtts.models.xtts import XTTS
    from myxtts.runtime.strategy import setup_gpu_strategy

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


def make_switch(
    config: XTTSConfig, plan: Plan, data: TrainingData, learner: Learner, run: RunFolder, state: RunState, say: Say
) -> DurationsSwitch | None:
    """The switch of a run whose `training.durations` is auto; None where alignments are searched in every step.

    On CPUs the search is a few hundredths of a step, and not worth an alignment of all utterances.
    """
    if config.training.durations != "auto" or (state.durations is None and is_cpu(plan.model_devices[0])):
        return None
    if not isinstance(data.utterances, FeatureStore) or plan.cluster is not None:
        is_cluster = plan.cluster is not None
        reason = "several processes train together" if is_cluster else "features are computed on the fly"
        say(f"Durations: searched in every step, because {reason} (training.durations is auto).")
        return None
    return DurationsSwitch(config, data.utterances, data.order.rows, learner, run, state, say)


class DurationsSwitch:
    """Takes the alignment search out of the training step once alignments are stable.

    Every `LOOK_STEPS` steps a few training utterances are aligned with the EMA weights. When at two looks in a row
    hardly any of their durations has changed, all training utterances are aligned, their durations are written to the
    run, and training goes on from them. All that decides is in `RunState`: a run that is resumed switches at the same
    step, with the same durations. The store is not changed, for other runs may use it.
    """

    def __init__(
        self,
        config: XTTSConfig,
        store: FeatureStore,
        rows: NDArray[np.int64],
        learner: Learner,
        run: RunFolder,
        state: RunState,
        say: Say,
    ) -> None:
        """Where the run has switched before, training goes on from its durations at once."""
        self._config, self._store, self._rows, self._learner = config, store, rows, learner
        self._run, self._state, self._say, self._path = run, state, say, run.path / DURATIONS_FILE_NAME
        self._align_sample: Callable[[], list[int]] | None = None
        self._is_given_up, self._numbers = False, dict[str, float]()
        if state.durations is not None:
            self._say(
                f"Durations: as the run wrote them at step {state.durations.step:,}. Alignments are not searched."
            )
            self.begin()
        else:
            self._say(
                "Durations: searched in every step; once alignments are stable, which takes some thousand steps, they "
                "are written to the run (training.durations is auto)."
            )

    def begin(self) -> None:
        """Goes on from the written durations; the feed must be opened, and the step traced, again."""
        assert self._state.durations is not None, "no durations have been written"
        load_durations(self._path, self._store, self._state.durations.fingerprint)
        self._learner.use_durations()

    def is_due(self, total_steps: int | None) -> bool:
        """Whether to look at the alignments before the next step; the same in a run that is resumed at this step."""
        step, last = self._state.step, self._state.durations_look
        if self._state.durations is not None or self._is_given_up or step == 0 or step % LOOK_STEPS:
            return False
        num_missing = _NUM_STABLE_LOOKS - (last.num_stable + 1 if last is not None else 0)
        is_early = total_steps is None or step + num_missing * LOOK_STEPS < _LATEST_SWITCH * total_steps
        return is_early and (last is None or last.step != step)

    def look(self, is_stopping: Callable[[], bool]) -> bool:
        """Aligns the few utterances, and all if those are stable; returns whether durations are written.

        The model must have its EMA weights. Where `is_stopping` ends the alignment nothing is noted: the look is
        repeated when the run is resumed.
        """
        import tensorflow as tf

        from myxtts.training.step import is_out_of_memory

        try:
            return self._look(is_stopping)
        except StorageError as error:
            reason = str(error)
        except tf.errors.OpError as error:
            if not is_out_of_memory(error):
                raise
            reason = "The alignment does not fit into the device's memory beside the training."
        self._is_given_up = True
        self._say(f"{reason} Alignments are searched in every step as before.")
        return False

    def _look(self, is_stopping: Callable[[], bool]) -> bool:
        started, state = time.perf_counter(), self._state
        self._align_sample = self._align_sample or self._load_sample()
        frames, last = self._align_sample(), state.durations_look
        look = DurationsLook(step=state.step, frames=frames)
        line: dict[str, Any] = {"step": state.step}
        if last is not None and len(last.frames) == len(frames):
            changed = np.abs(np.array(frames) - np.array(last.frames)) > 1
            line[CHANGED_DURATIONS] = share = float(np.mean(changed))
            self._numbers[CHANGED_DURATIONS] = share
            look.num_stable = last.num_stable + 1 if share <= MOST_CHANGED else 0
        if look.num_stable >= _NUM_STABLE_LOOKS:
            num_looked_at = min(_NUM_LOOKED_AT, len(self._rows))
            self._say(
                f"Alignments are stable at step {state.step:,}: {line[CHANGED_DURATIONS]:.1%} of the durations of "
                f"{num_looked_at} utterances changed by more than one frame in {LOOK_STEPS:,} steps. Aligning "
                f"{len(self._rows):,} training utterances …"
            )
            durations = self._align_all(is_stopping)
            if durations is None:
                return False
            fingerprint = save_durations(self._path, self._store, durations)
            state.durations = WrittenDurations(step=state.step, fingerprint=fingerprint)
            line[DURATIONS_WRITTEN] = True
            self._numbers[DURATIONS_WRITTEN] = 1.0
            self._say_written(len(durations), time.perf_counter() - started)
        # What was looked at is not needed any more once durations are written.
        state.durations_look = look if state.durations is None else None
        self._run.metrics.append(line | {"watch_seconds": round(time.perf_counter() - started, 3)})
        return state.durations is not None

    def take_numbers(self) -> dict[str, float]:
        """What was found since the last call, for the log and TensorBoard."""
        numbers, self._numbers = self._numbers, {}
        return numbers

    def _say_written(self, num_aligned: int, seconds: float) -> None:
        num_unaligned = len(self._rows) - num_aligned
        rest = f"; {num_unaligned:,} have more states than frames and cannot be aligned" if num_unaligned else ""
        self._say(
            f"The durations of {num_aligned:,} utterances were found in {seconds:.0f} s and are in {self._path}{rest}. "
            "Training continues with them, without a search. To search again: --set training.durations=search"
        )

    def _load_sample(self) -> Callable[[], list[int]]:
        """Loads the few utterances; gives a function that aligns them with the present weights."""
        import tensorflow as tf

        from myxtts.training.voice.validation_set import load_fixed_utterances, pack_part

        utterances = load_fixed_utterances(self._config, _NUM_LOOKED_AT, "train")
        groups = [utterances[place : place + _LOOK_BATCH_SIZE] for place in range(0, len(utterances), _LOOK_BATCH_SIZE)]
        parts = [pack_part(group, min(_LOOK_BATCH_SIZE, len(utterances)), utterances) for group in groups]
        align = tf.function(lambda part: self._learner.model.align(part).token_durations_BN, autograph=False)

        def align_sample() -> list[int]:
            found: list[int] = []
            for part, group in zip(parts, groups, strict=True):
                durations_BN = align(part).numpy()
                for row, utterance in enumerate(group):
                    found += durations_BN[row, : len(utterance.tokens_N)].tolist()
            return found

        return align_sample

    def _align_all(self, is_stopping: Callable[[], bool]) -> Durations | None:
        """Durations of all training utterances that can be aligned; None if it was stopped."""
        aligner = StoreAligner(self._store, self._learner.model, self._config, self._rows)
        durations: Durations = {}
        num_done, said = 0, time.monotonic()
        for position in range(aligner.order.num_batches_per_epoch):
            if is_stopping():
                self._say("The alignment was stopped. It starts again when the run is resumed.")
                return None
            durations |= aligner.align(position)
            num_done += aligner.count(position)
            if time.monotonic() - said > _PROGRESS_S:
                said = time.monotonic()
                self._say(f"{num_done:,} of {len(self._rows):,} utterances are aligned.")
        return durations
