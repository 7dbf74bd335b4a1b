"""Decides where a recording is cut: finds its pauses, and groups the speech between them into clips.

A *phrase* is speech between two pauses. Consecutive phrases are grouped so that clips have the wanted length, begin and
end in long pauses rather than short ones, and hold no long silence; dynamic programming finds the grouping of least
cost. A clip is never cut but in a pause: speech without one stays whole, and is rejected where it is too long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from myxtts.tools.collect.activity import LEVEL_S, RECORD_S, Activity
from myxtts.types import Floats

MARGIN_S = 0.25
"""Kept before and after the speech of a clip, where the pause is long enough: soft consonants begin before the detector
is sure of speech."""
_MIN_MARGIN_S, _SHORT_CLIP_MARGIN_S = 0.12, 0.6
"""Kept instead where a clip would otherwise be too long or too short."""
_ONSET, _OFFSET = 0.5, 0.35
"""Probabilities at which speech begins and ends."""
_MIN_PAUSE_S = 0.15
_MIN_SPEECH_S = 0.1
"""Shorter ones are clicks."""
_EDGE_S = 0.03
"""Of a pause, in which it is not cut: the detector is late by about one of its steps."""
_MIN_DROP_DB = 8.0
"""By which the quietest place of a pause must be below the speech around it."""
_LOUD_RISE_DB, _LOUD_DROP_DB = 12.0, 12.0
"""Above the noise of the pause and below the speech around it: louder is speech that the detector missed."""
_MAX_LOUD_S, _MAX_CLOSURE_S = 0.4, 0.12
"""How far it reaches, and the silence of a consonant in it."""
_NEIGHBOURHOOD_S = 2.0
_QUIET_S = 0.04
"""Length of the quietest place."""
_LONG_PAUSE_S = 0.7
_MAX_PAUSE_INSIDE_S = 2.0
_IDEAL_S = 6.0
_TOO_SHORT_COST, _TOO_LONG_COST = 6.0, 12.0
_MAX_PHRASES = 60
"""In one clip; more would have pauses only."""
_MAX_PAUSE_IN_PIECE_S = 0.25
"""Speakers rarely change in a shorter one."""
_MIN_PIECE_S, _MAX_PIECE_S = 2.0, 5.0
_MIN_COMPARED_S = 0.6
"""Of speech whose voice can be told."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence between two phrases, in seconds from the start of the recording. `cut_s` is its quietest place."""

    start_s: float
    end_s: float
    cut_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Phrase:
    """Speech between two pauses. `text` is '' where nothing is known of it; `doubt` says why the text may be wrong.

    `ends_sentence` makes a better place to cut than the middle of a sentence. `strangeness` is how far its voice is
    from the main one, more than 1 being another voice.
    """

    before: Pause
    after: Pause
    text: str = ""
    doubt: str = ""
    ends_sentence: bool = False
    strangeness: float = 0.0

    @property
    def start_s(self) -> float:
        return self.before.end_s

    @property
    def end_s(self) -> float:
        return self.after.start_s

    @property
    def is_foreign(self) -> bool:
        return self.strangeness > 1


@dataclass(frozen=True, slots=True)
class Span:
    """A clip that is to be cut: from `start_s` to `end_s`, with margins around the speech."""

    start_s: float
    end_s: float
    phrases: tuple[Phrase, ...]

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def text(self) -> str:
        return " ".join(phrase.text for phrase in self.phrases if phrase.text)

    @property
    def doubt(self) -> str:
        return next((phrase.doubt for phrase in self.phrases if phrase.doubt), "")

    @property
    def strangeness(self) -> float:
        return max(phrase.strangeness for phrase in self.phrases)


def find_pauses(activity: Activity) -> list[Pause]:
    """Returns the pauses of a recording, in order; the first begins at 0 and the last ends with the recording.

    A recording without speech has one pause.
    """
    runs = [run for run in _find_speech(activity.speech) if (run[1] - run[0]) * RECORD_S >= _MIN_SPEECH_S]
    edges = [0.0, *(edge * RECORD_S for run in runs for edge in run), activity.duration_s]
    pauses = []
    for index in range(0, len(edges), 2):
        start_s, end_s = edges[index], edges[index + 1]
        is_first, is_last = index == 0, index == len(edges) - 2
        if not (is_first or is_last or _is_pause(activity.level_db, start_s, end_s)):
            continue
        missed_start_s, missed_end_s = _measure_missed(activity.level_db, start_s, end_s) if runs else (0.0, 0.0)
        start_s, end_s = start_s + missed_start_s * (not is_first), end_s - missed_end_s * (not is_last)
        pauses.append(Pause(start_s, end_s, find_quietest(activity.level_db, start_s, end_s)))
    return pauses


def _measure_missed(level_db: Floats, start_s: float, end_s: float) -> tuple[float, float]:
    """Returns how long a pause begins and ends as loud as speech: the detector may miss a syllable at an edge."""
    inside = _slice_levels(level_db, start_s, end_s)
    if len(inside) == 0:
        return 0.0, 0.0
    limit_db = max(
        float(np.percentile(inside, 20)) + _LOUD_RISE_DB, _measure_around(level_db, start_s, end_s) - _LOUD_DROP_DB
    )
    width = round(_QUIET_S / LEVEL_S)
    is_loud = np.convolve((inside > limit_db).astype(np.float32), np.full(width, 1 / width), "same") > 0.5
    return _count_loud(is_loud) * LEVEL_S, _count_loud(is_loud[::-1]) * LEVEL_S


def _count_loud(is_loud: NDArray[np.bool_]) -> int:
    """Returns how many levels at the start reach to the last loud one, with short closures between."""
    count = 0
    for place in np.flatnonzero(is_loud[: min(round(_MAX_LOUD_S / LEVEL_S), len(is_loud) // 2)]):
        if (place - count) * LEVEL_S > _MAX_CLOSURE_S:
            break
        count = int(place) + 1
    return count


def _find_speech(speech: Floats) -> list[tuple[int, int]]:
    """Returns the runs of speech as records (start, stop), with hysteresis between two probabilities."""
    certain, possible = speech >= _ONSET, speech >= _OFFSET
    edges = np.flatnonzero(np.diff(possible, prepend=False, append=False)).reshape(-1, 2)
    return [(int(start), int(stop)) for start, stop in edges if certain[start:stop].any()]


def _slice_levels(level_db: Floats, start_s: float, end_s: float) -> Floats:
    return level_db[max(0, round(start_s / LEVEL_S)) : max(0, round(end_s / LEVEL_S))]


def _is_pause(level_db: Floats, start_s: float, end_s: float) -> bool:
    """Whether it is long enough, and the level drops in it: the detector may fail inside a word."""
    if end_s - start_s < _MIN_PAUSE_S:
        return False
    inside = _slice_levels(level_db, start_s, end_s)
    return bool(np.percentile(inside, 25) < _measure_around(level_db, start_s, end_s) - _MIN_DROP_DB)


def _measure_around(level_db: Floats, start_s: float, end_s: float) -> float:
    """Returns the level of the speech beside a pause."""
    before = _slice_levels(level_db, start_s - _NEIGHBOURHOOD_S, start_s)
    behind = _slice_levels(level_db, end_s, end_s + _NEIGHBOURHOOD_S)
    return float(np.percentile(np.concatenate([before, behind]), 75))


def find_quietest(level_db: Floats, start_s: float, end_s: float) -> float:
    """Returns the quietest place of a pause, away from its edges; of equally quiet ones the middle."""
    middle_s = (start_s + end_s) / 2
    edge_s = min(_EDGE_S, (end_s - start_s) / 4)
    levels = _slice_levels(level_db, start_s + edge_s, end_s - edge_s)
    width = round(_QUIET_S / LEVEL_S)
    if len(levels) <= width:
        return middle_s
    smooth = np.convolve(levels, np.full(width, 1 / width), "valid")
    places_s = start_s + edge_s + (np.arange(len(smooth)) + width / 2) * LEVEL_S
    # A decibel for every tenth of the pause away from its middle, so that equal levels do not lead to an edge.
    penalty = 10 * np.abs(places_s - middle_s) / max(end_s - start_s, 1e-3)
    return float(places_s[int(np.argmin(smooth + penalty))])


def make_phrases(pauses: Sequence[Pause]) -> list[Phrase]:
    """Returns the speech between consecutive pauses."""
    return [Phrase(before, after) for before, after in pairwise(pauses)]


def plan_clips(phrases: Sequence[Phrase], min_s: float, max_s: float) -> list[Span]:
    """Groups phrases to clips of `min_s` to `max_s` seconds as far as pauses allow.

    Phrases whose neighbour begins with another pause than they end with are not joined: something lies between them.
    """
    best = [0.0] + [np.inf] * len(phrases)
    origin = [0] * (len(phrases) + 1)
    for stop in range(1, len(phrases) + 1):
        cut_cost = _cost_of_cut(phrases[stop - 1])
        inside_cost = 0.0
        for start in range(stop - 1, max(-1, stop - 1 - _MAX_PHRASES), -1):
            if start < stop - 1:
                pause = phrases[start].after
                is_joined = pause == phrases[start + 1].before and pause.length_s <= _MAX_PAUSE_INSIDE_S
                # A doubtful text or another voice must not spoil its neighbours.
                if not is_joined or _is_doubtful(phrases[start]) != _is_doubtful(phrases[start + 1]):
                    break
                inside_cost += 4 * max(0.0, pause.length_s - _LONG_PAUSE_S)
            span = _make_span(phrases[start:stop], min_s, max_s)
            if span.duration_s > max_s and start < stop - 1:
                break
            cost = best[start] + cut_cost + inside_cost + _cost_of_length(span, min_s, max_s)
            if cost < best[stop]:
                best[stop], origin[stop] = cost, start
    spans = []
    stop = len(phrases)
    while stop > 0:
        spans.append(_make_span(phrases[origin[stop] : stop], min_s, max_s))
        stop = origin[stop]
    return spans[::-1]


def plan_pieces(phrases: Sequence[Phrase]) -> list[Span]:
    """Groups phrases to pieces of one voice each, as a rule: a few seconds long, without a pause of some length.

    Pieces that are too short to tell their voice are left out.
    """
    groups: list[list[Phrase]] = []
    for phrase in phrases:
        last = groups[-1] if groups else [phrase]
        is_joined = last[-1].after == phrase.before and phrase.before.length_s <= _MAX_PAUSE_IN_PIECE_S
        is_short = last[-1].end_s - last[0].start_s < _MIN_PIECE_S
        if is_joined and is_short and phrase.end_s - last[0].start_s <= _MAX_PIECE_S:
            last.append(phrase)
        else:
            groups.append([phrase])
    compared = [group for group in groups if group[-1].end_s - group[0].start_s >= _MIN_COMPARED_S]
    return [_make_span(group, _MIN_PIECE_S, _MAX_PIECE_S) for group in compared]


def _is_doubtful(phrase: Phrase) -> tuple[bool, bool]:
    return bool(phrase.doubt), phrase.is_foreign


def _cost_of_cut(phrase: Phrase) -> float:
    """A cut costs more in a short pause: 0.25 s costs 1, a second 0.25; at the end of a sentence half of that."""
    cost = min(4.0, 0.25 / max(phrase.after.length_s, 0.01))
    return cost / 2 if phrase.ends_sentence else cost


def _cost_of_length(span: Span, min_s: float, max_s: float) -> float:
    if span.duration_s < min_s:
        return _TOO_SHORT_COST
    if span.duration_s > max_s:
        return _TOO_LONG_COST
    ends_sentences = all(phrase.ends_sentence for phrase in span.phrases)
    ideal_s = min(max(min_s, _IDEAL_S), max_s)
    # One sentence is a good clip whatever its length, if there are texts.
    if ends_sentences and len(span.phrases) == 1:
        return 0.0
    return 0.5 * ((span.duration_s - ideal_s) / ideal_s) ** 2 + 0.1 * len(span.phrases) * ends_sentences


def _make_span(phrases: Sequence[Phrase], min_s: float, max_s: float) -> Span:
    """Adds margins to the speech of a clip: up to the quietest place of a short pause, wider for a short clip."""
    before, after = phrases[0].before, phrases[-1].after
    speech_s = after.start_s - before.end_s
    margin_s = min(max(MARGIN_S, (min_s - speech_s) / 2 + 0.01), _SHORT_CLIP_MARGIN_S)
    margin_s = max(_MIN_MARGIN_S, min(margin_s, (max_s - speech_s) / 2))
    start_s = max(before.end_s - margin_s, before.cut_s if before.length_s < 2 * margin_s else before.start_s)
    end_s = min(after.start_s + margin_s, after.cut_s if after.length_s < 2 * margin_s else after.end_s)
    return Span(max(0.0, start_s), end_s, tuple(phrases))
