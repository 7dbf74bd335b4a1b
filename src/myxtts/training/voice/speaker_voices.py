"""Speaker embeddings that a bundle carries: of each speaker of the training split the average over a few clips.

So a model of one speaker needs no reference recording, and the speakers of a corpus can be chosen by name.
Shape legend: B clips, R frames of a clip, M mel bands, D width of a speaker embedding, K latents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.config.model import ModelConfig
from myxtts.config.schema import XTTSConfig
from myxtts.corpus.audio import AudioLimits
from myxtts.models.xtts import XTTS
from myxtts.pipeline.loaders.python import PythonLoader
from myxtts.pipeline.recordings import RecordingSource
from myxtts.store.index import Utterances
from myxtts.store.reader import FeatureStore
from myxtts.training.voice.data import TrainingData

MAX_SPEAKERS = 64
"""Speakers whose embeddings a bundle carries, those with most data first."""
MAX_CLIPS = 8
"""Clips that the embedding of one speaker is averaged over; fewer where there are many speakers."""
_MAX_ALL_CLIPS = 256
"""Clips of all speakers together, unless `_LEAST_CLIPS` for each are more."""
_LEAST_CLIPS = 2
_BATCH_SIZE = 32
"""Clips that are encoded at once."""
_MAX_NOTE_BYTES = 3_000_000
"""Part of bundle.json (at most 4 MB) that embeddings may take, with 20 bytes for a number written as JSON text."""
_BYTES_PER_NUMBER = 20
_NUM_DECIMALS = 5
"""Decimals in the JSON text; embeddings are layer-normalised, so their values are about 1 in size."""


class CorpusVoices:
    """Fixed clips of the speakers, and their embeddings by a model. One graph is traced, at the first call."""

    def __init__(
        self,
        clips: Mapping[str, Sequence[NDArray[Any]]],
        num_frames: int,
        n_mels: int,
        languages: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._languages = languages
        self._speakers = [speaker for speaker, mels in clips.items() for _ in mels]
        mels = [mel_RM for mels in clips.values() for mel_RM in mels]
        self._batch_size = min(_BATCH_SIZE, len(mels))
        num_rows = -(-len(mels) // self._batch_size) * self._batch_size if mels else 0
        self._mels_BRM = np.zeros((num_rows, num_frames, n_mels), np.float32)
        self._lengths_B = np.zeros(num_rows, np.int32)
        for row, mel_RM in enumerate(mels):
            self._mels_BRM[row, : len(mel_RM)], self._lengths_B[row] = mel_RM, len(mel_RM)
        self._encode: Any = tf.function(XTTS.encode_voice, autograph=False)

    @property
    def num_traces(self) -> int:
        return int(self._encode.experimental_get_tracing_count())

    def describe(self, model: XTTS) -> dict[str, dict[str, Any]]:
        """Mean embedding `vector` [D] and `latents` [K, D] of each speaker as plain lists, by the present weights.

        The `language` of a speaker is there where it is known.
        """
        vectors, latents = [], []
        for start in range(0, len(self._lengths_B), self._batch_size):
            rows = slice(start, start + self._batch_size)
            voice = self._encode(model, tf.constant(self._mels_BRM[rows]), tf.constant(self._lengths_B[rows]))
            vectors.append(voice.vector_BD.numpy())
            latents.append(voice.latents_BKD.numpy())
        encoded = {"vector": vectors, "latents": latents}
        of_clips = {name: np.concatenate(parts)[: len(self._speakers)] for name, parts in encoded.items() if parts}
        rows_of: dict[str, list[int]] = {}
        for row, speaker in enumerate(self._speakers):
            rows_of.setdefault(speaker, []).append(row)
        voices: dict[str, dict[str, Any]] = {}
        for speaker, clips in rows_of.items():
            voices[speaker] = {name: _average(values[clips]) for name, values in of_clips.items()}
            if speaker in self._languages:
                voices[speaker]["language"] = self._languages[speaker]
        return voices


def load_corpus_voices(config: XTTSConfig, data: TrainingData) -> CorpusVoices:
    """Loads clips of the speakers with most data, as many speakers as a bundle can hold."""
    rows = choose_voice_rows(data.utterances, data.num_reference_frames, count_voices(config.model))
    read_mel = _choose_reader(config, data.utterances)
    clips = {
        speaker: [cut_middle(read_mel(row), data.num_reference_frames) for row in chosen]
        for speaker, chosen in rows.items()
    }
    languages = _find_languages(data.utterances, rows)
    return CorpusVoices(clips, data.num_reference_frames, data.utterances.n_mels, languages)


def _find_languages(utterances: Utterances, rows: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """Returns the language that most of a speaker's clips are in."""
    numbers = utterances.columns["language"]
    return {
        speaker: utterances.languages[int(np.bincount(numbers[list(chosen)]).argmax())]
        for speaker, chosen in rows.items()
        if chosen
    }


def count_voices(model: ModelConfig) -> int:
    """Number of speakers whose embeddings fit into the description of a bundle."""
    num_bytes = _BYTES_PER_NUMBER * (model.num_latents + 1) * model.reference_width
    return max(1, min(MAX_SPEAKERS, _MAX_NOTE_BYTES // num_bytes))


def choose_voice_rows(utterances: Utterances, num_reference_frames: int, max_speakers: int) -> dict[str, list[int]]:
    """Chooses clips by speaker, speakers with most frames first; independent of the numbering of the rows."""
    columns = utterances.columns
    rows = utterances.rows_of_split("train")
    num_frames, speakers = columns["mel_length"][rows].astype(np.int64), columns["speaker"][rows]
    totals = np.bincount(speakers, weights=num_frames, minlength=len(utterances.speakers))
    present = [number for number in range(len(totals)) if totals[number] > 0]
    present.sort(key=lambda number: (-totals[number], utterances.speakers[number]))
    chosen = present[:max_speakers]
    num_clips = max(_LEAST_CLIPS, min(MAX_CLIPS, _MAX_ALL_CLIPS // max(1, len(chosen))))
    # Clips that fill a reference first, and among them by the hash of the id.
    order = np.lexsort((columns["id_hash"][rows], num_frames < num_reference_frames))
    return {
        utterances.speakers[number]: rows[order][speakers[order] == number][:num_clips].tolist() for number in chosen
    }


def _choose_reader(config: XTTSConfig, utterances: FeatureStore | RecordingSource) -> Callable[[int], NDArray[Any]]:
    """Reads stored log-mels, or computes them from the recordings where there is no store."""
    if isinstance(utterances, FeatureStore):
        return utterances.read_mel
    return PythonLoader(utterances, AudioLimits.from_config(config.data), 1, config.training.seed).read_mel


def cut_middle(mel_TM: NDArray[Any], num_frames: int) -> NDArray[Any]:
    start = max(0, len(mel_TM) - num_frames) // 2
    return mel_TM[start : start + num_frames]


def _average(values: NDArray[np.float32]) -> Any:
    return np.round(values.mean(axis=0, dtype=np.float64), _NUM_DECIMALS).tolist()
