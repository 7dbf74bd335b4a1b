"""Validation metrics of the voice model on fixed utterances with fixed noise, and the score that picks checkpoints.

The score is the log-mel distance of synthesised from real spectrograms with the real durations and F0, plus a quarter
of the relative error of predicted token durations. Durations weigh less because those of held-out texts soon stop
improving while speech still becomes clearer. The flow loss does not track quality; the prior would count twice, because
its means are what the decoder starts from.
Shape legend: B utterances, N tokens, S states, T frames, M mel bands, D width of a speaker embedding.
"""

# ruff: noqa: N815 - fields carry the shape of their tensors

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from myxtts.models.reference_encoder import Voice
from myxtts.models.xtts import XTTS, SpokenText
from myxtts.training.micro_batches import MicroBatch
from myxtts.training.terms import VOICE
from myxtts.training.voice.losses import VoiceLoss
from myxtts.training.voice.validation_set import FixedUtterance, pack_part
from myxtts.types import Tensor

SCORE = "score"
DURATION_SHARE = 0.25
"""Weight of the token duration error in the score; the module docstring says why it is small."""
NUM_STEPS = 4
"""Decoder steps: a quarter of those of synthesis. All scores use as many, and validation delays training less."""
_BATCH_SIZE = 8
"""Utterances that are measured at once; all micro-batches have one shape."""
_SPARE_SHARE = 1.25
"""Longest synthesised utterance, in multiples of the longest real one; the rest is cut off."""
_PAST_THE_DIAGONAL = 1
"""Number of the step given to the loss, and its `diagonal_steps`: the diagonal prior has weight 0 in validation."""


class _Measured(NamedTuple):
    """Sums of the loss terms, and values of each utterance, of one micro-batch."""

    sums: dict[str, Tensor]
    is_aligned_B: Tensor
    has_reference_B: Tensor
    mel_distance_B: Tensor
    length_error_B: Tensor
    token_error_B: Tensor
    predicted_frames_B: Tensor
    similarity_B: Tensor
    free_BTM: Tensor
    free_lengths_B: Tensor


class Evaluator:
    """Measures a model, with the weights it has, on utterances and with noise that stay the same.

    One graph is traced, at the first call.
    """

    def __init__(self, model: XTTS, utterances: Sequence[FixedUtterance], seed: int = 0) -> None:
        assert utterances, "there is nothing to evaluate on"
        self._model, self._seed = model, seed
        self._compute_loss = VoiceLoss(seed, diagonal_steps=_PAST_THE_DIAGONAL)
        num_rows = min(_BATCH_SIZE, len(utterances))
        groups = [utterances[start : start + num_rows] for start in range(0, len(utterances), num_rows)]
        # All of one shape: tracing a second one would take longer than the padding costs.
        self._groups = [(pack_part(group, num_rows, utterances), group) for group in groups]
        self._measure: Any = tf.function(self._measure_part, autograph=False)

    @property
    def num_traces(self) -> int:
        return int(self._measure.experimental_get_tracing_count())

    def evaluate(self) -> dict[str, float]:
        """Loss terms, each averaged over the utterances that have it, and these; lower is better if not said otherwise.

        mel_distance        mean absolute difference of log-mels, synthesised with the real durations and F0
        free_mel_distance   the same with predicted durations and F0, after dynamic time warping
        length_error        relative error of the predicted length of an utterance
        token_duration_error  relative error of the predicted durations of tokens
        length_ratio        predicted over real length of all utterances together
        speaker_similarity  cosine of the speaker embeddings of reference and synthesised speech; higher is better
        score               what checkpoints are compared by
        """
        return _summarize([(self._fetch(part), group) for part, group in self._groups])

    def _fetch(self, part: MicroBatch) -> _Measured:
        return _Measured(*tf.nest.map_structure(lambda tensor: tensor.numpy(), self._measure(part)))

    def _measure_part(self, part: MicroBatch) -> _Measured:
        """Measures one micro-batch in one graph: loss terms, decoding with real and with predicted durations."""
        model = self._model
        past = tf.constant(_PAST_THE_DIAGONAL, tf.int64)
        _, sums, (voice, states, alignment, pitch_BS) = self._compute_loss.measure(model, part, False, past)
        lengths_B, durations_BN = part["mel_lengths"], alignment.token_durations_BN
        forced = SpokenText(states, alignment.durations_BS, durations_BN, lengths_B, pitch_BS)
        free = model.time_text(states, part["token_lengths"])
        forced_BTM, free_BTM, free_lengths_B = self._decode(forced, free, voice, part["mel"].shape[1])
        synthesised = model.encode_voice(free_BTM, free_lengths_B)
        return _Measured(
            sums=sums,
            is_aligned_B=alignment.is_aligned_B & (lengths_B > 0),
            has_reference_B=part["reference_lengths"] > 0,
            mel_distance_B=_measure_distance(forced_BTM, part["mel"], lengths_B),
            length_error_B=_divide(tf.abs(free.mel_lengths_B - lengths_B), lengths_B),
            token_error_B=_divide(tf.reduce_sum(tf.abs(free.durations_BN - forced.durations_BN), axis=1), lengths_B),
            predicted_frames_B=free.mel_lengths_B,
            similarity_B=_measure_cosine(voice.vector_BD, synthesised.vector_BD),
            free_BTM=free_BTM,
            free_lengths_B=free_lengths_B,
        )

    def _decode(
        self, forced: SpokenText, free: SpokenText, voice: Voice, num_frames: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Spectrograms with real and with predicted durations, as rows of one batch, and the lengths of the latter."""
        num_free = int(_SPARE_SHARE * num_frames)
        both, voices = (
            tf.nest.map_structure(lambda *pair: tf.concat(pair, axis=0), *pair)
            for pair in ((forced, free), (voice, voice))
        )
        # Unfiltered: the modulation filter is calibrated separately, and must not change the score.
        mel_BTM = self._model.decode(
            both, voices, num_frames=num_free, num_steps=NUM_STEPS, seed=self._seed, is_filtered=False
        )
        forced_BTM, free_BTM = tf.split(mel_BTM, 2)
        return forced_BTM[:, :num_frames], free_BTM, tf.minimum(free.mel_lengths_B, num_free)


def _summarize(parts: Sequence[tuple[_Measured, Sequence[FixedUtterance]]]) -> dict[str, float]:
    """Means over the utterances, and the score."""
    num_real = sum(len(group) for _, group in parts)
    is_aligned, has_reference = _join(parts, "is_aligned_B"), _join(parts, "has_reference_B")
    num_rows = {"real": num_real, "aligned": int(is_aligned.sum()), "speaker": int(has_reference.sum())}
    metrics = {
        term.name: float(sum(part.sums[term.name] for part, _ in parts)) / max(1, num_rows[term.over])
        for term in VOICE.terms
        if term.name in parts[0][0].sums
    }
    metrics["mel_distance"] = _average(_join(parts, "mel_distance_B"), is_aligned)
    # Replaces the loss term of this name: this value includes the length factor, as in synthesis.
    metrics["length_error"] = _average(_join(parts, "length_error_B"), is_aligned)
    metrics["token_duration_error"] = _average(_join(parts, "token_error_B"), is_aligned)
    num_frames = sum(utterance.num_frames for _, group in parts for utterance in group)
    metrics["length_ratio"] = float(_join(parts, "predicted_frames_B").sum() / num_frames)
    if has_reference.any():
        metrics["speaker_similarity"] = _average(_join(parts, "similarity_B"), has_reference)
    distances = [
        measure_warped_distance(part.free_BTM[row, : part.free_lengths_B[row]], utterance.mel_TM)
        for part, group in parts
        for row, utterance in enumerate(group)
    ]
    metrics["free_mel_distance"] = float(np.mean(distances))
    metrics[SCORE] = metrics["mel_distance"] + DURATION_SHARE * metrics["token_duration_error"]
    return metrics


def measure_warped_distance(one_TM: NDArray[Any], other_TM: NDArray[Any]) -> float:
    """Mean absolute difference after dynamic time warping (DTW): frames may be held, none may be left out.

    A step in both costs its difference twice and a step in one once (symmetric weights, Sakoe and Chiba 1978), so that
    all paths have the same length, by which the cost is divided.
    """
    # Imported here: the start of a training need not wait for it.
    from scipy.spatial.distance import cdist

    if len(one_TM) == 0 or len(other_TM) == 0 or not (np.isfinite(one_TM).all() and np.isfinite(other_TM).all()):
        return math.inf
    costs = cdist(one_TM, other_TM, "cityblock") / one_TM.shape[1]
    num_rows, num_columns = costs.shape
    before = np.full(num_rows + 1, np.inf)
    last = np.full(num_rows + 1, np.inf)
    # By anti-diagonals, whose cells do not depend on each other; row i is at index i + 1.
    for diagonal in range(num_rows + num_columns - 1):
        first, stop = max(0, diagonal - num_columns + 1), min(num_rows, diagonal + 1)
        rows = np.arange(first, stop)
        cost = costs[rows, diagonal - rows]
        best = np.full(num_rows + 1, np.inf)
        best[rows + 1] = np.minimum(np.minimum(last[rows], last[rows + 1]) + cost, before[rows] + 2 * cost)
        if diagonal == 0:
            best[1] = 2 * cost[0]
        before, last = last, best
    return float(last[num_rows] / (num_rows + num_columns))


def _join(parts: Sequence[tuple[_Measured, Sequence[FixedUtterance]]], field: str) -> NDArray[Any]:
    """Concatenates a field of all micro-batches, without padding rows."""
    return np.concatenate([np.asarray(getattr(part, field))[: len(group)] for part, group in parts])


def _average(values: NDArray[Any], is_counted: NDArray[Any]) -> float:
    """Mean of the counted values; infinite without any, so that the score is never the best."""
    return float(values[is_counted].mean()) if is_counted.any() else math.inf


def _measure_distance(one_BTM: Tensor, other_BTM: Tensor, lengths_B: Tensor) -> Tensor:
    """Mean absolute difference of log-mels [B], over the real frames."""
    is_real_BT = tf.sequence_mask(lengths_B, one_BTM.shape[1], tf.float32)
    difference_BT = tf.reduce_mean(tf.abs(one_BTM - other_BTM), axis=-1)
    return tf.reduce_sum(difference_BT * is_real_BT, axis=1) / tf.maximum(tf.reduce_sum(is_real_BT, axis=1), 1.0)


def _measure_cosine(one_BD: Tensor, other_BD: Tensor) -> Tensor:
    """Cosine similarity of speaker embeddings [B]; 0 for zero vectors."""
    one_BD, other_BD = (tf.math.l2_normalize(vector, axis=-1, epsilon=1e-6) for vector in (one_BD, other_BD))
    return tf.reduce_sum(one_BD * other_BD, axis=-1)


def _divide(part_B: Tensor, whole_B: Tensor) -> Tensor:
    """Ratio as float32 [B]; a denominator of 0 counts as 1."""
    return tf.cast(part_B, tf.float32) / tf.cast(tf.maximum(whole_B, 1), tf.float32)
