"""Turns texts with approximate places, from an alignment or from subtitles, into phrases between pauses.

The border between two texts is moved to a pause near it. Where there is none, the two texts stay in one phrase: a clip
is cut in pauses only. Speech between two texts that belongs to neither is left out, with a note.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from myxtts.tools.collect.cuts import Pause, Phrase

_PAUSE_BONUS_S = 0.3
"""A pause of a second may be that much farther from the border than none."""
_END_WEIGHT = 0.5
"""An alignment knows the start of a sentence better than its end, which fades away."""

_MIN_UNTOLD_S = 1.0
"""Of speech between two subtitles; less is a subtitle that ends early or begins late."""


@dataclass(frozen=True, slots=True)
class TimedText:
    """A text and about where it is spoken. `doubt` says why it may be wrong; `is_alone` that foreign speech follows."""

    text: str
    start_s: float
    end_s: float
    doubt: str = ""
    ends_sentence: bool = True
    is_alone: bool = False


@dataclass(frozen=True, slots=True)
class Snapped:
    """Phrases, in which texts without a pause between are joined; `silent` are texts that have no sound at all.

    `befores` and `afters` are the pauses before and behind each text, None where none is near.
    """

    phrases: list[Phrase]
    silent: list[TimedText]
    befores: list[Pause | None]
    afters: list[Pause | None]


def mark_untold_speech(texts: Sequence[TimedText], pauses: Sequence[Pause]) -> list[TimedText]:
    """Marks texts that are followed by other speech before the next text begins, as where a subtitle is missing.

    Without the mark, such speech would become part of the clip before or behind it.
    """
    starts = [following.start_s for following in texts[1:]]
    speech = [(pause.end_s, following.start_s) for pause, following in pairwise(pauses)]
    return [
        replace(text, is_alone=_measure_overlap(speech, text.end_s, start_s) >= _MIN_UNTOLD_S)
        for text, start_s in zip(texts, [*starts, texts[-1].end_s], strict=True)
    ]


def _measure_overlap(speech: Sequence[tuple[float, float]], start_s: float, end_s: float) -> float:
    first = bisect_right(speech, start_s, key=lambda part: part[1])
    inside = itertools.takewhile(lambda part: part[0] < end_s, itertools.islice(speech, first, None))
    return sum(min(stop, end_s) - max(start, start_s) for start, stop in inside)


def snap_to_pauses(texts: Sequence[TimedText], pauses: Sequence[Pause], max_distance_s: float) -> Snapped:
    """Moves the borders of texts to pauses, and makes phrases of them."""
    befores, afters = _find_borders(texts, _PauseFinder(pauses, max_distance_s))
    phrases: list[Phrase] = []
    silent: list[TimedText] = []
    group: list[TimedText] = []
    before = pauses[0]
    for text, own_before, own_after in zip(texts, befores, afters, strict=True):
        doubt = text.doubt
        if not group:
            before = own_before or _find_last(pauses, text.start_s)
            doubt = doubt or ("" if own_before else "no pause is near its start")
        group.append(replace(text, doubt=doubt))
        if own_after is None and not text.is_alone and text is not texts[-1]:
            continue
        after = own_after or _find_next(pauses, text.end_s)
        doubts = [one.doubt for one in group if one.doubt] or ([] if own_after else ["no pause is near its end"])
        if after.start_s > before.end_s:
            words = " ".join(one.text for one in group)
            phrases.append(Phrase(before, after, words, next(iter(doubts), ""), text.ends_sentence))
        else:
            silent += group
        group = []
    return Snapped(phrases, silent, befores, afters)


def _find_borders(texts: Sequence[TimedText], finder: _PauseFinder) -> tuple[list[Pause | None], list[Pause | None]]:
    """Returns the pause before and the pause behind each text, None where none is near.

    Neighbours share the pause between them, unless speech that belongs to neither lies there. Two borders cannot be the
    same pause: the one that is farther from it has none, so that a short text goes to its neighbour and is not lost.
    """
    shared: list[tuple[Pause, float] | None] = [
        None if text.is_alone else finder.find(text.end_s, following.start_s) for text, following in pairwise(texts)
    ]
    for place in range(1, len(shared)):
        last, own = shared[place - 1], shared[place]
        if last is not None and own is not None and own[0].start_s <= last[0].start_s:
            shared[place - 1 if own[1] < last[1] else place] = None
    befores, afters = [_take(finder.find(None, texts[0].start_s))], []
    for (text, following), pause in zip(pairwise(texts), shared, strict=True):
        afters.append(_take(finder.find(text.end_s, None) if text.is_alone else pause))
        befores.append(_take(finder.find(None, following.start_s) if text.is_alone else pause))
    return befores, [*afters, _take(finder.find(texts[-1].end_s, None))]


def _take(found: tuple[Pause, float] | None) -> Pause | None:
    return found[0] if found else None


def _find_last(pauses: Sequence[Pause], place_s: float) -> Pause:
    return next((pause for pause in reversed(pauses) if pause.end_s <= place_s), pauses[0])


def _find_next(pauses: Sequence[Pause], place_s: float) -> Pause:
    return next((pause for pause in pauses if pause.start_s >= place_s), pauses[-1])


class _PauseFinder:
    """Finds the pause that fits the end of one text and the start of the next best."""

    def __init__(self, pauses: Sequence[Pause], max_distance_s: float) -> None:
        self._pauses = pauses
        self._starts = np.array([pause.start_s for pause in pauses])
        self._ends = np.array([pause.end_s for pause in pauses])
        self._bonus = _PAUSE_BONUS_S * np.minimum(self._ends - self._starts, 1.0)
        self._max_distance_s = max_distance_s

    def find(self, end_s: float | None, start_s: float | None) -> tuple[Pause, float] | None:
        """Returns the pause and how far it is, None where no pause is near. Without one of the two the other counts."""
        distances = []
        if start_s is not None:
            distances.append(np.abs(self._ends - start_s))
        if end_s is not None:
            distances.append(np.abs(self._starts - end_s) * (_END_WEIGHT if distances else 1.0))
        chosen = int(np.argmin(sum(distances) - self._bonus))
        distance_s = min(float(part[chosen]) for part in distances)
        return (self._pauses[chosen], distance_s) if distance_s <= self._max_distance_s else None
