"""Opens the utterances of a split, from a feature store or from recordings, and orders their batches.

`val_data` is one of two things. Recordings that were prepared together with the training data are a split of its
corpus and lie in its store. A corpus of its own has a store of its own, in the folder `val` of the training store;
all of it is for validation, and its speakers and languages are numbered as the training data numbers them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from myxtts.config.schema import DataConfig, XTTSConfig
from myxtts.config.values import parse_repeats
from myxtts.corpus.corpus_file import Corpus, is_prepared, open_corpus, read_corpus_heading
from myxtts.errors import ConfigError, DataError
from myxtts.features.definition import count_longest_frames
from myxtts.pipeline.num_shapes import MOST_SHAPES, ShapeChoice, choose_num_shapes
from myxtts.pipeline.order import BatchOrder, BatchPlan, Shape, hash_numbers
from myxtts.pipeline.recordings import RecordingSource
from myxtts.runtime.plan import Plan, is_cpu
from myxtts.store.index import Utterances
from myxtts.store.layout import STORE_FILE_NAME, StoreSettings, describe_differences, list_differences, read_state
from myxtts.store.precompute import VAL_STORE_NAME, find_val_corpus
from myxtts.store.provide import find_store_folder
from myxtts.store.reader import FeatureStore
from myxtts.store.verify import check_before_training
from myxtts.types import Split

_ENDLESS = 1 << 60


class Order(Protocol):
    """An endless order of batches: `BatchOrder`, or the segments of a vocoder."""

    @property
    def shapes(self) -> tuple[Shape, ...]: ...
    @property
    def num_batches_per_epoch(self) -> int: ...
    def batch(self, position: int) -> BatchPlan: ...


@dataclass(frozen=True, slots=True)
class OpenSplit:
    """The utterances of a split and the order of their batches, with the number of shapes that was chosen for it."""

    utterances: FeatureStore | RecordingSource
    order: BatchOrder
    shape_choice: ShapeChoice | None = None
    """None where `num_shapes` is not auto."""


@dataclass(frozen=True, slots=True)
class BatchRange:
    """Positions `start` to `stop` of the epoch order, and the rows of this process: shard `shard[0]` of `shard[1]`."""

    order: Order
    start: int
    stop: int
    shard: tuple[int, int]

    def plan_of(self, position: int) -> BatchPlan:
        return self.order.batch(position).take_shard(*self.shard)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The batch shapes of this process."""
        return tuple(shape.share(self.shard[1]) for shape in self.order.shapes)


def open_split(config: XTTSConfig, split: Split, plan: Plan) -> OpenSplit:
    """Opens the utterances of a split and orders them for the plan's number of replicas."""
    utterances = open_utterances(config, split)
    choice = choose_split_shapes(utterances, split, config, plan)
    if choice is not None:
        config = config.model_copy(update={"data.num_shapes": choice.number})
    return OpenSplit(utterances, order_split(utterances, split, config, plan), choice)


def open_utterances(config: XTTSConfig, split: Split) -> FeatureStore | RecordingSource:
    """The store of a split, or its recordings, as `preprocessing_mode` says."""
    if config.data.preprocessing_mode == "on_the_fly":
        if split == "train" and config.training.durations == "stored":
            raise ConfigError(
                "training.durations is stored, but preprocessing_mode is on_the_fly, which uses no feature cache.",
                next_step="Set training.durations to search, or data.preprocessing_mode to precompute.",
            )
        return open_source(config.data, split)
    if config.data.data_service is not None:
        raise ConfigError(
            "data.data_service computes features on the fly, but preprocessing_mode is precompute.",
            next_step="Set data.preprocessing_mode to on_the_fly, or leave data.data_service out.",
        )
    return open_store(config, split)


def order_split(utterances: Utterances, split: Split, config: XTTSConfig, plan: Plan) -> BatchOrder:
    rows, choice = _list_rows(utterances, split, config.data), choose_split_shapes(utterances, split, config, plan)
    if choice is not None:
        config = config.model_copy(update={"data.num_shapes": choice.number})
    return make_order(utterances.columns, rows, config, shuffle=split == "train", multiple_of=plan.num_replicas)


def _list_rows(utterances: Utterances, split: Split, data: DataConfig) -> NDArray[np.int64]:
    """The rows of a split; for training those of `repeat_speakers` as often as it says."""
    rows = utterances.rows_of_split(split)
    if split != "train" or data.repeat_speakers is None:
        return rows
    speakers = utterances.columns["speaker"][rows]
    times = np.ones(len(rows), np.int64)
    for name, number in parse_repeats(data.repeat_speakers).items():
        if name not in utterances.speakers:
            raise ConfigError(
                f"data.repeat_speakers names the speaker {name!r}, whom the corpus does not have.",
                next_step=f"Its speakers are {', '.join(utterances.speakers[:8])}"
                f"{' ...' if len(utterances.speakers) > 8 else ''}.",
            )
        times[speakers == utterances.speakers.index(name)] = number
    return np.repeat(rows, times)


def choose_split_shapes(utterances: Utterances, split: Split, config: XTTSConfig, plan: Plan) -> ShapeChoice | None:
    """The number of batch shapes for training on a split; None where it is given, and for other splits."""
    if config.data.num_shapes != "auto" or split != "train":
        return None
    _, source_frames = _select(utterances.columns, _list_rows(utterances, split, config.data), config.data)
    on_cpu = is_cpu(plan.model_devices[0])
    return choose_num_shapes(source_frames, config, is_on_cpu=on_cpu, multiple_of=plan.num_replicas)


def choose_range(
    order: Order, plan: Plan, *, start: int = 0, epochs: int | None = None, steps: int | None = None
) -> BatchRange:
    """It ends after `epochs` or `steps`, whichever comes first; without either it does not end."""
    ends = [_ENDLESS]
    if epochs is not None:
        ends.append(epochs * order.num_batches_per_epoch)
    if steps is not None:
        ends.append(start + steps)
    return BatchRange(order, start, max(start, min(ends)), plan.shard)


def make_order(
    columns: dict[str, NDArray[Any]],
    rows: NDArray[np.int64],
    config: XTTSConfig,
    *,
    shuffle: bool,
    multiple_of: int = 1,
) -> BatchOrder:
    """The order of a split under the batch settings; `max_mel_frames` leaves longer utterances out.

    `columns` are those of a store or of recordings, and give the same order: only the shapes may differ, which are
    tighter where lengths after trimming are known.
    """
    data = config.data
    rows, source_frames = _select(columns, rows, data)
    assert isinstance(data.batch_size, int)
    return BatchOrder(
        rows,
        columns["mel_length"][rows],
        columns["tokens_length"][rows],
        columns["speaker"][rows],
        keys=_tell_copies_apart(columns["id_hash"][rows]),
        source_frames=source_frames,
        seed=config.training.seed,
        batch_size=data.batch_size,
        frame_budget=data.frame_budget,
        num_shapes=MOST_SHAPES if data.num_shapes == "auto" else data.num_shapes,
        multiple_of=multiple_of,
        shuffle=shuffle,
        num_reference_frames=count_reference_frames(data),
    )


def _select(
    columns: dict[str, NDArray[Any]], rows: NDArray[np.int64], data: DataConfig
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows that `max_mel_frames` leaves, and their frames before trimming. Raises DataError if there are none."""
    if len(rows) == 0:
        raise DataError("The split has no utterances.", next_step="Check the corpus with myxtts prepare.")
    if data.batch_size == "auto":
        raise ConfigError(
            "batch_size is auto, which works in training only.", next_step="Set data.batch_size to a number."
        )
    source_frames = columns["source_frames"][rows]
    source_frames = np.where(source_frames == 0, count_longest_frames(data), source_frames)
    if data.max_mel_frames is not None:
        fits = source_frames <= data.max_mel_frames
        rows, source_frames = rows[fits], source_frames[fits]
    if len(rows) == 0:
        raise DataError(
            f"No utterance of the split fits max_mel_frames, {data.max_mel_frames}; silence at the ends counts.",
            next_step="Raise data.max_mel_frames.",
        )
    return rows, source_frames


def _tell_copies_apart(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Keys under which the copies of an utterance, which follow each other, are shuffled independently."""
    is_copy = np.concatenate([[False], keys[1:] == keys[:-1]])
    if not is_copy.any():
        return keys
    starts = np.flatnonzero(~is_copy)
    numbers = np.arange(len(keys)) - np.repeat(starts, np.diff(np.append(starts, len(keys))))
    keys = np.array(keys)
    for number in range(1, int(numbers.max()) + 1):
        keys[numbers == number] = hash_numbers(keys[numbers == number], number)
    return keys


def count_reference_frames(data: DataConfig) -> int:
    """Frames of the reference that goes with every utterance."""
    return max(1, round(data.reference_s * data.sample_rate / data.hop_length))


def open_source(data: DataConfig, split: Split) -> RecordingSource:
    """The recordings of a split, to be loaded on the fly."""
    corpus = open_corpus(choose_corpus(data, split))
    if split != "val" or find_val_corpus(data) is None:
        return RecordingSource.open(corpus, data)
    assert data.train_data is not None
    training = open_corpus(data.train_data)
    _refuse_other_frontend(corpus.load_frontend().fingerprint(), training.load_frontend().fingerprint(), corpus.file)
    source = RecordingSource.open(corpus, data)
    speakers, languages = set(), set()
    for utterance in training.utterances():
        speakers.add(utterance.speaker)
        languages.add(utterance.language)
    source.join_as(split, sorted(speakers), sorted(languages))
    return source


def choose_corpus(data: DataConfig, split: Split) -> Path:
    """The prepared corpus that holds a split; raises DataError where `val_data` was not prepared."""
    if data.train_data is None:
        raise ConfigError("No corpus is given.", next_step="Set data.train_data.")
    training = Path(data.train_data)
    if split != "val" or data.val_data is None:
        return training
    own = find_val_corpus(data)
    if own is not None:
        return own
    if is_prepared(training):
        _refuse_foreign_recordings(open_corpus(training), Path(data.val_data))
    return training


def open_store(config: XTTSConfig, split: Split = "train") -> FeatureStore:
    """Refuses a store made with other settings; checks its bytes as `cache_verification` says."""
    store = FeatureStore.open(choose_store_folder_of_split(config.data, split))
    join_training_store(store, config.data, split)
    _refuse_stale_store(store, config.data)
    check_before_training(store, config.data.cache_verification, config.training.seed)
    return store


def choose_store_folder_of_split(data: DataConfig, split: Split) -> Path:
    """Where the features of a split are; raises DataError where those of `val_data` were not made."""
    training = find_store_folder(data)
    if split != "val" or data.val_data is None:
        return training
    own = find_val_corpus(data)
    if own is None:
        state = read_state(training)
        corpus_file = Path(state.origin.corpus) if state else None
        # A store may be used without its corpus; then the origin of its validation split is unknown.
        if corpus_file is not None and corpus_file.is_file():
            _refuse_foreign_recordings(open_corpus(corpus_file), Path(data.val_data))
        return training
    folder = training / VAL_STORE_NAME
    if not (folder / STORE_FILE_NAME).exists():
        raise DataError(
            f"There are no features of val_data, {own}, in {folder}.",
            next_step=f"Run: myxtts precompute --train-data {own} --cache-dir {folder}",
        )
    return folder


def join_training_store(store: FeatureStore, data: DataConfig, split: Split) -> None:
    """Makes the store of a validation corpus a split of the training store; leaves the training store as it is."""
    if split != "val" or find_val_corpus(data) is None:
        return
    training = FeatureStore.open(choose_store_folder_of_split(data, "train"))
    _refuse_other_frontend(store.settings.frontend, training.settings.frontend, store.folder)
    store.join_as(split, training.speakers, training.languages)


def _refuse_stale_store(store: FeatureStore, data: DataConfig) -> None:
    """Features made with other settings than these would train another model than was asked for."""
    frontend = store.settings.frontend
    if data.train_data is not None and is_prepared(Path(data.train_data)):
        frontend = open_corpus(data.train_data).load_frontend().fingerprint()
    # Sounds that are kept beside the features do no harm.
    wanted = replace(StoreSettings.of(data, frontend), has_pcm=data.cache_waveforms or store.settings.has_pcm)
    differences = list_differences(store.settings, wanted)
    if differences:
        raise DataError(
            f"The features in {store.folder} were computed with other settings: {describe_differences(differences)}.",
            next_step="Run myxtts precompute with these settings, or change them back.",
        )


def _refuse_foreign_recordings(corpus: Corpus, val_data: Path) -> None:
    """Recordings that the training corpus was not prepared with cannot be its validation split."""
    if is_prepared(val_data):
        return  # It is the training corpus itself.
    written = read_corpus_heading(corpus.file).roots
    roots = [os.path.realpath(corpus.file.parent / root) for root in written]
    wanted = os.path.realpath(val_data if val_data.is_dir() else val_data.parent)
    # With --audio-root all recordings lie below one folder, whatever the transcripts are.
    if wanted not in roots[1:] and not (len(roots) > 1 and len(set(roots)) == 1):
        raise DataError(
            f"val_data, {val_data}, is neither a prepared corpus nor a part of {corpus.file}.",
            next_step=f"Prepare both together: myxtts prepare TRAIN --val-data {val_data} --out CORPUS",
        )


def _refuse_other_frontend(found: str, wanted: str, place: Path) -> None:
    if found != wanted:
        raise DataError(
            f"The texts of val_data in {place} are encoded by another front end than those of the training data, so "
            "the same token means another sound.",
            next_step="Prepare both together: myxtts prepare TRAIN --val-data VAL --out CORPUS",
        )
