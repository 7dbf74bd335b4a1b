"""The sound that belongs to the spectrograms of a store: kept in the store itself, or read from its recordings.

Both give the same 16-bit samples, those that the spectrogram was made of.
Shape legend: S samples.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from myxtts.config.schema import XTTSConfig
from myxtts.corpus.listen import AudioLimits
from myxtts.corpus.open import is_prepared, open_corpus
from myxtts.corpus.rejections import AudioProblem, Reason
from myxtts.errors import DataError
from myxtts.features.audio import load_recording
from myxtts.features.extract import quantize_samples
from myxtts.pipeline.memory import MelMemory
from myxtts.pipeline.splits import choose_corpus
from myxtts.store.reader import FeatureStore
from myxtts.types import Split

_AGAIN = "Run myxtts precompute, which makes features of the recordings as they are now."


class SoundReader(Protocol):
    """Where the samples of a row come from. Any number of threads may read."""

    origin: str
    """A sentence that tells where."""

    def read(self, row: int) -> NDArray[np.int16]:
        """The samples [S] of a row, full scale being 32767."""


class StoredSound:
    """The sound that a store keeps beside its spectrograms."""

    def __init__(self, store: FeatureStore) -> None:
        assert store.settings.has_pcm, f"{store.folder} has no sound"
        self._store = store
        self.origin = f"Sound: kept in the store {store.folder}."

    def read(self, row: int) -> NDArray[np.int16]:
        samples: NDArray[np.int16] = self._store.read_part(row, "pcm")
        return samples


class RecordedSound:
    """The sound of recordings, made ready as for features; kept in memory as far as the budget goes."""

    def __init__(
        self, store: FeatureStore, rows: NDArray[np.int64], paths: dict[str, str], place: Path, budget_bytes: int
    ) -> None:
        """`paths` are the recordings by the ids of their utterances, from the corpus at `place`."""
        self._store = store
        self._paths = {int(row): paths[store.id_of(int(row))] for row in rows}
        self._limits = AudioLimits(**store.state.origin["limits"])
        self._memory = MelMemory(budget_bytes, "int16")
        self.origin = (
            f"Sound: read from the recordings of {place}, because the store keeps none. What memory does not hold is "
            "decoded again for every segment; myxtts precompute --set data.store_pcm=true would keep it."
        )

    def read(self, row: int) -> NDArray[np.int16]:
        kept = self._memory.find(row)
        if kept is not None:
            return kept
        try:
            samples = self._load(row)
        except AudioProblem as problem:
            raise DataError(
                f"The sound of {self._store.id_of(row)} cannot be taken from {self._paths[row]}: {problem.detail} "
                f"({problem.reason}).",
                next_step=_AGAIN,
            ) from problem
        return self._memory.keep(row, quantize_samples(samples))  # type: ignore[arg-type]

    def _load(self, row: int) -> NDArray[np.float32]:
        columns, settings = self._store.columns, self._store.settings
        recording = load_recording(self._paths[row], settings.audio, self._limits)
        expected = int(columns["source_crc"][row])
        if expected and recording.checksum != expected:
            raise AudioProblem(Reason.CHANGED, "the recording has changed since its features were made")
        samples = recording.wave.samples
        if settings.mel.count_frames(len(samples)) != int(columns["mel_length"][row]):
            raise AudioProblem(Reason.CHANGED, "it gives another number of frames than were stored")
        return samples


def open_sound_of(
    store: FeatureStore, rows: NDArray[np.int64], config: XTTSConfig, split: Split, budget_bytes: int
) -> SoundReader:
    """The sound of some rows; raises DataError where neither the store nor its recordings have it."""
    if store.settings.has_pcm:
        return StoredSound(store)
    place = _find_corpus(store, config, split)
    wanted = {store.id_of(int(row)) for row in rows}
    paths = {one.id: one.audio for one in open_corpus(place).utterances() if one.id in wanted}
    missing = sorted(wanted - set(paths))
    if missing:
        raise DataError(
            f"The store {store.folder} has no sound, and {len(missing):,} of its utterances are not in the corpus "
            f"{place}, such as {missing[0]}.",
            next_step=_AGAIN,
        )
    return RecordedSound(store, rows, paths, place, budget_bytes)


def _find_corpus(store: FeatureStore, config: XTTSConfig, split: Split) -> Path:
    """The corpus that was named, or that the store was made of."""
    places = [Path(store.state.origin["corpus"])]
    if config.data.train_data is not None:
        places.insert(0, choose_corpus(config.data, split))
    for place in places:
        if is_prepared(place):
            return place
    raise DataError(
        f"The store {store.folder} holds spectrograms without their sound, a vocoder needs both, and the corpus "
        f"{places[-1]} is not there.",
        next_step="Name the prepared corpus with --train-data, or run myxtts precompute with "
        "--set data.store_pcm=true.",
    )
