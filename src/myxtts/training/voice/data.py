"""Training data of the voice model: batch shapes, front end, model specification and fingerprints for resuming.

Opening it finds every fault of data and settings without loading TensorFlow.
Shape legend: N tokens, T frames, M mel bands.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.corpus_file import FRONTEND_FILE_NAME, is_prepared, open_corpus
from myxtts.errors import DataError
from myxtts.features.definition import AudioDefinition, MelDefinition
from myxtts.models.spec import ModelSpec
from myxtts.pipeline.num_shapes import ShapeChoice
from myxtts.pipeline.open import open_batches
from myxtts.pipeline.order import BatchOrder, Shape
from myxtts.pipeline.recordings import RecordingSource
from myxtts.pipeline.splits import (
    OpenSplit,
    choose_corpus,
    choose_range,
    choose_store_folder_of_split,
    count_reference_frames,
    open_split,
)
from myxtts.runtime.plan import Plan
from myxtts.store.durations import read_durations_origin
from myxtts.store.index import Utterances
from myxtts.store.reader import FeatureStore
from myxtts.text.frontend import FrontEnd
from myxtts.text.inventory import SPECIALS
from myxtts.text.tokenizer import CharacterTokenizer

NUM_MEASURED_UTTERANCES = 512
NUM_MEASURED_BATCHES = 16
"""Amount of data for the mel statistics: utterances of a store, or batches where features are made on the fly."""
_LEAST_DEVIATION = 1e-3
"""Floor that keeps normalisation finite, where all frames are alike."""
_CONTENT_COLUMNS = ("id_hash", "split", "speaker", "language", "source_crc", "tokens_length")
"""Columns of the fingerprint: recordings, texts, splits, speakers and languages."""


@dataclass(frozen=True)
class TrainingData:
    """The training split, cut into batches; `shapes` are those of this process."""

    utterances: FeatureStore | RecordingSource
    frontend: FrontEnd
    frontend_file: Path
    shapes: tuple[Shape, ...]
    num_reference_frames: int
    order: BatchOrder
    durations: str = ""
    """Fingerprint of the durations in the store, where training uses them."""
    shape_choice: ShapeChoice | None = None
    """The number of batch shapes where `num_shapes` is auto."""

    @property
    def num_batches_per_epoch(self) -> int:
        return self.order.num_batches_per_epoch

    @property
    def opened(self) -> OpenSplit:
        """The opened split for `open_batches`, which need not open and order it again."""
        return OpenSplit(self.utterances, self.order)

    def describe(self) -> str:
        place = f"the recordings of {self.frontend_file.parent}, on the fly"
        if isinstance(self.utterances, FeatureStore):
            place = f"the feature cache {self.utterances.folder}"
        return describe_data(self.utterances, self.order.rows, place)

    def fingerprint(self) -> dict[str, str]:
        """Fingerprints of the inputs of a run, compared by --resume."""
        known = {"corpus": fingerprint_utterances(self.utterances), "front end": self.frontend.fingerprint()}
        if isinstance(self.utterances, FeatureStore):
            # The corpus has their number only; a homograph that is read otherwise may have as many.
            columns = self.utterances.columns
            rows = np.arange(len(columns["id_hash"]))
            known["tokens"] = _hash_columns(columns, ("id_hash", "tokens_crc"), rows).hexdigest()
        return {**known, "durations": self.durations} if self.durations else known


def summarize_data(utterances: Utterances, rows: NDArray[np.int64]) -> dict[str, Any]:
    """Utterances, hours, speakers and languages of some rows, as the notes of a bundle keep them (`models.card`)."""
    columns, mel = utterances.columns, utterances.mel_definition
    # Each utterance counts once, also where `repeat_speakers` repeats it.
    rows = np.unique(rows)
    hours = columns["mel_length"][rows] * (mel.hop_length / mel.sample_rate / 3600)
    languages = columns["language"][rows]
    return {
        "num_utterances": len(rows),
        "hours": round(float(hours.sum()), 4),
        "num_speakers": len(np.unique(columns["speaker"][rows])),
        "hours_by_language": {
            utterances.languages[number]: round(float(hours[languages == number].sum()), 4)
            for number in np.unique(languages).tolist()
        },
    }


def describe_data(utterances: Utterances, rows: NDArray[np.int64], place: str) -> str:
    """One line on what is trained on: utterances, length, speakers, languages and their place."""
    found = summarize_data(utterances, rows)
    hours, num_speakers = found["hours"], found["num_speakers"]
    length = f"{hours:.1f} hours" if hours >= 1.5 else f"{60 * hours:.1f} minutes"
    return (
        f"Training on {found['num_utterances']:,} utterances ({length}) of {num_speakers:,} "
        f"{'speaker' if num_speakers == 1 else 'speakers'} in {', '.join(found['hours_by_language'])}, from {place}."
    )


def open_training_data(config: XTTSConfig, plan: Plan) -> TrainingData:
    """Opens and checks the training split. Raises DataError or ConfigError for anything that prevents a training."""
    opened = open_split(config, "train", plan)
    require_val_data(config)
    utterances = opened.utterances
    frontend_file = _find_frontend(config, utterances)
    frontend = FrontEnd.load(frontend_file)
    if isinstance(utterances, FeatureStore) and utterances.settings.frontend != frontend.fingerprint():
        raise DataError(
            f"The tokens in {utterances.folder} were computed by another text front end than {frontend_file}.",
            next_step="Run myxtts precompute again to compute the tokens.",
        )
    durations = ""
    if isinstance(utterances, FeatureStore) and config.training.durations == "stored":
        rows = opened.order.rows
        refuse_missing_durations(utterances, rows, frontend.factor_sizes, count_single_state_symbols(frontend))
        durations = fingerprint_durations(utterances, rows)
    return TrainingData(
        utterances,
        frontend,
        frontend_file,
        choose_range(opened.order, plan).shapes,
        count_reference_frames(config.data),
        opened.order,
        durations,
        opened.shape_choice,
    )


def require_val_data(config: XTTSConfig) -> None:
    """Raises DataError where `val_data` is named but cannot be used: validation would only be left out later."""
    if config.data.val_data is None:
        return
    if config.data.preprocessing_mode == "precompute":
        choose_store_folder_of_split(config.data, "val")
    else:
        choose_corpus(config.data, "val")


def _find_frontend(config: XTTSConfig, utterances: FeatureStore | RecordingSource) -> Path:
    """Path of the front end: beside the corpus of `train_data`, or beside the one that the store was made from."""
    places = []
    if config.data.train_data is not None and is_prepared(Path(config.data.train_data)):
        places.append(open_corpus(config.data.train_data).file.with_name(FRONTEND_FILE_NAME))
    if isinstance(utterances, FeatureStore):
        places.append(Path(utterances.state.origin.corpus).with_name(FRONTEND_FILE_NAME))
        places.append(utterances.folder / "corpus" / FRONTEND_FILE_NAME)
    for place in places:
        if place.is_file():
            return place
    looked = ", ".join(str(place) for place in places) or "nowhere"
    raise DataError(
        f"The front end of the corpus is missing; it was looked for at {looked}.",
        next_step="Name the prepared corpus with --train-data.",
    )


def measure_spec(config: XTTSConfig, plan: Plan, data: TrainingData) -> ModelSpec:
    """Measures the model specification; the same data give the same numbers."""
    mean_M, deviation = _measure_mels(config, plan, data)
    mel = MelDefinition.from_config(config.data)
    return ModelSpec(
        factor_sizes=data.frontend.factor_sizes,
        single_state_symbols=count_single_state_symbols(data.frontend),
        n_mels=mel.n_mels,
        languages=tuple(data.utterances.languages),
        speakers=tuple(data.utterances.speakers),
        mel_mean=tuple(mean_M.tolist()),
        mel_deviation=deviation,
        frame_rate_hz=mel.sample_rate / mel.hop_length,
        band_hz=tuple(mel.band_hz.tolist()),
    )


def count_single_state_symbols(frontend: FrontEnd) -> int:
    """Number of symbols with one state in the alignment (specials, punctuation); letters and phones have two."""
    if isinstance(frontend.tokenizer, CharacterTokenizer):
        return frontend.factor_sizes[0] - len(frontend.tokenizer.characters)
    return len(SPECIALS)


def _measure_mels(config: XTTSConfig, plan: Plan, data: TrainingData) -> tuple[NDArray[np.float64], float]:
    """Mean of each band [M] and one standard deviation for all bands, from a fixed sample of the training split."""
    n_mels = data.utterances.n_mels
    sums_M, squares_M, count = np.zeros(n_mels), np.zeros(n_mels), 0
    for mel_TM in _iterate_mels(config, plan, data):
        exact_TM = mel_TM.astype(np.float64)
        sums_M += exact_TM.sum(axis=0)
        squares_M += np.square(exact_TM).sum(axis=0)
        count += len(exact_TM)
    assert count, "a training split without frames"
    mean_M = sums_M / count
    variance = float(np.mean(squares_M / count - mean_M**2))
    return mean_M, max(_LEAST_DEVIATION, variance**0.5)


def _iterate_mels(config: XTTSConfig, plan: Plan, data: TrainingData) -> Iterator[NDArray[np.floating[Any]]]:
    """Log-mels of the first utterances by id hash, or of the first batches where features are made on the fly."""
    utterances = data.utterances
    if isinstance(utterances, FeatureStore):
        rows = utterances.rows_of_split("train")
        # By the hash of the id: the choice depends neither on the order nor on the numbering of the rows.
        chosen = rows[np.argsort(utterances.columns["id_hash"][rows], kind="stable")][:NUM_MEASURED_UTTERANCES]
        yield from (utterances.read_mel(int(row)) for row in chosen)
        return
    with open_batches(config, steps=NUM_MEASURED_BATCHES, plan=plan, opened=data.opened, framework="numpy") as batches:
        for batch in batches:
            for mel_TM, length in zip(np.asarray(batch.mel), np.asarray(batch.mel_lengths), strict=True):
                yield mel_TM[: int(length)]


def describe_sound(config: XTTSConfig) -> tuple[dict[str, object], dict[str, object]]:
    """Definitions of log-mel and audio as plain JSON, for bundles."""
    return dict(MelDefinition.from_config(config.data).to_json()), dict(
        AudioDefinition.from_config(config.data).to_json()
    )


def fingerprint_utterances(utterances: Utterances) -> str:
    """SHA-256 of content, splits, and names of speakers and languages."""
    columns = utterances.columns
    content = _hash_columns(columns, _CONTENT_COLUMNS, np.arange(len(columns["id_hash"])))
    names = [list(utterances.speakers), list(utterances.languages)]
    content.update(json.dumps(names, ensure_ascii=True).encode())
    return str(content.hexdigest())


def _hash_columns(columns: Mapping[str, NDArray[Any]], names: Iterable[str], rows: NDArray[np.int64]) -> Any:
    """SHA-256 over columns, sorted by the hash of the id: a repair may number rows differently."""
    order = rows[np.argsort(columns["id_hash"][rows], kind="stable")]
    content = hashlib.sha256()
    for name in names:
        content.update(np.ascontiguousarray(columns[name][order]).astype(np.uint64).tobytes())
    return content


def refuse_missing_durations(
    store: FeatureStore, rows: NDArray[np.int64], factor_sizes: tuple[int, ...], single_state_symbols: int
) -> None:
    """Raises DataError where an utterance that could be aligned has no durations."""
    columns = store.columns
    missing = rows[columns["durations_length"][rows] != columns["tokens_length"][rows]]
    for row in missing.tolist():
        if not is_alignable(store, row, factor_sizes, single_state_symbols):
            continue
        raise DataError(
            f"training.durations is stored, but {len(missing):,} of {len(rows):,} utterances in {store.folder} have no "
            f"durations, such as {store.id_of(row)}.",
            next_step=f"Write them: myxtts precompute --cache-dir {store.folder} --durations-from RUN; or set "
            "training.durations to search.",
        )


def is_alignable(store: FeatureStore, row: int, factor_sizes: tuple[int, ...], single_state_symbols: int) -> bool:
    """Whether an utterance has at least as many frames as states (one or two per token)."""
    tokens_N = store.read_part(row, "tokens")
    symbols_N = tokens_N // math.prod(factor_sizes[1:])
    num_states = len(tokens_N) + int(np.count_nonzero(symbols_N >= single_state_symbols))
    return num_states <= store.entry(row, "mel").length


def fingerprint_durations(store: FeatureStore, rows: NDArray[np.int64]) -> str:
    """SHA-256 of the durations of these utterances, independent of their numbering."""
    content = _hash_columns(store.columns, ("id_hash", "durations_length", "durations_crc"), rows)
    return str(content.hexdigest())


def describe_durations(folder: Path) -> str:
    """Sentence for the log on where the durations come from."""
    origin = read_durations_origin(folder)
    by = f", aligned by {origin.place} at step {origin.step:,}" if origin is not None else ""
    return f"Durations: from the feature cache{by}. Alignments are not searched."
