"""Scores of every clip of a corpus under a trained model: alignment likelihood, durations, voice, noise and level.

The text encoder predicts a mean log-mel for each state of a text; the alignment search of training finds the best path
of the clip's frames through them. From that path follow the likelihood, the durations, and the labels of frames that
`phones` judges the text by. What the log-mel alone shows (level, noise, mean spectrum) needs no model.

Each clip is also aligned with *decoys*, the texts of other clips of its batch, which have about its length. A right
text fits better than the best of them by a *margin*; a wrong text fits like a decoy, however long the clip is and
whoever speaks. The usual margin says how well a model can align a corpus (`ClipScorer.find_usual_margin`).

Shape legend: B utterances, R texts of a clip (its own, then decoys), K nearest decoys, N tokens, S states, T frames,
M mel bands, D width of a speaker embedding.
"""

# ruff: noqa: N815 - fields carry the shape of their tensors

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.config.schema import XTTSConfig
from myxtts.models.alignment import Alignment
from myxtts.models.prosody import compute_frames
from myxtts.models.text_encoder import STATES_PER_TOKEN, TextStates
from myxtts.models.xtts import XTTS
from myxtts.store.reader import FeatureStore
from myxtts.tools.clips.phones import NOT_SPEECH, Labels, PhoneClassifier, count_features, make_features
from myxtts.training.voice.align import StoreAligner
from myxtts.types import Tensor

Floats = NDArray[np.float32]
_TAIL_SHARE = 0.25
"""Share of the states, and of the frames, that count as the end of a clip."""
_DB_PER_NAT = 20 / np.log(10)
"""Log-mels are natural logarithms of magnitudes."""
_QUIET_PERCENTILE, _LOUD_PERCENTILE = 5, 90
_SPEECH_RANGE_DB = 25.0
"""Frames at most so far below the loud ones count as speech."""
_END_FRAMES = 4
_NUM_SAMPLED = 6
"""Batches that the usual margin is measured on."""
_NUM_DECOYS, _NUM_NEAREST = 6, 3
"""Other texts that each clip is aligned with, and how many of them, the best fitting, its own text is compared with."""


@dataclass(frozen=True, slots=True)
class ClipScores:
    """Figures of one clip; `spectrum` and `voice` are compared with those of its speaker.

    fit           half the mean squared distance of speech frames from the means of their states, on the best path
    length_ratio  natural logarithm of real over predicted length
    tail_ratio    the same for the last quarter of the states on the path
    token_error   relative error of the predicted token durations
    rate          tokens a second
    level_db, noise_db   level of speech and of the quietest frames, relative to full scale of the log-mel
    end_db        level of the last frames below that of speech
    f0            mean F0 of voiced frames, in thirds of an octave from 180 Hz
    margin        by how much the text fits better than the best decoys, as a share of their distance; NaN without any
    goodness, tail_goodness   goodness of pronunciation of the clip and of its end (see `phones`), by `add_goodness`
    state_T       state of each frame on the path, which `add_goodness` needs
    """

    id: str
    row: int
    fit: float
    length_ratio: float
    tail_ratio: float
    token_error: float
    rate: float
    level_db: float
    noise_db: float
    end_db: float
    f0: float
    spectrum: Floats
    voice: Floats
    margin: float = 0.0
    goodness: float = 0.0
    tail_goodness: float = 0.0
    state_T: NDArray[np.int16] | None = None

    @property
    def snr_db(self) -> float:
        return self.level_db - self.noise_db


class _Measured(NamedTuple):
    """Values of the clips of a batch."""

    is_aligned_B: Tensor
    fit_B: Tensor
    length_ratio_B: Tensor
    tail_ratio_B: Tensor
    token_error_B: Tensor
    f0_B: Tensor
    voice_BD: Tensor
    state_BT: Tensor


class ClipScorer:
    """Scores all clips of a store, batch by batch; clips that cannot be aligned (more tokens than frames) are named."""

    def __init__(self, store: FeatureStore, model: XTTS, config: XTTSConfig) -> None:
        self._store, self._model = store, model
        self._batches = StoreAligner(store, model, config)
        self._frames_per_second = config.data.sample_rate / config.data.hop_length
        self._measure: Any = tf.function(self._measure_part, autograph=False)
        self._measure_text: Any = tf.function(self._measure_text_part, autograph=False)
        sizes = model.spec.factor_sizes
        self._first_phone = model.spec.single_state_symbols * int(np.prod(sizes[1:2]))
        self.unaligned: list[str] = []

    def score(self, progress: Callable[[int], None] = lambda _done: None) -> Iterator[ClipScores]:
        """Yields the scores of the clips, in the order of their lengths."""
        num_done = 0
        for position in range(self._batches.order.num_batches_per_epoch):
            ids, part = self._batches.load_tensors(position)
            # Made before it is called: TensorFlow would warn of many calls that each make a graph.
            self._measure.get_concrete_function(part)
            measured = _Measured(*(tensor.numpy() for tensor in self._measure(part)))
            margins_B = self._measure_margins(part)
            for row, id in enumerate(ids):
                if not measured.is_aligned_B[row]:
                    self.unaligned.append(id)
                    continue
                clip = self._describe(id, row, measured, int(part["token_lengths"][row]))
                yield replace(clip, margin=float(margins_B[row]))
            num_done += len(ids)
            progress(num_done)

    def find_usual_margin(self) -> float:
        """The median margin of a few batches, from the shortest clips to the longest."""
        last = self._batches.order.num_batches_per_epoch - 1
        positions = sorted({round(share * last) for share in np.linspace(0, 1, _NUM_SAMPLED)})
        margins = []
        for position in positions:
            ids, part = self._batches.load_tensors(position)
            margins.append(self._measure_margins(part)[: len(ids)])
        return _take_median(np.concatenate(margins))

    def _describe(self, id: str, row: int, measured: _Measured, num_tokens: int) -> ClipScores:
        """Joins what the model measured with what the log-mel alone says."""
        stored = self._store.find(id)
        assert stored is not None, f"{id} is not in the feature cache"
        sound = measure_sound(np.asarray(self._store.read_mel(stored), np.float32))
        figures = {
            name.removesuffix("_B"): float(getattr(measured, name)[row])
            for name in measured._fields
            if name not in ("is_aligned_B", "voice_BD", "state_BT")
        }
        rate = num_tokens * self._frames_per_second / sound.num_frames
        return ClipScores(
            id=id,
            row=stored,
            rate=rate,
            level_db=sound.level_db,
            noise_db=sound.noise_db,
            end_db=sound.end_db,
            spectrum=sound.spectrum_M,
            voice=measured.voice_BD[row],
            state_T=measured.state_BT[row, : sound.num_frames].astype(np.int16),
            **figures,
        )

    def add_goodness(self, clips: Sequence[ClipScores]) -> list[ClipScores]:
        """Returns the clips with their goodness of pronunciation, by a classifier of the phones of these clips."""
        phones_C = np.unique(np.concatenate([self._read_phones(clip.row) for clip in clips] or [np.zeros(0, int)]))
        classifier = PhoneClassifier(STATES_PER_TOKEN * len(phones_C), count_features(self._store.n_mels))
        for clip in clips:
            classifier.add(*self._label(clip, phones_C))
        classifier.fit()
        scored, usual_margin = [], _take_median(np.array([clip.margin for clip in clips]))
        for clip in clips:
            assert clip.state_T is not None
            features_TF, labels_T = self._label(clip, phones_C)
            tail = int(np.searchsorted(clip.state_T, (1 - _TAIL_SHARE) * clip.state_T[-1]))
            goodness, tail_goodness = classifier.score(features_TF, labels_T, (slice(None), slice(tail, None)))
            # A clip without decoys is not in doubt for that.
            margin = usual_margin if np.isnan(clip.margin) else clip.margin
            scored.append(replace(clip, goodness=goodness, tail_goodness=tail_goodness, margin=margin, state_T=None))
        return scored

    def _read_phones(self, row: int) -> NDArray[np.int64]:
        """Numbers of the tokens of a clip without the last factors of phonemes, stress and position in the word."""
        num_variants = int(np.prod(self._model.spec.factor_sizes[2:]))
        return np.asarray(self._store.read_tokens(np.array([row]))[0], np.int64) // num_variants

    def _label(self, clip: ClipScores, phones_C: NDArray[np.int64]) -> tuple[Floats, Labels]:
        """Features of a clip's frames, and their labels: the phone, by its place in `phones_C`, and its half."""
        assert clip.state_T is not None
        mel_TM = np.asarray(self._store.read_mel(clip.row), np.float32)
        levels_T = mel_TM.mean(axis=1)
        loud = np.percentile(levels_T, _LOUD_PERCENTILE)
        is_speech_T = levels_T >= loud - _SPEECH_RANGE_DB / _DB_PER_NAT
        token_T, half_T = np.divmod(clip.state_T, STATES_PER_TOKEN)
        phones_T = self._read_phones(clip.row)[token_T]
        labels_T = STATES_PER_TOKEN * np.searchsorted(phones_C, phones_T) + half_T
        labels_T = np.where(is_speech_T & (phones_T >= self._first_phone), labels_T, NOT_SPEECH)
        return make_features(mel_TM, is_speech_T), labels_T.astype(np.int32)

    def _measure_part(self, part: Mapping[str, Tensor]) -> _Measured:
        """Aligns each clip to its text, and measures likelihood, durations, F0 and voice."""
        model = self._model
        (mel_BTM, is_speech_BT), lengths_B = self._normalize(part), part["mel_lengths"]
        _, states = model.encode_part(part)
        alignment = self._align(states, mel_BTM, lengths_B)
        distance_BT = _measure_distance(states, alignment, mel_BTM)
        is_tail_BS = _find_tail(states.is_state_BS)
        prosody = model.predict_prosody(states, part["token_lengths"])
        factor = tf.convert_to_tensor(model.length_factor)
        predicted_BS = compute_frames(prosody.log_frames_BS, states.is_state_BS, factor)
        durations_BS = tf.cast(alignment.durations_BS, tf.float32)
        tail_BS = tf.cast(is_tail_BS, tf.float32)
        frames_B = tf.cast(tf.maximum(lengths_B, 1), tf.float32)
        own = model.encode_voice(part["mel"], lengths_B)
        pitch = model.track_pitch(part["mel"], lengths_B)
        return _Measured(
            is_aligned_B=alignment.is_aligned_B & (lengths_B > 0),
            fit_B=_average(distance_BT, is_speech_BT),
            length_ratio_B=tf.math.log(frames_B / tf.maximum(tf.reduce_sum(predicted_BS, axis=1), 1.0)),
            tail_ratio_B=tf.math.log(
                tf.maximum(tf.reduce_sum(durations_BS * tail_BS, axis=1), 1.0)
                / tf.maximum(tf.reduce_sum(predicted_BS * tail_BS, axis=1), 1.0)
            ),
            token_error_B=tf.reduce_sum(tf.abs(predicted_BS - durations_BS), axis=1) / frames_B,
            f0_B=_average(pitch.f0, pitch.voicing),
            voice_BD=tf.math.l2_normalize(own.vector_BD, axis=-1, epsilon=1e-6),
            state_BT=alignment.state_BT,
        )

    def _normalize(self, part: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Normalised log-mels [B, T, M], and the mask [B, T] of speech."""
        return self._model.normalize_mel(part["mel"]), find_speech(part["mel"], part["mel_lengths"])

    def _align(self, states: TextStates, mel_BTM: Tensor, lengths_B: Tensor) -> Alignment:
        is_compiled = self._batches.is_search_compiled
        return self._model.align_states(states, mel_BTM, lengths_B, is_search_compiled=is_compiled)

    def _measure_margins(self, part: Mapping[str, Tensor]) -> Floats:
        """Margin [B] of each text over the nearest of its decoys; NaN where it has none, or cannot be aligned."""
        self._measure_text.get_concrete_function(part, tf.constant(0))
        distance_RB = np.stack([self._measure_text(part, tf.constant(step)).numpy() for step in range(_NUM_DECOYS + 1)])
        nearest_KB = np.sort(distance_RB[1:], axis=0)[:_NUM_NEAREST]
        is_known_KB = np.isfinite(nearest_KB)
        total_B = np.where(is_known_KB, nearest_KB, 0.0).sum(axis=0)
        is_compared_B = np.isfinite(distance_RB[0]) & (total_B > 0)
        own_B, total_B = np.where(is_compared_B, [distance_RB[0], total_B], 1.0)
        ratio_B = own_B * is_known_KB.sum(axis=0) / total_B
        return np.where(is_compared_B, 1 - ratio_B, np.nan).astype(np.float32)

    def _measure_text_part(self, part: Mapping[str, Tensor], step: Tensor) -> Tensor:
        """Mean squared distance [B] of the clips' speech from the texts `step` rows below; infinite if not comparable.

        A constant difference between the means and the clip, which microphone and voice make, is removed.
        """
        model, mel_BTM, is_speech_BT = self._model, *self._normalize(part)
        num_real = tf.maximum(tf.reduce_sum(tf.cast(part["mel_lengths"] > 0, tf.int32)), 1)
        place_B = (tf.range(mel_BTM.shape[0]) + step) % num_real
        tokens_BN, lengths_B, language_B = (
            tf.gather(part[name], place_B) for name in ("tokens", "token_lengths", "language")
        )
        voice = model.encode_voice(part["reference"], part["reference_lengths"])
        states = model.encode_text(tokens_BN, lengths_B, language_B, voice)
        log_frames_BS = model.predict_prosody(states, lengths_B).log_frames_BS
        expected_BM = _average(states.means_BSM, compute_frames(log_frames_BS, states.is_state_BS, tf.constant(1.0)))
        moved_BTM = mel_BTM - (_average(mel_BTM, is_speech_BT) - expected_BM)[:, None]
        alignment = self._align(states, moved_BTM, part["mel_lengths"])
        rest_BTM = moved_BTM - tf.gather(states.means_BSM, alignment.state_BT, batch_dims=1)
        rest_BTM -= _average(rest_BTM, is_speech_BT)[:, None]
        distance_B = _average(tf.reduce_mean(tf.square(rest_BTM), axis=-1), is_speech_BT)
        is_own_B = tf.reduce_all(tokens_BN == part["tokens"], axis=1)
        return tf.where(alignment.is_aligned_B & (is_own_B == (step == 0)), distance_B, float("inf"))


def _take_median(margins: NDArray[Any]) -> float:
    """Median of the margins that are known; 0 if none is."""
    known = margins[~np.isnan(margins)]
    return float(np.median(known)) if len(known) else 0.0


def _measure_distance(states: TextStates, alignment: Alignment, mel_BTM: Tensor) -> Tensor:
    """Half the mean squared distance [B, T] of each frame from the mean of its state."""
    means_BTM = tf.gather(states.means_BSM, alignment.state_BT, batch_dims=1)
    return 0.5 * tf.reduce_mean(tf.square(mel_BTM - means_BTM), axis=-1)


def find_speech(mel_BTM: Tensor, lengths_B: Tensor) -> Tensor:
    """Mask [B, T] of the frames with speech: not much quieter than the loud ones of the clip."""
    num_frames = mel_BTM.shape[1]
    is_frame_BT = tf.sequence_mask(lengths_B, num_frames)
    level_BT = tf.where(is_frame_BT, tf.reduce_mean(tf.cast(mel_BTM, tf.float32), axis=2), -float("inf"))
    place_B = tf.cast((1 - _LOUD_PERCENTILE / 100) * tf.cast(lengths_B, tf.float32), tf.int32)
    loud_B = tf.gather(tf.sort(level_BT, axis=1, direction="DESCENDING"), place_B, batch_dims=1)
    return tf.cast(is_frame_BT & (level_BT >= loud_B[:, None] - _SPEECH_RANGE_DB / _DB_PER_NAT), tf.float32)


def _find_tail(is_state_BS: Tensor) -> Tensor:
    """Mask [B, S] of the last states of each text."""
    rank_BS = tf.cast(tf.cumsum(tf.cast(is_state_BS, tf.int32), axis=1), tf.float32)
    return is_state_BS & (rank_BS > (1 - _TAIL_SHARE) * rank_BS[:, -1:])


def _average(values_BT: Tensor, weights_BT: Tensor) -> Tensor:
    """Weighted mean over time [B]; [B, M] of values [B, T, M]."""
    if len(values_BT.shape) > len(weights_BT.shape):
        weights_BT = weights_BT[..., None]
    return tf.reduce_sum(values_BT * weights_BT, axis=1) / tf.maximum(tf.reduce_sum(weights_BT, axis=1), 1e-3)


@dataclass(frozen=True, slots=True)
class SoundScores:
    """What the log-mel of a clip says without a model."""

    num_frames: int
    level_db: float
    noise_db: float
    end_db: float
    spectrum_M: Floats


def measure_sound(mel_TM: Floats) -> SoundScores:
    """Levels of speech, of the quietest and of the last frames, and the mean spectrum of speech at equal level."""
    levels_db = _DB_PER_NAT * np.log(np.mean(np.exp(mel_TM), axis=1))
    noise_db, loud_db = np.percentile(levels_db, (_QUIET_PERCENTILE, _LOUD_PERCENTILE))
    is_speech_T = levels_db >= loud_db - _SPEECH_RANGE_DB
    spectrum_M = _DB_PER_NAT * mel_TM[is_speech_T].mean(axis=0)
    end_db = float(levels_db[-_END_FRAMES:].mean() - loud_db)
    return SoundScores(
        len(mel_TM), float(loud_db), float(noise_db), end_db, (spectrum_M - spectrum_M.mean()).astype(np.float32)
    )
