"""Objective evaluation on held-out utterances: mel distance, length error, speaker similarity, RTF, WER and CER.

Every utterance is synthesised from its stored tokens, with another recording of its speaker as reference. WER and CER
need a command of an external speech recogniser (ASR) and the texts of the corpus. Called by `myxtts evaluate`.
Shape legend: T frames, M mel bands.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.errors import ConfigError, DataError
from myxtts.features.mel import HostMel
from myxtts.features.wave_file import write_sound
from myxtts.store.reader import FeatureStore, StoredUtterance
from myxtts.synthesis.loaded_bundle import LoadedBundle
from myxtts.synthesis.options import SpeechOptions
from myxtts.synthesis.sentences import MAX_PIECE_TOKENS
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.synthesis.voices import ADVISED_REFERENCE_S
from myxtts.tools.recognition import Mistakes, Recogniser, count_mistakes
from myxtts.training.voice.metrics import measure_warped_distance
from myxtts.types import Waveform


@dataclass(frozen=True, slots=True)
class Measured:
    """Scores of one utterance.

    `mel_distance` is the mean absolute log-mel difference after dynamic time warping; `length_error` is the error of
    the utterance's length, relative to the recording. `similarity` is the cosine between embeddings of synthesised and
    recorded audio, by the model's own speaker encoder, which was trained on the same voices and so is too optimistic;
    `real_similarity` is that of the recording and the reference, the value to compare it with. `took_s` is
    the time of synthesis, None where a graph had to be traced first.
    """

    id: str
    duration_s: float
    mel_distance: float
    length_error: float
    similarity: float
    real_similarity: float
    took_s: float | None
    mistakes: Mistakes | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Means over utterances. `real_time_factor` is synthesis time / audio time.

    `word_error` (WER) and `character_error` (CER) are edits over all words and characters, None without a recogniser.
    """

    num_utterances: int
    num_skipped: int
    mel_distance: float
    length_error: float
    speaker_similarity: float
    real_similarity: float
    real_time_factor: float | None
    word_error: float | None
    character_error: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def refuse_foreign_store(loaded: LoadedBundle, store: FeatureStore) -> None:
    """Raises ConfigError where a store's features are not those the model was trained on."""
    if store.settings.mel != loaded.mel:
        raise ConfigError(
            f"The feature cache {store.folder} has other mel features than the model was trained on.",
            next_step="Use the feature cache that the model was trained on, or make one with its settings.",
        )
    if store.settings.frontend != loaded.bundle.frontend_fingerprint:
        raise ConfigError(
            f"The texts in the feature cache {store.folder} were tokenized by another text front end.",
            next_step="Use the feature cache that the model was trained on.",
        )


def choose_rows(store: FeatureStore, split: str, max_utterances: int) -> NDArray[np.int64]:
    """Chooses up to `max_utterances` rows of a split, evenly spaced, so that every evaluation takes the same ones."""
    rows = store.rows_of_split(split)
    if len(rows) == 0:
        raise DataError(
            f"The feature cache {store.folder} has no utterances in the split {split}.",
            next_step="Choose another --split.",
        )
    places = np.linspace(0, len(rows) - 1, min(max_utterances, len(rows))).round().astype(np.int64)
    return rows[np.unique(places)]


class Examiner:
    """Synthesises and scores utterances of one feature store.

    `texts` gives the reference text of an utterance id; utterances without one get no WER and CER. The synthesised
    audio is kept in `wav_folder` where one is given, else in a temporary folder while it is recognised.
    """

    def __init__(
        self,
        synthesizer: Synthesizer,
        store: FeatureStore,
        *,
        options: SpeechOptions | None = None,
        recogniser: Recogniser | None = None,
        texts: Mapping[str, str] | None = None,
        wav_folder: Path | None = None,
    ) -> None:
        refuse_foreign_store(synthesizer.loaded, store)
        self._synthesizer, self._store = synthesizer, store
        self._options = options or SpeechOptions()
        self._recogniser, self._texts, self._wav_folder = recogniser, texts or {}, wav_folder
        self._host_mel = HostMel(synthesizer.loaded.mel)

    def examine(
        self, rows: NDArray[np.int64], progress: Callable[[int], None] = lambda _: None
    ) -> tuple[Evaluation, list[Measured]]:
        """Evaluates rows of the store and returns the means and the scores of each utterance.

        Skips utterances that are empty, longer than `MAX_PIECE_TOKENS` or in a language the model does not have.
        """
        measured: list[Measured] = []
        with tempfile.TemporaryDirectory(prefix="myxtts-evaluate-") as scratch:
            for number, row in enumerate(rows.tolist(), 1):
                utterance = self._store[row]
                is_known = utterance.language in self._synthesizer.languages
                if is_known and 0 < len(utterance.tokens) <= MAX_PIECE_TOKENS:
                    measured.append(self._measure(row, utterance, Path(scratch)))
                progress(number)
        if not measured:
            raise DataError(
                "None of the utterances can be said by this model.",
                next_step="Check that feature cache and model belong together.",
            )
        return summarize(measured, len(rows) - len(measured)), measured

    def _measure(self, row: int, utterance: StoredUtterance, scratch: Path) -> Measured:
        engine = self._synthesizer.engine
        real_TM = np.asarray(utterance.mel, np.float32)
        reference = engine.encode_mel(np.asarray(self._store.read_mel(self._find_reference(row)), np.float32))
        real_voice = engine.encode_mel(real_TM)
        num_graphs, started = engine.num_graphs, time.perf_counter()
        mel_TM = engine.make_mel(np.asarray(utterance.tokens), utterance.language, reference, self._options)
        samples = engine.make_sound(mel_TM, self._options.seed)
        took_s = time.perf_counter() - started if engine.num_graphs == num_graphs else None
        wave = Waveform(samples, self._synthesizer.rate)
        # Audio below one frame has no log-mel; the decoder's output stands for it.
        is_long = len(samples) >= self._host_mel.definition.min_samples
        synthesised_voice = engine.encode_mel(self._host_mel(samples) if is_long else mel_TM)
        return Measured(
            utterance.id,
            wave.duration_s,
            measure_warped_distance(mel_TM, real_TM),
            abs(len(mel_TM) - len(real_TM)) / len(real_TM),
            real_voice.compare(synthesised_voice),
            real_voice.compare(reference),
            took_s,
            self._recognise(utterance, wave, scratch / f"{row}.wav"),
        )

    def _find_reference(self, row: int) -> int:
        """Chooses the reference: the speaker's next recording in the store of at least `ADVISED_REFERENCE_S`.

        Falls back to the next recording of any length, then to the utterance itself.
        """
        columns, mel = self._store.columns, self._synthesizer.loaded.mel
        same = np.flatnonzero(columns["speaker"] == columns["speaker"][row])
        after = np.roll(same, -1 - int(np.searchsorted(same, row)))[:-1]
        is_long = columns["mel_length"][after] >= ADVISED_REFERENCE_S * mel.sample_rate / mel.hop_length
        candidates = [*after[is_long].tolist(), *after.tolist(), row]
        return int(candidates[0])

    def _recognise(self, utterance: StoredUtterance, wave: Waveform, path: Path) -> Mistakes | None:
        """Writes the audio, runs the recogniser on it and compares; both texts pass the model's text normaliser."""
        if self._wav_folder is not None:
            safe = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in utterance.id)
            path = self._wav_folder / f"{safe[:100]}.wav"
        text = self._texts.get(utterance.id)
        if self._wav_folder is not None or (self._recogniser is not None and text):
            write_sound(path, wave)
        if self._recogniser is None or not text:
            return None
        recognised = self._recogniser.transcribe(path, utterance.language)
        normalize = self._synthesizer.loaded.frontend.normalize
        return count_mistakes(normalize(text, utterance.language), normalize(recognised, utterance.language))


def summarize(measured: list[Measured], num_skipped: int) -> Evaluation:
    """Averages the scores by utterance; the real-time factor leaves out utterances that traced a graph."""
    timed = [(row.took_s, row.duration_s) for row in measured if row.took_s is not None]
    mistakes = [row.mistakes for row in measured if row.mistakes is not None]
    num_words, num_characters = sum(row.num_words for row in mistakes), sum(row.num_characters for row in mistakes)
    scores = [(row.mel_distance, row.length_error, row.similarity, row.real_similarity) for row in measured]
    mel_distance, length_error, similarity, real_similarity = np.mean(scores, axis=0).tolist()
    return Evaluation(
        len(measured),
        num_skipped,
        mel_distance,
        length_error,
        similarity,
        real_similarity,
        sum(took_s for took_s, _ in timed) / sum(length for _, length in timed) if timed else None,
        sum(row.num_word_edits for row in mistakes) / num_words if num_words else None,
        sum(row.num_character_edits for row in mistakes) / num_characters if num_characters else None,
    )
