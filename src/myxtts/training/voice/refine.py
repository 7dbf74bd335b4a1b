"""Lets recordings decide how Persian words are read: ezafe or not, and which reading of a homograph.

The model aligns all utterances, and the frames of each phone are averaged over the corpus. Then each open word is tried
in its variants. The score of a variant is the log-likelihood of the recording under the best monotonic alignment with
the variant's tokens (unit Gaussians around the means of the phones). Its gain over the reading in use is scaled to log
odds, the odds that text alone gives are added, and what is likelier is kept. The result is readings.jsonl beside the
corpus, from which tokens are made.

The means of the model itself would not do: they depend on the context, in which a model that was trained on a wrong
reading has learnt what is really said there. Means of phones have no context to learn it from.

Shape legend: B variants, N tokens, S states, T frames, M mel bands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from myxtts.corpus.corpus_file import Corpus, open_corpus
from myxtts.corpus.readings import (
    READINGS_FILE_NAME,
    ReadingOfWord,
    UtteranceReadings,
    load_readings,
    save_readings,
)
from myxtts.errors import DataError
from myxtts.pipeline.batch import Arrays
from myxtts.store.reader import FeatureStore
from myxtts.text.frontend import FrontEnd
from myxtts.text.inventory import unpack_factors
from myxtts.text.languages import find_primary_code
from myxtts.text.persian.reading import Choice, PersianReading
from myxtts.text.persian.variants import OpenWord, list_open_words
from myxtts.text.phonemes import split_clauses
from myxtts.training.voice.align import BATCH_SIZE, AlignmentPlan, StoreAligner, load_model
from myxtts.types import Progress, Utterance

if TYPE_CHECKING:
    from myxtts.models.xtts import XTTS

SCORE_PER_LOG_ODDS = 8.0
"""Gains in log-likelihood to log odds. Neighbouring bands and frames say nearly the same, so that their sum counts the
same evidence many times."""
_LEAST_LOG_ODDS = 0.5
"""By how much a variant must be likelier than the present reading."""
_STATES_PER_TOKEN = 2
"""As `models.text_encoder` has them, which loads TensorFlow."""
_EXTRA_TOKENS = 16
"""Tokens that a variant may have more than the longest text of its batch."""


@dataclass(frozen=True, slots=True)
class Change:
    """A word that is read otherwise from now on; `gain` is in log odds, the prior of the text included."""

    id: str
    before: Choice
    after: Choice
    gain: float

    def __str__(self) -> str:
        how = "with ezafe" if self.after.ezafe else "without ezafe"
        if self.after.ipa != self.before.ipa:
            how = f"read {self.after.ipa}, {how}"
        return f"{self.id}: {self.after.word} {how} ({self.gain:.1f})"

    def to_json(self) -> dict[str, Any]:
        before, after = ({"ezafe": choice.ezafe, "ipa": choice.ipa} for choice in (self.before, self.after))
        return {"id": self.id, "word": self.after.word, "before": before, "after": after, "gain": round(self.gain, 2)}


@dataclass(slots=True)
class RefineSummary:
    """Counts of words. `num_open` were tried; of these ezafe was added or removed, or a homograph read otherwise."""

    file: str
    model: str
    step: int
    num_utterances: int = 0
    num_open: int = 0
    num_ezafe_added: int = 0
    num_ezafe_removed: int = 0
    num_homographs_changed: int = 0
    changes: list[Change] = field(default_factory=list)

    def note(self, change: Change) -> None:
        self.changes.append(change)
        self.num_ezafe_added += change.after.ezafe > change.before.ezafe
        self.num_ezafe_removed += change.after.ezafe < change.before.ezafe
        self.num_homographs_changed += change.after.ipa != change.before.ipa

    def list_clearest(self, count: int) -> list[Change]:
        return sorted(self.changes, key=lambda change: -change.gain)[:count]

    def __str__(self) -> str:
        return (
            f"{self.num_open:,} words tried: ezafe added to {self.num_ezafe_added:,} and removed from "
            f"{self.num_ezafe_removed:,}, {self.num_homographs_changed:,} homographs read otherwise. "
            f"All readings are in {self.file}."
        )

    def to_json(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in self.__slots__ if name != "changes"}
        return {**counts, "changes": [change.to_json() for change in self.changes]}


@dataclass(frozen=True)
class Trial:
    """An utterance, its open words, and the choices that it is read with at present."""

    utterance: Utterance
    normalized: str
    words: tuple[OpenWord, ...]
    present: Mapping[int, ReadingOfWord]

    def list_variants(self) -> list[_Tried]:
        """Returns the readings to try; words that a person decided are left alone."""
        tried = []
        for word in self.words:
            place, prior = word.guess.place, {word.guess: 0.0}
            prior |= {variant.choice: variant.log_odds for variant in word.others}
            known = self.present.get(place)
            now = known.to_choice() if known else word.guess
            if known is None or known.gain is not None:
                tried += [
                    _Tried(now, other, odds - prior.get(now, 0.0)) for other, odds in prior.items() if other != now
                ]
        return tried

    def choices_with(self, choice: Choice | None = None) -> list[Choice]:
        """Returns the present choices, and one more or another one."""
        chosen = {place: word.to_choice() for place, word in self.present.items()}
        return list((chosen if choice is None else {**chosen, choice.place: choice}).values())


@dataclass(frozen=True, slots=True)
class _Tried:
    """A reading that is tried instead of the present one; `log_odds` are those of the text alone."""

    now: Choice
    other: Choice
    log_odds: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A reading that was tried, and the gain of the recording's log-likelihood."""

    row: int
    tried: _Tried
    gain: float

    @property
    def log_odds(self) -> float:
        return self.gain / SCORE_PER_LOG_ODDS + self.tried.log_odds


@dataclass(frozen=True)
class RefinementPlan:
    """The store and its model, and the utterances with open words by their row."""

    alignment: AlignmentPlan
    corpus: Corpus
    frontend: FrontEnd
    trials: Mapping[int, Trial]

    @property
    def num_open(self) -> int:
        return sum(len(trial.words) for trial in self.trials.values())


def plan_refinement(alignment: AlignmentPlan) -> RefinementPlan:
    """Finds the open words of the Persian texts of a store; loads no TensorFlow.

    Raises DataError where there are none, or the front end has no readings to choose from.
    """
    store = FeatureStore.open(alignment.folder)
    corpus = open_corpus(store.state.origin.corpus)
    frontend, folder = corpus.load_frontend(), corpus.file.parent
    if frontend.persian is None:
        raise DataError(
            f"The texts of {folder} were not read by the rules for Persian, so there is nothing to refine.",
            next_step="Run myxtts prepare again, with text_frontend: phonemes.",
        )
    trials = _list_trials(store, corpus, frontend, frontend.persian)
    if not trials:
        raise DataError(
            f"No text of {folder} has a Persian word with more than one reading.",
            next_step="--refine-with is for Persian recordings: leave it out.",
        )
    return RefinementPlan(alignment, corpus, frontend, trials)


def _list_trials(store: FeatureStore, corpus: Corpus, frontend: FrontEnd, reading: PersianReading) -> dict[int, Trial]:
    known, trials = load_readings(corpus.file.parent), dict[int, Trial]()
    for utterance in corpus.utterances():
        row = store.find(utterance.id)
        if row is None or utterance.phonemes or find_primary_code(utterance.language) != "fa":
            continue
        normalized = frontend.normalize(utterance.text, utterance.language)
        words = list_open_words(reading, split_clauses(normalized).parts)
        found = known.get(utterance.id)
        # Readings of a text that has changed are dropped.
        present = found.words if found is not None and found.text == utterance.text else ()
        if words:
            trials[row] = Trial(utterance, normalized, tuple(words), {word.place: word for word in present})
    return trials


def refine_readings(plan: RefinementPlan, *, progress: Progress = lambda _done, _changed: None) -> RefineSummary:
    """Decides all open words of the plan, and writes readings.jsonl beside the corpus.

    The store is not changed: its tokens are made again by the next precompute.
    """
    folder, origin = plan.corpus.file.parent, plan.alignment.origin
    summary = RefineSummary(
        str(folder / READINGS_FILE_NAME), origin.place, origin.step, len(plan.trials), plan.num_open
    )
    refiner = Refiner(plan, load_model(plan.alignment))
    refined = dict(load_readings(folder))
    num_done = 0
    for position in range(refiner.num_batches):
        by_row: dict[int, list[Measured]] = {}
        for measured in refiner.measure(position):
            by_row.setdefault(measured.row, []).append(measured)
        for row, variants in by_row.items():
            trial, kept = plan.trials[row], choose_likelier(variants)
            for item in kept:
                summary.note(Change(trial.utterance.id, item.tried.now, item.tried.other, item.log_odds))
            refined[trial.utterance.id] = _join(trial, kept)
        num_done += refiner.count(position)
        progress(num_done, len(summary.changes))
    save_readings(folder, refined.values())
    return summary


def choose_likelier(variants: Sequence[Measured]) -> list[Measured]:
    """Returns for each word the variant that is clearly likelier than its present reading, if there is one."""
    best: dict[int, Measured] = {}
    for item in variants:
        place = item.tried.other.place
        if item.log_odds > _LEAST_LOG_ODDS and (place not in best or item.log_odds > best[place].log_odds):
            best[place] = item
    return list(best.values())


def _join(trial: Trial, kept: Sequence[Measured]) -> UtteranceReadings:
    """Returns the line of an utterance: what it had, and what is new; a word as the front end reads it needs none."""
    words, guesses = dict(trial.present), {word.guess for word in trial.words}
    for item in kept:
        choice = item.tried.other
        words.pop(choice.place, None)
        if choice not in guesses:
            words[choice.place] = ReadingOfWord.of(choice, round(item.log_odds, 2))
    listed = tuple(words[place] for place in sorted(words))
    return UtteranceReadings(id=trial.utterance.id, text=trial.utterance.text, words=listed)


class Refiner:
    """Measures the variants of a store's utterances, batch by batch, in groups of `BATCH_SIZE` variants."""

    def __init__(self, plan: RefinementPlan, model: XTTS) -> None:
        import tensorflow as tf

        self._store, self._model = FeatureStore.open(plan.alignment.folder), model
        self._frontend, self._trials = plan.frontend, plan.trials
        rows = np.array(sorted(plan.trials), np.int64)
        self._aligner = StoreAligner(self._store, model, plan.alignment.config, rows)
        self._means: Any = tf.constant(self._average_phones())
        self._score: Any = tf.function(self._score_part, autograph=False)

    @property
    def num_batches(self) -> int:
        return self._aligner.order.num_batches_per_epoch

    def count(self, position: int) -> int:
        """Number of utterances in a batch."""
        return self._aligner.count(position)

    def _average_phones(self) -> NDArray[np.float32]:
        """Returns the mean frame of each state of each phone, by the model's alignment of the present readings."""
        import tensorflow as tf

        num_phones = self._frontend.factor_sizes[0] * self._frontend.factor_sizes[1]
        sums = np.zeros((num_phones * _STATES_PER_TOKEN, self._store.n_mels))
        counts = np.zeros(len(sums), np.int64)
        align: Any = tf.function(self._align_part, autograph=False)
        for position in range(self.num_batches):
            arrays = self._aligner.load(position)
            part = {name: tf.constant(values) for name, values in arrays.items()}
            align.get_concrete_function(part)
            mel_BTM, state_BT, is_aligned_B = (tensor.numpy() for tensor in align(part))
            phones_BS = self._number_states(arrays["tokens"])
            for row in np.flatnonzero(is_aligned_B[: self.count(position)]).tolist():
                num_frames = arrays["mel_lengths"][row]
                places = phones_BS[row, state_BT[row, :num_frames]]
                np.add.at(sums, places, mel_BTM[row, :num_frames])
                np.add.at(counts, places, 1)
        return np.asarray(sums / np.maximum(counts, 1)[:, None], np.float32)

    def _number_states(self, tokens_BN: NDArray[np.int32]) -> NDArray[np.int32]:
        """The states [B, S] of tokens, by letter and modifier alone: stress and position do not count."""
        sizes = self._frontend.factor_sizes
        factors = unpack_factors(tokens_BN.reshape(-1), sizes).reshape(*tokens_BN.shape, len(sizes))
        phones_BN = factors[..., 0] * sizes[1] + factors[..., 1]
        states_BN2 = phones_BN[..., None] * _STATES_PER_TOKEN + np.arange(_STATES_PER_TOKEN, dtype=np.int32)
        return np.asarray(states_BN2.reshape(len(tokens_BN), -1), np.int32)

    def _align_part(self, part: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        _, states = self._model.encode_part(part)
        alignment = self._model.align_states(states, self._model.normalize_mel(part["mel"]), part["mel_lengths"])
        return self._centre(part), alignment.state_BT, alignment.is_aligned_B

    def _centre(self, part: Mapping[str, Any]) -> Any:
        """Normalised frames less their mean over the utterance, which differs between voices and rooms."""
        import tensorflow as tf

        mel_BTM = self._model.normalize_mel(part["mel"])
        is_frame_BT1 = tf.sequence_mask(part["mel_lengths"], mel_BTM.shape[1], tf.float32)[..., None]
        num_frames_B11 = tf.maximum(tf.reduce_sum(is_frame_BT1, axis=1, keepdims=True), 1.0)
        return mel_BTM - tf.reduce_sum(mel_BTM * is_frame_BT1, axis=1, keepdims=True) / num_frames_B11

    def measure(self, position: int) -> list[Measured]:
        """Returns the gains of all variants of the utterances of a batch that can be aligned."""
        rows = self._aligner.order.batch(position).rows[: self.count(position)].tolist()
        tried: list[tuple[int, _Tried | None]] = []
        for number, row in enumerate(rows):
            tried += [(number, None), *((number, variant) for variant in self._trials[row].list_variants())]
        tokens = self._tokenize([(self._trials[rows[number]], variant) for number, variant in tried])
        self._refuse_other_tokens(rows, tried, tokens)
        scores = self._score_all(self._aligner.load(position), [number for number, _ in tried], tokens)
        present = {number: score for (number, variant), score in zip(tried, scores, strict=True) if variant is None}
        return [
            Measured(rows[number], variant, score - present[number])
            for (number, variant), score in zip(tried, scores, strict=True)
            if variant is not None and np.isfinite(score) and np.isfinite(present[number])
        ]

    def _tokenize(self, tried: Sequence[tuple[Trial, _Tried | None]]) -> list[NDArray[np.int32]]:
        texts = [trial.normalized for trial, _ in tried]
        choices = [trial.choices_with(variant.other if variant else None) for trial, variant in tried]
        ipa = self._frontend.phonemize_chosen(texts, "fa", choices)
        return [encoding.ids for encoding in self._frontend.encode_normalized(texts, ["fa"] * len(texts), ipa)]

    def _refuse_other_tokens(
        self, rows: Sequence[int], tried: Sequence[tuple[int, _Tried | None]], tokens: Sequence[NDArray[np.int32]]
    ) -> None:
        """Raises DataError where a store has other tokens than the present readings give."""
        for (number, variant), ids in zip(tried, tokens, strict=True):
            if variant is None and not np.array_equal(self._store.read_part(rows[number], "tokens"), ids):
                id, folder = self._store.id_of(rows[number]), self._store.folder
                raise DataError(
                    f"The tokens of {id!r} in {folder} are not those of its text.",
                    next_step="Update the feature cache with myxtts precompute, then refine.",
                )

    def _score_all(self, arrays: Arrays, numbers: Sequence[int], tokens: Sequence[NDArray[np.int32]]) -> list[float]:
        """Returns the log-likelihood of each variant; `numbers` are the rows of the batch that they belong to."""
        scores: list[float] = []
        for start in range(0, len(numbers), BATCH_SIZE):
            # The last group is filled up with its first variant, so that all have one shape.
            group = [*range(start, min(start + BATCH_SIZE, len(numbers)))]
            filled = [*group, *[start] * (BATCH_SIZE - len(group))]
            part = self._make_part(arrays, [numbers[place] for place in filled], [tokens[place] for place in filled])
            self._score.get_concrete_function(part)
            scores += self._score(part).numpy()[: len(group)].tolist()
        return scores

    def _make_part(self, arrays: Arrays, rows: Sequence[int], tokens: Sequence[NDArray[np.int32]]) -> dict[str, Any]:
        """The arrays of a batch, with one row for each variant and its tokens instead of the stored ones."""
        import tensorflow as tf

        tokens_BN = np.zeros((len(rows), arrays["tokens"].shape[1] + _EXTRA_TOKENS), np.int32)
        for row, ids in enumerate(tokens):
            tokens_BN[row, : len(ids)] = ids
        part = {name: values[np.asarray(rows)] for name, values in arrays.items()}
        part |= {"tokens": tokens_BN, "token_lengths": np.array([len(ids) for ids in tokens], np.int32)}
        part["states"] = self._number_states(tokens_BN)
        return {name: tf.constant(values) for name, values in part.items()}

    def _score_part(self, part: Mapping[str, Any]) -> Any:
        """Log-likelihood [B] of the recordings, up to a constant of each; minus infinity without an alignment."""
        import tensorflow as tf

        from myxtts.models.alignment import score_states, search_alignment
        from myxtts.models.text_encoder import find_states

        mel_BTM, lengths_B = self._centre(part), part["mel_lengths"]
        means_BSM = tf.gather(self._means, part["states"])
        is_state_BS = find_states(part["tokens"], part["token_lengths"], self._model.spec)
        alignment = search_alignment(score_states(mel_BTM, means_BSM), is_state_BS, lengths_B)
        means_BTM = tf.gather(means_BSM, alignment.state_BT, batch_dims=1)
        is_frame_BT = tf.sequence_mask(lengths_B, mel_BTM.shape[1], tf.float32)
        distances_BT = tf.reduce_sum(tf.square(mel_BTM - means_BTM), axis=-1)
        scores_B = -0.5 * tf.reduce_sum(distances_BT * is_frame_BT, axis=1)
        return tf.where(alignment.is_aligned_B, scores_B, -np.inf)
