"""A linear phone classifier that is estimated from the corpus itself, to tell right texts from wrong ones.

The alignments of the trained model label each frame with the state of a phone. From these labels linear discriminant
analysis (LDA) estimates the mean of each state and one covariance within states, of log-mels with their neighbours,
each clip's own mean removed. A few wrong labels hardly move the estimates. The goodness of pronunciation (GOP, Witt and
Young, 2000) of a clip is the mean over its speech frames of log p(its own phone) - log p(the most likely phone): near 0
where sound and text agree, far below where the text is another one. Phones up to `_TOLERANCE_FRAMES` away on the path
count as its own, since borders of phones are not exact.

Statistics are sums, so that memory does not grow with the corpus.
Shape legend: T frames, M mel bands, F features, C classes, K classes that are frequent enough.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Labels = NDArray[np.int32]
_OFFSETS = (-6, -3, 0, 3, 6)
"""Frames whose log-mels are the features of a frame, before and behind it."""
_BANDS_PER_FEATURE = 2
"""Neighbouring mel bands are averaged: half the features, and less noise in the covariance."""
_SHRINKAGE = 0.02
"""Share of the mean variance that is added to the covariance, so that small corpora have an inverse."""
_FEWEST_FRAMES = 30
"""Frames from which on a class counts; rarer ones are not judged."""
_TOLERANCE_FRAMES = 6
NOT_SPEECH = -1
"""Label of frames that are pauses, or not speech."""


def make_features(mel_TM: Floats, is_speech_T: NDArray[np.bool_]) -> Floats:
    """Features [T, F]: log-mels of the frame and its neighbours, the mean over the clip's speech removed."""
    pooled = mel_TM[:, : mel_TM.shape[1] // _BANDS_PER_FEATURE * _BANDS_PER_FEATURE]
    pooled = pooled.reshape(len(mel_TM), -1, _BANDS_PER_FEATURE).mean(axis=2)
    centred = pooled - pooled[is_speech_T].mean(axis=0)
    places = np.arange(len(mel_TM))
    shifted = [centred[np.clip(places + offset, 0, len(mel_TM) - 1)] for offset in _OFFSETS]
    return np.concatenate(shifted, axis=1).astype(np.float32)


def count_features(num_bands: int) -> int:
    return len(_OFFSETS) * (num_bands // _BANDS_PER_FEATURE)


class PhoneClassifier:
    """LDA over labelled frames: `add` all clips, `fit`, then `score` clips."""

    def __init__(self, num_classes: int, num_features: int) -> None:
        self._counts_C = np.zeros(num_classes)
        self._sums_CF = np.zeros((num_classes, num_features))
        self._scatter_FF = np.zeros((num_features, num_features))

    def add(self, features_TF: Floats, labels_T: Labels) -> None:
        """Adds the frames of a clip; those labelled NOT_SPEECH are left out."""
        is_counted_T = labels_T != NOT_SPEECH
        features, labels = features_TF[is_counted_T].astype(np.float64), labels_T[is_counted_T]
        np.add.at(self._sums_CF, labels, features)
        self._counts_C += np.bincount(labels, minlength=len(self._counts_C))
        self._scatter_FF += features.T @ features

    def fit(self) -> None:
        """Estimates the means and the transform under which the covariance within classes is the identity."""
        num_frames = max(1.0, self._counts_C.sum())
        means_CF = self._sums_CF / np.maximum(self._counts_C, 1.0)[:, None]
        between_FF = (means_CF * self._counts_C[:, None]).T @ means_CF
        within_FF = (self._scatter_FF - between_FF) / num_frames
        num_features = len(within_FF)
        within_FF += np.eye(num_features) * (_SHRINKAGE * np.trace(within_FF) / num_features + 1e-6)
        values_F, vectors_FF = np.linalg.eigh(within_FF)
        self._whiten_FF = vectors_FF / np.sqrt(np.maximum(values_F, 1e-9))
        self._known_K = np.flatnonzero(self._counts_C >= _FEWEST_FRAMES)
        self._means_KF = means_CF[self._known_K] @ self._whiten_FF
        self._place_C = np.full(len(self._counts_C), NOT_SPEECH)
        self._place_C[self._known_K] = np.arange(len(self._known_K))

    def score(self, features_TF: Floats, labels_T: Labels, ranges: Sequence[slice]) -> list[float]:
        """Goodness of pronunciation over the speech frames of each range; 0 where a range has none."""
        own_T = np.where(labels_T == NOT_SPEECH, NOT_SPEECH, self._place_C[np.maximum(labels_T, 0)])
        is_counted_T = own_T != NOT_SPEECH
        if not is_counted_T.any():
            return [0.0] * len(ranges)
        whitened_TF = features_TF @ self._whiten_FF
        products_TK = whitened_TF @ self._means_KF.T - 0.5 * np.square(self._means_KF).sum(axis=1)
        log_odds_TK = products_TK - products_TK.max(axis=1, keepdims=True)
        near_T = np.full(len(labels_T), -np.inf)
        places = np.arange(len(labels_T))
        for offset in range(-_TOLERANCE_FRAMES, _TOLERANCE_FRAMES + 1):
            other_T = own_T[np.clip(places + offset, 0, len(labels_T) - 1)]
            near_T = np.maximum(near_T, np.where(other_T == NOT_SPEECH, -np.inf, log_odds_TK[places, other_T]))
        goodness_T = np.where(is_counted_T, near_T, 0.0)
        return [float(goodness_T[part].sum() / max(1, is_counted_T[part].sum())) for part in ranges]
