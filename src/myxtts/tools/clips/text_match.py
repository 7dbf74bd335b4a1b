"""Tells whether a clip says its text: the text is aligned anew by the phone classifier, and compared with decoys.

The path of the trained model is only the beginning: a Viterbi search with the log-odds of the phone classifier gives a
better one, from which the classifier is estimated again, as a monophone recogniser is trained. The same search aligns
some *decoys* with each clip, texts of other clips that have about as many phones. A right text fits much better than
its decoys, a wrong one fits like one of them, however short the clip, weak the model or foreign the accent.

Every second frame is looked at: twice as fast, and neighbours say nearly the same.
Shape legend: T frames, C classes, R texts of one clip (its own and decoys), S states.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Labels = NDArray[np.int32]
PAUSE = -1
"""Class of a state between phones, and of a phone that is too rare to be judged."""
_PAUSE_LOG_ODDS = -4.0
"""Of a frame of speech in a pause, or in a phone that is not judged."""
_IMPOSSIBLE = -1e9


def align_texts(log_odds_TC: Floats, is_speech_T: NDArray[np.bool_], texts: Sequence[Labels]) -> tuple[Floats, Labels]:
    """Aligns texts, each a sequence [S] of classes, with the frames of a clip.

    Returns the mean log-odds [R] of the speech frames on the best path of each text, and the classes [T] on that of the
    first. A text with too many states for the frames gets the worst mean, `_PAUSE_LOG_ODDS`.
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
    return np.maximum(total_R, _PAUSE_LOG_ODDS).astype(np.float32), path_T.astype(np.int32)


def choose_decoys(num_phones_N: NDArray[np.int64], num_decoys: int) -> NDArray[np.int64]:
    """Numbers [N, K] of the clips whose texts are the decoys of each clip: texts of nearly the same length."""
    order_N = np.argsort(num_phones_N, kind="stable")
    place_N = np.empty_like(order_N)
    place_N[order_N] = np.arange(len(order_N))
    steps_K = np.array([step * sign for step in range(1, num_decoys + 1) for sign in (1, -1)])[:num_decoys]
    return order_N[np.clip(place_N[:, None] + 3 * steps_K, 0, len(order_N) - 1)]
