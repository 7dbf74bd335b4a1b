"""Tells whether a clip says its text: the text is aligned anew by the phone classifier, and compared with decoys.

The path of the trained model is only the beginning: a Viterbi search with the log-odds of the phone classifier gives a
better one, from which the classifier is estimated again, as a monophone recogniser is trained. The same search aligns
some *decoys* with each clip, texts of other clips that have about as many phones. A right text fits much better than
its decoys, a wrong one fits like one of them, however short the clip, weak the model or foreign the accent.

Every second frame is looked at: twice as fast, and neighbours say nearly the same.
Shape legend: T frames, C classes, R texts of one clip (its own and decoys), S states.
"""

# ruff: noqa: N815 - fields carry the shape of their arrays

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Labels = NDArray[np.int32]
PAUSE = -1
"""Class of a state between phones, and of a phone that is too rare to be judged."""
_PAUSE_LOG_ODDS = -4.0
"""Of a frame of speech in a pause, or in a phone that is not judged."""
_IMPOSSIBLE = -1e9
_FEWEST_END_FRAMES = 3
_DECOY_DISTANCE = 3
"""Places in order of length from one decoy to the next, so that not always the same few texts are compared."""


class TextMatch(NamedTuple):
    """Mean log-odds [R] of the speech frames on the best path of each text; classes and log-odds [T] of the first."""

    goodness_R: Floats
    labels_T: Labels
    log_odds_T: Floats

    def measure_end_change(self) -> float:
        """Mean log-odds of the last quarter of the speech, less that of the rest: below 0 where the end is missing."""
        speech_T = self.log_odds_T[self.log_odds_T <= 0]
        tail = max(_FEWEST_END_FRAMES, len(speech_T) // 4)
        return float(speech_T[-tail:].mean() - speech_T[:-tail].mean()) if len(speech_T) > tail else 0.0


def align_texts(log_odds_TC: Floats, is_speech_T: NDArray[np.bool_], texts: Sequence[Labels]) -> TextMatch:
    """Aligns texts, each a sequence [S] of classes, with the frames of a clip.

    A text with too many states for the frames gets the worst mean, `_PAUSE_LOG_ODDS`.
    """
    num_texts, num_frames = len(texts), len(log_odds_TC)
    most = max(len(text) for text in texts)
    class_RS = np.full((num_texts, most), PAUSE, np.int64)
    for number, text in enumerate(texts):
        class_RS[number, : len(text)] = text
    last_R = np.array([len(text) - 1 for text in texts])
    # The last column is that of a pause.
    scores_TC = np.concatenate([log_odds_TC, np.full((num_frames, 1), _PAUSE_LOG_ODDS, np.float32)], axis=1)
    scores_TC[~is_speech_T] = 0.0
    # A pause may be left out, and so may one half of a phone.
    best_RS = np.full((num_texts, most), _IMPOSSIBLE, np.float32)
    best_RS[:, :2] = scores_TC[0][class_RS[:, :2]]
    jump_TRS = np.zeros((num_frames, num_texts, most), np.int8)
    for frame in range(1, num_frames):
        choices = np.full((3, num_texts, most), _IMPOSSIBLE, np.float32)
        choices[0] = best_RS
        choices[1, :, 1:] = best_RS[:, :-1]
        choices[2, :, 2:] = best_RS[:, :-2]
        jump_TRS[frame] = choices.argmax(axis=0)
        best_RS = choices.max(axis=0) + scores_TC[frame][class_RS]
    rows = np.arange(num_texts)
    ends_R = np.where(best_RS[rows, last_R] >= best_RS[rows, last_R - 1], last_R, last_R - 1)
    total_R = best_RS[rows, ends_R] / max(1, int(is_speech_T.sum()))
    path_T = np.empty(num_frames, np.int64)
    state = int(ends_R[0])
    for frame in range(num_frames - 1, -1, -1):
        path_T[frame] = class_RS[0, state]
        state -= int(jump_TRS[frame, 0, state])
    # Frames without speech say nothing; a positive value marks them.
    log_odds_T = np.where(is_speech_T, scores_TC[np.arange(num_frames), path_T], 1.0).astype(np.float32)
    goodness_R = np.maximum(total_R, _PAUSE_LOG_ODDS).astype(np.float32)
    return TextMatch(goodness_R, path_T.astype(np.int32), log_odds_T)


def choose_decoys(texts: Sequence[Labels], num_decoys: int) -> list[list[int]]:
    """Numbers of the clips whose texts are the decoys of each clip: other texts of nearly the same length."""
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    steps = [sign * _DECOY_DISTANCE * step for step in range(1, 4 * num_decoys + 1) for sign in (1, -1)]
    decoys: list[list[int]] = [[] for _ in texts]
    for place, number in enumerate(order):
        near = (order[place + step] for step in steps if 0 <= place + step < len(order))
        # Speakers of one corpus often read the same sentences.
        others = (other for other in near if not np.array_equal(texts[other], texts[number]))
        decoys[number] = list(islice(others, num_decoys))
    return decoys
