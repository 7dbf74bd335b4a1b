"""Combines the scores of clips into one doubt from 0 to 1 each, with its reasons.

Each score becomes a robust z-score among the clips of the same speaker: its distance from their median in units of
their spread (1.4826 times the median absolute deviation, which a few faulty clips do not move). Speakers with few clips
borrow from the spread of all. Only deviations in the bad direction count. `Reason` lists them; the doubt of a clip
grows with its strongest one, and a little with the others.

Shape legend: N clips, M mel bands, D width of a speaker embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from myxtts.tools.clips.scores import ClipScores
from myxtts.tools.words import mark

Doubles = NDArray[np.float64]
"""Values of all clips [N]."""
MAD_TO_DEVIATION = 1.4826
"""Of normally distributed values."""
_BORROWED = 10
"""Clips that the spread of all speakers counts for, beside a speaker's own."""
_HALF_DOUBT = 6.0
"""z-score at which the doubt is one half. Of 1,000 normally distributed scores none is so far off."""
_STEEPNESS = 1.2
_SHARE_OF_OTHERS = 0.3
"""Weight of the second reason and of those behind it, beside the first."""
_NO_MARGIN = 8.0
"""Evidence against a text that fits no better than decoys do."""
_CLEAR_MARGIN = 4.0
"""Usual margin of a speaker, in spreads of it, from which on a model tells texts apart; below, it counts for less."""
_SHARE_OF_GOODNESS = 0.3
"""Weight of the goodness of pronunciation beside the margin, which tells wrong texts apart better."""
_MOST_OF_A_PART = 6.0
"""z-score at which one sign of a cut end counts no more: a clip without silence at its end is not cut by that alone."""
_LEAST_SPREADS = {
    "goodness": 0.1,
    "tail_goodness": 0.15,
    "length_ratio": 0.04,
    "tail_ratio": 0.06,
    "token_error": 0.02,
    "rate": 0.3,
    "level_db": 1.0,
    "snr_db": 2.0,
    "end_db": 2.0,
    "f0": 0.1,
    "distance": 0.1,
}
"""Spreads of scores in their own units that a clip need not differ by less than: very even recordings, such as those of
a synthesiser, would have doubts about inaudible differences."""
_MOST_OF_DURATIONS = 8.0
"""z-score at which durations count no more."""
_SCORES = (
    *("margin", "fit", "goodness", "tail_goodness", "length_ratio", "tail_ratio", "token_error", "rate"),
    *("level_db", "noise_db", "end_db", "f0"),
)
"""Scores that are kept beside the doubt."""
_LEAST_REASON = 3.5
"""z-score from which on a reason is named."""


class Reason(StrEnum):
    """What may be wrong with a clip, in words for the screen; `fa.json` has the Persian."""

    TEXT = mark("the text does not fit the sound")
    CUT = mark("the end is cut off, or the text is too long")
    LONG = mark("there is more sound than text")
    VOICE = mark("it sounds like another speaker")
    NOISE = mark("it is noisier than the speaker's other clips")
    LEVEL = mark("it is louder or quieter than the speaker's other clips")
    DURATIONS = mark("sounds are held longer or shorter than usual")
    UNALIGNED = mark("the text has more sounds than the clip has frames")


@dataclass(frozen=True, slots=True)
class Finding:
    """The doubt about one clip, its reasons (the strongest first), the z-score of each, and the scores behind them."""

    id: str
    doubt: float
    reasons: tuple[Reason, ...]
    z_scores: dict[str, float]
    scores: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        z_scores = {name: round(value, 2) for name, value in self.z_scores.items()}
        scores = {name: round(value, 4) for name, value in self.scores.items()}
        reasons = [str(item) for item in self.reasons]
        return {"id": self.id, "doubt": round(self.doubt, 4), "reasons": reasons, "z": z_scores, "scores": scores}


def judge_clips(clips: Sequence[ClipScores], speakers: Sequence[str]) -> list[Finding]:
    """Returns the doubt about each clip, in the order of the clips; `speakers` names the speaker of each."""
    if not clips:
        return []
    evidence = _weigh(clips, np.unique(speakers, return_inverse=True)[1])
    names = list(evidence)
    strengths_KN = np.stack([np.maximum(evidence[name], 0.0) for name in names])
    ordered_KN = np.sort(strengths_KN, axis=0)[::-1]
    total_N = ordered_KN[0] + _SHARE_OF_OTHERS * np.sqrt(np.square(ordered_KN[1:]).sum(axis=0))
    doubts_N = 1 / (1 + np.exp((_HALF_DOUBT - total_N) / _STEEPNESS))
    findings = []
    for index, clip in enumerate(clips):
        found = sorted(names, key=lambda name: -evidence[name][index])
        reasons = tuple(name for name in found if evidence[name][index] >= _LEAST_REASON)
        figures = {name.name.lower(): float(evidence[name][index]) for name in names}
        scores = {name: float(getattr(clip, name)) for name in _SCORES}
        findings.append(Finding(clip.id, float(doubts_N[index]), reasons, figures, scores))
    return findings


def _weigh(clips: Sequence[ClipScores], speaker_N: NDArray[np.intp]) -> dict[Reason, Doubles]:
    """The z-scores [N] of each reason; what is larger is worse."""

    def standardize(name: str) -> Doubles:
        values_N = np.array([getattr(clip, name) for clip in clips], np.float64)
        return standardize_by_speaker(values_N, speaker_N, _LEAST_SPREADS[name])

    rate_N, level_N = np.abs(standardize("rate")), np.abs(standardize("level_db"))
    length_N, tail_N = standardize("length_ratio"), standardize("tail_ratio")
    cut = (-length_N, -tail_N, standardize("end_db"), -standardize("tail_goodness"))
    # Bounded: every other fault shows in the durations, too, and is to be named first.
    durations_N = np.minimum(np.maximum(standardize("token_error"), rate_N), _MOST_OF_DURATIONS)
    return {
        Reason.TEXT: _weigh_margins(np.array([clip.margin for clip in clips], np.float64), speaker_N)
        - _SHARE_OF_GOODNESS * np.clip(standardize("goodness"), -_MOST_OF_A_PART, _MOST_OF_A_PART),
        Reason.CUT: 0.5 * np.sum([np.clip(part_N, 0.0, _MOST_OF_A_PART) for part_N in cut], axis=0),
        Reason.LONG: np.maximum(length_N, 0.0),
        Reason.VOICE: _measure_strangeness(clips, speaker_N),
        Reason.NOISE: -standardize("snr_db"),
        Reason.LEVEL: 0.5 * level_N,
        Reason.DURATIONS: 0.5 * durations_N,
    }


def _weigh_margins(margin_N: Doubles, speaker_N: NDArray[np.intp]) -> Doubles:
    """Evidence against each text: 0 at the usual margin of its speaker, `_NO_MARGIN` where there is none.

    A z-score would not do: that of a text without any margin depends on how much right texts differ.
    """
    usual_N, spread_N = _describe_speakers(margin_N, speaker_N)
    weight_N = np.clip(usual_N / np.maximum(spread_N, 1e-3) / _CLEAR_MARGIN, 0.0, 1.0)
    missing_N: Doubles = np.clip(1 - margin_N / np.maximum(usual_N, 1e-3), -1.0, 1.0)
    return weight_N * _NO_MARGIN * missing_N


def standardize_by_speaker(values_N: Doubles, speaker_N: NDArray[np.intp], least_spread: float) -> Doubles:
    """Robust z-scores among the clips of each speaker; a spread below `least_spread` counts as that."""
    middle_N, spread_N = _describe_speakers(values_N, speaker_N, is_middle_borrowed=False)
    return (values_N - middle_N) / np.maximum(spread_N, least_spread)


def _describe_speakers(
    values_N: Doubles, speaker_N: NDArray[np.intp], *, is_middle_borrowed: bool = True
) -> tuple[Doubles, Doubles]:
    """Median and spread of each clip's speaker; speakers with few clips borrow from all."""
    middle_N, residual_N, spread_N = np.empty_like(values_N), np.empty_like(values_N), np.empty_like(values_N)
    speakers = [speaker_N == speaker for speaker in np.unique(speaker_N)]
    of_all = float(np.median(values_N))
    for is_own in speakers:
        middle_N[is_own] = own = np.median(values_N[is_own])
        residual_N[is_own] = values_N[is_own] - own
    spread_of_all = MAD_TO_DEVIATION * float(np.median(np.abs(residual_N)))
    for is_own in speakers:
        count = int(np.count_nonzero(is_own))
        own = MAD_TO_DEVIATION * float(np.median(np.abs(residual_N[is_own])))
        spread_N[is_own] = np.sqrt((count * own**2 + _BORROWED * spread_of_all**2) / (count + _BORROWED))
        if is_middle_borrowed:
            middle_N[is_own] = (count * middle_N[is_own] + _BORROWED * of_all) / (count + _BORROWED)
    return middle_N, spread_N


def _measure_strangeness(clips: Sequence[ClipScores], speaker_N: NDArray[np.intp]) -> Doubles:
    """z-score of the distance from the speaker: by the model's embedding, the mean spectrum, and F0."""
    voices_ND = np.stack([clip.voice for clip in clips]).astype(np.float64)
    spectra_NM = np.stack([clip.spectrum for clip in clips]).astype(np.float64)
    f0_N = np.array([clip.f0 for clip in clips], np.float64)
    embedding_N, spectrum_N = np.empty(len(clips)), np.empty(len(clips))
    for speaker in np.unique(speaker_N):
        is_own = speaker_N == speaker
        centre_D = np.median(voices_ND[is_own], axis=0)
        embedding_N[is_own] = 1 - voices_ND[is_own] @ centre_D / max(float(np.linalg.norm(centre_D)), 1e-6)
        difference_NM = spectra_NM[is_own] - np.median(spectra_NM[is_own], axis=0)
        spectrum_N[is_own] = np.sqrt(np.square(difference_NM).mean(axis=1))
    parts = [
        standardize_by_speaker(np.log(np.maximum(values, 1e-6)), speaker_N, _LEAST_SPREADS["distance"])
        for values in (embedding_N, spectrum_N)
    ]
    parts.append(np.abs(standardize_by_speaker(f0_N, speaker_N, _LEAST_SPREADS["f0"])))
    strangeness_N: Doubles = np.maximum(np.stack(parts), 0.0).sum(axis=0) * 0.6
    return strangeness_N
