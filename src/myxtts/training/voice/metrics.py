"""How good a model is on a fixed validation set, with fixed noise: the numbers that track quality, and one score.

The score is the distance of synthesised from real spectrograms, with the real rhythm and pitch, plus a quarter of the
error of the predicted rhythm: the two things a listener hears. Rhythm counts for less because durations of a held-out
text soon stop improving while speech still becomes clearer. The flow loss is no part of it, for it does not track
quality, and neither is the prior, whose means are what synthesis starts from, so that it would count twice.
Shape legend: B utterances, N tokens, S states, T frames, M mel bands, D width of a voice.
"""

# ruff: noqa: N815 - fields carry the shape of their tensors

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from myxtts.models.reference_encoder import Voice
from myxtts.models.xtts import XTTS, SpokenText
from myxtts.training.step import MicroBatch
from myxtts.training.voice.losses import make_loss
from myxtts.training.voice.validation_set import FixedUtterance, pack_part
from myxtts.types import Tensor

SCORE = "score"
DURATION_SHARE = 0.25
NUM_STEPS = 4
"""A quarter of what synthesis takes: all that is compared takes as many, and validation delays training less."""
_BATCH_SIZE = 8
_SPARE_SHARE = 1.25
"""How much longer than the longest real utterance a synthesised one may be before it is cut off."""
_PAST_THE_DIAGONAL = 1
_OF_ALIGNED = ("flow", "prior", "duration")
"""Sums of losses that leave out what cannot be aligned."""


class _Measured(NamedTuple):
    """What the graph knows of a part, by utterance, beside the sums of the losses."""

    sums: dict[str, Tensor]
    is_used_B: Tensor
    mel_distance_B: Tensor
    length_error_B: Tensor
    token_error_B: Tensor
    predicted_frames_B: Tensor
    similarity_B: Tensor
    is_heard_B: Tensor
    free_BTM: Tensor
    free_lengths_B: Tensor


class Evaluator:
    """Measures a model, with the weights it has, on utterances that stay the same, and with noise that does.

    One graph is traced, at the first call; what a call makes is gone when it returns.
    """

    def __init__(
        self,
        model: XTTS,
        utterances: Sequence[FixedUtterance],
        *,
        seed: int = 0,
        num_steps: int = NUM_STEPS,
        jit_compile: bool = False,
        is_free_running: bool = True,
    ) -> None:
        assert utterances, "there is nothing to evaluate on"
        self._model = model
        self._seed, self._num_steps, self._is_free_running = seed, num_steps, is_free_running
        self._compute_loss = make_loss(seed, diagonal_steps=_PAST_THE_DIAGONAL)
        num_rows = min(_BATCH_SIZE, len(utterances))
        groups = [utterances[start : start + num_rows] for start in range(0, len(utterances), num_rows)]
        # All of one shape: tracing another takes longer than the padding ever will.
        self._groups = [(pack_part(group, num_rows, utterances), group) for group in groups]
        self._measure: Any = tf.function(self._measure_part, autograph=False, jit_compile=jit_compile)

    @property
    def num_traces(self) -> int:
        return int(self._measure.experimental_get_tracing_count())

    def evaluate(self) -> dict[str, float]:
        """Means over the utterances that can be aligned. Lower is better, but for `speaker_similarity` and accuracy.

        mel_distance        mean absolute difference of log-mels, synthesised with the real durations and pitch
        free_mel_distance   the same with those predicted, along the best warping of time
        length_error        by what share predicted lengths of utterances are off
        token_duration_error  by what share durations of tokens are off
        length_ratio        predicted over real length of all utterances together
        """
        measured = [(self._fetch(part), group) for part, group in self._groups]
        return summarize(measured, self._is_free_running)

    def _fetch(self, part: MicroBatch) -> _Measured:
        return _Measured(*tf.nest.map_structure(lambda tensor: tensor.numpy(), self._measure(part)))

    def _measure_part(self, part: MicroBatch) -> _Measured:
        model = self._model
        _, sums = self._compute_loss(model, part, False, tf.constant(_PAST_THE_DIAGONAL, tf.int64))
        voice = model.encode_voice(part["reference"], part["reference_lengths"])
        states = model.encode_text(part["tokens"], part["token_lengths"], part["language"], voice)
        lengths_B = part["mel_lengths"]
        forced, alignment = model.time_as_recorded(states, part["mel"], lengths_B)
        spoken = self._model.time_text(states, part["token_lengths"])
        forced_BTM, free_BTM, free_lengths_B = self._decode(forced, spoken, voice, part["mel"].shape[1])
        heard = model.encode_voice(free_BTM, free_lengths_B)
        return _Measured(
            sums={name: value for name, value in sums.items() if name != "length_error"},
            is_used_B=alignment.is_aligned_B & (lengths_B > 0),
            mel_distance_B=_measure_distance(forced_BTM, part["mel"], lengths_B),
            length_error_B=_divide(tf.abs(spoken.mel_lengths_B - lengths_B), lengths_B),
            token_error_B=_divide(tf.reduce_sum(tf.abs(spoken.durations_BN - forced.durations_BN), axis=1), lengths_B),
            predicted_frames_B=spoken.mel_lengths_B,
            similarity_B=_compare_voices(voice.vector_BD, heard.vector_BD),
            is_heard_B=part["reference_lengths"] > 0,
            free_BTM=free_BTM,
            free_lengths_B=free_lengths_B,
        )

    def _decode(
        self, forced: SpokenText, free: SpokenText, voice: Voice, num_frames: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Spectrograms with real and with predicted durations, as rows of one batch, and the lengths of the latter."""
        # Not filtered: the score must not move because the filter, which belongs to more steps, was measured anew.
        settings: dict[str, Any] = {"num_steps": self._num_steps, "seed": self._seed, "is_filtered": False}
        if not self._is_free_running:
            forced_BTM = self._model.decode(forced, voice, num_frames=num_frames, **settings)
            return forced_BTM, forced_BTM, forced.mel_lengths_B
        num_free = int(_SPARE_SHARE * num_frames)
        both, voices = (
            tf.nest.map_structure(lambda *pair: tf.concat(pair, axis=0), *pair)
            for pair in ((forced, free), (voice, voice))
        )
        mel_BTM = self._model.decode(both, voices, num_frames=num_free, **settings)
        forced_BTM, free_BTM = tf.split(mel_BTM, 2)
        return forced_BTM[:, :num_frames], free_BTM, tf.minimum(free.mel_lengths_B, num_free)


def summarize(
    measured: Iterable[tuple[Any, Sequence[FixedUtterance]]], is_free_running: bool = True
) -> dict[str, float]:
    """One number for each thing measured, and the score."""
    parts = list(measured)
    num_real = sum(len(group) for _, group in parts)
    is_used, is_heard = _join(parts, "is_used_B"), _join(parts, "is_heard_B")
    num_used = max(1, int(is_used.sum()))
    metrics = {
        name: float(sum(part.sums[name] for part, _ in parts)) / (num_used if name in _OF_ALIGNED else num_real)
        for name in parts[0][0].sums
    }
    metrics["mel_distance"] = _average(_join(parts, "mel_distance_B"), is_used)
    metrics["length_error"] = _average(_join(parts, "length_error_B"), is_used)
    metrics["token_duration_error"] = _average(_join(parts, "token_error_B"), is_used)
    num_frames = sum(utterance.num_frames for _, group in parts for utterance in group)
    metrics["length_ratio"] = float(_join(parts, "predicted_frames_B").sum() / num_frames)
    if is_heard.any():
        metrics["speaker_similarity"] = _average(_join(parts, "similarity_B"), is_heard)
    if is_free_running:
        metrics["free_mel_distance"] = float(np.mean([distance for part in parts for distance in _warp(*part)]))
    metrics[SCORE] = metrics["mel_distance"] + DURATION_SHARE * metrics["token_duration_error"]
    return metrics


def measure_warped_distance(one_TM: NDArray[Any], other_TM: NDArray[Any]) -> float:
    """Mean absolute difference along the best warping of time: frames may be held, none may be left out.

    A step in both costs its difference twice and a step in one once, so that the path is as long whichever way it goes.
    """
    if len(one_TM) == 0 or len(other_TM) == 0 or not (np.isfinite(one_TM).all() and np.isfinite(other_TM).all()):
        return math.inf
    costs = cdist(one_TM, other_TM, "cityblock") / one_TM.shape[1]
    num_rows, num_columns = costs.shape
    before = np.full(num_rows + 1, np.inf)
    last = np.full(num_rows + 1, np.inf)
    # Along diagonals, where no cell depends on another; place i + 1 holds row i.
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


def _warp(part: Any, group: Sequence[FixedUtterance]) -> Iterator[float]:
    for row, utterance in enumerate(group):
        yield measure_warped_distance(part.free_BTM[row, : part.free_lengths_B[row]], utterance.mel_TM)


def _join(parts: Sequence[tuple[Any, Sequence[FixedUtterance]]], field: str) -> NDArray[Any]:
    """A value for every utterance, without those of rows that fill a shape."""
    return np.concatenate([np.asarray(getattr(part, field))[: len(group)] for part, group in parts])


def _average(values: NDArray[Any], is_counted: NDArray[Any]) -> float:
    return float(values[is_counted].mean()) if is_counted.any() else math.inf


def _measure_distance(one_BTM: Tensor, other_BTM: Tensor, lengths_B: Tensor) -> Tensor:
    is_real_BT = tf.sequence_mask(lengths_B, one_BTM.shape[1], tf.float32)
    difference_BT = tf.reduce_mean(tf.abs(one_BTM - other_BTM), axis=-1)
    return tf.reduce_sum(difference_BT * is_real_BT, axis=1) / tf.maximum(tf.reduce_sum(is_real_BT, axis=1), 1.0)


def _compare_voices(one_BD: Tensor, other_BD: Tensor) -> Tensor:
    one_BD, other_BD = (tf.math.l2_normalize(vector, axis=-1, epsilon=1e-6) for vector in (one_BD, other_BD))
    return tf.reduce_sum(one_BD * other_BD, axis=-1)


def _divide(part_B: Tensor, whole_B: Tensor) -> Tensor:
    return tf.cast(part_B, tf.float32) / tf.cast(tf.maximum(whole_B, 1), tf.float32)
